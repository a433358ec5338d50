"""A worker that is full, or that is being waited for, still answers everybody at once."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keys import Key, KeyLimits, generate_key, hash_key

THREADS = 16
#: Four threads are kept for refusals.
SERVED = THREADS - 4
#: An eighth of the places, rounded up, is kept from streams.
STREAMS = SERVED - 2
#: Of four times more requests than threads, those that find no room when others take no end.
REFUSED = 4 * THREADS - SERVED
#: What is not held up is answered within so many seconds, on a busy machine too.
AT_ONCE_S = 30.0


def request(key: str = "", *, connection: str = "close", **fields: Any) -> bytes:
    """Return a completion request as it goes over the wire."""
    body = json.dumps({"prompt": "p", **fields}).encode()
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        "POST /compat/completions HTTP/1.1\r\nHost: localhost\r\n"
        f"Connection: {connection}\r\n{authorization}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextmanager
def connected(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that stay open until the end of the block, whatever the server does."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            for _ in range(count)
        ]


def first_bytes(
    sockets: list[socket.socket], message: bytes, heard: Callable[[int], None] = lambda count: None
) -> list[bytes]:
    """Send a message on all sockets at the same time; return what came first on each.

    :param heard: called with how many have been answered, whenever one is.
    """
    barrier = threading.Barrier(len(sockets))

    def one(sock: socket.socket) -> bytes:
        barrier.wait()
        sock.sendall(message)
        seen = b""
        while b"\r\n\r\n" not in seen:
            more = sock.recv(65536)
            if not more:
                break
            seen += more
        return seen

    with ThreadPoolExecutor(len(sockets)) as pool:
        asked = [pool.submit(one, sock) for sock in sockets]
        for count, _ in enumerate(as_completed(asked), start=1):
            heard(count)
        return [answer.result() for answer in asked]


def status(seen: bytes) -> int:
    return int(seen.split(b" ", 2)[1])


@contextmanager
def health_is_watched(server: Any) -> Iterator[Callable[[], None]]:
    """Ask for ``/healthz`` again and again; each answer must be there at once.

    Gives what waits until some more answers have come.
    """
    waits: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            begun = time.monotonic()
            assert server.request("GET", "/healthz")[0] == 200
            waits.append(time.monotonic() - begun)
            stop.wait(0.02)

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)

        def some_more() -> None:
            enough = len(waits) + 5
            server.wait(lambda: len(waits) >= enough or asked.done())

        try:
            yield some_more
            some_more()
        finally:
            stop.set()
        asked.result()
    assert max(waits) < AT_ONCE_S, waits


@pytest.mark.slow
@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_four_times_more_slow_streams_than_threads(start, connection) -> None:
    server = start("--threads", str(THREADS))
    message = request(model="ticks", stream=True, connection=connection)
    with connected(server.port, 4 * THREADS) as sockets, health_is_watched(server):
        # the streams have no end: nobody can have waited for one
        results = first_bytes(sockets, message)
        assert Counter(status(seen) for seen in results) == {
            200: STREAMS,
            503: 4 * THREADS - STREAMS,
        }
        # with every stream taken, what is short is answered
        assert server.ask("slow", "p", tenths=0)[0] == 200
        for sock, seen in zip(sockets, results, strict=True):
            if status(seen) == 503:
                head = seen.partition(b"\r\n\r\n")[0].lower()
                assert b"\r\nretry-after: 1\r\n" in head + b"\r\n"
                assert b"\r\nretry-after-ms: 1000\r\n" in head + b"\r\n"
            else:
                # it goes on although others were refused
                assert sock.recv(65536)
    # all have left: there is room again
    server.wait(lambda: server.ask("slow", "p", tenths=0)[0] == 200)


@pytest.mark.slow
@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_four_times_more_slow_json_answers_than_threads(start, connection) -> None:
    server = start("--threads", str(THREADS))
    message = request(model="steps", connection=connection)
    with connected(server.port, 4 * THREADS) as sockets, health_is_watched(server) as some_more:

        def heard(count: int) -> None:
            if count == REFUSED:
                # the others hold all threads until they may go on
                some_more()
                for number in range(3):
                    (server.folder / f"step-{number}").touch()

        results = first_bytes(sockets, message, heard)
    assert Counter(status(seen) for seen in results) == {200: SERVED, 503: REFUSED}


@pytest.mark.slow
def test_connections_on_which_nothing_is_sent_take_no_thread(start) -> None:
    server = start("--threads", "8")
    with connected(server.port, 100), health_is_watched(server):
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: server.ask("slow", "p", tenths=1)[0], range(4)))
        assert answers == [200] * 4


@pytest.mark.usefixtures("long_waits")
def test_connections_on_which_nothing_is_sent_do_not_delay_the_end(start) -> None:
    server = start("--threads", "8", "--graceful-timeout-s", "600")
    with connected(server.port, 20):
        # the last of them has been taken
        server.wait(server.answers)
        server.process.terminate()
        assert server.exit_code() == 0


@pytest.mark.slow
def test_clients_that_stay_after_their_answer_hold_nobody_up(start) -> None:
    """Refused or answered with ``Connection: close``, they leave their end open."""
    server = start("--threads", "8")
    message = request(model="slow", tenths=0)
    with connected(server.port, 60) as sockets, health_is_watched(server):
        for sock in sockets:
            sock.sendall(message)
        for sock in sockets:
            seen = sock.recv(65536)
            assert status(seen) in (200, 503)
            # the server has closed its own end
            while seen:
                seen = sock.recv(65536)


class Keys:
    """Keys for a server that is about to be started."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        # the limits of accounts have tests of their own
        unlimited = ("--account-jobs-in-progress", "0", "--account-loops-per-month", "0")
        self.flags = ("--keys-file", str(self.path), *unlimited)

    def make(self, **limits: int) -> str:
        secret = generate_key()
        key = Key(
            id=hash_key(secret)[:12],
            sha256=hash_key(secret),
            account="acme",
            limits=KeyLimits(**limits),
        )
        edit_key_file(self.path, lambda keys: (*keys, key))
        return secret


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def ask(port: int, message: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(message)
        return b"".join(iter(lambda: sock.recv(65536), b""))


@pytest.mark.slow
def test_callers_without_a_key_cannot_hold_threads_with_bodies_that_never_come(start, keys) -> None:
    keys.make()
    server = start("--threads", "8", *keys.flags)
    head = request(model="slow").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    keep = head.replace(b"Connection: close", b"Connection: keep-alive")
    with connected(server.port, 60) as sockets, health_is_watched(server):
        results = first_bytes(sockets, keep)
    assert {status(seen) for seen in results} == {401}


@pytest.mark.slow
def test_50_requests_at_once_of_one_key_get_exactly_what_is_allowed(start, keys) -> None:
    key = keys.make(requests_per_minute=20)
    server = start("--threads", "64", *keys.flags)
    message = request(key, model="slow", tenths=0)
    with connected(server.port, 50) as sockets:
        results = first_bytes(sockets, message)
    assert Counter(status(seen) for seen in results) == {200: 20, 429: 30}
    assert any(b"x-ratelimit-remaining-requests: 0\r\n" in seen.lower() for seen in results)


def test_a_client_that_is_gone_gives_its_stream_back(start, keys) -> None:
    key = keys.make(streams=2)
    server = start(*keys.flags)
    message = request(key, model="ticks", stream=True)
    with connected(server.port, 2) as sockets:
        assert [status(seen) for seen in first_bytes(sockets, message)] == [200, 200]
        assert status(ask(server.port, message)) == 429
        # reset, not closed in peace
        sockets[0].setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
        )
        sockets[0].close()

        def third_gets_in() -> bool:
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as third:
                third.sendall(message)
                return status(third.recv(65536)) == 200

        server.wait(third_gets_in)


