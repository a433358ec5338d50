"""What a rule of the suite is, how it can turn out, and the report of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from caesar_server.testing.conformance.subject import Subject


@dataclass(frozen=True, slots=True)
class Pass:
    """The rule holds."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The rule could not be tried, or says nothing about this backend.

    :param why: a clause such as ``"it does not declare n"``.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The rule is broken.

    :param seen: what happened.
    :param expected: what should have.
    """

    seen: str
    expected: str


class Inapplicable(Exception):
    """Raised by a check in place of returning :class:`Skip`; the message is its ``why``."""


Outcome: TypeAlias = Pass | Skip | Fail
Check: TypeAlias = Callable[["Subject"], Outcome]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the contract and how to find out whether a backend keeps it.

    :param id: its stable name, such as ``events.terminal``.
    :param sentence: the rule.
    :param reason: what goes wrong for clients or the server where it is broken.
    :param check: tries it.
    :param needs: rules without which this one says nothing; if one of them failed, it is skipped.
    """

    id: str
    sentence: str
    reason: str
    check: Check
    needs: tuple[str, ...] = ()


def rule(id: str, reason: str, *, needs: tuple[str, ...] = ()) -> Callable[[Check], Rule]:
    """Make the decorated function the check of a :class:`Rule` whose sentence is its docstring."""

    def make(check: Check) -> Rule:
        return Rule(id, (check.__doc__ or "").strip(), reason, check, needs)

    return make


@dataclass(frozen=True, slots=True)
class Result:
    """How one rule turned out.

    :param rule: the rule's id.
    :param sentence: the rule.
    :param reason: why it exists.
    :param outcome: ``skip``: it says nothing about this backend, or could not be tried.
    :param detail: for ``fail`` what was seen and expected, for ``skip`` why, else empty.
    """

    rule: str
    sentence: str
    reason: str
    outcome: Literal["pass", "skip", "fail"]
    detail: str = ""

    @classmethod
    def of(cls, rule: Rule, outcome: Outcome) -> Result:
        """Return the result of a rule from its outcome."""
        if isinstance(outcome, Fail):
            detail = f"seen: {outcome.seen}; expected: {outcome.expected}"
            return cls(rule.id, rule.sentence, rule.reason, "fail", detail)
        if isinstance(outcome, Skip):
            return cls(rule.id, rule.sentence, rule.reason, "skip", outcome.why)
        return cls(rule.id, rule.sentence, rule.reason, "pass")


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all rules, in the order of the suite.  ``str()`` makes a text of it.

    :param backend: ``module:Class``.
    """

    backend: str
    results: tuple[Result, ...]

    @property
    def failed(self) -> bool:
        """Whether any rule is broken."""
        return any(result.outcome == "fail" for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return {
            "backend": self.backend,
            "failed": self.failed,
            "results": [
                {
                    "rule": result.rule,
                    "sentence": result.sentence,
                    "reason": result.reason,
                    "outcome": result.outcome,
                    "detail": result.detail,
                }
                for result in self.results
            ],
        }

    def __str__(self) -> str:
        return self.text()

    def text(self, *, failures_only: bool = False) -> str:
        """Return the report for people: a line for each result, and the count of all."""
        counts = Counter(result.outcome for result in self.results)
        shown = [one for one in self.results if one.outcome == "fail" or not failures_only]
        lines = [self.backend, *map(_render, shown)]
        lines.append(f"{counts['pass']} passed, {counts['skip']} skipped, {counts['fail']} failed")
        return "\n".join(lines)


def _render(result: Result) -> str:
    line = f"{result.outcome}  {result.rule:28} {result.sentence}"
    if result.outcome == "skip":
        return f"{line} ({result.detail})"
    if result.outcome == "fail":
        return f"{line}\n      {result.detail}\n      why it matters: {result.reason}"
    return line
