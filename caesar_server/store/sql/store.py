"""The store over a database."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from caesar_server.contract.events import Status
from caesar_server.store.base import (
    Changes,
    FencedError,
    Job,
    Record,
    Store,
    StoreError,
    UnknownJobError,
)
from caesar_server.store.outcome import follow_on, outcome_of
from caesar_server.store.sql import queries, steps
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.rows import checkpoint_body, job_values, record_rows, request_body
from caesar_server.store.sql.writer import Step, Writer

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Jobs that one step removes: others wait for it to end.
_REMOVED_AT_ONCE = 50


class SqlStore(Store):
    """Jobs in a database whose schema is there already.

    What was written survives a crash of the process.  It opens connections when it first needs
    them, and new ones in a process that was forked from this one.

    :param database: where.
    :param retry_s: how long a step waits for a database that cannot be reached.
    """

    def __init__(self, database: Database, *, retry_s: float = 15.0) -> None:
        self._database = database
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._closed = False
        self._process: _Process | None = None

    def create(self, job: Job, *, wait: bool = True) -> None:
        """Add a job that has not begun."""
        row, body = job_values(job), request_body(job)
        step = Step(
            lambda connection, again: steps.create(
                connection, self._database, row, body, again=again
            ),
            lambda connection: steps.uncreate(connection, row),
        )
        done = self._begin(step)
        if wait:
            done.result()

    def claim(self, job_id: str, owner: str, *, attempt: int | None = None) -> Job:
        """Make ``owner`` the job's, and return it."""
        _check_id(job_id)
        claim = _Claim(lambda connection: steps.claim(connection, job_id, owner, attempt))
        job: Job = self._begin(Step(claim.run, claim.undo)).result()
        return job

    def claim_next(self, owner: str, backends: Collection[str]) -> Job | None:
        """Claim the oldest detached job of one of ``backends`` that nobody runs."""
        # most often there is none, and to see that takes no writing
        free = queries.free(self._database, backends).limit(1)
        if self._read(lambda connection: connection.execute(free).first()) is None:
            return None
        claim = _Claim(
            lambda connection: steps.claim_next(connection, self._database, owner, backends)
        )
        job: Job | None = self._begin(Step(claim.run, claim.undo)).result()
        return job

    def release(self, job_id: str, attempt: int, *, forgiven: bool = True) -> None:
        """Give a job back that did not come to its end."""
        _check_id(job_id)
        self._begin(
            Step(
                lambda connection, again: steps.release(
                    connection, job_id, attempt, forgiven, again=again
                )
            )
        ).result()

    def append(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> None:
        """Add records to the job of this attempt, and the checkpoint if there is one."""
        self.append_soon(job_id, attempt, records, checkpoint=checkpoint).result()

    def append_soon(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> Future[None]:
        """Begin an :meth:`append` without waiting until it is stored."""
        done: Future[None]
        try:
            _check_id(job_id)
            done = self._begin(self._appending(job_id, attempt, records, checkpoint))
        except (FencedError, UnknownJobError, StoreError, TypeError, ValueError) as error:
            done = Future()
            done.set_exception(error)
        return done

    def _appending(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        checkpoint: Mapping[str, Any] | None,
    ) -> Step:
        rows = record_rows(job_id, records)
        state = None if checkpoint is None else checkpoint_body(checkpoint)
        outcome = outcome_of(records)
        fence: dict[str, Any] = {"id_": job_id, "attempt_": attempt}
        if not records:
            return Step(lambda connection, _: steps.keep(connection, self._database, fence, state))
        if not follow_on(records[0].seq, records):
            raise FencedError(f"job {job_id}: the numbers of the records have gaps")
        fence |= {
            "old_": records[0].seq - 1,
            "new_": records[-1].seq,
            "checkpoint_seq_": None if state is None else records[-1].seq,
        }
        return Step(
            lambda connection, again: steps.append(
                connection, self._database, fence, rows, outcome, state, again=again
            )
        )

    def job(self, job_id: str) -> Job:
        """Return the job as it stands."""
        _check_id(job_id)
        return self._read(lambda connection: queries.job(connection, job_id))

    def records(
        self, job_id: str, after_seq: int = 0, *, limit: int | None = None
    ) -> Sequence[Record]:
        """Return the job's records with a number above ``after_seq``."""
        _check_id(job_id)
        return self._read(
            lambda connection: queries.records_after(connection, job_id, after_seq, limit)
        )

    def jobs(
        self,
        *,
        account: str | None = None,
        statuses: Collection[Status] | None = None,
        backend: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Job]:
        """Return jobs, the newest first."""
        return self._read(
            lambda connection: queries.listed(
                connection,
                account=account,
                statuses=statuses,
                backend=backend,
                before=before,
                limit=limit,
            )
        )

    def find(self, account: str, fingerprint: str) -> Job | None:
        """Return the newest job of the account with this fingerprint, or None."""
        return self._read(lambda connection: queries.found(connection, account, fingerprint))

    def positions(self, job_ids: Collection[str]) -> Mapping[str, int]:
        """Return the number of the last stored record of each of these jobs that exists."""
        ids = [id for id in job_ids if _is_id(id)]
        return self._read(lambda connection: queries.positions(connection, ids))

    def waiting(self, *, limit: int) -> int:
        """Return how many detached jobs have no owner, counting up to ``limit``."""
        return self._read(lambda connection: queries.waiting(connection, limit))

    def request_cancel(self, job_id: str) -> Job:
        """Note that the job is to be cancelled; no effect on one that has ended."""
        _check_id(job_id)
        step = Step(lambda connection, _: steps.request_cancel(connection, job_id))
        job: Job = self._begin(step).result()
        return job

    def cancel_requests(self, owner: str) -> Collection[str]:
        """Return the ids of this owner's running jobs whose cancel was asked for."""
        return self._read(lambda connection: queries.cancelled(connection, owner))

    def renew(self, owner: str, lease_s: float) -> None:
        """Begin a lease, or prolong it to ``lease_s`` seconds from now."""
        self._begin(
            Step(
                lambda connection, _: steps.renew(connection, self._database, owner, lease_s),
                tells=False,
            )
        ).result()

    def retire(self, owner: str) -> None:
        """End a lease at once."""
        self._begin(Step(lambda connection, _: steps.retire(connection, owner))).result()

    def lost(self, *, limit: int = 100) -> Sequence[Job]:
        """Return running jobs, detached or not, whose owner has no lease any more."""
        return self._read(lambda connection: queries.lost(connection, self._database, limit))

    def delete(self, job_id: str) -> None:
        """Remove the job and its records."""
        if _is_id(job_id):
            self._remove([job_id])

    def prune(
        self, *, finished_before: float | None = None, keep: int | None = None, limit: int = 1000
    ) -> int:
        """Remove finished jobs, the oldest first."""
        ids = self._read(
            lambda connection: queries.prunable(connection, finished_before, keep, limit)
        )
        portions = (
            ids[first : first + _REMOVED_AT_ONCE] for first in range(0, len(ids), _REMOVED_AT_ONCE)
        )
        return sum(map(self._remove, portions))

    def _remove(self, ids: Collection[str]) -> int:
        def remove(connection: Connection, again: bool) -> int:
            gone = steps.delete_jobs(connection, ids)
            self._database.give_room_back(connection)
            return gone

        gone: int = self._begin(Step(remove)).result()
        return gone

    def changes(self) -> Changes:
        """Return what tells of changes by any process; it begins with the call."""
        return self._here().watch()

    def check(self) -> None:
        """Return if the store can be read and written; writes a row and takes it back."""
        probe = f"check {secrets.token_hex(8)}"

        def write(connection: Connection, again: bool) -> None:
            steps.renew(connection, self._database, probe, 1.0)
            steps.retire(connection, probe)

        self._begin(Step(write, tells=False)).result()
        self.waiting(limit=1)

    def close(self) -> None:
        """Do what was begun, end the thread and close every connection."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is not None and process.is_this:
            process.close()

    def _begin(self, step: Step) -> Future[Any]:
        return self._here().writer.begin(step)

    def _read(self, read: Callable[[Connection], T]) -> T:
        return self._here().read(read, self._retry_s)

    def _here(self) -> _Process:
        """Return what this process holds: what it inherited by a fork is not for use."""
        process = self._process
        if process is not None and process.is_this:
            return process
        with self._lock:
            if self._closed:
                raise StoreError("store: it is closed, for the process is about to end")
            if self._process is None or not self._process.is_this:
                self._process = _Process(self._database, self._retry_s, self._process)
            return self._process


class _Process:
    """What one process holds of a store."""

    def __init__(self, database: Database, retry_s: float, inherited: _Process | None) -> None:
        self._pid = os.getpid()
        # kept: to close a parent's connections from here would disturb them
        self._inherited = inherited
        self._database = database
        self._token = secrets.token_hex(8)
        self._engine: Engine | None = None
        self._lock = threading.Lock()
        self._watchers: list[Changes] = []
        self.writer = Writer(database, retry_s=retry_s, announce=self._wake, token=self._token)

    @property
    def is_this(self) -> bool:
        return self._pid == os.getpid()

    def read(self, read: Callable[[Connection], T], retry_s: float) -> T:
        """Return what ``read`` does; reads may be done again.

        :raises StoreError: if the database cannot be read.
        """
        until, pause_s = time.monotonic() + retry_s, 0.05
        while True:
            try:
                with self._reading().connect() as connection:
                    return read(connection)
            except (UnknownJobError, StoreError):
                raise
            except Exception as error:
                if self._database.kind_of(error) == "final" or time.monotonic() > until:
                    if not isinstance(error, DBAPIError):
                        logger.exception("the store could not be read")
                    raise StoreError(self._database.sentence(error)) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

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


class _Claim:
    """A claim that remembers what it claimed, in case that nobody hears of it."""

    def __init__(self, claim: Callable[[Connection], Job | None]) -> None:
        self._claim = claim
        self._claimed: Job | None = None

    def run(self, connection: Connection, again: bool) -> Job | None:
        """Claim a job, unless that of an earlier try turns out to be claimed."""
        claimed = self._claimed
        if not (again and claimed is not None and steps.has_claimed(connection, claimed)):
            self._claimed = claimed = self._claim(connection)
        return claimed

    def undo(self, connection: Connection) -> None:
        """Give the job back, if it was claimed."""
        if self._claimed is not None:
            steps.unclaim(connection, self._claimed)


def _check_id(job_id: str) -> None:
    if not _is_id(job_id):
        raise UnknownJobError(job_id)


def _is_id(job_id: str) -> bool:
    """Return whether this may be an id: a database takes no NUL and no half character."""
    return job_id.isascii() and job_id.isprintable()
