"""Which entries somebody wants to see."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from caesar_server.mock.calls import one_prompt_each
from caesar_server.mock.journal.entry import (
    CLIENT_LEFT,
    COMPLETED,
    FAILED,
    FAULT_PREFIX,
    Entry,
)
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import FaultKind
from caesar_server.mock.model.rule import Condition

#: Stands for the end of what goes on.
_OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """What an entry must have; everything at its default takes every entry.

    :param conditions: what the call must have: the same as those of rules.
    :param rule: id or name of a rule that was used: one with replies that matched, or one with a
        fault that happened.
    :param fault: a kind of fault that must have happened.
    :param status: of the answer.
    :param ended: how it ended, such as ``completed`` or ``fault:reset``; ``fault`` takes all
        faults, ``open`` what goes on.
    :param group: id of the first attempt.
    :raises ValueError: naming the field, for what no entry can have: that nothing is found is as a
        rule what a test hopes for.
    """

    conditions: tuple[Condition, ...] = ()
    rule: str | None = None
    fault: str | None = None
    status: int | None = None
    ended: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        for name, wanted in self._outcomes():
            _CHECKS[name](name, wanted)

    def matches(self, entry: Entry) -> bool:
        """Return whether ``entry`` has all of it."""
        return self.matches_outcome(entry) and self.matches_call(entry)

    def matches_call(self, entry: Entry) -> bool:
        """Return whether its call meets the conditions, which does not change any more.

        A call of several prompts does if it meets them with one of these.
        """
        return any(self._holds(call) for call in one_prompt_each(entry.original))

    def matches_outcome(self, entry: Entry) -> bool:
        """Return whether what became of it is what is wanted, which may change."""
        return not any(self._outcome_failures(entry))

    def failures(self, entry: Entry) -> tuple[str, ...]:
        """Return what ``entry`` does not have, each as ``FIELD: wanted ..., got ...``."""
        # of several prompts that which comes closest
        found = min((self._failures(call) for call in one_prompt_each(entry.original)), key=len)
        return (*found, *filter(None, self._outcome_failures(entry)))

    def describe(self) -> str:
        """Return the whole filter in one line, for people."""
        parts = list(map(str, self.conditions))
        parts += [f"{name} {value!r}" for name, value in self._outcomes()]
        return ", ".join(parts) or "any request"

    def _holds(self, call: Call) -> bool:
        return all(condition.holds(call) for condition in self.conditions)

    def _failures(self, call: Call) -> list[str]:
        return [one.lack(call) for one in self.conditions if not one.holds(call)]

    def _outcomes(self) -> list[tuple[str, object]]:
        names = ("rule", "fault", "status", "ended", "group")
        pairs = [(name, getattr(self, name)) for name in names]
        return [(name, value) for name, value in pairs if value is not None]

    def _outcome_failures(self, entry: Entry) -> list[str]:
        found = []
        for name, wanted in self._outcomes():
            has, got = _LOOKS[name](entry, wanted)
            if not has:
                found.append(f"{name}: wanted {wanted!r}, got {got}")
        return found


def _rule(entry: Entry, wanted: object) -> tuple[bool, str]:
    used = [(fault.rule, fault.rule_name) for fault in entry.faults if fault.rule]
    if entry.rule is not None:
        used.append((entry.rule.id, entry.rule.name))
    got = ", ".join(repr(name or id) for id, name in used) or "no rule"
    return any(wanted in names for names in used), got


def _fault(entry: Entry, wanted: object) -> tuple[bool, str]:
    kinds = [fault.kind for fault in entry.faults]
    missed = f"; the answer does not reach {', '.join(entry.missed)}" if entry.missed else ""
    return wanted in kinds, (", ".join(kinds) or "no fault") + missed


def _status(entry: Entry, wanted: object) -> tuple[bool, str]:
    return entry.status == wanted, "no answer" if entry.status is None else str(entry.status)


def _ended(entry: Entry, wanted: object) -> tuple[bool, str]:
    ended = entry.ended or _OPEN
    short = "fault" if ended.startswith(FAULT_PREFIX) else ended
    return wanted in (ended, short), repr(ended)


def _group(entry: Entry, wanted: object) -> tuple[bool, str]:
    return entry.group == wanted, repr(entry.group)


_LOOKS: dict[str, Callable[[Entry, object], tuple[bool, str]]] = {
    "rule": _rule,
    "fault": _fault,
    "status": _status,
    "ended": _ended,
    "group": _group,
}


def _check_text(name: str, wanted: object) -> None:
    if not isinstance(wanted, str):
        raise ValueError(f"{name}: expected a text, got {wanted!r}")


def _check_status(name: str, wanted: object) -> None:
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 100 <= wanted <= 599:
        raise ValueError(f"{name}: expected a whole number from 100 to 599, got {wanted!r}")


def _check_fault(name: str, wanted: object) -> None:
    _check_known(name, wanted, _FAULTS)


def _check_ended(name: str, wanted: object) -> None:
    _check_known(name, wanted, _ENDS)


def _check_known(name: str, wanted: object, known: Sequence[str]) -> None:
    if wanted not in known:
        near = difflib.get_close_matches(str(wanted), known, 1)
        cure = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise ValueError(f"{name}: unknown value {wanted!r}; {cure}")


_FAULTS: Sequence[str] = tuple(kind for part in get_args(FaultKind) for kind in get_args(part))
_ENDS = (
    COMPLETED,
    CLIENT_LEFT,
    FAILED,
    _OPEN,
    FAULT_PREFIX.rstrip(":"),
    *(f"{FAULT_PREFIX}{kind}" for kind in _FAULTS),
)
_CHECKS: dict[str, Callable[[str, object], None]] = {
    "rule": _check_text,
    "fault": _check_fault,
    "status": _check_status,
    "ended": _check_ended,
    "group": _check_text,
}

#: Takes every entry.
EVERYTHING = EntryFilter()
