"""Jobs that a store may keep back until something is known of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from caesar_server.contract import Completed, CompletionRequest, LoopFinished
from caesar_server.store.base import FencedError, Job, Record, Store, StoreError, UnknownJobError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.sql.connecting.answered import AnsweredConnection
from caesar_server.store.sql.connecting.held import Held, HeldJob
from caesar_server.store.sql.postgres import PostgresDatabase
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore

NewJob = Callable[..., Job]
Text = Callable[[int, int], list[Record]]
OpenStore = Callable[..., SqlStore]

#: In the month of 1,700,000,000.
MONTH = "2023-11"


class CountingDatabase(SqliteDatabase):
    """Counts transactions that tell of something."""

    transactions = 0

    def announce(self, connection: Any, token: str) -> None:
        self.transactions += 1
        super().announce(connection, token)


@pytest.fixture
def mine(new_job: NewJob) -> NewJob:
    def make(id: str = "job", **fields: Any) -> Job:
        return new_job(id, owner="me", attempt=1, **fields)

    return make


@pytest.fixture
def whole(text: Text) -> list[Record]:
    """All that comes of a job."""
    return [*text(1, 2), Record(3, 1_700_000_003.0, Completed())]


def test_it_is_there_with_all_that_came_of_it(
    store: Store, mine: NewJob, whole: list[Record]
) -> None:
    store.create(mine(fingerprint="f"), wait=False, held=True)
    store.append("job", 1, whole)
    ended = mine(fingerprint="f").changed(
        owner=None, status="completed", last_seq=3, finished_at=1_700_000_003.0
    )
    assert store.job("job") == store.find("", "f") == ended
    assert list(store.records("job")) == whole


def test_one_step_stores_all_of_it(
    sqlite: SqliteDatabase, open_store: OpenStore, mine: NewJob, whole: list[Record]
) -> None:
    database = CountingDatabase(sqlite.path)
    store = open_store(database)
    for number in range(10):
        store.create(mine(str(number)), wait=False, held=True)
        store.append(str(number), 1, whole)
    assert database.transactions == 10


def test_others_see_it_as_soon_as_its_process_looks_for_cancels(
    database: Any, open_store: OpenStore, mine: NewJob, whole: list[Record]
) -> None:
    store, other = open_store(database), open_store(database)
    store.create(mine(), wait=False, held=True)
    assert list(other.jobs()) == []
    store.cancel_requests("me")
    store.renew("me", 60)  # comes after it
    assert [job.id for job in other.jobs()] == ["job"]
    other.request_cancel("job")
    assert list(store.cancel_requests("me")) == ["job"]
    store.append("job", 1, whole)
    assert other.job("job").status == "completed"


def test_what_comes_of_it_bit_by_bit_is_stored_as_ever(
    database: Any, open_store: OpenStore, mine: NewJob, text: Text
) -> None:
    store, other = open_store(database), open_store(database)
    store.create(mine(), wait=False, held=True)
    store.append("job", 1, text(1, 2))
    assert other.job("job").last_seq == 2
    store.append("job", 1, text(3, 1), checkpoint=Checkpoint({"a": 1}))
    store.append("job", 1, [Record(4, 1_700_000_004.0, Completed())])
    assert other.job("job").status == "completed"
    assert len(other.records("job")) == 4


def test_loops_count_for_its_account(store: Store, mine: NewJob) -> None:
    store.create(mine(account="x"), wait=False, held=True)
    events = (LoopFinished(1), LoopFinished(2), Completed())
    store.append("job", 1, [Record(n, 1_700_000_000.0, e) for n, e in enumerate(events, 1)])
    assert store.standing("x", MONTH).loops == 2


@pytest.mark.parametrize(("attempt", "first"), [(2, 1), (1, 2)])
def test_what_is_not_of_its_attempt_is_fenced(
    store: Store, mine: NewJob, attempt: int, first: int
) -> None:
    store.create(mine(), wait=False, held=True)
    with pytest.raises(FencedError):
        store.append("job", attempt, [Record(first, 1_700_000_000.0, Completed())])
    assert store.job("job").status == "queued"


def test_it_can_be_removed_before_it_is_stored(store: Store, mine: NewJob, text: Text) -> None:
    store.create(mine(), wait=False, held=True)
    store.delete("job")
    with pytest.raises(UnknownJobError):
        store.append("job", 1, text(1, 1))
    assert list(store.jobs()) == []


def test_a_second_one_of_its_id_is_refused(store: Store, mine: NewJob, whole: list[Record]) -> None:
    store.create(mine(model="first"), wait=False, held=True)
    with pytest.raises(ValueError, match="job job exists"):
        store.create(mine(model="second"), wait=False, held=True)
    store.append("job", 1, whole)
    assert store.job("job").model == "first"


def test_a_store_that_closes_leaves_none_behind(
    database: Any, open_store: OpenStore, mine: NewJob
) -> None:
    store = open_store(database)
    store.create(mine(), wait=False, held=True)
    store.close()
    assert open_store(database).job("job").owner == "me"


def test_who_appends_hears_why_it_could_not_be_stored(
    postgres: PostgresDatabase, open_store: OpenStore, mine: NewJob, whole: list[Record]
) -> None:
    store = open_store(postgres)
    store.create(mine("bad", account="a\0b"), wait=False, held=True)
    store.create(mine("good"), wait=False, held=True)
    with pytest.raises(StoreError, match="NUL"):
        store.append("bad", 1, whole)
    store.append("good", 1, whole)
    assert [job.id for job in store.jobs()] == ["good"]


def test_a_commit_that_nobody_heard_of_counts_once(
    forgetful: Any, open_store: OpenStore, mine: NewJob, whole: list[Record]
) -> None:
    store = open_store(forgetful)
    store.create(mine(), wait=False, held=True)
    forgetful.losses = 1
    store.append("job", 1, whole)
    assert store.job("job").status == "completed"
    assert list(store.records("job")) == whole


def test_it_can_be_tried_again_after_the_database_was_away(
    postgres: PostgresDatabase,
    open_store: OpenStore,
    mine: NewJob,
    whole: list[Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise psycopg.OperationalError("connection refused")

    store = open_store(postgres, retry_s=0.2)
    store.create(mine(), wait=False, held=True)
    with monkeypatch.context() as away:
        away.setattr(AnsweredConnection, "connect", refuse)
        with pytest.raises(StoreError):
            store.append("job", 1, whole)
    store.append("job", 1, whole)
    assert store.job("job").status == "completed"


def test_one_that_cannot_be_written_harms_no_other(
    sqlite: SqliteDatabase, open_store: OpenStore, mine: NewJob, whole: list[Record]
) -> None:
    store = open_store(sqlite)
    store.create(mine("good"), wait=False, held=True)
    unwritable = CompletionRequest(prompts=(object(),))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.create(mine("bad", request=unwritable), wait=False, held=True)
    store.renew("me", 60)
    store.append("good", 1, whole)
    assert [job.id for job in store.jobs()] == ["good"]


def test_whoever_settles_comes_before_what_ends_meanwhile(
    sqlite: SqliteDatabase, open_store: OpenStore, mine: NewJob, whole: list[Record]
) -> None:
    """While one thread hands jobs over, the thread of another one of them waits its turn."""
    store = open_store(sqlite)
    for number in range(200):
        store.create(mine(str(number)), wait=False, held=True)
    begin = threading.Barrier(3)

    def settle() -> None:
        begin.wait()
        store.cancel_requests("me")

    def end(first: int) -> list[Future[None]]:
        begin.wait()
        return [store.append_soon(str(n), 1, whole) for n in range(first, 200, 2)]

    with ThreadPoolExecutor(3, thread_name_prefix="test") as pool:
        settling = pool.submit(settle)
        ends = [pool.submit(end, first) for first in (0, 1)]
        settling.result()
        for done in (one for many in ends for one in many.result()):
            done.result()
    assert {job.status for job in store.jobs(limit=200)} == {"completed"}


def test_a_job_is_kept_back_until_it_is_handed_over(mine: NewJob) -> None:
    """Or what its own thread has of it would overtake it."""
    seen: list[tuple[str, list[str]]] = []

    def add(job: HeldJob) -> None:
        seen.append((job.job.id, [id for id in "abc" if held.get(id) is not None]))

    held = Held(add)
    for id in "abc":
        held.hold(mine(id))
    held.settle()
    assert seen == [("a", ["a", "b", "c"]), ("b", ["b", "c"]), ("c", ["c"])]
    assert held.get("c") is None


def test_what_is_added_with_all_of_it_is_not_added_before(mine: NewJob) -> None:
    added: list[str] = []
    held = Held(lambda job: added.append(job.job.id))
    held.hold(mine("whole"))
    held.hold(mine("part"))
    done: Future[None] = Future()
    assert held.end("whole", lambda: done) is done
    held.settle()
    assert added == ["part"]
    assert not held.drop("whole")
    done.set_exception(StoreError("away"))
    held.settle()
    assert added == ["part", "whole"]
    assert held.end("whole", lambda: done) is None
