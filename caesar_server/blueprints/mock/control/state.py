"""The views of scopes, their settings and clocks, and of fixture files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response, jsonify

from caesar_server.blueprints.mock.control.bodies import (
    ClockData,
    ResetData,
    current_scope,
    invalid,
    named_scope,
    read_body,
    read_data,
)
from caesar_server.blueprints.mock.control.shown import (
    clock_json,
    loaded_json,
    scope_json,
    settings_json,
)
from caesar_server.errors import CheckFailedError, NotFoundError, ValidationFailedError
from caesar_server.mock.files import FixturesError, Problem, Reloader
from caesar_server.mock.files.rules import SETTINGS, read_settings
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Scopes, check_scope_name
from caesar_server.registry import nearest
from caesar_server.web.errors import printable


class StateViews:
    """Each works on the scope that the request names, unless it is about all."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes

    def add_to(self, blueprint: Blueprint) -> None:
        """Give ``blueprint`` these views."""
        blueprint.get("/settings")(self.show_mock_settings)
        blueprint.patch("/settings")(self.change_mock_settings)
        blueprint.post("/reset")(self.reset_mock)
        blueprint.get("/clock")(self.show_mock_clock)
        blueprint.post("/clock")(self.turn_mock_clock)
        blueprint.get("/scopes")(self.list_mock_scopes)
        blueprint.put("/scopes/<path:name>")(self.make_mock_scope)
        blueprint.delete("/scopes/<path:name>")(self.remove_mock_scope)
        blueprint.get("/fixtures")(self.show_mock_fixtures)
        blueprint.post("/fixtures/reload")(self.reload_mock_fixtures)
        blueprint.get("/fixtures/schema")(self.show_mock_fixtures_schema)

    def show_mock_settings(self) -> Response:
        """``GET /_mock/settings``: seed, fallback, pacing and what else may be set."""
        return jsonify(settings_json(current_scope(self._scopes)))

    def change_mock_settings(self) -> Response:
        """``PATCH /_mock/settings``: set some of them; calls that are under way keep theirs."""
        wanted = _read_changes(read_data())
        scope = current_scope(self._scopes)
        _change(scope, wanted)
        return jsonify(settings_json(scope))

    def reset_mock(self) -> Response:
        """``POST /_mock/reset``: forget counters, the journal, or everything of a scope."""
        what = read_body(ResetData, optional=True).what
        current_scope(self._scopes).reset(what)
        return jsonify({"reset": what})

    def show_mock_clock(self) -> Response:
        """``GET /_mock/clock``: how the scope's clock stands."""
        return jsonify(clock_json(current_scope(self._scopes).clock))

    def turn_mock_clock(self) -> Response:
        """``POST /_mock/clock``: stop the scope's clock, turn it forward, let it run."""
        data = read_body(ClockData)
        clock = current_scope(self._scopes).clock
        if data.stopped is not None:
            (clock.stop if data.stopped else clock.go)()
        if data.waiting:
            try:
                clock.wait_for_waiters(data.waiting, data.timeout_s)
            except TimeoutError as error:
                raise CheckFailedError(str(error)) from error
        if data.advance_s:
            clock.advance(data.advance_s)
        return jsonify(clock_json(clock))

    def list_mock_scopes(self) -> Response:
        """``GET /_mock/scopes``: the scopes that there are, the default one first."""
        found = [self._scopes.find(name) for name in self._scopes.names()]
        return jsonify({"scopes": [scope_json(scope) for scope in found if scope is not None]})

    def make_mock_scope(self, name: str) -> Response:
        """``PUT /_mock/scopes/{name}``: make a scope, which then may be named by an API key.

        A body sets what ``PATCH /_mock/settings`` does.
        """
        try:
            check_scope_name(name)
        except ValueError as error:
            raise ValidationFailedError(str(error), param="scope") from error
        wanted = _read_changes(read_data(optional=True))
        scope = named_scope(self._scopes, name)
        _change(scope, wanted)
        return jsonify(scope_json(scope))

    def remove_mock_scope(self, name: str) -> Response:
        """``DELETE /_mock/scopes/{name}``: remove a scope with all that is its own."""
        if not self._scopes.remove(name):
            raise NotFoundError(f"There is no scope '{printable(name)}'")
        return jsonify({"name": name, "removed": True})

    def show_mock_fixtures(self) -> Response:
        """``GET /_mock/fixtures``: which fixture files are in force, and their problems."""
        return jsonify(loaded_json(self._reloader().loaded))

    def reload_mock_fixtures(self) -> Response:
        """``POST /_mock/fixtures/reload``: read the fixture files now."""
        try:
            return jsonify(loaded_json(self._reloader().load()))
        except FixturesError as error:
            raise invalid(error.problems) from error

    def show_mock_fixtures_schema(self) -> Response:
        """``GET /_mock/fixtures/schema``: the JSON Schema of fixture files."""
        # takes a while
        from caesar_server.mock.files.schema import fixtures_schema

        return jsonify(fixtures_schema())

    def _reloader(self) -> Reloader:
        reloader = self._scopes.reloader
        if not isinstance(reloader, Reloader):
            raise NotFoundError("The server was started without fixture files")
        return reloader


def _read_changes(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is to be set of a scope.

    :raises ServerError: naming every field that is wrong.
    """
    found, problems = read_settings(data)
    problems += [
        Problem(f"unknown field; {nearest(name, SETTINGS)}", (name,))
        for name in data
        if name not in SETTINGS
    ]
    if problems:
        raise invalid(problems)
    return found


def _change(scope: Scope, wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        setattr(scope, name, value)
