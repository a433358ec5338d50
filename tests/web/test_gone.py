"""A client that has left is noticed although nothing is written to it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from caesar_server.app import create_app
from caesar_server.contract import ChoiceFinished, Completed, ContentDelta
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import Gate, LiveServer, scripted_backend
from caesar_server.web.gone import SocketWatch


@contextmanager
def watching(watch: SocketWatch, sock: socket.socket | None, callback: Any) -> Iterator[None]:
    """Watch a socket while the block lasts."""
    stop = watch.watch(sock, callback)
    yield
    stop()


@pytest.fixture
def watch() -> Iterator[SocketWatch]:
    watch = SocketWatch()
    yield watch
    watch.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_hang_up_calls_back_once(watch, pair):
    ours, theirs = pair
    called = threading.Semaphore(0)
    with watching(watch, ours, called.release):
        theirs.close()
        assert called.acquire(timeout=60)
        assert not called.acquire(blocking=False)


def test_half_closing_counts_as_leaving(watch, pair):
    ours, theirs = pair
    called = threading.Event()
    with watching(watch, ours, called.set):
        theirs.shutdown(socket.SHUT_WR)
        assert called.wait(60)


def test_a_client_that_left_before_is_noticed_too(watch, pair):
    ours, theirs = pair
    theirs.close()
    called = threading.Event()
    with watching(watch, ours, called.set):
        assert called.wait(60)


def test_data_is_no_hang_up(watch, pair):
    ours, theirs = pair
    other, far = socket.socketpair()
    with other, far:
        data_seen, hung_up = threading.Event(), threading.Event()
        with watching(watch, ours, data_seen.set), watching(watch, other, hung_up.set):
            theirs.sendall(b"the next request")
            far.close()
            assert hung_up.wait(60)
            assert not data_seen.is_set()


def test_after_the_block_nothing_is_called(watch, pair):
    ours, theirs = pair
    early, late = threading.Event(), threading.Event()
    with watching(watch, ours, early.set):
        pass
    with watching(watch, ours, late.set):
        theirs.close()
        assert late.wait(60)
    assert not early.is_set()


def test_a_callback_that_raises_does_not_end_the_watch(watch, pair, caplog):
    ours, theirs = pair
    other, far = socket.socketpair()
    with other, far:
        called = threading.Event()

        def fail() -> None:
            raise ZeroDivisionError

        with watching(watch, ours, fail), watching(watch, other, called.set):
            theirs.close()
            far.close()
            assert called.wait(60)
    assert "ZeroDivisionError" in caplog.text


def test_no_thread_before_the_first_socket_and_none_after_close(pair):
    # a server that lives as long as the test session may have such a thread, too
    before = set(threading.enumerate())

    def names() -> set[str]:
        return {thread.name for thread in set(threading.enumerate()) - before}

    watch = SocketWatch()
    with watching(watch, None, lambda: None):
        assert "caesar-gone" not in names()
    with watching(watch, pair[0], lambda: None):
        assert "caesar-gone" in names()
    watch.close()
    watch.close()
    assert "caesar-gone" not in names()
    with watching(watch, pair[0], lambda: None):
        assert "caesar-gone" not in names()


def test_without_a_thread_nothing_is_noticed_until_there_is_one(watch, pair, monkeypatch):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ours, theirs = pair
    with monkeypatch.context() as none_left:
        none_left.setattr(threading.Thread, "start", refuse)
        with watching(watch, ours, lambda: None):
            pass
    called = threading.Event()
    with watching(watch, ours, called.set):
        theirs.close()
        assert called.wait(60)


@pytest.mark.parametrize("stream", [False, True])
def test_the_run_of_a_silent_answer_ends_when_its_client_leaves(stream: bool):
    gate = Gate()
    backend: Any = scripted_backend([gate, ContentDelta("x"), ChoiceFinished(), Completed()])
    settings = Settings(default_backend="silent", first_event_wait_s=0, heartbeat_s=0)
    app = create_app(settings, Registry.of({"silent": backend}, settings))
    body = json.dumps({"model": "m", "prompt": "p", "stream": stream}).encode()
    with LiveServer(app) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            b"POST /compat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        gate.wait_until_reached()
        client.close()
        backend.script.wait_for(lambda script: script.ended == 1)
        assert backend.script.cancels == 1
