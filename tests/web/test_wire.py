"""The seam between a stream's frames and its client."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest
from flask import Flask, request

from caesar_server.app import create_app
from caesar_server.contract import ChoiceFinished, Completed, ContentDelta
from caesar_server.contract.sse import DONE, split_frames
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import Gate, LiveServer, scripted_backend
from caesar_server.web.streaming import WIRE_KEY, wire_of

STREAM = {"model": "m", "prompt": "p", "stream": True}
SCRIPT = (ContentDelta("one"), ContentDelta(" two"), ChoiceFinished(), Completed())


class NotingWire:
    """Lets a stream pass up to a frame, and notes what it hears."""

    def __init__(self, last: bytes | None = None, stall: bool = False) -> None:
        self.over = False
        self.frames: list[bytes] = []
        self.ended: list[bool] = []
        self.gone = threading.Event()
        self._last = last
        self._stall = stall

    def writes(self, data: bytes, *, ended: bool) -> Iterator[bytes]:
        self.ended.append(ended)
        for frame in split_frames(data):
            self.frames.append(frame)
            yield frame
            if self._stall:
                self.gone.wait(60)
            if self._last is not None and self._last in frame:
                self.over = True
                return

    def left(self) -> None:
        self.gone.set()


@pytest.fixture
def make_app() -> Iterator[object]:
    apps = []

    def make(wire: NotingWire | None, *script: object) -> Flask:
        settings = Settings(default_backend="scripted")
        backend = scripted_backend(script or SCRIPT)
        app = create_app(settings, Registry.of({"scripted": backend}, settings))

        @app.before_request
        def put_wire() -> None:
            if wire is not None:
                request.environ[WIRE_KEY] = wire

        apps.append(app)
        return app

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


def test_whole_frames_pass_the_wire_and_nothing_else(make_app):
    plain = make_app(None).test_client().post("/compat/completions", json=STREAM)
    wire = NotingWire()
    noted = make_app(wire).test_client().post("/compat/completions", json=STREAM)
    assert noted.data == b"".join(wire.frames)
    assert len(wire.frames) == 4
    assert wire.frames[-1] == DONE
    assert all(frame.endswith(b"\n\n") and frame.count(b"\n") == 2 for frame in wire.frames)
    assert wire.ended.count(True) == 1
    assert wire.ended[-1]
    assert noted.data.count(b"\n\n") == plain.data.count(b"\n\n")
    assert noted.headers["Content-Type"] == plain.headers["Content-Type"]


def test_a_wire_may_end_the_stream(make_app):
    gate = Gate()
    wire = NotingWire(last=b"one")
    app = make_app(wire, ContentDelta("one"), gate, ContentDelta(" two"), Completed())
    response = app.test_client().post("/compat/completions", json=STREAM)
    # though the backend goes on
    assert response.data == wire.frames[0]
    response.close()


def test_a_wire_that_waits_hears_when_the_client_leaves(make_app):
    wire = NotingWire(stall=True)
    with LiveServer(make_app(wire)) as server:
        with server.client().post("/compat/completions", STREAM) as response:
            assert next(response.chunks())
        assert wire.gone.wait(60)


def test_json_and_early_errors_do_not_pass(make_app):
    wire = NotingWire()
    client = make_app(wire).test_client()
    assert client.post("/compat/completions", json={**STREAM, "stream": False}).status_code == 200
    assert client.post("/compat/completions", json={**STREAM, "n": 0}).status_code == 400
    assert wire.frames == []


def test_without_a_wire_there_is_none():
    assert wire_of({}) is None


def test_a_slash_at_the_end_changes_nothing(serve_app) -> None:
    served = serve_app()
    adapter = served.app.url_map.bind("localhost")
    for rule in served.app.url_map.iter_rules():
        # what is at the end of a path and may hold slashes itself is for the view to look up
        if rule.rule == "/" or re.search("<(path|result):[^>]*>$", rule.rule):
            continue
        path = re.sub("<[^>]*>", "x", rule.rule.rstrip("/"))
        for method in rule.methods:
            plain = adapter.match(path, method)
            assert adapter.match(f"{path}/", method) == plain, (path, method)
