"""Clients that take a stream badly: the run ends, memory stays bounded, the server goes on."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from caesar_server.app import create_app
from caesar_server.cli.workers.thread_worker import limit_waiting
from caesar_server.contract import ContentDelta
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import LiveServer, scripted_backend

BIG = "x" * 65536
#: Far above what a feed of 256 such deltas and the buffers of two sockets hold, far below what a
#: backend makes meanwhile that nothing holds up.
BOUND = 1500


def ask(post: Any, model: str, prompt: str) -> bytes:
    raw: bytes = post({"model": model, "prompt": prompt, "stream": True})
    return raw


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("model", ["ticking", "silent", "flooding"])
def test_a_client_that_leaves_in_mid_stream_ends_the_run(gunicorn, post, model, how):
    prompt = f"{how}-{model}"
    with gunicorn.wire() as wire:
        wire.send(ask(post, model, prompt))
        # silent: between the headers and the first byte of the body
        assert wire.reply_head().status == 200
        if model != "silent":
            assert wire.read(1)
        if how == "half-close":
            wire.end_of_sending()
            assert gunicorn.end_of(prompt).end in ("Cancelled", "GeneratorExit")
        elif how == "reset":
            wire.reset()
        else:
            wire.close()
        assert gunicorn.end_of(prompt).end in ("Cancelled", "GeneratorExit")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_before_the_headers_ends_the_run(gunicorn, post, stream):
    prompt = f"before-headers-{stream}"
    with gunicorn.wire() as wire:
        wire.send(post({"model": "silent", "prompt": prompt, "stream": stream}))
        gunicorn.wait_for_start_of(prompt)
        wire.reset()
    assert gunicorn.end_of(prompt).end in ("Cancelled", "GeneratorExit")


def test_a_client_that_stops_reading_holds_the_backend_up_and_is_cut_off(impatient, post):
    with impatient.wire() as wire:
        wire.send(ask(post, "flooding", "stops-reading"))
        assert wire.read(1)
        run = impatient.end_of("stops-reading")
        assert run.end in ("Cancelled", "GeneratorExit")
        assert run.made < BOUND
        # The thread is free too: the connection is closed, and not as if the answer were whole.
        with contextlib.suppress(ConnectionResetError):
            assert not wire.rest().endswith(b"0\r\n\r\n")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a write may wait for longer")
def test_a_client_that_takes_nothing_is_given_its_time_once():
    patience_s = 1.0
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        limit_waiting(connection, patience_s)
        begin = time.monotonic()
        with pytest.raises((BlockingIOError, TimeoutError)):
            while True:
                connection.sendall(BIG.encode())
        # a busy machine may see the end late, but not for ever
        assert patience_s - 0.5 < time.monotonic() - begin < 20 * patience_s


def test_a_client_that_reads_slowly_is_not_cut_off(impatient, post):
    with impatient.wire() as wire:
        wire.send(ask(post, "ticking", "reads-slowly"))
        assert wire.reply_head().status == 200
        # twice the patience of the server, and some
        frames = 0
        for chunk in wire.chunks():
            frames += chunk.count(b"data: {")
            if frames > 300:
                break
        wire.close()
    assert impatient.end_of("reads-slowly").made > 300


def test_a_stalled_reader_is_told_of_the_deadline_when_it_reads_on(post):
    made: list[int] = []

    def flood(request: Any) -> Iterator[Any]:
        while True:
            made.append(1)
            yield ContentDelta(BIG)

    settings = Settings(default_backend="flood", request_timeout_s=2.0, max_answer_chars=1024**4)
    backend = scripted_backend(flood)
    app = create_app(settings, Registry.of({"flood": backend}, settings))
    with (
        LiveServer(app) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection,
    ):
        connection.sendall(post({"stream": True}, "Connection: close"))
        assert connection.recv(1)
        backend.script.wait_for(lambda script: script.ended == 1)
        assert len(made) < BOUND
        rest = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        assert b'"code":"deadline_exceeded"' in rest
        assert b"data: [DONE]\n\n" in rest[-40:]
