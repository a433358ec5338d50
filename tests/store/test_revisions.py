"""The tables: made, changed and checked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from caesar_server.contract import (
    ChatRequest,
    Completed,
    CompletionRequest,
    ContentDelta,
    LoopFinished,
    Message,
    ResearchRequest,
    SourceStored,
    Started,
)
from caesar_server.contract.context import Update
from caesar_server.contract.events import event_to_json
from caesar_server.store.base import Job, Record, StoreError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.owned.base import OwnedSession
from caesar_server.store.quotas import Standing
from caesar_server.store.sql import postgres as postgres_module
from caesar_server.store.sql import revisions as revisions_module
from caesar_server.store.sql.leasing.boot import boot_time_s
from caesar_server.store.sql.revisions import (
    check_revision,
    downgrade,
    revision_of,
    revisions,
    upgrade,
)
from caesar_server.store.sql.rows import encode
from caesar_server.store.sql.schema import REVISION, VERSION_TABLE, metadata
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore


@pytest.fixture
def empty(database: Any) -> Any:
    """Each kind of database in its turn, without tables."""
    downgrade(database, "base")
    yield database
    upgrade(database)


def tables(database: Any) -> set[str]:
    engine = database.writing_engine()
    try:
        return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def set_revision(database: Any, revision: str) -> None:
    engine = database.writing_engine()
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = :to"), {"to": revision})
    engine.dispose()


def test_the_server_works_with_the_newest_revision() -> None:
    assert revisions()[-1] == REVISION


def test_migrations_make_the_tables_that_the_server_works_with(database: Any) -> None:
    engine = database.writing_engine()
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []
        indices = {
            index["name"]: (index["column_names"], bool(index["unique"]))
            for table in metadata.tables
            for index in inspect(connection).get_indexes(table)
        }
    engine.dispose()
    assert indices == {
        index.name: ([column.name for column in index.columns], bool(index.unique))
        for table in metadata.tables.values()
        for index in table.indexes
    }


def test_each_revision_can_be_undone_and_done_again(empty: Any) -> None:
    for revision in revisions():
        assert upgrade(empty) is None
        assert downgrade(empty, revision) == REVISION
        assert revision_of(empty) == revision
        assert downgrade(empty, "base") == revision
        assert tables(empty) <= {VERSION_TABLE}
        assert revision_of(empty) is None


def test_upgrading_twice_changes_nothing(
    database: Any, new_job: Callable[..., Job], open_store: Callable[..., SqlStore]
) -> None:
    open_store(database).create(new_job())
    assert upgrade(database) == REVISION
    assert upgrade(database) == REVISION
    assert open_store(database).job("job") == new_job()


def test_of_many_that_upgrade_at_once_one_does_it(empty: Any) -> None:
    with ThreadPoolExecutor(8, thread_name_prefix="test") as pool:
        before = [one.result() for one in [pool.submit(upgrade, empty) for _ in range(8)]]
    assert set(before) <= {None, REVISION}
    assert revision_of(empty) == REVISION
    check_revision(empty)


def test_a_migration_may_pause_for_longer_than_what_writes_jobs(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code is loaded between its statements, which takes seconds where cores are busy."""
    monkeypatch.setattr(postgres_module, "IDLE_IN_TRANSACTION_S", 1.0)
    look = revisions_module._revision

    def look_and_pause(connection: Any) -> str | None:
        revision = look(connection)
        threading.Event().wait(1.5)
        return revision

    monkeypatch.setattr(revisions_module, "_revision", look_and_pause)
    downgrade(postgres, "base")
    upgrade(postgres)
    assert revision_of(postgres) == REVISION


def test_a_new_file_may_be_made_by_many_at_once(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "deep" / "jobs.sqlite3")
    with ThreadPoolExecutor(8, thread_name_prefix="test") as pool:
        for one in [pool.submit(upgrade, database) for _ in range(8)]:
            one.result()
    check_revision(database)


