"""The rules of a scope in the order in which they are tried, with how often they were used."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from caesar_server.mock.answering.check import reply_problems
from caesar_server.mock.faults.checking import check_fault
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Rule


@dataclass(frozen=True, slots=True)
class RuleState:
    """A rule as it stands.

    :param matched: so many calls had all that it asks for.
    :param used: so many of them it decided.
    """

    rule: Rule
    matched: int = 0
    used: int = 0

    @property
    def left(self) -> int | None:
        """How often it may still be used; None: without end."""
        return None if self.rule.times is None else self.rule.times - self.used


class Counts:
    """How often a rule matched, let pass and was used; another object after a reset.

    :ivar free: turns that were given back, a heap; the lowest is taken first.
    """

    __slots__ = ("free", "matched", "passed", "used")

    def __init__(self) -> None:
        self.matched = 0
        self.passed = 0
        self.used = 0
        self.free: list[int] = []


class Taken(msgspec.Struct, frozen=True):
    """What a call took of a rule; see :class:`~caesar_server.mock.model.rule.Use`.

    :param turn: how often the rule was used before; None: it does nothing in this call.
    :param passed: whether the rule lets the call pass.
    """

    rule: Rule
    counts: Counts
    turn: int | None = None
    passed: bool = False

    def give_back(self) -> None:
        """Count it no more: the next call takes what this one had.  After a reset: nothing."""
        counts = self.counts
        counts.matched -= 1
        counts.passed -= self.passed
        if self.turn is not None:
            counts.used -= 1
            heapq.heappush(counts.free, self.turn)


class Entry:
    """A rule with its counters, which only the holder of the scope's lock may touch."""

    __slots__ = ("counts", "rank", "rule")

    def __init__(self, rule: Rule, origin: int, number: int) -> None:
        self.rule = rule
        self.rank = (-rule.priority, origin, number)
        self.counts = Counts()

    def take(self, *, used: bool = True) -> Taken | None:
        """Count a call that matches; None if the rule is used up.

        :param used: whether the rule would do anything.
        """
        counts = self.counts
        if self.rule.times is not None and counts.used >= self.rule.times:
            return None
        counts.matched += 1
        if counts.passed < self.rule.skip:
            counts.passed += 1
            return Taken(self.rule, counts, passed=True)
        if not used:
            return Taken(self.rule, counts)
        turn = heapq.heappop(counts.free) if counts.free else counts.used
        counts.used += 1
        return Taken(self.rule, counts, turn)

    def state(self) -> RuleState:
        """Return what it shows."""
        return RuleState(self.rule, self.counts.matched, self.counts.used)


def holds(rule: Rule, call: Call) -> bool:
    """Return whether a call has all that a rule asks for.

    :raises Exception: whatever a predicate raises.
    """
    for condition in rule.conditions:  # noqa: SIM110 - all() costs twice that of one or two
        if not condition.holds(call):
            return False
    return True


