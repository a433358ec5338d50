"""Several processes on one database: who is killed, stopped or told a wrong time loses nothing."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL

from caesar_server.store.base import Job, Record, StoreError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.sql.postgres import PostgresDatabase
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore

NewJob = Callable[..., Job]
OpenStore = Callable[..., SqlStore]
Eventually = Callable[[Callable[[], object]], None]

WITHIN_S = 60.0
WORKER = Path(__file__).with_name("worker.py")


class Worker:
    """A process of ``worker.py``, and what it prints."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
        )
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="test-reader")
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def wait_for(self, beginning: str) -> str:
        """Return the next line that begins so."""
        while True:
            line = self.lines.get(timeout=WITHIN_S)
            if line.startswith(beginning):
                return line

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def url_of(database: Any) -> str:
    if isinstance(database, SqliteDatabase):
        return f"sqlite:///{database.path}"
    url: str = database.writing_engine().url.render_as_string(hide_password=False)
    return url


@pytest.fixture
def start_worker() -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(
        database: Any, owner: str, *, lease_s: float = 1, records: int = 40, **env: str
    ) -> Worker:
        given = [url_of(database), owner, str(lease_s), str(records)]
        worker = Worker([sys.executable, str(WORKER), *given], env)
        workers.append(worker)
        worker.wait_for("ready")
        return worker

    yield start
    for worker in workers:
        worker.end()


def waiting_jobs(store: SqlStore, new_job: NewJob, count: int) -> list[str]:
    ids = [f"job{number:02}" for number in range(count)]
    for id in ids:
        store.create(new_job(id, detached=True))
    return ids


def assert_whole(store: SqlStore, id: str, records: int) -> None:
    stored = store.records(id)
    assert [record.seq for record in stored] == list(range(1, records + 2))
    text = "".join(getattr(record.event, "text", "") for record in stored)
    assert text == "".join(f"{seq} " for seq in range(1, records + 1))


@pytest.mark.slow
def test_jobs_of_killed_processes_are_taken_over_and_none_is_run_twice_at_once(
    database: Any,
    open_store: OpenStore,
    new_job: NewJob,
    start_worker: Callable[..., Worker],
    eventually: Eventually,
) -> None:
    store = open_store(database)
    # a lease that a busy machine does not keep anybody from renewing
    workers = [start_worker(database, f"worker{n}", lease_s=3) for n in range(3)]
    ids = waiting_jobs(store, new_job, 12)
    for worker in workers[:2]:
        worker.wait_for("claimed")
        worker.signal(signal.SIGKILL)
    eventually(lambda: all(store.job(id).status == "completed" for id in ids))
    for id in ids:
        assert_whole(store, id, 40)
    assert max(store.job(id).attempt for id in ids) <= 3


def stop_between_transactions(worker: Worker, database: Any) -> None:
    """Stop a process; on SQLite at a moment at which others can write.

    PostgreSQL ends the transaction of a process that was stopped within one.
    """
    while True:
        worker.signal(signal.SIGSTOP)
        if not isinstance(database, SqliteDatabase):
            return
        with contextlib.closing(database.connect()) as connection:
            connection.execute("PRAGMA busy_timeout = 100")
            with contextlib.suppress(sqlite3.OperationalError):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                return
        worker.signal(signal.SIGCONT)


@pytest.mark.slow
def test_a_process_that_was_stopped_past_its_lease_writes_nothing(
    database: Any,
    open_store: OpenStore,
    new_job: NewJob,
    start_worker: Callable[..., Worker],
    eventually: Eventually,
) -> None:
    store = open_store(database)
    store.create(new_job(detached=True))
    zombie = start_worker(database, "zombie", lease_s=0.5, records=10_000_000)
    zombie.wait_for("claimed")
    eventually(lambda: store.job("job").last_seq > 10)
    stop_between_transactions(zombie, database)
    taken: list[Job] = []
    store.renew("heir", 60)

    def take() -> bool:
        taken.extend(filter(None, [store.claim_next("heir", ["b"])]))
        return bool(taken)

    try:
        eventually(take)
    finally:
        zombie.signal(signal.SIGCONT)
    zombie.wait_for("fenced job")
    stored = store.job("job")
    assert (stored.attempt, stored.owner, stored.last_seq) == (2, "heir", taken[0].last_seq)
    assert len(store.records("job")) == stored.last_seq == stored.checkpoint["upto"]


@pytest.mark.slow
def test_a_transaction_of_a_stopped_process_is_ended_by_the_database(
    postgres: Any, open_store: OpenStore, new_job: NewJob, text: Callable[..., list[Record]]
) -> None:
    """As if SIGSTOP had come between the fence and the commit."""
    store = open_store(postgres)
    store.create(new_job(detached=True))
    store.renew("zombie", 0.01)
    store.claim("job", "zombie")
    engine = postgres.writing_engine()
    with engine.connect() as stopped:
        stopped.exec_driver_sql(
            "UPDATE caesar_jobs SET last_seq = 1 WHERE id = 'job' AND attempt = 1 AND last_seq = 0"
        )
        # waits for the row until the database ends the zombie's transaction
        assert store.claim("job", "heir").attempt == 2
        with pytest.raises(Exception, match=r"idle-in-transaction|closed the connection"):
            stopped.exec_driver_sql("SELECT 1")
        stopped.invalidate()
    engine.dispose()
    store.append("job", 2, text(1, 1))
    assert store.job("job").last_seq == 1


