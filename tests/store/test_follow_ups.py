"""Follow-ups come and go with the job that they follow up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select

from caesar_server.contract import Completed, ContentDelta
from caesar_server.contract.context import Update
from caesar_server.store.base import Job, Record, Store, UnknownJobError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.memory import MemoryStore
from caesar_server.store.quotas import Quota, QuotaExceededError
from caesar_server.store.sql.schema import checkpoints, jobs, records, requests, updates
from caesar_server.store.sql.store import SqlStore

NewJob = Callable[..., Job]
OpenStore = Callable[..., SqlStore]

#: Long ago, so that nothing lingers.
ENDED = 1_700_000_000.0


def end(store: Store, id: str, at: float = ENDED) -> None:
    attempt = store.claim(id, "me").attempt
    store.append(id, attempt, [Record(1, at, Completed())])


def ids_in(store: Store) -> set[str]:
    return {job.id for job in store.jobs()}


def rows_in(database: Any) -> int:
    """Count the rows of all that belongs to jobs."""
    engine = database.reading_engine()
    try:
        with engine.connect() as connection:
            return sum(
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (jobs, records, checkpoints, requests, updates)
            )
    finally:
        engine.dispose()


# creating


@pytest.mark.parametrize("parent_id", ["gone", "no\0id\ud800"])
def test_a_job_that_does_not_exist_cannot_be_followed_up(
    store: Store, new_job: NewJob, parent_id: str
) -> None:
    quota = Quota(month="2023-11", jobs_in_progress=1, loops=1)
    for given in ({}, {"quota": quota}):
        with pytest.raises(UnknownJobError) as raised:
            store.create(new_job(parent_id=parent_id, session_id="s"), **given)
        assert str(raised.value) == parent_id
    assert not ids_in(store)
    assert store.session_job("s") is None


def test_a_follow_up_that_nobody_waits_for_fails_in_a_later_step(
    store: Store, new_job: NewJob
) -> None:
    late = new_job("late", parent_id="gone", owner="me", attempt=1)
    try:
        store.create(late, wait=False)
    except UnknownJobError:
        assert isinstance(store, MemoryStore)
    with pytest.raises(UnknownJobError):
        store.append("late", 1, [Record(1, ENDED, ContentDelta("x"))])
    assert not ids_in(store)


def test_a_follow_up_counts_against_the_quota_of_its_account(store: Store, new_job: NewJob) -> None:
    quota = Quota(month="2023-11", jobs_in_progress=0, loops=1)
    store.create(new_job())
    with pytest.raises(QuotaExceededError):
        store.create(new_job("chat", parent_id="job"), quota=quota)
    assert ids_in(store) == {"job"}


@pytest.mark.parametrize("quota", [None, Quota(month="2023-11", jobs_in_progress=2, loops=1)])
def test_follow_ups_that_a_lost_connection_hides_are_created_and_deleted_once(
    losing: Any, open_store: OpenStore, new_job: NewJob, quota: Quota | None
) -> None:
    store = open_store(losing)
    store.create(new_job())
    losing.losses = 1
    store.create(new_job("chat", parent_id="job"), quota=quota)
    assert ids_in(store) == {"job", "chat"}
    losing.losses = 1
    store.delete("job")
    assert losing.losses == 0
    assert rows_in(losing) == 0


# deleting


def test_a_job_is_deleted_with_all_follow_ups_and_no_other_job(
    store: Store, new_job: NewJob
) -> None:
    for id in ("job", "other"):
        store.create(new_job(id))
    for n in range(3):
        store.create(new_job(f"chat {n}", parent_id="job", fingerprint="f", session_id=f"s{n}"))
    store.create(new_job("chat of a chat", parent_id="chat 0"))
    store.create(new_job("another's", parent_id="other", fingerprint="f"))
    end(store, "chat 1")
    store.claim("chat 2", "me")
    store.append(
        "chat 2", 1, [Record(1, ENDED, ContentDelta("x"))], checkpoint=Checkpoint({"a": 1})
    )
    store.add_update("chat 2", Update("u", "c"), ENDED)
    store.delete("job")
    assert ids_in(store) == {"other", "another's"}
    for id in ("chat 0", "chat 1", "chat 2", "chat of a chat"):
        with pytest.raises(UnknownJobError):
            store.job(id)
        with pytest.raises(UnknownJobError):
            store.records(id)
        assert not store.updates(id)
    with pytest.raises(UnknownJobError):
        store.append("chat 2", 1, [Record(2, ENDED, ContentDelta("x"))])
    assert store.session_job("s1") is None
    found = store.find("", "f")
    assert found is not None
    assert found.id == "another's"
    assert not store.jobs(parent_id="job")


def test_of_deleted_follow_ups_no_row_is_left(
    database: Any, open_store: OpenStore, new_job: NewJob
) -> None:
    store = open_store(database)
    store.create(new_job())
    # more than one statement takes
    for n in range(510):
        store.create(new_job(f"{n}", parent_id="job", owner="me", attempt=1), wait=False)
    store.append("7", 1, [Record(1, ENDED, ContentDelta("x"))], checkpoint=Checkpoint({"a": 1}))
    store.add_update("7", Update("u", "c"), ENDED)
    store.delete("job")
    assert rows_in(database) == 0


def test_a_follow_up_can_be_deleted_by_itself(store: Store, new_job: NewJob) -> None:
    store.create(new_job())
    for id in ("a", "b"):
        store.create(new_job(id, parent_id="job"))
    store.delete("a")
    assert [job.id for job in store.jobs(parent_id="job")] == ["b"]


# forgetting


def test_old_jobs_are_pruned_with_their_follow_ups(store: Store, new_job: NewJob) -> None:
    for id in ("old", "new"):
        store.create(new_job(id))
        store.create(new_job(f"chat {id}", parent_id=id))
    store.create(new_job("old chat", parent_id="new"))
    for id in ("old", "chat old", "old chat"):
        end(store, id)
    for id in ("new", "chat new"):
        end(store, id, ENDED + 10)
    assert store.prune(finished_before=ENDED + 5) == 3
    assert ids_in(store) == {"new", "chat new"}


@pytest.mark.parametrize("ended", [None, ENDED + 10])
def test_an_old_job_stays_with_a_follow_up_that_is_not_old(
    store: Store, new_job: NewJob, ended: float | None
) -> None:
    for id in ("asked", "old"):
        store.create(new_job(id))
        store.create(new_job(f"chat {id}", parent_id=id))
        end(store, id)
        end(store, f"chat {id}", ENDED + 1)
    store.create(new_job("new chat", parent_id="asked"))
    if ended is not None:
        end(store, "new chat", ended)
    # what is old itself goes in any case
    assert store.prune(finished_before=ENDED + 5) == 3
    assert ids_in(store) == {"asked", "new chat"}
    if ended is None:
        end(store, "new chat", ENDED + 10)
    assert store.prune(finished_before=ENDED + 15) == 2


def test_jobs_beyond_the_newest_stay_if_those_follow_them_up(store: Store, new_job: NewJob) -> None:
    for n in range(4):
        store.create(new_job(f"{n}"))
        end(store, f"{n}", ENDED + n)
    store.create(new_job("chat", parent_id="0"))
    end(store, "chat", ENDED + 9)
    assert store.prune(keep=2) == 2
    assert ids_in(store) == {"0", "3", "chat"}
    assert store.prune(keep=0) == 3


def test_in_memory_a_job_that_is_followed_up_stays_until_its_follow_ups_go(
    new_job: NewJob,
) -> None:
    store = MemoryStore(stored_jobs=3)
    store.create(new_job("a"))
    end(store, "a")
    store.create(new_job("chat", parent_id="a"))
    for n in range(4):
        store.create(new_job(f"{n}"))
        end(store, f"{n}")
    assert ids_in(store) == {"a", "chat", "2", "3"}
    end(store, "chat")
    assert ids_in(store) == {"a", "chat", "3"}
    for n in (4, 5):
        store.create(new_job(f"{n}"))
        end(store, f"{n}")
    assert ids_in(store) == {"a", "4", "5"}
    store.create(new_job("6"))
    end(store, "6")
    assert ids_in(store) == {"4", "5", "6"}


# at once


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def two_stores(
    request: pytest.FixtureRequest, open_store: OpenStore
) -> tuple[Callable[[], int], Store, Store]:
    """What counts the rows that are left, and two stores, as two processes have them."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: len(store.jobs()), store, store
    database = request.getfixturevalue(request.param)
    return lambda: rows_in(database), open_store(database), open_store(database)


