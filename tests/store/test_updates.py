"""Updates that are sent to a job while it runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from caesar_server.contract import Completed
from caesar_server.contract.context import Update
from caesar_server.store.base import Job, Record, Store, UnknownJobError
from caesar_server.store.memory import MemoryStore
from caesar_server.store.updates import JobEndedError

NewJob = Callable[..., Job]


def test_updates_are_kept_in_order(store: Store, new_job: NewJob) -> None:
    store.create(new_job())
    store.create(new_job("other"))
    assert list(store.updates("job")) == []
    first = Update("u1", "a\0b\ud800\u2028", ("f1", "f2"))
    store.add_update("job", first, 1.5)
    store.add_update("other", Update("u2", "c"), 2.5)
    store.add_update("job", Update("u3", ""), 3.5)
    own = list(store.updates("job"))
    assert [(one.created_at, one.update) for one in own] == [(1.5, first), (3.5, Update("u3", ""))]
    assert 0 < own[0].number < own[1].number
    assert list(store.updates("job", own[0].number)) == own[1:]
    assert list(store.updates("job", own[1].number)) == []
    assert list(store.updates("job", -1)) == own


def test_a_job_that_has_ended_gets_none(store: Store, new_job: NewJob) -> None:
    store.create(new_job())
    store.add_update("job", Update("u1", "c"), 1.0)
    store.append("job", store.claim("job", "me").attempt, [Record(1, 2.0, Completed())])
    with pytest.raises(JobEndedError):
        store.add_update("job", Update("u2", "c"), 3.0)
    assert [one.update.id for one in store.updates("job")] == ["u1"]


@pytest.mark.parametrize("id", ["nothing", "no\0id", "\ud800"])
def test_a_job_that_does_not_exist_gets_none(store: Store, id: str) -> None:
    with pytest.raises(UnknownJobError):
        store.add_update(id, Update("u1", "c"), 1.0)
    assert list(store.updates(id)) == []


@pytest.mark.parametrize("how", ["delete", "prune"])
def test_updates_go_with_their_job(store: Store, new_job: NewJob, how: str) -> None:
    store.create(new_job())
    store.add_update("job", Update("u1", "c"), 1.0)
    if how == "delete":
        store.delete("job")
    else:
        store.append("job", store.claim("job", "me").attempt, [Record(1, 2.0, Completed())])
        assert store.prune(finished_before=3.0) == 1
    assert list(store.updates("job")) == []
    store.create(new_job())
    assert list(store.updates("job")) == []


def test_an_update_is_told_to_those_who_watch(store: Store, new_job: NewJob) -> None:
    store.create(new_job())
    changes = store.changes()
    while changes.wait(0.2):
        pass
    store.add_update("job", Update("u1", "c"), 1.0)
    assert changes.wait(60)
    changes.close()


def test_updates_that_come_at_once_get_numbers_of_their_own(store: Store, new_job: NewJob) -> None:
    store.create(new_job())
    with ThreadPoolExecutor(8, thread_name_prefix="test") as pool:
        list(pool.map(lambda n: store.add_update("job", Update(f"u{n}", "c"), 1.0), range(40)))
    numbers = [one.number for one in store.updates("job")]
    assert len(numbers) == 40
    assert all(one < next for one, next in pairwise(numbers))


def test_updates_of_two_stores_on_one_database_get_numbers_of_their_own(
    database: Any, open_store: Callable[..., Store], new_job: NewJob
) -> None:
    stores = [open_store(database), open_store(database)]
    stores[0].create(new_job())
    with ThreadPoolExecutor(8, thread_name_prefix="test") as pool:
        list(
            pool.map(
                lambda n: stores[n % 2].add_update("job", Update(f"u{n}", "c"), 1.0), range(40)
            )
        )
    own = stores[0].updates("job")
    assert len(own) == len({one.number for one in own}) == 40


def test_no_update_gets_between_an_end_and_its_commit(
    postgres: Any, open_store: Callable[..., Store], new_job: NewJob
) -> None:
    """As if another process were about to commit the job's end."""
    store = open_store(postgres)
    store.create(new_job())
    engine = postgres.writing_engine()
    with (
        engine.connect() as ending,
        ThreadPoolExecutor(1, thread_name_prefix="test") as pool,
    ):
        ending.exec_driver_sql("UPDATE caesar_jobs SET finished_at = 1 WHERE id = 'job'")
        adding = pool.submit(store.add_update, "job", Update("u", "c"), 1.0)
        # other tests have databases of their own on the same server
        waits = (
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE NOT granted AND datname = current_database()"
        )
        while not ending.exec_driver_sql(waits).scalar():
            assert not adding.done()
        ending.commit()
        with pytest.raises(JobEndedError):
            adding.result(60)
    engine.dispose()


def test_in_memory_updates_take_room(new_job: NewJob) -> None:
    store = MemoryStore(stored_bytes=50_000)
    for id in ("a", "b"):
        store.create(new_job(id))
        store.claim(id, "me")
    store.add_update("a", Update("u", "x" * 100_000), 1.0)
    for id in ("a", "b"):
        store.append(id, 1, [Record(1, 2.0, Completed())])
    assert [job.id for job in store.jobs()] == ["b"]
