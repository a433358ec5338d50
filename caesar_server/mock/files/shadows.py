"""Rules that nothing is ever left for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import TypeAlias

from caesar_server.mock.model.rule import Rule

#: What a rule asks for: each condition by its field and its words.
_Asked: TypeAlias = frozenset[tuple[str, str]]
#: Of a rule with more conditions not all combinations are looked at.
_MOST_COMBINED = 10


def never_used(rules: Iterable[Rule]) -> Iterator[tuple[Rule, Rule]]:
    """Yield each rule that can never be used, with the one that is always used in its place.

    That is one which is tried before it, asks for nothing that it does not ask for, and is never
    used up.

    :param rules: as files have them.
    """
    takers: dict[tuple[bool, _Asked], Rule] = {}
    for rule in sorted(rules, key=lambda rule: -rule.priority):
        asked = frozenset((one.field, one.wanted) for one in rule.conditions)
        does = bool(rule.faults)
        found = (takers.get((does, part)) for part in _parts(asked))
        taker = next((one for one in found if one is not None), None)
        if taker is not None and rule.times != 0:  # else it is switched off on purpose
            yield rule, taker
        if taker is None and _takes_all(rule):
            takers[does, asked] = rule


def _takes_all(rule: Rule) -> bool:
    """Return whether nothing that a rule matches is left for others."""
    sure = not rule.faults or any(fault.probability >= 1 for fault in rule.faults)
    return sure and rule.times is None and not rule.skip


def _parts(asked: _Asked) -> Iterator[_Asked]:
    sizes = range(len(asked) + 1) if len(asked) <= _MOST_COMBINED else (0, 1, len(asked))
    return map(frozenset, chain.from_iterable(combinations(asked, size) for size in sizes))
