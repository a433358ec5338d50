"""Each fault under each host that can run a mock, byte by byte."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from caesar_server.mock.faults import KINDS

pytestmark = pytest.mark.slow

STREAM = {"model": "m", "prompt": "one two three", "stream": True}
DONE = b"data: [DONE]"

#: For each kind the fields that are asked for, and what must be true of what is received.
Check = Callable[[Any], bool]
WANTED: dict[str, tuple[dict[str, str], Check]] = {
    "status": (
        {"Status": "503", "Body": "no"},
        lambda got: got.head.startswith("HTTP/1.1 503 ") and got.body == b"no",
    ),
    "delay": ({"Delay": "0.01"}, lambda got: got.frames[-1] == DONE),
    "hang": ({"Delay": "0.01"}, lambda got: got == (b"", "closed")),
    "reset": ({}, lambda got: got == (b"", "reset")),
    "half_headers": (
        {},
        lambda got: got.raw.endswith(b"Content-Ty") and got.end == "closed",
    ),
    "early_hints": (
        {},
        lambda got: got.raw.startswith(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 "),
    ),
    "error_frame": (
        {"After-Chunks": "1"},
        lambda got: len(got.frames) == 3 and b'"mock_fault"' in got.frames[1],
    ),
    "silent_close": (
        {"After-Chunks": "2"},
        lambda got: got.texts == ["one", " two"] and len(got.frames) == 2 and got.ends_properly,
    ),
    "connection_reset": (
        {"After-Chunks": "2"},
        lambda got: got.texts == ["one", " two"] and got.end == "reset",
    ),
    "stall": ({"After-Chunks": "1", "Delay": "0.01"}, lambda got: got.frames[-1] == DONE),
    "malformed_json": (
        {"After-Chunks": "1"},
        lambda got: not got.frames[1].endswith(b"}") and len(got.frames) == 5,
    ),
    "truncated_utf8": ({"After-Chunks": "1"}, lambda got: b" two\xe2\x82" in got.frames[1]),
    "missing_done": ({}, lambda got: got.texts[-1:] == [""] and DONE not in got.frames),
    "duplicate_chunk": (
        {"After-Chunks": "1"},
        lambda got: got.texts == ["one", " two", " two", " three", ""],
    ),
    "reorder_chunks": (
        {"After-Chunks": "1"},
        lambda got: got.texts == ["one", " three", " two", ""],
    ),
    "wrong_content_type": ({}, lambda got: "content-type: text/html" in got.head.lower()),
    "crlf": ({}, lambda got: got.body.endswith(b"\r\n\r\ndata: [DONE]\r\n\r\n")),
    "empty_data": ({"After-Chunks": "1"}, lambda got: got.frames[1] == b"data:"),
    "comment_storm": (
        {"Count": "3000"},
        lambda got: got.frames[2999] == b": comment 3000" and got.frames[-1] == DONE,
    ),
    "slow_drip": (
        {"Delay": "0", "Count": "50"},
        lambda got: (
            got.frames[-1] == DONE
            and max(map(len, got.chunks)) == 50
            and len(got.chunks) > len(got.body) // 50
        ),
    ),
}

GRANIAN_APP = """
from caesar_server import app
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings


def create_app():
    return app.create_app(Settings(), mock=Scopes())
"""


@pytest.fixture(scope="module", params=["gthread", "gevent"])
def served(request, serve, tmp_path_factory) -> Iterator[int]:
    """Return the port of a mock under gunicorn."""
    if request.param == "gevent":
        pytest.importorskip("gevent")

    def command(port: int) -> list[str]:
        options = ["--port", str(port), "--worker-class", request.param]
        return [sys.executable, "-m", "caesar_server", "mock", *options]

    with serve(command, tmp_path_factory.mktemp(request.param)) as port:
        yield port


@pytest.fixture
def on_granian(serve, tmp_path) -> Iterator[int]:
    """Return the port of a mock under granian."""
    pytest.importorskip("granian")
    (tmp_path / "mock_app.py").write_text(GRANIAN_APP)
    options = ("--interface", "wsgi", "--http", "1", "--no-ws", "--blocking-threads", "16")

    def command(port: int) -> list[str]:
        start = [sys.executable, "-m", "granian", *options, "--port", str(port)]
        return [*start, "--factory", "mock_app:create_app"]

    with serve(command, tmp_path) as port:
        yield port


def test_every_kind_is_looked_at():
    assert set(WANTED) == set(KINDS)


@pytest.mark.parametrize("kind", WANTED)
def test_the_bytes_of_each_fault_under_gunicorn(served, send, read, kind):
    fields, is_as_wanted = WANTED[kind]
    received = read(send(served, STREAM, kind, fields))
    assert is_as_wanted(received), received
    # and the worker goes on
    assert read(send(served, STREAM, "none", {})).frames[-1] == DONE


@pytest.mark.parametrize("kind", ["hang", "stall"])
def test_what_hangs_ends_with_its_client_under_gunicorn(served, send, read, kind):
    with send(served, STREAM, kind, {}, scope=kind) as sock:
        if kind == "stall":
            assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
        entries = look(served, kind, lambda found: len(found) == 1 and found[0]["faults"])
        assert entries[0]["ended"] is None
    entries = look(served, kind, lambda found: found[0]["ended"] is not None)
    assert entries[0]["ended"] == "client_left"


def look(port: int, scope: str, wanted: Callable[[Any], Any]) -> Any:
    """Return the journal of a scope once it is as wanted."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        url = f"http://127.0.0.1:{port}/t/{scope}/_mock/journal"
        with urllib.request.urlopen(url, timeout=60) as response:
            found = json.load(response)["entries"]
        if wanted(found):
            return found
    raise AssertionError(found)


def test_granian_refuses_what_needs_the_connection(on_granian, send, read):
    for kind, (fields, is_as_wanted) in WANTED.items():
        received = read(send(on_granian, STREAM, kind, fields))
        if KINDS[kind].needs_socket:
            assert received.head.startswith("HTTP/1.1 422 "), received
            assert "gunicorn" in json.loads(received.body)["error"]["message"]
        else:
            assert is_as_wanted(received), (kind, received)