class Table:
    """Rules of two origins: the scope's own (0) and those of files (1).  Not safe for threads."""

    def __init__(self) -> None:
        self._own: dict[str, Entry] = {}
        self._files: dict[str, Entry] = {}
        self._added = 0
        self._order: Order | None = None

    def order(self) -> Order:
        """Return the rules in their order, as they stand now."""
        order = self._order
        if order is None:
            entries = (*self._own.values(), *self._files.values())
            order = self._order = Order(sorted(entries, key=_rank))
        return order

    def states(self) -> tuple[RuleState, ...]:
        """Return all rules with their counters: fault rules, then reply rules."""
        order = self.order()
        return tuple(entry.state() for entry in (*order.faults, *order.replies))

    def find(self, rule_id: str) -> Entry | None:
        """Return a rule by its id."""
        return self._own.get(rule_id) or self._files.get(rule_id)

    def add(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Add own rules, or none of them; see :meth:`Scope.add`."""
        added, number = dict[str, Entry](), self._added
        for rule in rules:
            _check(rule)
            number += 1
            if not rule.id:
                rule = replace(rule, id=self._free_id(number, added))
            if self.find(rule.id) is not None or rule.id in added:
                raise ValueError(f"id: there is a rule {rule.id!r} already")
            added[rule.id] = Entry(rule, 0, number)
        self._own |= added
        self._added, self._order = number, None
        return tuple(entry.rule for entry in added.values())

    def replace(self, rule: Rule) -> None:
        """See :meth:`Scope.replace`."""
        _check(rule)
        before = self.find(rule.id)
        if before is None:
            raise KeyError(rule.id)
        home = self._own if rule.id in self._own else self._files
        home[rule.id] = Entry(rule, before.rank[1], before.rank[2])
        self._order = None

    def remove(self, rule_id: str) -> bool:
        """See :meth:`Scope.remove`."""
        self._order = None
        return (self._own.pop(rule_id, None) or self._files.pop(rule_id, None)) is not None

    def clear(self) -> None:
        """Remove the scope's own rules; ids begin anew."""
        self._own, self._added, self._order = {}, 0, None

    def set_files(self, rules: Iterable[Rule]) -> None:
        """See :meth:`Scope.set_files`."""
        files: dict[str, Entry] = {}
        for number, rule in enumerate(rules, 1):
            _check(rule)
            rule = rule if rule.id else replace(rule, id=f"f{number}")
            if rule.id in files:
                raise ValueError(f"id: there is a rule {rule.id!r} already")
            if rule.id in self._own:
                continue
            before, entry = self._files.get(rule.id), Entry(rule, 1, number)
            if before is not None and _same(before.rule, rule):
                entry.counts = before.counts
            files[rule.id] = entry
        self._files, self._order = files, None

    def reset(self) -> None:
        """Set all counters to 0."""
        for entry in (*self._own.values(), *self._files.values()):
            entry.counts = Counts()

    def _free_id(self, number: int, added: dict[str, Entry]) -> str:
        while self.find(f"r{number}") is not None or f"r{number}" in added:
            number += 1
        return f"r{number}"


def _rank(entry: Entry) -> tuple[int, int, int]:
    return entry.rank


class Order:
    """The entries in the order in which they are tried.  Immutable, so safe for threads.

    Reply rules for exactly one prompt are found by it.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.faults = tuple(entry for entry in entries if entry.rule.faults)
        self.replies = tuple(entry for entry in entries if entry.rule.replies)
        self._others: list[Entry] = []
        self._by_prompt: dict[str, list[Entry]] = {}
        for entry in self.replies:
            prompts = [one.exact_prompt for one in entry.rule.conditions]
            prompt = next((one for one in prompts if one is not None), None)
            home = self._others if prompt is None else self._by_prompt.setdefault(prompt, [])
            home.append(entry)

    def for_prompt(self, prompt: str | None) -> Iterable[Entry]:
        """Return the reply rules that a call with this prompt may match."""
        exact = () if prompt is None else self._by_prompt.get(prompt, ())
        if not exact or not self._others:
            return exact or self._others
        return heapq.merge(exact, self._others, key=_rank)


def _check(rule: Rule) -> None:
    """Refuse a rule that nothing can come of.

    :raises ValueError: naming the field.
    """
    who = f"rule {rule.name or rule.id!r}: " if rule.name or rule.id else ""
    if bool(rule.replies) == bool(rule.faults):
        raise ValueError(f"{who}expected either replies or faults")
    if rule.times is not None and rule.times < 0:
        raise ValueError(f"{who}times: expected 0 or more, got {rule.times}")
    if rule.skip < 0:
        raise ValueError(f"{who}skip: expected 0 or more, got {rule.skip}")
    for fault in rule.faults:
        check_fault(fault)
    for index, reply in enumerate(rule.replies):
        if isinstance(reply, Reply):
            for field, problem in reply_problems(reply):
                raise ValueError(f"{who}replies[{index}].{field}: {problem}")


def _same(one: Rule, other: Rule) -> bool:
    """Return whether two rules of files say the same; their functions are made anew each time."""
    return _told(one) == _told(other)


def _told(rule: Rule) -> tuple[object, ...]:
    asked = [(condition.field, condition.wanted) for condition in rule.conditions]
    return (asked, rule.name, rule.replies, rule.faults, rule.times, rule.skip, rule.priority)
