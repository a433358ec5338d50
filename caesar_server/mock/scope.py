"""What one test sees of the mock: its own rules, counters, clock and defaults."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

import msgspec

from caesar_server.mock.calls import asks_for_answer, one_prompt_each
from caesar_server.mock.clock import MockClock
from caesar_server.mock.course import Courses
from caesar_server.mock.drawing import Seeds, drawn_uuid, happening
from caesar_server.mock.faults.checking import check_fault
from caesar_server.mock.journal import Journal, Limits
from caesar_server.mock.matching.nearest import nearest_rules
from caesar_server.mock.matching.table import Entry, Order, RuleState, Table, Taken, holds
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import PLAIN_PACING, Pacing
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision, Nearest, ReplyFunction, Rule, Use
from caesar_server.mock.owners import Belongings, Owners

#: What answers a call that no rule matches: its own prompt, an error, or always the same.
Fallback: TypeAlias = Literal["echo", "error"] | Reply
Resettable: TypeAlias = Literal["all", "journal", "counters"]
RESETTABLE = get_args(Resettable)

#: A rule with its reply, or neither and what came nearest.
_Found: TypeAlias = tuple[Rule | None, Reply | ReplyFunction | None, tuple[Nearest, ...]]

#: ``created_at`` of all jobs until the clock is turned by hand: 2023-11-14, 22:13:20 UTC.
EPOCH_S = 1_700_000_000
#: By so much each job of a scope is younger than the one before, in seconds: lists are by age.
_APART_S = 1e-6
#: Faults after which there is no answer.
_INSTEAD = frozenset({"status", "hang", "reset", "half_headers"})
#: So many rules are looked at for those that came nearest, where the client is told of them ...
_MOST_COMPARED = 1000
#: ... and where only the journal is, as for each call that the fallback answers.
_MOST_COMPARED_IN_PASSING = 100


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
    :param courses: of the jobs of all scopes of the server.
    :param new_owner: makes another one each time; None: the scope is alone.
    :ivar belongings: what its calls have made; removed when it is reset or closed.
    :ivar owner: whose its jobs and files are, besides the caller's account: no other scope sees
        them, nor does this one after ``reset("all")``.
    """

    def __init__(
        self,
        name: str = "",
        manner: Manner | None = None,
        journal_limits: Limits | None = None,
        courses: Courses | None = None,
        new_owner: Callable[[str], str] | None = None,
    ) -> None:
        self.name = name
        self._new_owner = new_owner or Owners().new
        self.owner = self._new_owner(name)
        self.belongings = Belongings(name)
        self._courses = Courses() if courses is None else courses
        self.clock = MockClock()
        self.journal = Journal(
            journal_limits, monotonic=self.clock.monotonic, wall_time=self.clock.time
        )
        self._manner = manner or Manner()
        self._lock = threading.Lock()
        self._table = Table()
        self._seeds = Seeds()
        self._jobs = itertools.count()
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
        return self._seeds.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        with self._lock:
            self._begin_anew(seed)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in the order in which they are tried: fault rules, then reply rules."""
        return tuple(state.rule for state in self.states())

    def states(self) -> tuple[RuleState, ...]:
        """Return the rules with their counters, in the order in which they are tried."""
        with self._lock:
            return self._table.states()

    def state(self, rule_id: str) -> RuleState | None:
        """Return a rule by its id, with its counters."""
        with self._lock:
            entry = self._table.find(rule_id)
            return None if entry is None else entry.state()

    def uses(self, rule_id: str) -> int:
        """Return how often a rule was used; 0 for one that is not there."""
        state = self.state(rule_id)
        return 0 if state is None else state.used

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
            the scope's own rules, what was set, how the clock was turned, and its belongings; what
            waits goes on at once.
        :raises ValueError: for anything else.
        """
        if what not in RESETTABLE:
            raise ValueError(f"what: expected one of {', '.join(RESETTABLE)}, got {what!r}")
        if what in ("all", "counters"):
            with self._lock:
                if what == "all":
                    self._table.clear()
                    self._take_manner()
                    self.owner = self._new_owner(self.name)
                self._table.reset()
                self._begin_anew(self._seeds.seed)
            self._courses.release(self)
        if what in ("all", "journal"):
            self.journal.reset()
        if what == "all":
            self.clock.reset()
            self.belongings.remove_all()

    def decide(
        self, call: Call, *, strict: bool | None = None, faults: Sequence[Fault] | None = None
    ) -> Decision:
        """Return what is to be done with a call, and count it for the rules that it uses.

        The first fault rule that matches is used, if chance lets any of its faults happen, then the
        first reply rule, for each prompt of its own.  If one prompt has no reply, none is answered
        and no reply rule is used.  Conditions are tried outside of all locks.

        Uses are taken here, before anybody knows whether the server will refuse the call, and
        :meth:`give_back` returns them.  Until then other calls see them as taken: they get the next
        reply of a sequence, or pass by a rule whose ``times`` are used up.

        :param strict: instead of the scope's.
        :param faults: instead of those of fault rules, which are then not used, and of the scope.
        :raises Exception: whatever a predicate raises; nothing is used then.
        """
        seed = self._seeds.draw(call)
        with self._lock:
            order = self._table.order()
        uses: list[Taken] = []
        try:
            faulty = self._faults(order, call, seed, faults, uses)
            if any(fault.kind in _INSTEAD for fault, _ in faulty) or not asks_for_answer(call):
                return Decision(faults=faulty, seed=seed, pacing=self.pacing, uses=tuple(uses))
            strict = self.strict if strict is None else strict
            found = self._replies(order, one_prompt_each(call), uses, strict=strict)
        except Exception:
            self.give_back(uses)
            raise
        first, *rest = [
            Decision(
                faults=() if place else faulty,
                rule=rule,
                reply=reply,
                nearest=nearest,
                seed=seed,
                pacing=self.pacing,
                uses=() if place else tuple(uses),
            )
            for place, (rule, reply, nearest) in enumerate(found)
        ]
        return msgspec.structs.replace(first, rest=tuple(rest)) if rest else first

    def give_back(self, uses: Iterable[Use]) -> None:
        """Count what a refused call took no more: the next calls take it, the first turns first.

        After a reset of the counters there is nothing to give back.
        """
        with self._lock:
            for use in uses:
                use.give_back()

    def new_call_id(self) -> str:
        """Return an id for a call, unique in all scopes of a server and never used again."""
        number = next(self._calls)
        return f"{self.name}-{number}" if self.name else str(number)

    def close(self) -> None:
        """End what waits, for nobody will turn the clock or poll any more."""
        self._courses.release(self)
        self.clock.close()
        self.belongings.remove_all()

    def stamp(self, decision: Decision | None = None, place: int = 1) -> tuple[str, float]:
        """Return id (a UUID) and creation time (Unix seconds) of the job for a call.

        :param decision: on the call; None for a job that no call asked for.
        :param place: 1 for the first thing that the call makes, 2 for the next.
        """
        seed = self._seeds.draw(Call()) if decision is None else decision.seed
        # the name too, or equal calls of two scopes would be one job
        told = f"{seed}|{self.name}" + (f"|{place}" if place > 1 else "")
        digest = hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return drawn_uuid(digest), self.now_s + next(self._jobs) * _APART_S

    @property
    def now_s(self) -> float:
        """The time of what the scope's calls make: it stands until the clock is turned by hand."""
        return EPOCH_S + self.clock.turned_s

    def _take_manner(self) -> None:
        manner = self._manner
        self._begin_anew(manner.seed)
        self.strict = manner.strict
        self.fallback: Fallback = manner.fallback
        self.pacing = manner.pacing
        self.faults = manner.faults

    def _begin_anew(self, seed: int) -> None:
        self._seeds.forget(seed)
        self._jobs = itertools.count()

    def _faults(
        self,
        order: Order,
        call: Call,
        seed: int,
        given: Sequence[Fault] | None,
        uses: list[Taken],
    ) -> tuple[tuple[Fault, Rule | None], ...]:
        if given is not None:
            return happening(given, None, seed)
        for entry in order.faults:
            if any(holds(entry.rule, one) for one in one_prompt_each(call)):
                faulty = happening(entry.rule.faults, entry.rule, seed)
                taken = self._take(entry, uses, used=bool(faulty))
                if taken is not None and not taken.passed:
                    return faulty
        return happening(self._default_faults, None, seed)

    def _take(self, entry: Entry, uses: list[Taken], *, used: bool = True) -> Taken | None:
        with self._lock:
            taken = entry.take(used=used)
        if taken is not None:
            uses.append(taken)
        return taken

    def _replies(
        self, order: Order, calls: Sequence[Call], uses: list[Taken], *, strict: bool
    ) -> list[_Found]:
        """Return what answers each prompt of a call, or for all of them the first that has none."""
        before = len(uses)
        found = [self._reply(order, one, uses, strict=strict) for one in calls]
        missing = next((one for one in found if one[1] is None), None)
        if missing is None:
            return found
        # What was let pass stays counted: to have no reply is then what the rule is for.
        self.give_back(use for use in uses[before:] if not use.passed)
        del uses[before:]
        return [missing] * len(found)

    def _reply(self, order: Order, call: Call, uses: list[Taken], *, strict: bool) -> _Found:
        """Return rule and reply, or fallback and nearest rules, for a call of one prompt."""
        for entry in order.for_prompt(call.prompt):
            if holds(entry.rule, call):
                taken = self._take(entry, uses)
                if taken is not None and taken.turn is not None:
                    replies = entry.rule.replies
                    return entry.rule, replies[min(taken.turn, len(replies) - 1)], ()
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
