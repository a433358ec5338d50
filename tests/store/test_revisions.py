"""The tables: made, changed and checked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from caesar_server.store.base import Job, StoreError
from caesar_server.store.sql.revisions import (
    check_revision,
    downgrade,
    revision_of,
    revisions,
    upgrade,
)
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
            index["name"]: index["column_names"]
            for index in inspect(connection).get_indexes("caesar_jobs")
        }
    engine.dispose()
    assert indices == {
        index.name: [column.name for column in index.columns]
        for index in metadata.tables["caesar_jobs"].indexes
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


def test_a_new_file_may_be_made_by_many_at_once(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "deep" / "jobs.sqlite3")
    with ThreadPoolExecutor(8, thread_name_prefix="test") as pool:
        for one in [pool.submit(upgrade, database) for _ in range(8)]:
            one.result()
    check_revision(database)


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
