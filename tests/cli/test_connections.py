"""How a worker's threads hand connections back to its loop, step by step."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gunicorn.config import Config  # type: ignore[import-untyped]
from gunicorn.glogging import Logger  # type: ignore[import-untyped]

from caesar_server.cli.workers.connections import CallQueue, PollingWorker
from caesar_server.cli.workers.thread_worker import ServerWorker
from caesar_server.errors import OverloadedError

ANSWER = b"HTTP/1.1 200 OK"
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Inline:
    """A pool that has no threads: what is handed in is done by :meth:`run`."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], object]] = []
        self.count = 0

    def submit(self, function: Callable[..., object], *arguments: object) -> None:
        self.count += 1
        self._calls.append(lambda: function(*arguments))

    def run(self) -> None:
        while self._calls:
            self._calls.pop(0)()

    def shutdown(self, wait: bool = True) -> None:
        pass


class Worker(PollingWorker):
    """A worker whose loop is turned by hand, with one listener."""

    def __init__(self) -> None:
        config = Config()
        config.set("keepalive", 600)
        config.set("threads", 2)
        config.set("worker_connections", 10)
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        super().__init__(0, os.getppid(), [listener], None, 30, config, Logger(config))
        self.listener = listener
        self.tpool = Inline()
        self.poller = selectors.DefaultSelector()
        self.method_queue.init()
        self.poller.register(
            self.method_queue.fileno(), selectors.EVENT_READ, self.method_queue.run_callbacks
        )
        self.set_accept_enabled(True)
        self.wsgi = app

    def turn(self, *, pause_s: float = 0.0) -> None:
        """One round of the loop, then what it has given to threads."""
        self.wait_for_and_dispatch_events(timeout=pause_s)
        self.murder_keepalived()
        self.murder_pending()
        self.tpool.run()

    def turn_until(self, condition: Callable[[], object]) -> None:
        for _ in range(1000):
            if condition():
                return
            self.turn(pause_s=0.05)
        raise AssertionError("it does not come to hold")

    def end(self) -> None:
        """What gunicorn's loop does last."""
        self.murder_keepalived(force=True)
        self.poller.close()
        self.method_queue.close()


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    for waiting in worker.pending_conns:
        waiting.close()
    worker.end()
    worker.listener.close()
    worker.tmp.close()


@pytest.fixture
def client(worker: Worker) -> Iterator[socket.socket]:
    """Connected, and taken by the worker."""
    with socket.create_connection(worker.listener.getsockname(), 60) as client:
        worker.turn_until(lambda: worker.nr_conns == 1)
        yield client


def ask(worker: Worker, client: socket.socket, handled: Callable[[], object]) -> None:
    client.sendall(REQUEST)
    worker.turn_until(handled)
    assert client.recv(15) == ANSWER


def rest(client: socket.socket) -> bytes:
    """Return what still comes until the worker closes."""
    return b"".join(iter(lambda: client.recv(65536), b""))


def test_a_thread_lets_the_loop_wait_for_the_next_request(worker, client) -> None:
    for number in (1, 2, 3):
        ask(worker, client, lambda number=number: worker.nr == number and worker.keepalived_conns)
        assert worker.nr_conns == 1
        (waiting,) = worker.keepalived_conns
        assert worker.poller.get_key(waiting.sock)
        while b"ok" not in client.recv(65536):
            pass


@pytest.mark.parametrize(("idle_s", "is_closed"), [(0.0, True), (600.0, False)])
def test_an_idle_connection_of_a_worker_that_ends_has_its_time(
    worker, client, monkeypatch, idle_s, is_closed
) -> None:
    monkeypatch.setattr(Worker, "idle_s", idle_s)
    ask(worker, client, lambda: worker.keepalived_conns)
    worker.alive = False
    worker._cap_keepalive(time.monotonic() + 600)  # as gunicorn's loop does then
    worker.turn()
    assert (worker.nr_conns == 0) is is_closed


def test_a_second_request_that_was_sent_already_is_answered_without_a_further_byte(
    worker, client
) -> None:
    client.sendall(REQUEST * 3)
    worker.turn_until(lambda: worker.nr == 3 and worker.keepalived_conns)
    got = b""
    while got.count(ANSWER) < 3 or not got.endswith(b"ok"):
        got += client.recv(65536)
    assert worker.nr_conns == 1


def send_slowly(worker: Worker, client: socket.socket, data: bytes) -> None:
    """Send bytes one by one, each once the worker has taken the one before."""
    for number in range(len(data)):
        (conn,) = (*worker.pending_conns, *worker.keepalived_conns)
        known = len(conn.head)
        client.sendall(data[number : number + 1])
        worker.turn_until(lambda conn=conn, known=known: len(conn.head) != known)


def test_a_head_that_comes_byte_by_byte_takes_a_thread_at_its_end(worker, client) -> None:
    for number in (1, 2):
        send_slowly(worker, client, REQUEST[:-1])
        assert (worker.tpool.count, len(worker.pending_conns)) == (number - 1, 1)
        ask_rest(worker, client, number)
        assert worker.tpool.count == number


def ask_rest(worker: Worker, client: socket.socket, number: int) -> None:
    """Send a head's last byte, and take the answer."""
    client.sendall(REQUEST[-1:])
    worker.turn_until(lambda: worker.nr == number and worker.keepalived_conns)
    got = b""
    while not got.endswith(b"ok"):
        got += client.recv(65536)