def ask(store: Store, follow_ups: list[Job], begin: threading.Barrier) -> int:
    begin.wait(60)
    refused = 0
    for job in follow_ups:
        try:
            store.create(job)
        except UnknownJobError:
            refused += 1
    return refused


@pytest.mark.parametrize("pruned", [False, True])
def test_no_follow_up_stays_behind_whenever_it_is_created(
    two_stores: tuple[Callable[[], int], Store, Store], new_job: NewJob, pruned: bool
) -> None:
    rows_left, one, two = two_stores
    with ThreadPoolExecutor(3, thread_name_prefix="test") as pool:
        for n in range(15):
            parent = f"{n}"
            one.create(new_job(parent))
            end(one, parent)
            begin = threading.Barrier(3)
            asking = [
                pool.submit(
                    ask,
                    two,
                    [new_job(f"{n} {who} {k}", parent_id=parent) for k in range(4)],
                    begin,
                )
                for who in "xy"
            ]
            begin.wait(60)
            if n % 3:  # the later, the more were created
                deadline = time.monotonic() + 60
                while len(two.jobs(parent_id=parent)) < n % 3:
                    assert time.monotonic() < deadline
            if pruned:
                one.prune(finished_before=ENDED + 1)
            else:
                one.delete(parent)
            for asked in asking:
                asked.result(60)
            # a prune that came later has left all of them
            if pruned and one.jobs(parent_id=parent):
                assert one.job(parent).finished_at == ENDED
                one.delete(parent)
            assert not one.jobs(parent_id=parent)
    assert rows_left() == 0


