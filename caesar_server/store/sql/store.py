"""The store over a database."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, RowMapping

from caesar_server.contract.context import Update
from caesar_server.contract.events import Status
from caesar_server.contract.request import RequestKind
from caesar_server.store.base import FencedError, Job, Record, Store, StoreError, UnknownJobError
from caesar_server.store.changes import Changes
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.leases import Unclaimable
from caesar_server.store.owned.base import OwnedStore
from caesar_server.store.quotas import Quota, Standing
from caesar_server.store.sql import accounts, queries, steps
from caesar_server.store.sql.connecting.claim import Claim
from caesar_server.store.sql.connecting.making import (
    adding,
    appending,
    begin_adding,
    begin_whole,
)
from caesar_server.store.sql.connecting.process import Process
from caesar_server.store.sql.connecting.writer import ASKED_PART, Step
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.leasing import leases
from caesar_server.store.sql.owned.store import SqlOwned
from caesar_server.store.sql.rows import is_id, request_body, update_values
from caesar_server.store.updates import NumberedUpdate

T = TypeVar("T")
Rows = TypeVar("Rows")

#: Jobs that one step removes: others wait for it to end.
_REMOVED_AT_ONCE = 50


class SqlStore(Store):
    """Jobs in a database whose schema is there already.

    What was written survives a crash of the process.  It opens connections when it first needs
    them, and new ones in a process that was forked from this one.

    :param database: where.
    :param retry_s: how long a step waits for a database that cannot be reached; a third of it where
        the client of a new job, or of one that ends with it, waits, which can ask again.  A read
        waits for a third of it, too, once another one has waited in vain.
    """

    def __init__(self, database: Database, *, retry_s: float = 15.0) -> None:
        self._database = database
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._closed = False
        self._process: Process | None = None
        self._owned = SqlOwned(database, self._begin, self._read)

    def create(
        self, job: Job, *, wait: bool = True, held: bool = False, quota: Quota | None = None
    ) -> None:
        """Add a job that has not begun."""
        if held:
            self._here().held.hold(job)
            return
        step = adding(self._database, job, request_body(job), quota=quota)
        step.asked = wait
        step.unwatched = None if wait else job.id
        done = self._begin(step)
        if wait:
            done.result()

    def claim(self, job_id: str, owner: str, *, attempt: int | None = None) -> Job:
        """Make ``owner`` the job's, and return it."""
        _check_id(job_id)
        claim = Claim(lambda connection: steps.claim(connection, job_id, owner, attempt))
        job: Job = self._begin(Step(claim.run, claim.undo)).result()
        return job

    def claim_next(
        self, owner: str, backends: Collection[str], *, below: int | None = None
    ) -> Job | None:
        """Claim the oldest detached job of one of ``backends`` that nobody runs."""
        # most often there is none, and to see that takes no writing
        free = queries.free(self._database, backends, below).limit(1)
        looked = self._read(lambda connection: connection.execute(free).first(), urgent=True)
        if looked is None:
            return None
        claiming = partial(steps.claim_next, database=self._database, owner=owner, below=below)
        claim = Claim(partial(claiming, backends=backends, leave_out=self._here().leave_out))
        job: Job | None = self._begin(Step(claim.run, claim.undo)).result()
        return job

    def release(self, job_id: str, attempt: int, *, forgiven: bool = True) -> None:
        """Give a job back that did not come to its end."""
        _check_id(job_id)
        release = partial(steps.release, job_id=job_id, attempt=attempt, forgiven=forgiven)
        self._begin(Step(lambda connection, again: release(connection, again=again))).result()

    def append(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Add records to the job of this attempt, and the checkpoint if there is one."""
        # whoever waits here has a client that waits, too, or tries again
        self._append(job_id, attempt, records, checkpoint, asked=True).result()

    def append_soon(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> Future[None]:
        """Begin an :meth:`append` without waiting until it is stored."""
        return self._append(job_id, attempt, records, checkpoint, asked=False)

    def _append(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        checkpoint: Checkpoint | None,
        *,
        asked: bool,
    ) -> Future[None]:
        done: Future[None]
        try:
            _check_id(job_id)
            told = job_id, attempt, records
            if checkpoint is None:
                whole = begin_whole(self._here(), self._database, *told, asked=asked)
                if whole is not None:
                    return whole
            done = self._begin(appending(self._database, *told, checkpoint, asked=asked))
        except (FencedError, UnknownJobError, StoreError, TypeError, ValueError) as error:
            done = Future()
            done.set_exception(error)
        return done

    def job(self, job_id: str) -> Job:
        """Return the job as it stands."""
        _check_id(job_id)
        row = self._read(lambda connection: queries.job_row(connection, job_id))
        return self._here().decode(queries.whole, row)

    def records(
        self,
        job_id: str,
        after_seq: int = 0,
        *,
        limit: int | None = None,
        bulk: bool | None = None,
    ) -> Sequence[Record]:
        """Return the job's records with a number above ``after_seq``."""
        _check_id(job_id)
        found: list[Record] = []
        while True:
            rows_limit = queries.ROWS_AT_ONCE
            if limit is not None:
                rows_limit = min(rows_limit, max(0, limit - len(found)))
            some, last_seq = self._portion(job_id, after_seq, rows_limit, bulk)
            found += some
            if last_seq is None or (limit is not None and len(found) >= limit):
                return found if limit is None else found[:limit]
            after_seq = last_seq

    def _portion(
        self, job_id: str, after_seq: int, rows_limit: int, bulk: bool | None
    ) -> tuple[list[Record], int | None]:
        """Return some records above ``after_seq``, and up to which number, or None for the end."""

        def decode(rows: Sequence[Any]) -> tuple[list[Record], int | None]:
            more = rows and len(rows) == rows_limit
            some = queries.records_in(job_id, rows, after_seq, bulk)
            return some, rows[-1].last_seq if more else None

        return self._read_large(
            lambda connection: queries.rows_after(connection, job_id, after_seq, rows_limit, bulk),
            decode,
        )

    def jobs(
        self,
        *,
        account: str | None = None,
        statuses: Collection[Status] | None = None,
        backend: str | None = None,
        kinds: Collection[RequestKind] | None = None,
        parent_id: str | None = None,
        before: tuple[float, str] | None = None,
        offset: int = 0,
        limit: int = 50,
    ) -> Sequence[Job]:
        """Return jobs, the newest first."""
        if parent_id is not None and not is_id(parent_id):
            return ()
        listed = partial(
            queries.listed,
            account=account,
            statuses=statuses,
            backend=backend,
            kinds=kinds,
            parent_id=parent_id,
            before=before,
        )
        found: list[Job] = []
        while True:
            page = partial(listed, offset=offset, limit=limit - len(found))
            some, count = self._read_large(page, lambda rows: (self._whole(rows), len(rows)))
            found += some
            # those that cannot be read leave their places to the next
            if len(some) == count:
                return found
            offset += count

    def count(self, account: str, kinds: Collection[RequestKind]) -> int:
        """Return how many jobs of these kinds the account has."""
        return self._read(lambda connection: queries.counted(connection, account, kinds))

    def standing(self, account: str, month: str) -> Standing:
        """Return what the account has in progress, and what it consumed in a month."""
        return self._ask(lambda connection: accounts.standing(connection, account, month))

    def session_job(self, session_id: str) -> str | None:
        """Return the id of the job that has used a brainstorm session up, or None."""
        if not is_id(session_id):
            return None
        return self._ask(lambda connection: accounts.session_job(connection, session_id))

    def add_update(self, job_id: str, update: Update, created_at: float) -> None:
        """Note an update for whoever runs the job."""
        _check_id(job_id)
        row = update_values(job_id, update, created_at)
        step = Step(lambda connection, again: steps.add_update(connection, row, again=again))
        self._begin(step).result()

    def updates(self, job_id: str, after: int = 0) -> Sequence[NumberedUpdate]:
        """Return the job's updates with a number above ``after``."""
        if not is_id(job_id):
            return ()
        return self._read(lambda connection: queries.updates_after(connection, job_id, after))

    @property
    def owned(self) -> OwnedStore:
        """What accounts own besides jobs, in the same database."""
        return self._owned

    def find(self, account: str, fingerprint: str) -> Job | None:
        """Return the newest job of the account with this fingerprint, or None."""
        row = self._ask(lambda connection: queries.found(connection, account, fingerprint))
        return None if row is None else self._here().decode(queries.whole, row)

    def positions(self, job_ids: Collection[str]) -> Mapping[str, int]:
        """Return the number of the last stored record of each of these jobs that exists."""
        ids = [id for id in job_ids if is_id(id)]
        return self._read(lambda connection: queries.positions(connection, ids), urgent=True)

    def waiting(self, *, limit: int, urgent: bool = False) -> int:
        """Return how many detached jobs have no owner, counting up to ``limit``."""
        waiting = partial(queries.waiting, limit=limit)
        return self._read(waiting, urgent=True) if urgent else self._ask(waiting)

    def request_cancel(self, job_id: str) -> Job:
        """Note that the job is to be cancelled; no effect on one that has ended."""
        _check_id(job_id)
        step = Step(lambda connection, _: steps.request_cancel(connection, job_id))
        job: Job = self._begin(step).result()
        return job

    def cancel_requests(self, owner: str) -> Collection[str]:
        """Return the ids of this owner's running jobs whose cancel was asked for."""
        return self._read(lambda connection: queries.cancelled(connection, owner), urgent=True)

    def renew(self, owner: str, lease_s: float, backends: Collection[str] | None = None) -> None:
        """Begin a lease, or prolong it to ``lease_s`` seconds from now."""
        lease = owner, lease_s, backends
        step = Step(
            lambda connection, _: leases.renew(connection, self._database, *lease),
            tells=False,
            asked=True,
        )
        self._begin(step).result()

    def retire(self, owner: str) -> None:
        """End a lease at once."""
        self._begin(Step(lambda connection, _: leases.retire(connection, owner))).result()

    def unclaimable(self, *, limit: int = 10_000) -> Sequence[Unclaimable]:
        """Return detached jobs that nobody runs and whose backend no lease names."""
        waiting = partial(leases.unclaimable, database=self._database, limit=limit)
        return self._read(waiting, urgent=True)

    def lost(self, *, limit: int = 100) -> Sequence[Job]:
        """Return running jobs, detached or not, whose owner has no lease any more."""
        lost = partial(queries.lost, database=self._database, limit=limit)
        return self._whole(self._read(lost, urgent=True))

    def delete(self, job_id: str) -> None:
        """Remove the job, all that belongs to it and its follow-ups."""
        if is_id(job_id) and not self._here().held.drop(job_id):
            self._remove([job_id])

    def prune(
        self, *, finished_before: float | None = None, keep: int | None = None, limit: int = 1000
    ) -> int:
        """Remove finished jobs, the oldest first."""
        ids = self._read(
            lambda connection: queries.prunable(connection, finished_before, keep, limit),
            urgent=True,
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
            leases.renew(connection, self._database, probe, 1.0, ())
            leases.retire(connection, probe)

        self._begin(Step(write, tells=False)).result()
        self.waiting(limit=1)

    def close(self) -> None:
        """Do what was begun, end the thread and close every connection."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is not None and process.is_this:
            process.held.settle()
            process.close()

    def _begin(self, step: Step) -> Future[Any]:
        return self._settled().writer.begin(step)

    def _settled(self) -> Process:
        """Return what this process holds, with nothing kept back from whoever looks or writes."""
        here = self._here()
        here.held.settle()
        return here

    def _read(self, read: Callable[[Connection], T], *, urgent: bool = False) -> T:
        return self._settled().read(read, self._retry_s, urgent=urgent)

    def _ask(self, read: Callable[[Connection], T]) -> T:
        """Read what a new job has to wait for."""
        return self._settled().read(read, self._retry_s * ASKED_PART)

    def _read_large(self, fetch: Callable[[Connection], Rows], decode: Callable[[Rows], T]) -> T:
        return self._settled().read_large(fetch, decode, self._retry_s)

    def _whole(self, rows: Sequence[RowMapping]) -> list[Job]:
        return self._here().decode_each(queries.whole, rows)

    def _here(self) -> Process:
        """Return what this process holds: what it inherited by a fork is not for use."""
        process = self._process
        if process is not None and process.is_this:
            return process
        with self._lock:
            if self._closed:
                raise StoreError("store: it is closed, for the process is about to end")
            if self._process is None or not self._process.is_this:
                begin = partial(begin_adding, self._database)
                self._process = Process(self._database, self._retry_s, self._process, begin)
            return self._process


def _check_id(job_id: str) -> None:
    if not is_id(job_id):
        raise UnknownJobError(job_id)
