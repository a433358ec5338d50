"""Jobs that a store may keep back until something is known of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from caesar_server.contract import Completed, LoopFinished
from caesar_server.store.base import FencedError, Job, Record, Store, StoreError, UnknownJobError
from caesar_server.store.checkpoints import Checkpoint
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
