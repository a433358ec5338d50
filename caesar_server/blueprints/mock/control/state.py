"""The views of scopes, their settings and clocks, and of fixture files."""

from __future__ import annotations

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
from caesar_server.errors import CheckFailedError, NotFoundError
from caesar_server.mock.files import FixturesError, Problem, Reloader
from caesar_server.mock.files.rules import SETTINGS, read_settings
from caesar_server.mock.scopes import Scopes
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
        data = read_data()
        found, problems = read_settings(data)
        problems += [
            Problem(f"unknown field; {nearest(name, SETTINGS)}", (name,))
            for name in data
            if name not in SETTINGS
        ]
        if problems:
            raise invalid(problems)
        scope = current_scope(self._scopes)
        for name, value in found.items():
            setattr(scope, name, value)
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
        """``PUT /_mock/scopes/{name}``: make a scope, which then may be named by an API key."""
        return jsonify(scope_json(named_scope(self._scopes, name)))

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
