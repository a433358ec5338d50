"""What a test asks of the requests that came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from caesar_server.mock.journal import Entry, EntryFilter
from caesar_server.mock.matching import Matcher, conditions
from caesar_server.mock.matching.asked import FIELDS
from caesar_server.mock.model.call import Call
from caesar_server.registry import nearest

#: What an :class:`EntryFilter` knows of the answer.
_OUTCOMES = frozenset(field.name for field in fields(EntryFilter)) - {"conditions"}
#: Of a prompt, in one line.
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Asked:
    """What was given to a question about requests.

    :param wanted: conditions of rules and outcomes, by name.
    """

    predicates: tuple[Matcher | Callable[[Call], object], ...]
    wanted: Mapping[str, Any]

    @property
    def looks_at_outcome(self) -> bool:
        """Whether it depends on what became of the requests."""
        return not _OUTCOMES.isdisjoint(self.wanted)


def as_filter(asked: Asked, *arguments: str) -> EntryFilter:
    """Return the journal's filter for a question.

    :param arguments: what else the method takes by name.
    :raises TypeError: for a name that neither conditions nor outcomes have, or a number.
    """
    known = (*FIELDS, *sorted(_OUTCOMES), *arguments)
    for name in asked.wanted:
        if name not in known:
            raise TypeError(f"unknown condition {name!r}; {nearest(name, known)}")
    given: Any  # tests are seldom checked for their types
    for given in asked.predicates:
        if isinstance(given, int) and "times" in arguments:
            raise TypeError(f"predicate: expected a function, got {given}; write times={given}")
    outcomes = {name: value for name, value in asked.wanted.items() if name in _OUTCOMES}
    others = {name: value for name, value in asked.wanted.items() if name not in _OUTCOMES}
    return EntryFilter(conditions=conditions(*asked.predicates, **others), **outcomes)


def describe(entries: Iterable[Entry]) -> str:
    """Return requests, one a line: what was asked, which rule answered, how it ended."""
    return "\n".join(map(_line, entries)) or "no requests"


def _line(entry: Entry) -> str:
    call = entry.call
    parts = [f"{entry.number}. {call.method} {call.path}", _shown(call.prompt)]
    parts.append("no answer" if entry.status is None else str(entry.status))
    parts += [f"fault {fault.kind}" for fault in entry.faults]
    parts += [f"fault {kind} not reached" for kind in entry.missed]
    if entry.rule is not None:
        parts.append(f"rule {entry.rule.label}")
    elif entry.decided and not entry.faults and call.prompt is not None:
        parts.append("no rule")  # of the others, such as a list of models, none is asked
    parts.append(entry.ended or "goes on")
    return "  ".join(filter(None, parts))


def _shown(prompt: str | None) -> str:
    if prompt is None:
        return ""
    short = prompt if len(prompt) <= _SHOWN_CHARACTERS else prompt[:_SHOWN_CHARACTERS] + "..."
    return repr(short)
