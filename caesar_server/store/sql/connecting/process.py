"""What one process holds of a store; another one that was forked from it begins anew."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from caesar_server.store.base import StoreError, UnknownJobError
from caesar_server.store.changes import Changes
from caesar_server.store.owned.base import UnknownOwnedError
from caesar_server.store.sql.connecting.gate import Gate
from caesar_server.store.sql.connecting.held import Held, HeldJob
from caesar_server.store.sql.connecting.writer import ASKED_PART, Writer
from caesar_server.store.sql.database import READERS, Database
from caesar_server.store.unreadable import StoreAwayError, UnreadableRecordError

T = TypeVar("T")
Rows = TypeVar("Rows")

logger = logging.getLogger(__name__)


class Process:
    """What one process holds of a store.

    :param add: begins to add a job that was kept back.
    """

    def __init__(
        self,
        database: Database,
        retry_s: float,
        inherited: Process | None,
        add: Callable[[Process, HeldJob], None],
    ) -> None:
        self._pid = os.getpid()
        # kept: to close a parent's connections from here would disturb them
        self._inherited = inherited
        self._database = database
        self._away_s = retry_s * ASKED_PART
        self._token = secrets.token_hex(8)
        self._engine: Engine | None = None
        #: All reads but the urgent ones, which so always find a connection.
        self._readers = Gate(READERS - 1)
        #: Those that may be large, so that they take no more of the memory, of the processor and of
        #: the connections at once.
        self._large = Gate(READERS - 2)
        #: Why the last read failed, if it did for want of a connection.
        self._failure: StoreError | None = None
        #: Jobs that cannot be read, and are logged.
        self._left_out: set[str] = set()
        self._lock = threading.Lock()
        self._watchers: list[Changes] = []
        self.writer = Writer(database, retry_s=retry_s, announce=self._wake, token=self._token)
        self.held = Held(partial(add, self))

    @property
    def is_this(self) -> bool:
        return self._pid == os.getpid()

    def read(self, read: Callable[[Connection], T], retry_s: float, *, urgent: bool = False) -> T:
        """Return what ``read`` does; reads may be done again.

        It should only fetch: others wait for its connection.

        :param urgent: does not wait for reads that are not, however many there are.
        :raises StoreError: if the database cannot be read.
        """
        return self._read(read, self._until(retry_s), urgent)

    def read_large(
        self,
        fetch: Callable[[Connection], Rows],
        decode: Callable[[Rows], T],
        retry_s: float,
    ) -> T:
        """Return what ``decode`` makes, without a connection, of what ``fetch`` returns.

        :raises UnreadableRecordError: if the database can be read, but not what it holds.
        :raises StoreError: if the database cannot be read.
        """
        until = self._until(retry_s)
        with self._large.place():
            return self.decode(decode, self._read(fetch, until, False))

    def decode(self, decode: Callable[[Rows], T], rows: Rows) -> T:
        """Return what ``decode`` makes of ``rows``.

        :raises UnreadableRecordError: if it cannot be made of them.
        :raises StoreError: if anything else fails.
        """
        try:
            return decode(rows)
        except (StoreError, UnreadableRecordError):
            raise
        except Exception as error:
            raise self._failed(error) from error

    def decode_each(self, decode: Callable[[Rows], T], rows: Iterable[Rows]) -> list[T]:
        """Return what ``decode`` makes of each row, without those of which it can make nothing."""
        found: list[T] = []
        for row in rows:
            try:
                found.append(self.decode(decode, row))
            except UnreadableRecordError as error:
                self.leave_out(error)
        return found

    def leave_out(self, error: UnreadableRecordError) -> None:
        """Log a job that is left out among others; once, for some are met every second."""
        if error.job_id not in self._left_out:
            self._left_out.add(error.job_id)
            logger.error("left out: %s", error)

    def _until(self, retry_s: float) -> float:
        """Return how long to try: not as long again where somebody has tried in vain."""
        patience_s = retry_s if self._failure is None else min(retry_s, self._away_s)
        return time.monotonic() + patience_s

    def _read(self, read: Callable[[Connection], T], until: float, urgent: bool) -> T:
        pause_s = 0.05
        while True:
            try:
                with nullcontext() if urgent else self._readers.place():
                    self._check(until)
                    with self._reading().connect() as connection:
                        found = read(connection)
                self._failure = None
                return found
            except (UnknownJobError, UnknownOwnedError, UnreadableRecordError, StoreError):
                raise
            except Exception as error:
                final = self._database.kind_of(error) == "final"
                if final or time.monotonic() > until:
                    failure = self._failed(error)
                    if not final:
                        self._failure = failure
                    raise failure from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _check(self, until: float) -> None:
        """Return if it is worth a try: those who queue up each would wait for a dead server.

        :raises StoreError: after ``until``, if the last one who read gave up.
        """
        failure = self._failure
        if failure is not None and time.monotonic() > until:
            raise type(failure)(str(failure)) from failure

    def _failed(self, error: Exception) -> StoreError:
        if not isinstance(error, DBAPIError):
            logger.error("the store could not be read", exc_info=error)
        kind = StoreError if self._database.kind_of(error) == "final" else StoreAwayError
        return kind(self._database.sentence(error))

    def watch(self) -> Changes:
        """Return new changes that the writer wakes."""
        changes = self._database.changes(self._token, self._forget)
        with self._lock:
            self._watchers.append(changes)
        return changes

    def close(self) -> None:
        """End the thread and close what is open."""
        self.writer.close()
        with self._lock:
            watchers = tuple(self._watchers)
            engine, self._engine = self._engine, None
        for changes in watchers:
            changes.close()
        if engine is not None:
            engine.dispose()

    def _reading(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._database.reading_engine()
            return self._engine

    def _wake(self) -> None:
        for changes in tuple(self._watchers):
            changes.wake()

    def _forget(self, changes: Changes) -> None:
        with self._lock:
            if changes in self._watchers:
                self._watchers.remove(changes)