#: How many wait for a lock; other tests have databases of their own on the same server.
WAITING = (
    "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE NOT granted AND datname = current_database()"
)


def test_who_follows_up_a_job_waits_for_its_removal(
    postgres: Any, open_store: OpenStore, new_job: NewJob
) -> None:
    store = open_store(postgres)
    store.create(new_job())
    engine = postgres.writing_engine()
    with (
        engine.connect() as deleting,
        ThreadPoolExecutor(1, thread_name_prefix="test") as pool,
    ):
        deleting.exec_driver_sql("DELETE FROM caesar_jobs WHERE id = 'job'")
        creating = pool.submit(store.create, new_job("chat", parent_id="job"))
        while not deleting.exec_driver_sql(WAITING).scalar():
            assert not creating.done()
        deleting.commit()
        with pytest.raises(UnknownJobError, match="job"):
            creating.result(60)
    engine.dispose()
    assert not ids_in(store)


def test_a_removal_waits_for_who_follows_the_job_up(
    postgres: Any, open_store: OpenStore, new_job: NewJob
) -> None:
    """As if another process were about to commit a follow-up; whoever writes the job goes on."""
    store = open_store(postgres)
    for id in ("job", "other", "chat"):
        store.create(new_job(id))
    engine = postgres.writing_engine()
    with (
        engine.connect() as asking,
        ThreadPoolExecutor(1, thread_name_prefix="test") as pool,
    ):
        asking.exec_driver_sql("SELECT id FROM caesar_jobs WHERE id = 'job' FOR KEY SHARE")
        asking.exec_driver_sql("UPDATE caesar_jobs SET parent_id = 'job' WHERE id = 'chat'")
        assert pool.submit(store.claim, "job", "me").result(60).attempt == 1
        deleting = pool.submit(store.delete, "job")
        while not asking.exec_driver_sql(WAITING).scalar():
            assert not deleting.done()
        asking.commit()
        deleting.result(60)
    engine.dispose()
    assert ids_in(store) == {"other"}
