"""Workers that end, and hosts that would not do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

MORE = 30


def one_in_each_worker(server: Any) -> dict[int, Any]:
    """Return an open stream of each of two workers, by its process id."""
    found: dict[int, Any] = {}
    while len(found) < 2:
        asked = server.stream("noise")
        pid = server.worker_of(asked)
        if pid in found:
            asked.leave()
        else:
            found[pid] = asked
    return found


def chunks_of(asked: Any) -> int:
    try:
        return len(asked.read_chunks(100_000))
    except ConnectionError:
        return 0


def test_a_killed_worker_takes_no_other_along(start: Callable[..., Any], settings: str) -> None:
    server = start(settings, "--workers", "2")
    streams = one_in_each_worker(server)
    killed, other = streams
    os.kill(killed, signal.SIGKILL)
    assert len(streams[other].read_chunks(MORE)) == MORE
    server.wait(lambda: killed not in server.workers() and len(server.workers()) == 2)
    assert len(streams[other].read_chunks(MORE)) == MORE
    assert chunks_of(streams[killed]) < 100_000
    for asked in streams.values():
        asked.leave()
    statuses = {server.ask("script", "Once upon", max_tokens=2)[0] for _ in range(6)}
    assert statuses == {200}


def test_a_failed_assertion_of_the_library_ends_its_worker_alone(
    start: Callable[..., Any], settings: str
) -> None:
    server = start(settings, "--workers", "2", "--backend", "crash=crash.py:CrashBackend")
    streams = one_in_each_worker(server)
    asked = server.send("crash", "now")
    server.wait(lambda: set(streams) - server.workers() and len(server.workers()) == 2)
    (other,) = set(streams) & server.workers()
    assert len(streams[other].read_chunks(MORE)) == MORE
    assert "llama.cpp ends this process" in server.log
    assert "GGML_ASSERT(all is well) failed" in server.log
    for one in (asked, *streams.values()):
        one.leave()
    assert server.ask("script", "Once upon", max_tokens=2)[0] == 200


def test_the_end_of_the_server_ends_its_streams(start: Callable[..., Any], settings: str) -> None:
    server = start(settings, "--graceful-timeout-s", "1")
    asked = server.stream("noise")
    server.process.terminate()
    assert chunks_of(asked) < 100_000
    asked.leave()
    assert server.process.wait(60) == 0


def test_gevent_is_refused(start: Callable[..., Any], settings: str, tmp_path: Any) -> None:
    pytest.importorskip("gevent")
    with pytest.raises(AssertionError, match="keeps a core busy"):
        start(settings, "--worker-class", "gevent")
    assert "--worker-class gthread" in (tmp_path / "log").read_text()
