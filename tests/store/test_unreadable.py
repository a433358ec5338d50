"""What cannot be read costs the job to which it belongs, and no other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from caesar_server.contract import Completed, ContentDelta, ProgressNoted, ResultFound, SourceStored
from caesar_server.contract.context import Update
from caesar_server.store.base import FencedError, Job, Record, UnknownJobError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.sql.rows import request_body
from caesar_server.store.sql.schema import checkpoints, records, requests, updates
from caesar_server.store.sql.store import SqlStore
from caesar_server.store.unreadable import UnreadableRecordError

NewJob = Callable[..., Job]

BODIES = [
    b"",
    b"{",
    b"\xff",
    b" {",
    b"null",
    b"7",
    b"{}",
    b"[7]",
    b"[[1.0]]",
    b'[[1.0, {"type": "told_later"}]]',
    b'[[1.0, {"type": "result_found", "id": "z", "title": null, "url": "u"}]]',
    b"[" * 100_000,
]


@pytest.fixture
def store(database: Any, open_store: Callable[..., SqlStore]) -> SqlStore:
    return open_store(database)


@pytest.fixture
def spoil(database: Any) -> Callable[..., None]:
    """Put a body in place of what is stored of a job."""

    def write(table: Any, body: bytes, job_id: str = "bad") -> None:
        with database.writing_engine().connect() as connection, connection.begin():
            connection.execute(update(table).where(table.c.job_id == job_id).values(body=body))

    return write


def told(store: SqlStore, job: Job) -> None:
    store.create(job)
    store.append(job.id, job.attempt, [Record(1, 1.0, ContentDelta("a"))])


@pytest.mark.parametrize("body", BODIES)
def test_records_that_cannot_be_read_cost_their_job_alone(store, spoil, new_job, body):
    for id in ("bad", "good"):
        told(store, new_job(id, owner="me", attempt=1))
    spoil(records, body)
    for bulk in (None, False):
        with pytest.raises(UnreadableRecordError, match="job bad: what is stored") as caught:
            store.records("bad", bulk=bulk)
        assert caught.value.job_id == "bad"
    assert [record.event for record in store.records("good")] == [ContentDelta("a")]
    assert {job.id for job in store.jobs()} == {"bad", "good"}
    assert store.job("bad").last_seq == 1
    assert store.records("bad", 1) == []


def test_what_was_stored_wrong_is_not_read(store, new_job):
    # as another store, or an earlier version of this server, let it in
    store.create(new_job(owner="me", attempt=1))
    events: list[Any] = [ResultFound("z", None, "u"), ProgressNoted(5), SourceStored("z", raw=5)]
    store.append("job", 1, [Record(seq, 1.0, event) for seq, event in enumerate(events, 1)])
    with pytest.raises(UnreadableRecordError, match="Expected `str`, got `null`"):
        store.records("job")
    # each row by itself: what is large is in another one
    with pytest.raises(UnreadableRecordError, match="source_stored"):
        store.records("job", bulk=True)


def test_such_a_job_can_be_ended_and_removed(store, spoil, new_job):
    told(store, new_job("bad", owner="me", attempt=1))
    spoil(records, b"{")
    store.append("bad", 1, [Record(2, 2.0, Completed())])
    assert store.job("bad").status == "completed"
    store.delete("bad")
    with pytest.raises(UnknownJobError):
        store.records("bad")


@pytest.mark.parametrize("table", [requests, checkpoints], ids=["request", "checkpoint"])
def test_a_job_that_cannot_be_read_is_left_out_of_lists(store, spoil, new_job, table, caplog):
    for number, id in enumerate(["a", "bad", "c", "d"]):
        store.create(new_job(id, created_at=float(number), owner="gone", attempt=1))
        store.append(id, 1, [], checkpoint=Checkpoint({"at": 1}))
    spoil(table, b"{")
    with pytest.raises(UnreadableRecordError, match="job bad"):
        store.job("bad")
    with caplog.at_level(logging.ERROR):
        assert [job.id for job in store.jobs()] == ["d", "c", "a"]
        # its place is another's, so that a short page is the last one
        assert [job.id for job in store.jobs(limit=3)] == ["d", "c", "a"]
        assert [job.id for job in store.jobs(limit=2, offset=1)] == ["c", "a"]
        assert [job.id for job in store.jobs(limit=1, offset=2)] == ["a"]
        assert {job.id for job in store.lost()} == {"a", "c", "d"}
    (record,) = caplog.records
    assert "left out: job bad" in record.getMessage()


def test_a_job_that_cannot_be_read_is_not_claimed(store, spoil, new_job):
    for number, id in enumerate(["bad", "good"]):
        store.create(new_job(id, created_at=float(number), detached=True))
    spoil(requests, b"{}")
    claimed = store.claim_next("me", ["b"])
    assert claimed is not None
    assert claimed == store.job("good")
    assert (claimed.id, claimed.owner, claimed.attempt) == ("good", "me", 1)
    with pytest.raises(UnreadableRecordError, match="KeyError"):
        store.claim("bad", "me")
    store.renew("me", 60.0)
    assert store.claim_next("me", ["b"]) is None
    spoil(requests, request_body(new_job("bad")))
    # nobody has it: another version of the server can read it
    again = store.claim_next("other", ["b"])
    assert again is not None
    assert (again.id, again.owner, again.attempt) == ("bad", "other", 1)


def test_a_claim_still_says_first_what_it_said(store, new_job):
    with pytest.raises(UnknownJobError):
        store.claim("none", "me")
    store.create(new_job(owner="me", attempt=1))
    store.append("job", 1, [Record(1, 1.0, Completed())])
    with pytest.raises(FencedError, match="has ended"):
        store.claim("job", "me")


def test_updates_that_cannot_be_read_are_named(store, spoil, new_job):
    store.create(new_job("bad", owner="me", attempt=1))
    store.add_update("bad", Update("u", "more", ()), 1.0)
    spoil(updates, b"[]")
    with pytest.raises(UnreadableRecordError, match="job bad"):
        store.updates("bad")


def test_a_request_of_another_version_is_named(store, spoil, new_job):
    store.create(new_job("bad"))
    spoil(requests, b'{"model": "m", "backend_model": "", "request": {"type": "told_later"}}')
    with pytest.raises(UnreadableRecordError, match="unknown type 'told_later'"):
        store.job("bad")