def test_a_header_of_a_megabyte_is_refused_and_the_server_lives_on(start, keys) -> None:
    key = keys.make()
    server = start(*keys.flags)
    huge = request("x" * 1_000_000, model="slow")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        # it may be refused before it was all sent
        with contextlib.suppress(OSError):
            sock.sendall(huge)
        seen = sock.recv(65536)
    assert status(seen) == 431
    assert status(ask(server.port, request(key, model="slow", tenths=0))) == 200


def answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def redis_port(
    tmp_path: Path, free_port: Callable[[], int]
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run a Redis of our own that keeps nothing."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    pytest.importorskip("redis")
    port = free_port()
    flags = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(tmp_path)]
    process = subprocess.Popen(
        [program, "--port", str(port), *flags], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while not answers(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield port, process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.usefixtures("long_waits")
def test_workers_count_together_in_redis_and_alone_without_it(start, keys, redis_port) -> None:
    port, redis = redis_port
    key = keys.make(requests_per_minute=20)
    settings = keys.path.with_name("caesar-server.toml")
    settings.write_text(f'limits_storage = "redis://127.0.0.1:{port}"\n')
    server = start("--workers", "2", "--threads", "64", *keys.flags)
    assert "counts requests per minute alone" not in server.log
    message = request(key, model="slow", tenths=2)
    with connected(server.port, 50) as sockets:
        results = first_bytes(sockets, message)
    assert Counter(status(seen) for seen in results) == {200: 20, 429: 30}
    redis.kill()
    redis.wait()
    # a worker that counts alone begins anew
    assert status(ask(server.port, request(key, model="slow", tenths=0))) == 200
    server.wait(lambda: "limits_storage failed" in server.log)


def test_workers_that_count_alone_are_told_at_the_start(start, keys) -> None:
    keys.make(requests_per_minute=20)
    server = start("--workers", "2", *keys.flags)
    server.wait(lambda: "each of the 2 workers counts requests per minute alone" in server.log)
