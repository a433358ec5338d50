"""Which rules a call nearly matches, and what it lacks: for whoever wonders why none did."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from caesar_server.mock.matching.table import RuleState
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.rule import Condition, Nearest

#: So many rules are named.
MOST = 3


def nearest_rules(states: Sequence[RuleState], call: Call) -> tuple[Nearest, ...]:
    """Return the rules that a call comes closest to, the best first, at most :data:`MOST`.

    Closest is the rule of which the fewest conditions fail, of equal ones that with more
    conditions that hold, then the one that is tried first.

    :param states: in the order in which they are tried.
    """
    ranked = []
    for position, state in enumerate(states):
        failed = [one for one in state.rule.conditions if not one.holds(call)]
        held = len(state.rule.conditions) - len(failed)
        ranked.append((len(failed), -held, position, state, failed))
    best = heapq.nsmallest(MOST, ranked, key=lambda one: one[:3])
    return tuple(
        Nearest(rule=state.rule, failed=_reasons(state, failed, call)) for *_, state, failed in best
    )


def _reasons(state: RuleState, failed: Sequence[Condition], call: Call) -> tuple[str, ...]:
    reasons = [one.lack(call) for one in failed]
    if not failed:
        if state.left == 0:
            reasons.append(f"times: used up, {state.used} of {state.rule.times}")
        elif state.rule.skip:
            # what matched and was not used was let pass
            passed = state.matched - state.used
            reasons.append(f"skip: let pass, {passed} of {state.rule.skip}")
    return tuple(reasons)
