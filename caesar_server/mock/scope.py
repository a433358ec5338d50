"""What one test sees of the mock: its own rules, counters, clock and defaults."""

from __future__ import annotations

import hashlib
import itertools
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Literal, TypeAlias, get_args

from caesar_server.mock.calls import asks_for_answer, one_prompt_each
from caesar_server.mock.clock import MockClock
from caesar_server.mock.faults.checking import check_fault
from caesar_server.mock.journal import Journal, Limits
from caesar_server.mock.matching.nearest import nearest_rules
from caesar_server.mock.matching.table import Order, RuleState, Table, holds
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import PLAIN_PACING, Pacing
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision, Nearest, ReplyFunction, Rule

#: What answers a call that no rule matches: its own prompt, an error, or always the same.
Fallback: TypeAlias = Literal["echo", "error"] | Reply
Resettable: TypeAlias = Literal["all", "journal", "counters"]
RESETTABLE = get_args(Resettable)

#: A rule with its reply, or neither and what came nearest.
_Found: TypeAlias = tuple[Rule | None, Reply | ReplyFunction | None, tuple[Nearest, ...]]

#: ``created_at`` of all jobs until the clock is turned by hand: 2023-11-14, 22:13:20 UTC.
EPOCH_S = 1_700_000_000
#: Faults after which there is no answer.
_INSTEAD = frozenset({"status", "hang", "reset", "half_headers"})
#: So many rules are looked at for those that came nearest, where the client is told of them ...
_MOST_COMPARED = 1000
#: ... and where only the journal is, as for each call that the fallback answers.
_MOST_COMPARED_IN_PASSING = 100
#: So many different calls are told apart by how often they came.
_MOST_CALLS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a scope treats calls, apart from its rules.

    :param seed: of all that is drawn or made up: ids, jitter, probabilities.  Same seed and same
        calls, same bytes.
    :param fallback: what answers a call that no rule matches.
    :param strict: such a call is an error, whatever ``fallback`` says.
    :param pacing: of replies that have none of their own.
    :param faults: for calls that match no fault rule.
    """

    seed: int = 0
    fallback: Fallback = "echo"
    strict: bool = False
    pacing: Pacing = PLAIN_PACING
    faults: tuple[Fault, ...] = ()


class Scope:
    """Rules and what became of them.  Safe for threads; counts exactly, however many calls come.

    ``strict``, ``fallback``, ``pacing`` and ``faults`` (see :class:`Manner`) may be set at any
    time; calls that are decided already keep what they got.

    :param name: as the client gives it; ``""`` for those that give none.
    :param manner: what it begins with, and returns to with ``reset("all")``.
    :param journal_limits: how much its journal keeps.
    """

    def __init__(
        self, name: str = "", manner: Manner | None = None, journal_limits: Limits | None = None
    ) -> None:
        self.name = name
        self.clock = MockClock()
        self.journal = Journal(
            journal_limits, monotonic=self.clock.monotonic, wall_time=self.clock.time
        )
        self._manner = manner or Manner()
        self._lock = threading.Lock()
        self._table = Table()
        self._came: dict[bytes, int] = {}
        self._epoch = 0
        self._calls = itertools.count(1)
        self._take_manner()

    @property
    def manner(self) -> Manner:
        """What it returns to with ``reset("all")``."""
        return self._manner

    def set_manner(self, manner: Manner) -> None:
        """Change what it returns to with ``reset("all")``, and now what differs from before."""
        with self._lock:
            before, self._manner = self._manner, manner
        for field in fields(Manner):
            value = getattr(manner, field.name)
            if value != getattr(before, field.name):
                setattr(self, field.name, value)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What goes wrong in calls that match no fault rule.

        Setting it raises a ``ValueError`` for a fault with fields that are not its kind's.
        """
        return self._default_faults

    @faults.setter
    def faults(self, faults: Iterable[Fault]) -> None:
        self._default_faults = tuple(map(check_fault, faults))

    @property
    def seed(self) -> int:
        """The seed; setting it forgets which calls came, so that ids and draws begin anew."""
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        with self._lock:
            self._seed = seed
            self._forget_calls()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in the order in which they are tried: fault rules, then reply rules."""
        return tuple(state.rule for state in self.states())

    def states(self) -> tuple[RuleState, ...]:
        """Return the rules with their counters, in the order in which they are tried."""
        with self._lock:
            return self._table.states()

    def rule(self, rule_id: str) -> Rule | None:
        """Return a rule by its id."""
        with self._lock:
            entry = self._table.find(rule_id)
            return None if entry is None else entry.rule

    def uses(self, rule_id: str) -> int:
        """Return how often a rule was used; 0 for one that is not there."""
        with self._lock:
            entry = self._table.find(rule_id)
            return 0 if entry is None else entry.used

    def add(self, rule: Rule) -> Rule:
        """Add a rule after all others of its priority, and return it with its id.

        :param rule: one without an id is given the next free of ``r1``, ``r2``, ...
        :raises ValueError: if its id is taken, or it has neither or both of replies and faults.
        """
        return self.add_all([rule])[0]

    def add_all(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Add several rules at once, or none of them.

        :raises ValueError: as :meth:`add`.
        """
        with self._lock:
            return self._table.add(rules)

    def replace(self, rule: Rule) -> None:
        """Put a rule in the place of the one with its id; its counters begin anew.

        :raises KeyError: if there is none.
        :raises ValueError: if it has neither or both of replies and faults.
        """
        with self._lock:
            self._table.replace(rule)

    def remove(self, rule_id: str) -> bool:
        """Remove a rule; False if it is not there."""
        with self._lock:
            return self._table.remove(rule_id)

    def clear(self) -> None:
        """Remove all rules but those of the fixture files."""
        with self._lock:
            self._table.clear()

    def set_files(self, rules: Iterable[Rule]) -> None:
        """Replace all rules that came from fixture files by these.

        Of equal priority they are tried after the scope's own; one whose id the scope has itself is
        left out.  A rule that says the same as the one with its id before keeps its counters.

        :raises ValueError: if two of them have one id, or as :meth:`add`; the rules are then as
            before.
        """
        with self._lock:
            self._table.set_files(rules)

    def reset(self, what: Resettable = "all") -> None:
        """Forget.

        :param what: ``counters``: how often rules were used and which calls came, so that
            sequences, ids and draws begin anew; ``journal``: the journal's entries; ``all``: both,
            the scope's own rules, what was set, and how the clock was turned.
        :raises ValueError: for anything else.
        """
        if what not in RESETTABLE:
            raise ValueError(f"what: expected one of {', '.join(RESETTABLE)}, got {what!r}")
        if what in ("all", "counters"):
            with self._lock:
                if what == "all":
                    self._table.clear()
                    self._take_manner()
                self._table.reset()
                self._forget_calls()
        if what in ("all", "journal"):
            self.journal.reset()
        if what == "all":
            self.clock.reset()

    def decide(
        self, call: Call, *, strict: bool | None = None, faults: Sequence[Fault] | None = None
    ) -> Decision:
        """Return what is to be done with a call, and count it for the rules that it uses.

        The first fault rule that matches is used, if chance lets any of its faults happen, then the
        first reply rule, for each prompt of its own.  Conditions are tried outside of all locks.

        :param strict: instead of the scope's.
        :param faults: instead of those of fault rules, which are then not used, and of the scope.
        :raises Exception: whatever a predicate raises.
        """
        seed = self._draw_seed(call)
        with self._lock:
            order = self._table.order()
        happening = self._faults(order, call, seed, faults)
        if not asks_for_answer(call) or any(fault.kind in _INSTEAD for fault, _ in happening):
            return Decision(faults=happening, seed=seed, pacing=self.pacing)
        strict = self.strict if strict is None else strict
        found = [self._reply(order, one, strict=strict) for one in one_prompt_each(call)]
        first, *rest = (
            Decision(
                faults=() if position else happening,
                rule=rule,
                reply=reply,
                nearest=nearest,
                seed=seed,
                pacing=self.pacing,
            )
            for position, (rule, reply, nearest) in enumerate(found)
        )
        return replace(first, rest=tuple(rest)) if rest else first

    def new_call_id(self) -> str:
        """Return an id for a call, unique in all scopes of a server and never used again."""
        number = next(self._calls)
        return f"{self.name}-{number}" if self.name else str(number)

    def stamp(self, decision: Decision | None = None) -> tuple[str, float]:
        """Return id (a UUID) and creation time (Unix seconds) of the job for a call.

        :param decision: on the call; None for a job that no call asked for.
        """
        seed = self._draw_seed(Call()) if decision is None else decision.seed
        # the name too, or equal calls of two scopes would be one job
        digest = hashlib.blake2b(f"{seed}|{self.name}".encode(), digest_size=16).digest()
        return str(uuid.UUID(bytes=digest, version=4)), EPOCH_S + self.clock.turned_s

    def _take_manner(self) -> None:
        manner = self._manner
        self._seed = manner.seed
        self.strict = manner.strict
        self.fallback: Fallback = manner.fallback
        self.pacing = manner.pacing
        self.faults = manner.faults

    def _forget_calls(self) -> None:
        self._came.clear()
        self._epoch = 0

    def _draw_seed(self, call: Call) -> int:
        """Return a number that only seed, call and how often the call came before decide.

        So calls that come at once get the same in whatever order they arrive.
        """
        content = call.raw_body or repr(call.request).encode("utf-8", "surrogatepass")
        place = f"{call.method} {call.path}\n".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(place + content, digest_size=16).digest()
        with self._lock:
            if digest not in self._came and len(self._came) >= _MOST_CALLS:
                self._came.clear()
                self._epoch += 1
            count = self._came[digest] = self._came.get(digest, 0) + 1
            text = f"{self._seed}|{self._epoch}|{count}|".encode()
        return int.from_bytes(hashlib.blake2b(text + digest, digest_size=8).digest(), "big")

    def _faults(
        self, order: Order, call: Call, seed: int, given: Sequence[Fault] | None
    ) -> tuple[tuple[Fault, Rule | None], ...]:
        if given is not None:
            return _happening(given, None, seed)
        for entry in order.faults:
            if any(holds(entry.rule, one) for one in one_prompt_each(call)):
                happening = _happening(entry.rule.faults, entry.rule, seed)
                with self._lock:
                    if entry.take(used=bool(happening)) is not None:
                        return happening
        return _happening(self._default_faults, None, seed)

    def _reply(self, order: Order, call: Call, *, strict: bool) -> _Found:
        """Return rule and reply, or fallback and nearest rules, for a call of one prompt."""
        for entry in order.for_prompt(call.prompt):
            if holds(entry.rule, call):
                with self._lock:
                    turn = entry.take()
                if turn is not None:
                    replies = entry.rule.replies
                    return entry.rule, replies[min(turn, len(replies) - 1)], ()
        reply = self._fallback(call, strict)
        most = _MOST_COMPARED if reply is None else _MOST_COMPARED_IN_PASSING
        return None, reply, self._nearest(order, call, most)

    def _fallback(self, call: Call, strict: bool) -> Reply | ReplyFunction | None:
        fallback = self.fallback
        if strict or fallback == "error":
            return None
        return Reply(text=call.prompt or "") if fallback == "echo" else fallback

    def _nearest(self, order: Order, call: Call, most: int) -> tuple[Nearest, ...]:
        if not order.replies:
            return ()
        with self._lock:
            states = [entry.state() for entry in order.replies[:most]]
        return nearest_rules(states, call)


def _happening(
    faults: Iterable[Fault], rule: Rule | None, seed: int
) -> tuple[tuple[Fault, Rule | None], ...]:
    """Return the faults that chance lets happen."""
    who = "" if rule is None else rule.id
    return tuple(
        (fault, rule)
        for number, fault in enumerate(faults)
        if fault.probability >= 1 or Random(f"{seed}|{who}|{number}").random() < fault.probability
    )
