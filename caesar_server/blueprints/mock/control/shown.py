"""What goes out: rules, scopes and the state of files as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from caesar_server.mock.clock import MockClock
from caesar_server.mock.faults import KINDS, Kind
from caesar_server.mock.files import Loaded
from caesar_server.mock.files.rules import EVERYWHERE
from caesar_server.mock.matching.table import RuleState
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.scope import Scope

Json = dict[str, Any]


def rule_json(state: RuleState) -> Json:
    """Return a rule with its counters."""
    rule = state.rule
    return {
        "id": rule.id,
        "name": rule.name,
        "does": "faults" if rule.faults else "replies",
        "conditions": [f"{one.field} {one.wanted}" for one in rule.conditions],
        "times": rule.times,
        "skip": rule.skip,
        "priority": rule.priority,
        "source": rule.source,
        "matched": state.matched,
        "used": state.used,
        "left": state.left,
        "definition": None if rule.definition is None else dict(rule.definition),
    }


def settings_json(scope: Scope) -> Json:
    """Return what may be set of a scope."""
    fallback = scope.fallback
    return {
        "seed": scope.seed,
        "strict": scope.strict,
        "fallback": fallback if isinstance(fallback, str) else msgspec.to_builtins(fallback),
        "pacing": msgspec.to_builtins(scope.pacing),
        "faults": [_fault_json(fault) for fault in scope.faults],
    }


def _fault_json(fault: Fault) -> Json:
    """Return a fault with the fields that count, so that it may be sent back."""
    data: Json = msgspec.to_builtins(fault)
    allowed = KINDS[fault.kind].fields | EVERYWHERE
    return {name: value for name, value in data.items() if name in allowed and value is not None}


def scope_json(scope: Scope) -> Json:
    """Return a scope in short."""
    return {
        "name": scope.name,
        "rules": len(scope.rules),
        "requests": scope.journal.totals().requests,
    }


def clock_json(clock: MockClock) -> Json:
    """Return how a clock stands."""
    return {"time": clock.time(), "stopped": clock.stopped, "turned_s": clock.turned_s}


def kind_json(kind: Kind) -> Json:
    """Return a kind of fault."""
    return {
        "kind": kind.name,
        "does": kind.does.replace("``", "`"),
        "fields": sorted(kind.fields),
        "required": sorted(kind.required),
        "needs_socket": kind.needs_socket,
        "needs_stream": kind.needs_stream,
    }


def loaded_json(loaded: Loaded) -> Json:
    """Return how fixture files stand."""
    return {
        "paths": [str(path) for path in loaded.paths],
        "files": [str(path) for path in loaded.files],
        "rules": loaded.rules,
        "problems": [problem.as_json() for problem in loaded.problems],
    }
