"""SQLite: one file, on one machine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Double, Engine, create_engine, event, literal
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from caesar_server.store.base import StoreError
from caesar_server.store.changes import Changes
from caesar_server.store.sql.database import READERS, Database, Kind
from caesar_server.store.sql.leasing.boot import boot_id, boot_time_s

Synchronous = Literal["normal", "full"]

#: How long a write waits for those of other processes.
BUSY_TIMEOUT_S = 10.0
#: Between two looks for commits of other processes; one look costs a few microseconds.
LOOK_S = 0.05
#: Between two tries of what SQLite does not wait for.
_PAUSE_S = 0.01
#: Ids are random, so each job touches other pages of an index; SQLite's own 2 MiB are few of them.
_WRITER_CACHE_KIB = 32 * 1024
#: Free pages, of 4 KiB, that one step cuts off the file.
_PAGES_GIVEN_BACK = 250
#: What the write-ahead log may keep of the disk once it was large.
_LOG_BYTES = 64 * 1024 * 1024


class SqliteDatabase(Database):
    """A database file, in write-ahead logging: those who read and who writes do not wait.

    :param path: of the file; beside it two more, with ``-wal`` and ``-shm`` behind the name.
    :param synchronous: ``normal``: a crash of the machine may undo the last moments, but damages
        nothing; ``full``: it undoes nothing.
    :param monotonic: the clock of the leases, the same for all processes of the machine.
    """

    insert = staticmethod(sqlite_insert)
    skips_locked = False

    def __init__(
        self,
        path: Path,
        synchronous: Synchronous = "normal",
        *,
        monotonic: Callable[[], float] = boot_time_s,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self.path = path
        self.name = f"the file {path}"
        self.boot_id = boot_id()
        self._synchronous = synchronous
        self._monotonic = monotonic
        self._busy_timeout_s = busy_timeout_s

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.path.exists()

    def make(self) -> None:
        """Make the file, for its owner alone, and folders above it that are not there."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives the two files beside it the same mode
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StoreError(self._why_not(error)) from error
        try:
            with contextlib.closing(self.connect()) as connection:
                # Both must come before the first table; both stay with the file.
                self._patiently(connection, "PRAGMA auto_vacuum = INCREMENTAL")
                self._patiently(connection, "PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise StoreError(self.sentence(error)) from error

    def _patiently(self, connection: sqlite3.Connection, statement: str) -> None:
        """Run a statement for which SQLite itself does not wait while others have the file."""
        until = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if self.kind_of(error) != "busy" or time.monotonic() >= until:
                    raise
            time.sleep(_PAUSE_S)

    def connect(self) -> sqlite3.Connection:
        """Return a new connection, which may be used by one thread at a time.

        :raises sqlite3.Error: if there is no such file, or it cannot be opened.
        """
        connection = sqlite3.connect(
            # not made anew: an empty database would look as if all jobs were gone
            f"{self.path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous.upper()}")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _connect_writer(self) -> sqlite3.Connection:
        connection = self.connect()
        connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
        return connection

    def writing_engine(self) -> Engine:
        """Return a new engine whose transactions lock the file from their beginning.

        One that first reads and then writes would be refused at once, without waiting, if another
        process had written in between.
        """
        engine = create_engine(
            "sqlite://", creator=self._connect_writer, poolclass=NullPool, hide_parameters=True
        )
        event.listen(engine, "begin", _begin_immediate)
        return engine

    def reading_engine(self) -> Engine:
        """Return a new engine for single statements."""
        return create_engine(
            "sqlite://",
            creator=self.connect,
            poolclass=QueuePool,
            pool_size=READERS,
            max_overflow=0,
            pool_reset_on_return=None,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
        )

    def now(self) -> ColumnElement[float]:
        """Return the time since the machine was started."""
        return literal(self._monotonic(), Double)

    def allow_pauses(self, connection: Connection) -> None:
        """Do nothing: no transaction is ended for being idle."""

    def lock_schema(self, connection: Connection) -> None:
        """Do nothing: the transaction has the file for itself."""

    def lock_accounts(self, connection: Connection, accounts: Collection[str]) -> None:
        """Do nothing: the transaction has the file for itself."""

    def give_room_back(self, connection: Connection) -> None:
        """Cut free pages off the file's end; few at a time, since others wait meanwhile."""
        driver: Any = connection.connection.driver_connection
        (free,) = driver.execute("PRAGMA freelist_count").fetchone()
        for _ in range(min(free, _PAGES_GIVEN_BACK)):
            # one by one: Python takes one step of a statement without rows, which is one page
            driver.execute("PRAGMA incremental_vacuum(1)")

    def announce(self, connection: Connection, token: str) -> None:
        """Do nothing: the file itself tells of each commit."""

    def changes(self, token: str, forget: Callable[[Changes], None]) -> SqliteChanges:
        """Return what looks at the file's version."""
        return SqliteChanges(self.connect, forget)

    def kind_of(self, error: Exception) -> Kind:
        """Return ``busy`` while another process has the file, else ``final``."""
        cause = _driver_error(error)
        code = getattr(cause, "sqlite_errorcode", None) or 0
        return "busy" if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else "final"

    def sentence(self, error: Exception) -> str:
        """Return what is wrong with the file."""
        cause = _driver_error(error)
        if isinstance(cause, OSError):
            return self._why_not(cause)
        code = (getattr(cause, "sqlite_errorcode", None) or 0) & 0xFF
        reason = _REASONS.get(code, f"{cause}; see the log")
        return f"store: {self.name}: {reason}"

    def _why_not(self, error: OSError) -> str:
        return (
            f"store: {self.name} cannot be made or opened: {error.strerror}; give this user the "
            "right to write there, or set store to another place"
        )


_REASONS = {
    sqlite3.SQLITE_FULL: "the disk is full, so nothing can be stored; make room on it",
    sqlite3.SQLITE_IOERR: "the disk failed or has no room (disk I/O error); see to the disk, the "
    "user's quota and its largest file size",
    sqlite3.SQLITE_READONLY: "it may only be read; give this user the right to write it and the "
    "folder that it is in",
    sqlite3.SQLITE_PERM: "this user may not write it; give it the right to",
    sqlite3.SQLITE_CANTOPEN: "it is not there or cannot be opened; make it with `caesar-server "
    "store upgrade`, or give this user the right to write it and the folder that it is in",
    sqlite3.SQLITE_CORRUPT: "it is damaged; put a copy of it from before in its place, or move it "
    "away and run `caesar-server store upgrade`",
    sqlite3.SQLITE_NOTADB: "it is no database of SQLite, or it is damaged; put a copy of it from "
    "before in its place, or move it away and run `caesar-server store upgrade`",
    sqlite3.SQLITE_BUSY: "another process has kept it locked for too long; find which one "
    "(fuser names it), and end it if it hangs",
    sqlite3.SQLITE_LOCKED: "another process has kept it locked for too long; find which one "
    "(fuser names it), and end it if it hangs",
}


class SqliteChanges(Changes):
    """Looks at the version that the file had at the last commit, 20 times a second.

    It has a connection of its own: SQLite counts what other connections have committed.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        forget: Callable[[Changes], None],
    ) -> None:
        """:param forget: told at :meth:`close`."""
        self._connect = connect
        self._forget = forget
        self._woken = threading.Event()
        self._closed = False
        self._using = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._has_changed()

    def wait(self, timeout_s: float) -> bool:
        """Block until another version is seen, :meth:`wake` is called, or the time is up."""
        until = time.monotonic() + timeout_s
        while True:
            woken = self._woken.is_set()
            if woken and not self._closed:
                self._woken.clear()
            # looked at in any case: what woke us is most often seen there as well
            if self._has_changed() or woken:
                return True
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            self._woken.wait(min(left_s, LOOK_S))

    def wake(self) -> None:
        """Make a :meth:`wait` that blocks return True."""
        self._woken.set()

    def close(self) -> None:
        """Close the connection, and make :meth:`wait` return."""
        self._closed = True
        self._woken.set()
        with self._using:
            self._disconnect()
        self._forget(self)

    def _has_changed(self) -> bool:
        with self._using:
            before = self._version
            try:
                self._version = self._look()
            except sqlite3.Error:
                # Whoever looks now is told what is wrong; here the next look begins anew.
                self._disconnect()
                self._version = None
            return self._version != before

    def _look(self) -> int | None:
        if self._closed:
            return self._version
        if self._connection is None:
            self._connection = self._connect()
        row: tuple[int] = self._connection.execute("PRAGMA data_version").fetchone()
        return row[0]

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _begin_immediate(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    driver.execute("BEGIN IMMEDIATE")


def _driver_error(error: Any) -> Any:
    return error.orig if isinstance(error, DBAPIError) else error
