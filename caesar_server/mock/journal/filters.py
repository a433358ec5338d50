"""Which entries somebody wants to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from caesar_server.mock.calls import one_prompt_each
from caesar_server.mock.journal.entry import FAULT_PREFIX, Entry
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.rule import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """What an entry must have; everything at its default takes every entry.

    :param conditions: what the call must have: the same as those of rules.
    :param rule: id or name of the reply rule that matched.
    :param fault: a kind of fault that must have happened.
    :param status: of the answer.
    :param ended: how it ended, such as ``completed`` or ``fault:reset``; ``fault`` takes all
        faults, ``open`` what goes on.
    :param group: id of the first attempt.
    """

    conditions: tuple[Condition, ...] = ()
    rule: str | None = None
    fault: str | None = None
    status: int | None = None
    ended: str | None = None
    group: str | None = None

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
        parts = [f"{condition.field} {condition.wanted}" for condition in self.conditions]
        parts += [f"{name} {value!r}" for name, value in self._outcomes()]
        return ", ".join(parts) or "any request"

    def _holds(self, call: Call) -> bool:
        return all(condition.holds(call) for condition in self.conditions)

    def _failures(self, call: Call) -> list[str]:
        return [
            f"{condition.field}: wanted {condition.wanted}, got {condition.seen(call)}"
            for condition in self.conditions
            if not condition.holds(call)
        ]

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
    if entry.rule is None:
        return False, "no rule"
    return wanted in (entry.rule.id, entry.rule.name), repr(entry.rule.name or entry.rule.id)


def _fault(entry: Entry, wanted: object) -> tuple[bool, str]:
    kinds = [fault.kind for fault in entry.faults]
    return wanted in kinds, ", ".join(kinds) or "no fault"


def _status(entry: Entry, wanted: object) -> tuple[bool, str]:
    return entry.status == wanted, "no answer" if entry.status is None else str(entry.status)


def _ended(entry: Entry, wanted: object) -> tuple[bool, str]:
    ended = entry.ended or "open"
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

#: Takes every entry.
EVERYTHING = EntryFilter()
