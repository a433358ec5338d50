"""Many who read at once: each gets an answer, and what a process lives by does not wait."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from caesar_server.store.base import Job, Record, Store, StoreError, UnknownJobError
from caesar_server.store.sql import queries
from caesar_server.store.sql.connecting import process as process_module
from caesar_server.store.sql.connecting.gate import Gate
from caesar_server.store.sql.connecting.process import Process
from caesar_server.store.sql.database import READERS
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore

NewJob = Callable[..., Job]
OpenStore = Callable[..., SqlStore]
Text = Callable[[int, int], list[Record]]
Eventually = Callable[[Callable[[], object]], None]

WITHIN_S = 60.0
MANY = 20


def filled(store: Store, job: Job, text: Text, count: int, *, batch: int) -> Store:
    """Add a job with so many records, ``batch`` of them in a row."""
    store.create(job)
    attempt = store.claim(job.id, "me").attempt
    for first in range(1, count + 1, batch):
        store.append_soon(job.id, attempt, text(first, min(batch, count + 1 - first)))
    store.append(job.id, attempt, [])
    return store


class Held:
    """Stands for a function of the queries: whoever calls it stays in it until it is let go."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self.inside = 0
        self.most = 0
        self.go_on = threading.Event()

    def __call__(self, *args: Any, **named: Any) -> Any:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.go_on.wait(WITHIN_S)
        with self._lock:
            self.inside -= 1
        return self._function(*args, **named)


@contextmanager
def readers(
    held: Held, read: Callable[[], Any]
) -> Iterator[tuple[list[Future[Any]], ThreadPoolExecutor]]:
    """Let many read; the queries are let go at the end."""
    with ThreadPoolExecutor(MANY + 1, thread_name_prefix="test") as pool:
        try:
            yield [pool.submit(read) for _ in range(MANY)], pool
        finally:
            held.go_on.set()


def live(store: SqlStore) -> None:
    """Do what a process must do in time."""
    store.renew("me", 60.0)
    assert store.positions(["job"]) == {"job": 100}
    assert not store.cancel_requests("me")
    assert not store.lost()
    assert store.claim_next("me", ["another"]) is None
    assert store.prune(keep=10) == 0


READS: dict[str, Callable[[SqlStore], Any]] = {
    "rows_after": lambda store: store.records("job"),
    "records_in": lambda store: store.records("job"),
    "listed": lambda store: store.jobs(),
    "job_row": lambda store: store.job("job"),
}


@pytest.mark.parametrize("function", READS)
def test_leases_watches_and_claims_do_not_wait_for_readers(
    database: Any,
    open_store: OpenStore,
    new_job: NewJob,
    text: Text,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
) -> None:
    store = open_store(database)
    filled(store, new_job(), text, 100, batch=10)
    read = READS[function]
    alone = read(store)
    held = Held(getattr(queries, function))
    monkeypatch.setattr(queries, function, held)
    with readers(held, lambda: read(store)) as (reading, pool):
        eventually(lambda: held.inside >= READERS - 2)
        pool.submit(live, store).result(WITHIN_S / 2)
        if function != "job_row":
            # nor does one who wants little
            assert pool.submit(store.job, "job").result(WITHIN_S / 2).last_seq == 100
            # what may be large is not in memory for all of them at once
            assert held.most == READERS - 2
    assert all(one.result(WITHIN_S) == alone for one in reading)