# from the first revision to the second, with jobs


def execute(database: Any, statement: str, **values: Any) -> list[Any]:
    engine = database.writing_engine()
    try:
        with engine.begin() as connection:
            result = connection.execute(text(statement), values)
            return list(result.scalars()) if result.returns_rows else []
    finally:
        engine.dispose()


OLD = {
    "completion": CompletionRequest(prompts=("p",)),
    "chat": ChatRequest(messages=(Message(role="user"),)),
    # in JSON that only Python reads
    "research": ResearchRequest(query="half a character: \ud800"),
}
#: In one row, as the first revision kept them.
EVENTS = (Started(), SourceStored(result_id="r", raw="x"), ContentDelta("a"), Completed())
RECORDS = [Record(seq, 1.5, event) for seq, event in enumerate(EVENTS, 1)]


@pytest.fixture
def old(empty: Any, new_job: Callable[..., Job]) -> Any:
    """A database of revision 0001 with 250 jobs of each kind, and an older one that ran."""
    upgrade(empty)
    store = SqlStore(empty)
    begun = [new_job(f"{kind} {n}", request=OLD[kind]) for kind in OLD for n in range(250)]
    for job in begun:
        store.create(job, wait=False)
    store.create(new_job("ran", created_at=1.0, owner="me", attempt=1))
    store.append("ran", 1, [], checkpoint=Checkpoint({"a": 1}))
    store.close()
    downgrade(empty, "0001")
    body = encode([(record.created_at, event_to_json(record.event)) for record in RECORDS])
    insert = (
        "INSERT INTO caesar_records (job_id, first_seq, last_seq, body) VALUES ('ran', 1, 4, :b)"
    )
    execute(empty, insert, b=body)
    execute(
        empty,
        "UPDATE caesar_jobs SET status = 'completed', last_seq = 4, finished_at = 1.5, owner = NULL"
        " WHERE id = 'ran'",
    )
    return empty


def test_jobs_of_the_first_revision_are_kept(
    old: Any, new_job: Callable[..., Job], open_store: Callable[..., SqlStore]
) -> None:
    with pytest.raises(StoreError, match=rf"at revision 0001, .* needs {REVISION}"):
        check_revision(old)
    execute(old, "UPDATE caesar_requests SET body = :b WHERE job_id = 'chat 7'", b=b"\xff{")
    assert upgrade(old) == "0001"
    store = open_store(old)
    for kind in OLD:
        ids = execute(old, "SELECT id FROM caesar_jobs WHERE kind = :kind", kind=kind)
        expected = {f"{kind} {n}" for n in range(250)}
        if kind == "completion":
            # one that nobody can read, so it matters to nobody
            assert set(ids) == expected | {"ran", "chat 7"}
        else:
            assert set(ids) == expected - {"chat 7"}
    assert store.count("", ["research"]) == store.count("", ["chat"]) + 1 == 250
    assert [job.id for job in store.jobs(account="", kinds=["chat"], limit=1)] == ["chat 99"]
    assert store.job("research 3") == new_job("research 3", request=OLD["research"])
    ran = store.job("ran")
    assert (ran.status, ran.checkpoint, ran.loops, ran.parent_id) == (
        "completed",
        {"a": 1},
        0,
        None,
    )
    assert list(store.records("ran")) == RECORDS
    assert list(store.records("ran", bulk=True)) == [RECORDS[1]]
    assert list(store.records("ran", bulk=False)) == [RECORDS[0], *RECORDS[2:]]
    assert list(store.records("ran", 2, bulk=False, limit=1)) == [RECORDS[2]]
    month = "1970-01"
    assert store.standing("", month) == Standing(jobs_in_progress=750, loops=0)
    # and it goes on
    store.claim("completion 0", "me")
    store.append("completion 0", 1, RECORDS)
    assert list(store.records("completion 0", bulk=True)) == [RECORDS[1]]
    store.owned.add_session(OwnedSession(id="s", account="", created_at=1.0, query="q"))


