"""Statements that the driver runs alone say the same, and fail the same way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from caesar_server.store.sql.connecting.prepared import Prepared
from caesar_server.store.sql.schema import requests, usage

ADD = Prepared(usage.insert(), usage.columns.keys())
RAISE = Prepared(
    update(usage)
    .where(usage.c.account == bindparam("account_"))
    .values(loops=usage.c.loops + bindparam("more_"), month="2026-12")
)


@pytest.fixture
def connection(database: Any) -> Iterator[Connection]:
    engine = database.writing_engine()
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def rows(connection: Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(usage.select().order_by(usage.c.account))]


def test_rows_are_counted_and_are_there(connection: Connection) -> None:
    row = {"account": "a", "month": "2026-11", "loops": 1}
    with connection.begin():
        assert ADD.run(connection, row) == 1
        ADD.run(connection, row | {"account": "b"}, row | {"account": "c"})
        assert RAISE.run(connection, {"account_": "b", "more_": 2}) == 1
        assert RAISE.run(connection, {"account_": "z", "more_": 2}) == 0
        assert rows(connection) == [("a", "2026-11", 1), ("b", "2026-12", 3), ("c", "2026-11", 1)]
    with connection.begin():
        assert len(rows(connection)) == 3


def test_bytes_stay_bytes(connection: Connection) -> None:
    body = bytes(range(256))
    with connection.begin():
        Prepared(requests.insert(), ("job_id", "body")).run(
            connection, {"job_id": "j", "body": body}
        )
        assert bytes(connection.execute(requests.select()).one().body) == body


def test_errors_are_those_of_execute_without_values(connection: Connection) -> None:
    row = {"account": "secret", "month": "2026-11", "loops": 1}
    with pytest.raises(IntegrityError) as raised, connection.begin():
        ADD.run(connection, row, row)
    assert not raised.value.connection_invalidated
    assert "secret" not in str(raised.value).split("DETAIL")[0]
    with connection.begin():
        assert rows(connection) == []


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_the_database_never_waits_for_the_rest_of_some_rows(
    connection: Connection, tmp_path: Path
) -> None:
    """Between a statement and its Sync it gives no process up, however long that is stopped."""
    path = tmp_path / "messages"
    row = {"account": "a", "month": "2026-11", "loops": 1}
    with path.open("w") as file, connection.begin():
        connection.exec_driver_sql("SELECT 1")
        line: Any = connection.connection.driver_connection.pgconn  # type: ignore[union-attr]
        line.trace(file.fileno())
        ADD.run(connection, row, *(row | {"account": name} for name in "bcd"))
        line.untrace()
    messages = [line.split("\t") for line in path.read_text().splitlines()]
    sent = [message[3].split()[0] for message in messages if message[1] == "F"]
    behind = [after for one, after in pairwise(sent) if one in ("Parse", "Execute")]
    assert behind == ["Sync"] * (1 + 4)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_lost_connection_is_seen(connection: Connection) -> None:
    lose = "SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(DBAPIError) as raised, connection.begin():
        driver: Any = connection.connection.driver_connection
        with pytest.raises(Exception, match="terminat"):
            driver.execute(lose)
        ADD.run(connection, {"account": "a", "month": "2026-11", "loops": 1})
    assert raised.value.connection_invalidated
