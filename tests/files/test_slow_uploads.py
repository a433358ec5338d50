"""Uploads that trickle in come to an end, and all others take the time that they need."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from http.client import HTTPResponse
from typing import Any

import pytest

from caesar_server.testing.live import LiveServer
from caesar_server.web.uploads import pace
from caesar_server.web.uploads.pace import Pace


def test_a_body_that_trickles_in_is_refused(
    serve_files: Any, forms: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # with 64 KiB let off, whoever sends a byte at a time is too slow after a fraction of a second
    monkeypatch.setattr(pace, "MIN_BYTES_PER_S", 1_000_000)
    served = serve_files(write_timeout_s=0.3)
    head = forms.part("file", b"", "a.txt").removesuffix(b"\r\n")
    enough = threading.Event()
    with (
        LiveServer(served.app) as live,
        socket.create_connection(("127.0.0.1", live.port), timeout=60) as sock,
    ):
        sock.sendall(
            f"POST /research/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
            f"Content-Type: {forms.content_type}\r\n\r\n".encode()
            + head
        )

        def trickle() -> None:
            with contextlib.suppress(OSError):
                while not enough.wait(0.05):
                    sock.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            response = HTTPResponse(sock)
            response.begin()
            told = json.loads(response.read())
        finally:
            enough.set()
            thread.join()
    assert response.status == 400
    assert "comes too slowly: expected at least" in told["error"]
    assert served.kept() == []


GREEDY = """
from gevent import monkey
monkey.patch_all()
import io
import gevent
from flask import Request
from werkzeug.test import EnvironBuilder
from caesar_server.web.uploads.form import form_events

body = b'--b\\r\\nContent-Disposition: form-data; name="file"\\r\\n\\r\\n' + bytes(4_000_000)
body += b"\\r\\n--b--\\r\\n"
kind = "multipart/form-data; boundary=b"
request = Request(EnvironBuilder(input_stream=io.BytesIO(body), content_type=kind).get_environ())
request.environ["CONTENT_LENGTH"] = str(len(body))
turns = 0

def others():
    global turns
    while True:
        turns += 1
        gevent.sleep(0)

gevent.spawn(others)
size = 0
for event in form_events(request, max_bytes=10_000_000, patience_s=60):
    size += len(event) if isinstance(event, (bytes, bytearray)) else 0
print(size, turns)
"""


def test_a_fast_client_leaves_other_greenlets_their_turns() -> None:
    pytest.importorskip("gevent")
    done = subprocess.run(
        [sys.executable, "-c", GREEDY], check=True, capture_output=True, text=True, timeout=60
    )
    size, turns = map(int, done.stdout.split())
    assert size == 4_000_000
    assert turns > 20


class Time:
    """A clock that stands still until it is set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(pace, "time", found)
    return found


def test_only_the_time_that_the_server_waits_counts(clock: Time) -> None:
    with Pace({}, 60.0) as watched:
        clock.now = 1000.0
        assert not watched.too_slow
        with watched.waiting():
            clock.now += 59
            assert not watched.too_slow
            clock.now += 1
            assert watched.too_slow
        watched.count(60 * 1024)
        assert not watched.too_slow


def test_what_may_be_under_way_is_let_off(clock: Time) -> None:
    watched = Pace({}, 60.0, slack_bytes=65536)
    with watched.waiting():
        clock.now = 60.0
        assert not watched.too_slow
        clock.now = 120.0
        assert watched.too_slow


def test_the_end_of_the_block_is_the_end_of_the_watch() -> None:
    here, there = socket.socketpair()
    with here, there:
        before = set(threading.enumerate())
        with Pace({"gunicorn.socket": here}, 0.01):
            (timer,) = set(threading.enumerate()) - before
        timer.join(60)
        assert not timer.is_alive()
        there.sendall(b"next")
        assert here.recv(4) == b"next"