def test_who_decodes_holds_no_connection(
    database: Any,
    open_store: OpenStore,
    new_job: NewJob,
    text: Text,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(database)
    filled(store, new_job(), text, 100, batch=10)
    held = Held(queries.records_in)
    monkeypatch.setattr(queries, "records_in", held)
    jobs = Held(queries.job_row)
    with readers(held, lambda: store.records("job")), monkeypatch.context() as patched:
        eventually(lambda: held.inside == READERS - 2)
        patched.setattr(queries, "job_row", jobs)
        with readers(jobs, lambda: store.job("job")):
            # all places but the one that is kept free
            eventually(lambda: jobs.inside == READERS - 1)


@pytest.mark.slow
def test_a_hundred_readers_of_long_jobs_all_get_an_answer(
    database: Any, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = open_store(database)
    filled(store, new_job(), text, 2000, batch=10)
    begin = threading.Barrier(100)

    def read() -> int:
        begin.wait(WITHIN_S)
        last = 0
        while some := store.records("job", last, limit=256):
            last = some[-1].seq
        return last

    with ThreadPoolExecutor(100, thread_name_prefix="test") as pool:
        reading = [pool.submit(read) for _ in range(100)]
        while not all(one.done() for one in reading):
            assert store.positions(["job"]) == {"job": 2000}
        assert {one.result() for one in reading} == {2000}


# portions


@pytest.mark.parametrize(
    ("limit", "portions"),
    [(None, [64, 64, 22]), (3, [3]), (100, [64, 36]), (150, [64, 64, 22]), (500, [64, 64, 22])],
)
def test_rows_are_fetched_in_portions_and_no_more_than_wanted(
    database: Any,
    open_store: OpenStore,
    new_job: NewJob,
    text: Text,
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
    portions: list[int],
) -> None:
    store = open_store(database)
    filled(store, new_job(), text, 150, batch=1)
    rows_after, fetched = queries.rows_after, []

    def count(*args: Any) -> Any:
        rows = rows_after(*args)
        fetched.append(len(rows))
        return rows

    monkeypatch.setattr(queries, "rows_after", count)
    assert list(store.records("job", limit=limit)) == text(1, min(150, limit or 150))
    assert fetched == portions


def test_no_records_are_wanted(store: Store, new_job: NewJob, text: Text) -> None:
    filled(store, new_job(), text, 3, batch=1)
    assert not store.records("job", limit=0)
    with pytest.raises(UnknownJobError):
        store.records("another", limit=0)


def test_a_job_that_is_deleted_between_two_portions_does_not_look_whole(
    database: Any,
    open_store: OpenStore,
    new_job: NewJob,
    text: Text,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(database)
    filled(store, new_job(), text, 128, batch=1)
    rows_after = queries.rows_after

    def delete(*args: Any) -> Any:
        rows = rows_after(*args)
        store.delete("job")
        return rows

    monkeypatch.setattr(queries, "rows_after", delete)
    with pytest.raises(UnknownJobError):
        store.records("job")


def test_what_cannot_be_decoded_is_an_error_of_the_store(
    store: Store, new_job: NewJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(store, SqlStore):
        return
    store.create(new_job())

    def refuse(*args: Any) -> Any:
        raise ValueError("no such event")

    monkeypatch.setattr(queries, "records_in", refuse)
    monkeypatch.setattr(queries, "whole", refuse)
    for read in (lambda: store.records("job"), lambda: store.job("job"), store.jobs):
        with pytest.raises(StoreError):
            read()


# a database that is away


def busy(*args: Any) -> Any:
    error = sqlite3.OperationalError("locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    raise OperationalError("SELECT", None, error)


def test_who_has_waited_long_enough_does_not_try_a_dead_database_again(sqlite: Any) -> None:
    process = Process(sqlite, 1.0, None, lambda process, job: None)
    try:
        with pytest.raises(StoreError, match="locked"):
            process.read(busy, -1.0)
        with pytest.raises(StoreError, match="locked"):
            process.read(lambda connection: 1, -1.0)
        # but one who has just come does
        assert process.read(lambda connection: 1, 5.0) == 1
        assert process.read(lambda connection: 1, -1.0) == 1
    finally:
        process.close()


# the gate


def test_a_gate_lets_in_by_turns(eventually: Eventually) -> None:
    gate, came = Gate(1), []

    def enter(name: int) -> None:
        with gate.place():
            came.append(name)

    with ThreadPoolExecutor(5, thread_name_prefix="test") as pool, gate.place():
        for name in range(5):
            pool.submit(enter, name)
            eventually(lambda expected=name + 1: len(gate._turns) == expected)
        assert not came
    assert came == [0, 1, 2, 3, 4]
    with gate.place():
        assert gate._free == 0
    assert gate._free == 1


@pytest.mark.parametrize("handed_over", [False, True])
def test_who_is_interrupted_before_the_gate_takes_no_place(
    monkeypatch: pytest.MonkeyPatch, handed_over: bool
) -> None:
    gate = Gate(1)
    holding = gate.place()
    holding.__enter__()

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if handed_over:
                holding.__exit__(None, None, None)
            raise KeyboardInterrupt

    monkeypatch.setattr("caesar_server.store.sql.connecting.gate.threading.Event", Interrupted)
    with pytest.raises(KeyboardInterrupt), gate.place():
        pass
    monkeypatch.undo()
    if not handed_over:
        holding.__exit__(None, None, None)
    with gate.place():
        assert gate._free == 0
    assert gate._free == 1


class AwayDatabase(SqliteDatabase):
    """Cannot be reached while it is away."""

    away = False

    def reading_engine(self) -> Any:
        engine = super().reading_engine()

        def refuse(*args: Any) -> None:
            if self.away:
                raise ConnectionError("away")

        event.listen(engine, "engine_connect", refuse)
        return engine

    def kind_of(self, error: Exception) -> Any:
        return "lost"


def test_once_a_read_has_waited_in_vain_the_others_wait_for_less(
    sqlite: SqliteDatabase, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def waited() -> float:
        began = now
        with pytest.raises(StoreError):
            store.jobs()
        return now - began

    monkeypatch.setattr(process_module.time, "monotonic", lambda: now)
    monkeypatch.setattr(process_module.time, "sleep", sleep)
    database = AwayDatabase(sqlite.path)
    store = open_store(database, retry_s=15.0)
    assert list(store.jobs()) == []
    database.away = True
    assert [15 <= waited() < 17, 5 <= waited() < 7, 5 <= waited() < 7] == [True] * 3
    database.away = False
    assert list(store.jobs()) == []
    database.away = True
    assert 15 <= waited() < 17