class StickingProxy:
    """Between a client and a server: at some point it passes nothing on, as if the client stood.

    :param url: of the server.
    :param after_bytes: how many it still passes on of what one connection sends, once it is armed.
    """

    def __init__(self, url: URL, after_bytes: int) -> None:
        self._server = (url.host or "127.0.0.1", url.port or 5432)
        self._after_bytes = after_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept, name="test-proxy")]
        self._threads[0].start()
        self.url = url.set(host="127.0.0.1", port=self._listener.getsockname()[1])
        self.armed = False
        #: Whether it has come to that point.
        self.sticks = threading.Event()

    def close(self) -> None:
        """End all connections, and their threads."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._sockets += [client, server]
            for one, other in ((client, server), (server, client)):
                thread = threading.Thread(
                    target=self._pass_on, args=(one, other, one is client), name="test-proxy"
                )
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, one: socket.socket, other: socket.socket, is_client: bool) -> None:
        left = self._after_bytes
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if is_client and self.armed:
                    other.sendall(data[:left])
                    left -= len(data)
                    if left < 0:
                        self.sticks.set()
                        while one.recv(65536):  # until the proxy is closed
                            pass
                        return
                else:
                    other.sendall(data)
            other.shutdown(socket.SHUT_WR)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 9], ids=["the first time", "again"])
def test_a_process_that_is_stopped_while_it_sends_holds_no_job(
    postgres: Any,
    open_store: OpenStore,
    new_job: NewJob,
    text: Callable[..., list[Record]],
    times: int,
) -> None:
    """What is large goes out in pieces, and a process may be stopped between any two of them."""
    store = open_store(postgres)
    store.create(new_job(detached=True))
    proxy = StickingProxy(postgres.writing_engine().url, after_bytes=100_000)
    zombie = open_store(PostgresDatabase(proxy.url), retry_s=0.1)
    try:
        zombie.renew("zombie", 0.01)
        zombie.claim("job", "zombie")
        for seq in range(1, times):
            zombie.append("job", 1, text(seq, 1), checkpoint=Checkpoint({"text": "y"}))
        proxy.armed = True
        large = Checkpoint({"text": "y" * 3_000_000})
        late = zombie.append_soon("job", 1, text(times, 1), checkpoint=large)
        assert proxy.sticks.wait(WITHIN_S)
        # waits for the row until the database ends the zombie's transaction
        assert store.claim("job", "heir").attempt == 2
    finally:
        proxy.close()
    with pytest.raises(StoreError):
        late.result(WITHIN_S)
    assert store.job("job").last_seq == times - 1


def test_changes_of_another_process_are_noticed(
    database: Any, open_store: OpenStore, new_job: NewJob, start_worker: Callable[..., Worker]
) -> None:
    store = open_store(database)
    store.create(new_job(detached=True))
    changes = store.changes()
    while changes.wait(0.2):
        pass
    start_worker(database, "worker", records=2)
    deadline = time.monotonic() + WITHIN_S
    assert changes.wait(WITHIN_S)
    while store.job("job").status != "completed":
        assert changes.wait(WITHIN_S)
        assert time.monotonic() < deadline


FAKETIME = next(
    (str(path) for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")),
    None,
)


@pytest.mark.skipif(
    FAKETIME is None or shutil.which("faketime") is None, reason="faketime is not installed"
)
def test_a_clock_that_jumps_moves_no_lease(
    sqlite: SqliteDatabase,
    open_store: OpenStore,
    new_job: NewJob,
    start_worker: Callable[..., Worker],
    eventually: Eventually,
    tmp_path: Path,
) -> None:
    """Only the time of day is false there, as when somebody sets the clock."""
    offset = tmp_path / "offset"
    offset.write_text("+0")
    store = open_store(sqlite)
    for id in ("a", "b", "c"):
        store.create(new_job(id, detached=True))
    worker = start_worker(
        sqlite,
        "worker",
        lease_s=10,
        records=1_000_000,
        LD_PRELOAD=FAKETIME,
        FAKETIME_TIMESTAMP_FILE=str(offset),
        FAKETIME_NO_CACHE="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
    )
    worker.wait_for("claimed")
    eventually(lambda: store.job("a").last_seq > 2)

    def newest() -> float:
        return store.records("a", store.job("a").last_seq - 1)[0].created_at

    for jump in ("+400d", "-400d", "+0"):
        offset.write_text(jump)
        apart = int(jump.rstrip("d")) * 86_400
        # it did jump
        eventually(lambda apart=apart: abs(newest() - time.time() - apart) < 3600)
        before = store.job("a").last_seq
        eventually(lambda before=before: store.job("a").last_seq > before)
        assert list(store.lost()) == []
        assert store.job("a").attempt == 1
    worker.signal(signal.SIGKILL)
    assert list(store.lost()) == []
    eventually(lambda: [lost.id for lost in store.lost()] == ["a"])


def test_a_connection_that_the_database_ends_is_made_anew(
    postgres: Any,
    postgres_url: str,
    open_store: OpenStore,
    new_job: NewJob,
    text: Callable[..., list[Record]],
) -> None:
    store = open_store(postgres)
    other = open_store(postgres)
    changes = store.changes()
    store.create(new_job(owner="me", attempt=1))
    for seq in range(1, 6):
        with psycopg.connect(postgres_url, autocommit=True) as server:
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        store.append("job", 1, text(seq, 1))
        assert len(store.records("job")) == seq
    deadline = time.monotonic() + WITHIN_S
    while changes.wait(1.0):
        assert time.monotonic() < deadline
    other.request_cancel("job")
    assert changes.wait(WITHIN_S)
