"""Jobs chosen by kind and by the job that they follow up, and records without what is large."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Engine, Pool, event

from caesar_server.contract import (
    ChatRequest,
    Completed,
    CompletionRequest,
    ContentDelta,
    Event,
    FollowUpRequest,
    Message,
    RequestLogged,
    ResearchRequest,
    SourceStored,
    Started,
)
from caesar_server.contract.context import Update
from caesar_server.store.base import Job, Record, Store, UnknownJobError
from caesar_server.store.owned.base import FileQuota, OwnedFile
from caesar_server.store.quotas import Quota
from caesar_server.store.sql.sqlite import SqliteDatabase

NewJob = Callable[..., Job]

REQUESTS = (
    CompletionRequest(prompts=("p",)),
    ChatRequest(messages=(Message(role="user"),)),
    ResearchRequest(query="q"),
    FollowUpRequest(content="c", query="q", answer="a"),
)


@pytest.fixture
def jobs(store: Store, new_job: NewJob) -> Store:
    """Twelve jobs ``00`` to ``11``; every fourth of a kind, every second of account x."""
    for n in range(12):
        request = REQUESTS[n // 2 % 4]
        parent = "00" if request.type == "follow_up" else None
        account = "xy"[n % 2]
        job = new_job(
            f"{n:02}", created_at=float(n), account=account, request=request, parent_id=parent
        )
        store.create(job)
    return store


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        ({"kinds": ["research"]}, "05 04"),
        ({"kinds": ["research", "chat"]}, "11 10 05 04 03 02"),
        ({"account": "x", "kinds": ["completion"]}, "08 00"),
        ({"account": "x", "kinds": ["completion", "research", "chat"]}, "10 08 04 02 00"),
        ({"account": "x", "kinds": ["completion", "chat"], "offset": 1, "limit": 2}, "08 02"),
        ({"account": "x", "kinds": ["completion"], "offset": 1}, "00"),
        ({"account": "x", "kinds": ["completion"], "before": (8.0, "08")}, "00"),
        ({"account": "x", "kinds": ["chat", "research"], "before": (10.0, "10")}, "04 02"),
        ({"account": "x", "kinds": []}, ""),
        ({"kinds": []}, ""),
        ({"account": "x", "offset": 4}, "02 00"),
        ({"account": "x", "offset": 2, "limit": 2}, "06 04"),
        ({"account": "x", "offset": 6}, ""),
        ({"offset": 10}, "01 00"),
        ({"statuses": ["queued", "failed"], "offset": 9, "limit": 2}, "02 01"),
        ({"account": "x", "statuses": ["queued"], "kinds": ["chat", "research"]}, "10 04 02"),
        ({"account": "x", "statuses": ["failed"], "kinds": ["chat"]}, ""),
        ({"parent_id": "00"}, "07 06"),
        ({"parent_id": "00", "account": "x"}, "06"),
        ({"parent_id": "00", "account": "x", "kinds": ["follow_up"]}, "06"),
        ({"parent_id": "00", "kinds": ["chat"]}, ""),
        ({"parent_id": "00", "offset": 1, "limit": 1}, "06"),
        ({"parent_id": "01"}, ""),
        ({"parent_id": "no\0id\ud800"}, ""),
    ],
)
def test_jobs_are_chosen_by_kind_parent_and_place(
    jobs: Store, chosen: dict[str, Any], ids: str
) -> None:
    assert [job.id for job in jobs.jobs(**chosen)] == ids.split()


def test_jobs_are_counted_by_kind(jobs: Store) -> None:
    assert jobs.count("x", ["completion"]) == 2
    assert jobs.count("x", ["completion", "chat", "research"]) == 5
    assert jobs.count("x", ["brainstorm"]) == jobs.count("x", []) == jobs.count("z", ["chat"]) == 0


def test_what_was_new_of_a_job_is_kept(store: Store, new_job: NewJob) -> None:
    store.create(new_job("p"))
    job = new_job(api_version="2025-11-27", parent_id="p", session_id="s")
    store.create(job)
    assert store.job("job") == job


# what is large

BULK: tuple[Event, ...] = (
    SourceStored(result_id="r", raw="x" * 100_000),
    RequestLogged(url="https://x.org"),
)
EVENTS: tuple[Event, ...] = (
    Started(),
    *BULK,
    ContentDelta("a"),
    BULK[0],
    *[ContentDelta("b")] * 300,
    *[BULK[1]] * 300,
    Completed(),
)


@pytest.fixture(params=[1, 3, len(EVENTS)])
def large(request: pytest.FixtureRequest, store: Store, new_job: NewJob) -> Store:
    """A job with all of :data:`EVENTS`, so many in one append."""
    store.create(new_job(owner="me", attempt=1))
    for first in range(0, len(EVENTS), request.param):
        some = EVENTS[first : first + request.param]
        batch = [Record(seq, float(seq), event) for seq, event in enumerate(some, first + 1)]
        stored = store.append_soon("job", 1, batch)
    stored.result(60)
    return store


def test_records_are_read_with_and_without_what_is_large(large: Store) -> None:
    whole = [Record(seq, float(seq), event) for seq, event in enumerate(EVENTS, 1)]
    bulk = [one for one in whole if isinstance(one.event, (SourceStored, RequestLogged))]
    rest = [one for one in whole if one not in bulk]
    assert list(large.records("job")) == whole
    assert list(large.records("job", bulk=True)) == bulk
    assert list(large.records("job", bulk=False)) == rest
    for after in (0, 1, 2, 3, 200, 304, 305, 306, 450, 605, 606, 700):
        for chosen, all_of_them in ((None, whole), (True, bulk), (False, rest)):
            left = [one for one in all_of_them if one.seq > after]
            assert list(large.records("job", after, bulk=chosen)) == left
            for limit in (1, 2, 270):
                page = large.records("job", after, bulk=chosen, limit=limit)
                assert list(page) == left[:limit]
    with pytest.raises(UnknownJobError):
        large.records("nothing", bulk=True)


# how they are looked up in a file


@pytest.fixture
def plans(sqlite: SqliteDatabase) -> Iterator[Callable[[Callable[[], object]], list[str]]]:
    """Return how SQLite does what a call asks for, a line for each table that it looks into."""
    asked: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, values: Any, _x: Any, _many: bool) -> None:
        asked.append((statement, values))

    def explain(call: Callable[[], object]) -> list[str]:
        asked.clear()
        call()
        with closing(sqlite3.connect(sqlite.path)) as connection:
            return [
                row[3]
                for statement, values in asked
                if not statement.startswith(("BEGIN", "PRAGMA"))
                for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
                if " caesar_" in row[3] or row[3].startswith("USE TEMP")
            ]

    event.listen(Engine, "before_cursor_execute", note)
    yield explain
    event.remove(Engine, "before_cursor_execute", note)


LISTS: dict[str, tuple[dict[str, Any], str]] = {
    "of an account": ({"account": "x", "offset": 9}, "caesar_jobs_by_account (account=?)"),
    "of a kind": (
        {"account": "x", "kinds": ["chat"], "offset": 9},
        "caesar_jobs_by_account_kind (account=? AND kind=?)",
    ),
    "of kinds": (
        {"account": "x", "kinds": ["chat", "research"], "offset": 9},
        "caesar_jobs_by_account_kind (account=? AND kind=?)",
    ),
    "of kinds and a status": (
        {"account": "x", "kinds": ["chat", "research"], "statuses": ["queued"]},
        "caesar_jobs_by_account_status (account=? AND status=?)",
    ),
    "of a parent": (
        {"account": "x", "parent_id": "p", "kinds": ["follow_up"]},
        "caesar_jobs_by_parent (parent_id=?)",
    ),
}


@pytest.mark.parametrize("which", LISTS)
def test_lists_are_read_from_an_index_in_its_order(
    sqlite: SqliteDatabase,
    open_store: Callable[..., Store],
    plans: Callable[[Callable[[], object]], list[str]],
    which: str,
) -> None:
    store = open_store(sqlite)
    chosen, index = LISTS[which]
    plan = plans(lambda: store.jobs(**chosen))
    # the jobs of the page are looked up by id and sorted afterwards; and so are two ranges, each
    # no longer than the page
    ranges = len(chosen.get("kinds", ())) if which == "of kinds" else 1
    looked_up = [line for line in plan if "caesar_jobs_by" in line]
    assert len(looked_up) == ranges
    assert all(line.startswith("SEARCH") and line.endswith(index) for line in looked_up)
    assert len([line for line in plan if line.startswith("USE TEMP")]) <= (3 if ranges > 1 else 1)
    assert not [line for line in plan if line.startswith("SCAN caesar_")]


def test_what_is_counted_for_an_account_is_looked_up(
    sqlite: SqliteDatabase,
    open_store: Callable[..., Store],
    new_job: NewJob,
    plans: Callable[[Callable[[], object]], list[str]],
) -> None:
    store = open_store(sqlite)
    owned = store.owned
    file = OwnedFile(
        id="f",
        account="x",
        created_at=1.0,
        name="n",
        content_type="t",
        size=3,
        sha256="00",
        key="k",
    )
    quota = Quota(month="2025-11", jobs_in_progress=1)
    calls: list[Callable[[], object]] = [
        lambda: store.create(new_job(account="x", session_id="s"), quota=quota),
        lambda: store.standing("x", "2025-11"),
        lambda: store.count("x", ["chat", "research"]),
        lambda: store.session_job("s"),
        lambda: store.add_update("job", Update("u", "c"), 1.0),
        lambda: store.updates("job", 1),
        lambda: owned.add_file(file, FileQuota(files=1)),
        lambda: owned.count_files("x"),
        lambda: owned.files("x", offset=9),
        lambda: owned.files("x", collection_id="c", offset=9),
        lambda: owned.used_keys(["k"]),
        lambda: owned.delete_file("x", "f"),
        lambda: owned.collections("x", offset=9),
        lambda: owned.prune_sessions(1.0),
    ]
    for call in calls:
        lines = plans(call)
        assert lines
        assert all(line.startswith("SEARCH") for line in lines), lines


def test_most_appends_ask_for_nothing_else(
    sqlite: SqliteDatabase, open_store: Callable[..., Store], new_job: NewJob
) -> None:
    """A completion has no loops, so its end is looked up only if it came in pieces."""
    store = open_store(sqlite)
    statements: list[str] = []

    def trace(connection: sqlite3.Connection, _: Any) -> None:
        connection.set_trace_callback(lambda text: statements.append(" ".join(text.split()[:3])))

    event.listen(Pool, "connect", trace)
    try:
        store.create(new_job(owner="me", attempt=1))
        whole = [Record(1, 1.0, ContentDelta("a")), Record(2, 1.0, Completed())]
        store.append("job", 1, whole)
    finally:
        event.remove(Pool, "connect", trace)
    assert [one for one in statements if one.startswith(("INSERT", "UPDATE", "SELECT"))] == [
        "INSERT INTO caesar_jobs",
        "INSERT INTO caesar_requests",
        "UPDATE caesar_jobs SET",
        "INSERT INTO caesar_records",
    ]


def test_pages_are_passed_over_without_being_read(
    sqlite: SqliteDatabase, open_store: Callable[..., Store], new_job: NewJob
) -> None:
    """Which is seen from a row whose body is no JSON: whoever read it would fail."""
    store = open_store(sqlite)
    store.create(new_job(owner="me", attempt=1))
    events = (Started(), BULK[0], ContentDelta("a"))
    store.append("job", 1, [Record(seq, 1.0, one) for seq, one in enumerate(events, 1)])
    with closing(sqlite3.connect(sqlite.path)) as connection, connection:
        connection.execute("UPDATE caesar_records SET body = x'00' WHERE bulk IS NOT NULL")
    assert [one.seq for one in store.records("job", bulk=False)] == [1, 3]
