"""Statements that the driver runs alone say the same, and fail the same way."""

from __future__ import annotations

from collections.abc import Iterator
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
def test_a_lost_connection_is_seen(connection: Connection) -> None:
    lose = "SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(DBAPIError) as raised, connection.begin():
        driver: Any = connection.connection.driver_connection
        with pytest.raises(Exception, match="terminat"):
            driver.execute(lose)
        ADD.run(connection, {"account": "a", "month": "2026-11", "loops": 1})
    assert raised.value.connection_invalidated
