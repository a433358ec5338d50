"""Statements that run for every job: compiled once, then run by the driver alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Dialect, Insert, Update
from sqlalchemy.exc import DBAPIError


class Prepared:
    """A statement that returns no rows.  Safe from any thread.

    To run a statement costs SQLAlchemy some hundred thousand instructions, and SQLite itself a few
    thousand.  So the library makes the text, once for each dialect, and the driver does the rest.

    :param statement: all its values have names, but for those that are always the same.
    :param columns: what an INSERT gives values for.
    """

    def __init__(self, statement: Insert | Update, columns: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._columns = columns
        self._by_dialect: dict[str, _Compiled] = {}

    def run(self, connection: Connection, *rows: Mapping[str, Any]) -> int:
        """Run it once for each of ``rows``, which are its values.

        :return: how many rows it has touched.
        :raises DBAPIError: as the connection's own ``execute`` does.
        """
        dialect = connection.dialect
        compiled = self._by_dialect.get(dialect.name)
        if compiled is None:
            compiled = self._by_dialect[dialect.name] = self._compile(dialect)
        driver: Any = connection.connection.driver_connection
        cursor = driver.cursor()
        count = 0
        try:
            # Not executemany: psycopg sends the rows one by one, and behind the last that they are
            # all. Until then no time-out of PostgreSQL counts: a process that is stopped in between
            # would hold its locks for as long as it lies still.
            for row in rows:
                cursor.execute(compiled.text, compiled.values(row))
                count += cursor.rowcount
        except dialect.loaded_dbapi.Error as error:
            lost = dialect.is_disconnect(error, driver, cursor)
            raise DBAPIError.instance(
                compiled.text,
                None,
                error,
                dialect.loaded_dbapi.Error,
                hide_parameters=True,
                connection_invalidated=lost,
                dialect=dialect,
            ) from error
        finally:
            cursor.close()
        return count

    def _compile(self, dialect: Dialect) -> _Compiled:
        compiled = self._statement.compile(dialect=dialect, column_keys=self._columns)
        processors = {}
        for name, bound in compiled.binds.items():
            process = bound.type.dialect_impl(dialect).bind_processor(dialect)
            if process is not None:
                processors[name] = process
        order = None if compiled.positiontup is None else tuple(compiled.positiontup)
        fixed = {name: bound.value for name, bound in compiled.binds.items() if not bound.required}
        return _Compiled(str(compiled), order, fixed, processors)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """The text for one dialect.

    :param order: of the names, if the driver takes values by their places.
    :param fixed: values that are always the same.
    :param processors: what makes values those of the driver.
    """

    text: str
    order: tuple[str, ...] | None
    fixed: Mapping[str, Any]
    processors: Mapping[str, Callable[[Any], Any]]

    def values(self, row: Mapping[str, Any]) -> Any:
        """Return the values of ``row`` as the driver takes them."""
        given = {**self.fixed, **row}
        for name, process in self.processors.items():
            given[name] = process(given[name])
        return given if self.order is None else [given[name] for name in self.order]
