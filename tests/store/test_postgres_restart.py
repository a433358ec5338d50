"""A PostgreSQL server that is stopped and started again while jobs are written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from caesar_server.contract import Completed
from caesar_server.store.base import Job, Record, StoreError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.sql.postgres import PostgresDatabase
from caesar_server.store.sql.revisions import upgrade
from caesar_server.store.sql.store import SqlStore

WITHIN_S = 60.0
WRITERS = 4

NewJob = Callable[..., Job]
Text = Callable[[int, int], list[Record]]
#: Of tests/conftest.py.
Cluster = Any


@pytest.mark.slow
def test_a_restart_under_load_loses_nothing_and_nobody_hears_of_it(
    cluster: Cluster, new_job: NewJob, text: Text, eventually: Callable[..., None]
) -> None:
    database = PostgresDatabase(make_url(cluster.url))
    upgrade(database)
    # two, as two processes would have them
    stores = [SqlStore(database, retry_s=WITHIN_S) for _ in range(2)]
    watching = stores[1].changes()
    enough = threading.Event()
    acknowledged = [0] * WRITERS

    def write(number: int) -> None:
        """Run jobs until it is enough, reading each."""
        store = stores[number % 2]
        while not enough.is_set():
            id = f"{number}-{acknowledged[number]}"
            store.create(new_job(id, detached=True))
            job = store.claim(id, "me", attempt=0)
            for seq in range(1, 6):
                store.append(id, job.attempt, text(seq, 1), checkpoint=Checkpoint({"upto": seq}))
            store.append(id, job.attempt, [Record(6, 1.0, Completed())])
            assert len(store.records(id)) == 6
            acknowledged[number] += 1

    try:
        with ThreadPoolExecutor(WRITERS, thread_name_prefix="test") as pool:
            writing = [pool.submit(write, number) for number in range(WRITERS)]
            try:
                for number in (signal.SIGINT, signal.SIGQUIT):
                    before = sum(acknowledged)
                    eventually(lambda before=before: sum(acknowledged) > before + 10)
                    cluster.stop(number)
                    cluster.start()
                before = sum(acknowledged)
                eventually(lambda before=before: sum(acknowledged) > before + 10)
            finally:
                enough.set()
            for one in writing:
                one.result(WITHIN_S)
        for number, count in enumerate(acknowledged):
            for job in range(count):
                stored = stores[0].job(f"{number}-{job}")
                assert (stored.status, stored.attempt, stored.last_seq) == ("completed", 1, 6)
                seqs = [record.seq for record in stores[0].records(stored.id)]
                assert seqs == [1, 2, 3, 4, 5, 6]
        eventually(lambda: not watching.wait(1.0))
        stores[0].create(new_job("last"))
        assert watching.wait(WITHIN_S)
    finally:
        for store in stores:
            store.close()


@pytest.mark.slow
def test_while_the_server_is_away_the_store_says_so_and_comes_back_by_itself(
    cluster: Cluster, new_job: NewJob, text: Text
) -> None:
    database = PostgresDatabase(make_url(cluster.url))
    upgrade(database)
    store = SqlStore(database, retry_s=0.2)
    try:
        store.create(new_job(owner="me", attempt=1))
        cluster.stop(signal.SIGINT)
        for call in (
            store.check,
            store.jobs,
            lambda: store.append("job", 1, text(1, 1)),
            lambda: store.create(new_job("new")),
        ):
            with pytest.raises(StoreError, match=f"127.0.0.1:{cluster.port}/postgres"):
                call()
        cluster.start()
        store.check()
        store.append("job", 1, text(1, 1))
        assert [job.id for job in store.jobs()] == ["job"]
    finally:
        store.close()


@pytest.mark.slow
def test_a_new_job_hears_soon_that_the_server_is_away_and_a_running_one_is_patient(
    cluster: Cluster, new_job: NewJob, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("connecting.writer", "store"):
        monkeypatch.setattr(f"caesar_server.store.sql.{module}.ASKED_PART", 0.001)
    database = PostgresDatabase(make_url(cluster.url))
    upgrade(database)
    store = SqlStore(database, retry_s=WITHIN_S)
    try:
        store.create(new_job(owner="me", attempt=1))
        cluster.stop(signal.SIGINT)
        running = store.append_soon("job", 1, text(1, 1))
        for call in (
            lambda: store.create(new_job("new")),
            lambda: store.waiting(limit=1),
            lambda: store.session_job("s"),
            lambda: store.standing("x", "2026-11"),
            lambda: store.find("x", "f"),
            lambda: store.append("job", 1, text(2, 1)),
            lambda: store.renew("me", 30.0),
        ):
            with pytest.raises(StoreError, match=f"127.0.0.1:{cluster.port}/postgres"):
                call()
        assert not running.done()
        cluster.start()
        running.result(WITHIN_S)
        assert [job.last_seq for job in store.jobs()] == [1]
    finally:
        store.close()


@pytest.mark.slow
def test_a_server_that_is_a_standby_for_a_while_is_waited_for(
    cluster: Cluster,
    new_job: NewJob,
    eventually: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = PostgresDatabase(make_url(cluster.url))
    upgrade(database)
    store = SqlStore(database, retry_s=WITHIN_S)

    def takes_writes(server: Any, taken: str) -> None:
        server.execute(f"ALTER SYSTEM SET default_transaction_read_only = {taken}")
        server.execute("SELECT pg_reload_conf()")

    try:
        with psycopg.connect(cluster.url, autocommit=True) as server:
            server.execute("SET default_transaction_read_only = off")
            takes_writes(server, "on")
            enough = threading.Event()

            def refused() -> bool:
                return "read-only transaction; name the primary" in caplog.text

            def write() -> None:
                number = 0
                while not enough.is_set():
                    store.create(new_job(f"job-{number}", detached=True))
                    number += 1

            with ThreadPoolExecutor(1, thread_name_prefix="test") as pool:
                writing = pool.submit(write)
                try:
                    eventually(refused)
                finally:
                    takes_writes(server, "off")
                    enough.set()
                writing.result(WITHIN_S)
    finally:
        store.close()
