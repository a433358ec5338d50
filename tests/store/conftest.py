"""Databases for the tests of the store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, make_url

from caesar_server.contract import CompletionRequest, ContentDelta
from caesar_server.store.base import Job, Record, Store
from caesar_server.store.memory import MemoryStore
from caesar_server.store.sql.postgres import PostgresDatabase
from caesar_server.store.sql.revisions import upgrade
from caesar_server.store.sql.schema import metadata
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore

#: Seconds within which everything here happens, unless it never does.
WITHIN_S = 60.0


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with empty tables, to be copied."""
    path = tmp_path_factory.mktemp("store") / "jobs.sqlite3"
    upgrade(SqliteDatabase(path))
    return path


@pytest.fixture
def sqlite(sqlite_file: Path, tmp_path: Path) -> SqliteDatabase:
    """A database in a file, with empty tables."""
    return SqliteDatabase(shutil.copy(sqlite_file, tmp_path / "jobs.sqlite3"))


@pytest.fixture(scope="session")
def postgres_with_tables(postgres_url: str) -> PostgresDatabase:
    database = PostgresDatabase(make_url(postgres_url))
    upgrade(database)
    return database


@pytest.fixture
def postgres(postgres_with_tables: PostgresDatabase, postgres_url: str) -> PostgresDatabase:
    """A database of PostgreSQL, with empty tables."""
    with psycopg.connect(postgres_url) as connection:
        for table in metadata.tables:
            connection.execute(f"DELETE FROM {table}")
    return postgres_with_tables


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Any:
    """Each kind of database in its turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def open_store() -> Iterator[Callable[..., SqlStore]]:
    """Open stores that are closed at the end."""
    opened: list[SqlStore] = []

    def make(database: Any, **options: Any) -> SqlStore:
        store = SqlStore(database, **options)
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store of each kind in its turn, empty."""
    kind = request.param
    store = MemoryStore() if kind == "memory" else SqlStore(request.getfixturevalue(kind))
    yield store
    store.close()


@pytest.fixture
def new_job() -> Callable[..., Job]:
    def make(id: str = "job", **fields: Any) -> Job:
        values: dict[str, Any] = {
            "created_at": 1_700_000_000.25,
            "model": "m",
            "backend": "b",
            "request": CompletionRequest(prompts=("p",)),
        }
        return Job(id=id, **{**values, **fields})

    return make


@pytest.fixture
def text() -> Callable[[int, int], list[Record]]:
    """Records that hold text: from the first number, so many."""
    return lambda first, count: [
        Record(seq, 1_700_000_000.0 + seq, ContentDelta(f"{seq} "))
        for seq in range(first, first + count)
    ]


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Wait until a condition holds."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, "it does not come to hold"
            time.sleep(0.01)

    return wait


class Forgetful(PostgresDatabase):
    """Loses the connection just after some commits, before they are heard of."""

    losses = 0
    before_commit = False

    def writing_engine(self) -> Engine:
        engine = super().writing_engine()
        commit = engine.dialect.do_commit

        def lose(connection: Any) -> None:
            if not self.before_commit:
                commit(connection)
            if self.losses > 0:
                self.losses -= 1
                connection.dbapi_connection.close()
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            if self.before_commit:
                commit(connection)

        engine.dialect.do_commit = lose  # type: ignore[method-assign]
        return engine


@pytest.fixture
def forgetful(postgres: PostgresDatabase) -> Forgetful:
    return Forgetful(postgres.writing_engine().url)


@pytest.fixture(params=[False, True], ids=["after the commit", "before the commit"])
def losing(request: pytest.FixtureRequest, forgetful: Forgetful) -> Forgetful:
    forgetful.before_commit = request.param
    return forgetful