def test_a_part_of_a_head_behind_a_request_takes_no_thread(worker, client) -> None:
    client.sendall(REQUEST + REQUEST[:-1])
    worker.turn_until(lambda: worker.nr == 1 and worker.pending_conns)
    got = b""
    while not got.endswith(b"ok"):
        got += client.recv(65536)
    for _ in range(3):
        worker.turn()
    assert worker.tpool.count == 1
    ask_rest(worker, client, 2)


def test_a_head_that_does_not_come_to_its_end_is_given_up(worker, client) -> None:
    send_slowly(worker, client, REQUEST[:-1])
    (waiting,) = worker.pending_conns
    waiting.timeout = 0
    worker.turn()
    assert rest(client) == b""
    assert (worker.nr_conns, worker.tpool.count) == (0, 0)


def test_a_head_without_an_end_is_a_threads_to_refuse(worker, client) -> None:
    client.setblocking(False)
    piece = b"A: " + b"b" * 8000 + b"\r\n"
    sent = client.send(REQUEST[:-2])
    while not worker.tpool.count:
        with contextlib.suppress(BlockingIOError):
            sent += client.send(piece)
        assert sent < 10_000_000
        worker.wait_for_and_dispatch_events(timeout=0)
    assert sent > 100 * 8000
    client.close()
    worker.turn_until(lambda: worker.nr_conns == 0)


@pytest.mark.parametrize("sent", [b"", REQUEST[:-1]])
def test_a_client_that_goes_before_the_end_of_its_head_leaves_nothing(worker, client, sent) -> None:
    client.sendall(sent)
    client.shutdown(socket.SHUT_WR)
    worker.turn_until(lambda: worker.nr_conns == 0)
    assert rest(client) == b""
    assert (worker.tpool.count, worker.nr) == (1, 0)


def test_a_connection_that_the_loop_cannot_wait_for_is_closed_and_counts_no_more(
    worker, client, monkeypatch
) -> None:
    register = worker.poller.register

    def refuse(fileobj: Any, *arguments: Any) -> Any:
        if worker.nr == 1 and worker.keepalived_conns:
            raise OSError("no space left on device")  # epoll's own limit, max_user_watches
        return register(fileobj, *arguments)

    monkeypatch.setattr(worker.poller, "register", refuse)
    ask(worker, client, lambda: worker.nr == 1)
    worker.turn_until(lambda: worker._lingering)
    assert not worker.keepalived_conns
    assert rest(client).endswith(b"ok")
    client.close()
    worker.turn_until(lambda: worker.nr_conns == 0)


def test_a_connection_whose_time_is_over_meanwhile_is_closed_once(
    worker, client, monkeypatch
) -> None:
    register = worker.poller.register

    def late(fileobj: Any, *arguments: Any) -> Any:
        if worker.keepalived_conns:
            worker.murder_keepalived(force=True)  # as the loop may, just now
        return register(fileobj, *arguments)

    monkeypatch.setattr(worker.poller, "register", late)
    ask(worker, client, lambda: worker.nr == 1)
    assert rest(client).endswith(b"ok")
    for _ in range(3):
        worker.turn()
    assert worker.nr_conns == 0


def test_a_worker_that_was_told_to_end_meanwhile_keeps_no_connection_long(
    worker, client, monkeypatch
) -> None:
    """The loop has looked at those that wait before this one was among them."""
    register = worker.poller.register

    def told(fileobj: Any, *arguments: Any) -> Any:
        if worker.keepalived_conns:
            worker.alive = False
        return register(fileobj, *arguments)

    monkeypatch.setattr(worker.poller, "register", told)
    ask(worker, client, lambda: worker.nr == 1)
    worker.turn_until(lambda: worker.nr_conns == 0)
    assert rest(client).endswith(b"ok")


def test_after_the_end_of_the_loop_no_thread_writes_to_its_pipe(tmp_path) -> None:
    """Its number is that of the next file which is opened: the database of jobs, perhaps."""
    queue = CallQueue()
    queue.init()
    numbers = {queue._read_fd, queue._write_fd}
    queue.close()
    files = [(tmp_path / str(number)).open("w+b") for number in range(8)]
    assert numbers & {file.fileno() for file in files}
    queue.defer(print)
    for file in files:
        file.close()
    assert not any((tmp_path / str(number)).stat().st_size for number in range(8))
    queue.close()


def test_without_any_thread_the_connection_is_closed_and_the_worker_lives(
    worker, client, monkeypatch
) -> None:
    def no_thread(*_: object) -> None:
        raise OverloadedError("no thread")

    monkeypatch.setattr(worker.tpool, "submit", no_thread)
    client.sendall(REQUEST)
    worker.turn_until(lambda: worker.nr_conns == 0)
    assert rest(client) == b""


def test_without_any_thread_left_the_loop_does_what_a_worker_does_at_its_end(
    worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: object) -> None:
        raise RuntimeError("can't start new thread")

    done: list[int] = []
    monkeypatch.setattr("threading.Thread.start", start)
    ServerWorker.in_background(worker, done.append, 30)
    assert done == []
    worker.turn()
    assert done == [30]