def test_jobs_outlive_the_way_back_to_the_first_revision(
    old: Any, new_job: Callable[..., Job], open_store: Callable[..., SqlStore]
) -> None:
    upgrade(old)
    store = open_store(old)
    store.create(new_job("late", api_version="v", parent_id="ran", owner="me", attempt=1))
    store.append("late", 1, [Record(1, 1.5, LoopFinished(3)), *RECORDS[1:]])
    store.add_update("chat 0", Update("u", "c"), 1.0)
    assert store.standing("", "1970-01").loops == 3
    assert downgrade(old, "0001") == REVISION
    assert tables(old) == {
        VERSION_TABLE,
        *(f"caesar_{name}" for name in ("jobs", "requests", "checkpoints", "records", "leases")),
    }
    assert upgrade(old) == "0001"
    assert store.job("late") == new_job(
        "late", attempt=1, last_seq=4, status="completed", finished_at=1.5
    )
    assert [record.seq for record in store.records("late", bulk=True)] == [2]
    assert list(store.updates("chat 0")) == []
    assert store.standing("", "1970-01").loops == 0
    assert store.count("", ["completion"]) == 252


# from the second revision to the third, with processes


RENEW = (
    "INSERT INTO caesar_leases (owner, boot_id, begins_at, ends_at) VALUES ('old', :b, :t, :t + 60)"
    " ON CONFLICT (owner) DO UPDATE SET ends_at = excluded.ends_at"
)


def test_processes_of_the_second_revision_may_have_any_backend(
    empty: Any, new_job: Callable[..., Job], open_store: Callable[..., SqlStore]
) -> None:
    upgrade(empty)
    downgrade(empty, "0002")
    begun = execute(empty, "SELECT extract(epoch FROM now())") if empty.skips_locked else None
    now = float(begun[0]) if begun else boot_time_s()
    lease = {"b": empty.boot_id, "t": now}
    execute(empty, RENEW, **lease)
    assert upgrade(empty) == "0002"
    store = open_store(empty)
    store.create(new_job(detached=True))
    store.renew("new", 60, ["other"])
    assert list(store.unclaimable()) == []
    # it goes on while the others are replaced
    execute(empty, RENEW, **lease)
    assert list(store.unclaimable()) == []
    store.retire("old")
    assert [one.id for one in store.unclaimable()] == ["job"]
    assert downgrade(empty, "0002") == REVISION
    assert execute(empty, "SELECT owner FROM caesar_leases") == ["new"]


def test_missing_tables_are_told_with_the_command(empty: Any) -> None:
    assert revision_of(empty) is None
    with pytest.raises(StoreError, match="no tables yet; run `caesar-server store upgrade`"):
        check_revision(empty)


def test_tables_of_a_newer_server_are_refused(database: Any) -> None:
    set_revision(database, "9999")
    try:
        for call in (check_revision, upgrade):
            with pytest.raises(StoreError, match="at revision 9999, which a newer version"):
                call(database)
        with pytest.raises(StoreError, match="9999"):
            downgrade(database, "base")
    finally:
        set_revision(database, REVISION)


def test_what_is_no_revision_is_refused(database: Any) -> None:
    with pytest.raises(StoreError, match=f"no revision 0; there are: base, .*{REVISION}"):
        downgrade(database, "0")


def test_there_is_nothing_below_the_base(empty: Any) -> None:
    with pytest.raises(StoreError, match="nothing to undo"):
        downgrade(empty, "base")


def test_other_tables_of_the_database_stay(postgres: Any) -> None:
    engine = postgres.writing_engine()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE of_somebody_else (id INTEGER)"))
    try:
        downgrade(postgres, "base")
        upgrade(postgres)
        assert "of_somebody_else" in tables(postgres)
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE of_somebody_else"))
        engine.dispose()
