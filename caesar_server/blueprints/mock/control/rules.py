"""The views of rules and of faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response, jsonify

from caesar_server.blueprints.mock.control.bodies import checked, current_scope, invalid, read_data
from caesar_server.blueprints.mock.control.shown import kind_json, rule_json
from caesar_server.errors import NotFoundError, ValidationFailedError
from caesar_server.mock.faults import KINDS
from caesar_server.mock.files import Problem
from caesar_server.mock.files.rules import read_rule
from caesar_server.mock.files.shapes import kind_of
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Scopes
from caesar_server.web.errors import printable


class RuleViews:
    """Each works on the scope that the request names."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes

    def add_to(self, blueprint: Blueprint) -> None:
        """Give ``blueprint`` these views."""
        blueprint.get("/rules")(self.list_mock_rules)
        blueprint.post("/rules")(self.add_mock_rules)
        blueprint.delete("/rules")(self.remove_mock_rules)
        blueprint.get("/rules/<path:rule_id>")(self.show_mock_rule)
        blueprint.put("/rules/<path:rule_id>")(self.put_mock_rule)
        blueprint.delete("/rules/<path:rule_id>")(self.remove_mock_rule)
        blueprint.get("/faults")(self.show_mock_faults)

    def list_mock_rules(self) -> Response:
        """``GET /_mock/rules``: all rules in the order in which they are tried."""
        states = current_scope(self._scopes).states()
        return jsonify({"rules": [rule_json(state) for state in states]})

    def add_mock_rules(self) -> Response:
        """``POST /_mock/rules``: add one rule, or several at once, or none if one is wrong."""
        data, rules, problems = read_data(), list[Rule](), list[Problem]()
        if "rules" in data and not isinstance(data["rules"], list):
            raise invalid([Problem(f"expected a list, got {kind_of(data['rules'])}", ("rules",))])
        if "rules" in data:
            problems += [
                Problem("unknown field beside 'rules'", (name,)) for name in data if name != "rules"
            ]
            for position, one in enumerate(data["rules"]):
                rule, found = read_rule(one, ("rules", position))
                problems += found
                rules += [rule] if rule is not None else []
        else:
            rule, problems = read_rule(data)
            rules += [rule] if rule is not None else []
        if problems:
            raise invalid(problems)
        scope = current_scope(self._scopes)
        added = scope.add_all(rules)
        response = jsonify({"rules": [_shown(scope, rule.id) for rule in added]})
        response.status_code = 201
        return response

    def remove_mock_rules(self) -> Response:
        """``DELETE /_mock/rules``: remove all rules but those of fixture files."""
        scope = current_scope(self._scopes)
        scope.clear()
        return jsonify({"rules": [rule_json(state) for state in scope.states()]})

    def show_mock_rule(self, rule_id: str) -> Response:
        """``GET /_mock/rules/{rule_id}``: one rule with its counters."""
        return jsonify(_shown(current_scope(self._scopes), rule_id))

    def put_mock_rule(self, rule_id: str) -> Response:
        """``PUT /_mock/rules/{rule_id}``: put a rule in the place of that one, or add it."""
        rule = checked(*read_rule(read_data(), id=rule_id))
        scope = current_scope(self._scopes)
        try:
            scope.replace(rule)
        except KeyError:
            _add(scope, rule)
        return jsonify(_shown(scope, rule_id))

    def remove_mock_rule(self, rule_id: str) -> Response:
        """``DELETE /_mock/rules/{rule_id}``: remove a rule."""
        if not current_scope(self._scopes).remove(rule_id):
            raise _no_rule(rule_id)
        return jsonify({"id": rule_id, "removed": True})

    def show_mock_faults(self) -> Response:
        """``GET /_mock/faults``: the kinds of faults, and how often each has happened."""
        happened = current_scope(self._scopes).journal.totals().faults
        kinds = [kind_json(kind) for kind in KINDS.values()]
        return jsonify({"kinds": kinds, "happened": dict(happened)})


def _add(scope: Scope, rule: Rule) -> None:
    try:
        scope.add(rule)
    except ValueError as error:
        raise ValidationFailedError(str(error), param="id") from error


def _shown(scope: Scope, rule_id: str) -> Mapping[str, Any]:
    state = scope.state(rule_id)
    if state is None:
        raise _no_rule(rule_id)
    return rule_json(state)


def _no_rule(rule_id: str) -> NotFoundError:
    return NotFoundError(f"No rule has the id '{printable(rule_id)}' in this scope")
