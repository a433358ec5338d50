"""Rules: when something applies, and what is done then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import msgspec

from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import PLAIN_PACING, Pacing
from caesar_server.mock.model.reply import Reply

#: Makes the reply from the call; may raise a ``BackendError``, which the client is told, or
#: anything else, which is a 500 as with any backend.  Called in the thread of the run.
ReplyFunction: TypeAlias = Callable[[Call], Reply | str]


#: Characters that are shown of a value.
LONGEST_SHOWN = 200


def shortened(text: str) -> str:
    """Return a text for people, in at most :data:`LONGEST_SHOWN` characters."""
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that a rule asks of a call.

    :param field: what it looks at: ``prompt``, ``header x-team``, ``path``, ...
    :param wanted: for people: ``contains 'quantum'``.
    :param holds: whether the call has it.
    :param seen: what the call has instead, for people; at most 200 characters, never a secret.
    :param exact_prompt: the prompt that it asks for, if it asks for exactly that: thousands of such
        rules are then found by one look.
    :param differs: where what the call has first differs from what is wanted, such as
        ``[0].content: wanted 'Hi', got 'Hello'``; None: nobody can say it better than by both.
    """

    field: str
    wanted: str
    holds: Callable[[Call], bool]
    seen: Callable[[Call], str]
    exact_prompt: str | None = None
    differs: Callable[[Call], str] | None = None

    def __str__(self) -> str:
        return f"{self.field} {shortened(self.wanted)}"

    def lack(self, call: Call) -> str:
        """Return what a call lacks for which it does not hold: ``FIELD: wanted ..., got ...``."""
        if self.differs is not None:
            return f"{self.field}{self.differs(call)}"
        return f"{self.field}: wanted {shortened(self.wanted)}, got {self.seen(call)}"


# one line for each in a failed test: what the dataclass would show has functions in it
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Rule:
    """A rule of a scope; how often it was used is the scope's knowledge.

    A rule with ``faults`` is a fault rule, one with ``replies`` a reply rule; never both.

    :param id: unique in its scope; ``""`` for a rule that has not been added yet.
    :param name: for people; ``""`` shows the conditions.
    :param conditions: all must hold; none: every call.
    :param replies: used in turn, the last one again and again; a reply or a function that makes it.
    :param faults: all are applied, in this order.
    :param times: used at most so often, 0: never, then the rule no longer matches; None: without
        end.
    :param skip: the first so many calls that match are let pass.
    :param priority: a higher one is tried earlier; of equal ones the rule that was added first.
    :param source: ``FILE:LINE`` where it was written, in a fixture file or a test; ``""`` if it
        came over HTTP.
    :param definition: as it was written in a file or sent to the control API; None for a rule that
        was made in Python.
    """

    id: str = ""
    name: str = ""
    conditions: tuple[Condition, ...] = ()
    replies: tuple[Reply | ReplyFunction, ...] = ()
    faults: tuple[Fault, ...] = ()
    times: int | None = None
    skip: int = 0
    priority: int = 0
    source: str = ""
    definition: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        does = ", ".join(fault.kind for fault in self.faults) or _count(self.replies)
        told = [f"{self.label}: {self.asked}: {does}"]
        told += [f"times {self.times}"] if self.times is not None else []
        told += [f"skip {self.skip}"] if self.skip else []
        told += [f"priority {self.priority}"] if self.priority else []
        return f"<Rule {', '.join(told)}>"

    @property
    def asked(self) -> str:
        """Its conditions, for people."""
        return ", ".join(map(str, self.conditions)) or "every request"

    @property
    def label(self) -> str:
        """Its name, or else its id, and where it was written: ``'r1' (test_app.py:6)``."""
        return label(self.name or self.id, self.source)


def _count(replies: Sequence[object]) -> str:
    return "a reply" if len(replies) == 1 else f"{len(replies)} replies in turn"


def label(name: str, source: str) -> str:
    """Return what a rule is called, for people: ``'r1' (test_app.py:6)``."""
    return f"{name!r} ({source})" if source else repr(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A rule that did not match, and why.

    :param failed: for people, such as ``prompt: wanted contains 'quantum', got 'Hello'``.
    """

    rule: Rule
    failed: tuple[str, ...]


class Use(Protocol):
    """What a call took of a rule: a use, or one of the calls that the rule lets pass."""

    @property
    def rule(self) -> Rule:
        """The rule."""

    def give_back(self) -> None:
        """Count it no more; to be called once at most, by the holder of the scope's lock."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with a call: made once for each, before anything runs.

    :param faults: those that happen, with the rule that asks for each (None: a header or the
        scope's default).
    :param rule: the reply rule that matched, or None: the fallback answers.
    :param reply: what to answer; None: nothing matched and the scope is strict, a fault comes
        instead of the answer (no reply rule is used then), or nobody asks for an answer.
    :param nearest: if nothing matched: the rules that came closest, the best first, at most 3.
    :param rest: of a completion with several prompts: the decisions for the second and the
        following; all faults are in the first.
    :param seed: for whatever is drawn in this call; 64 bits.
    :param pacing: of a reply that has none of its own.
    :param uses: what was counted for it, to be given back if the server refuses the call.
    """

    faults: tuple[tuple[Fault, Rule | None], ...] = ()
    rule: Rule | None = None
    reply: Reply | ReplyFunction | None = None
    nearest: tuple[Nearest, ...] = ()
    rest: tuple[Decision, ...] = ()
    seed: int = 0
    pacing: Pacing = PLAIN_PACING
    uses: tuple[Use, ...] = ()
