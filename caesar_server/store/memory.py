"""A store in the memory of one process: gone when it ends."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import ClassVar

from caesar_server.contract.context import Update
from caesar_server.contract.events import Status
from caesar_server.contract.request import RequestKind
from caesar_server.store.base import (
    LINGER_S,
    FencedError,
    Job,
    Record,
    Store,
    UnknownJobError,
)
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.in_memory.accounts import MemoryAccounts
from caesar_server.store.in_memory.changes import MemoryChanges, MemoryChanging, MemoryWatchers
from caesar_server.store.in_memory.indexes import MemoryIndex, fingerprint_of, parent_of
from caesar_server.store.in_memory.leases import MemoryLeases
from caesar_server.store.in_memory.selecting import chosen_jobs, chosen_records
from caesar_server.store.in_memory.sizes import size_of_job
from caesar_server.store.in_memory.updates import MemoryUpdates
from caesar_server.store.leases import Unclaimable
from caesar_server.store.outcome import advanced, follow_on
from caesar_server.store.owned.base import OwnedStore
from caesar_server.store.owned.memory import MemoryOwned
from caesar_server.store.quotas import LIMITED_KINDS, Quota, Standing
from caesar_server.store.updates import JobEndedError, NumberedUpdate


class MemoryStore(Store):
    """Keeps all running jobs and the last ``stored_jobs`` finished ones.

    Detached ones stay for :data:`LINGER_S` in any case.

    :param stored_jobs: 0 keeps no job beyond its end.
    :param stored_bytes: what finished jobs may take together, by a rough estimate.  A job can be
        large: millions of tokens, or a request of megabytes.
    :param monotonic: the clock of the leases, in seconds from an arbitrary start; never goes back.
    """

    shared: ClassVar[bool] = False

    def __init__(
        self,
        stored_jobs: int = 1000,
        stored_bytes: int = 64 * 1024 * 1024,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stored_jobs = stored_jobs
        self._stored_bytes = stored_bytes
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._records: dict[str, list[Record]] = {}
        #: (created_at, id) of every job, in order.
        self._order: list[tuple[float, str]] = []
        #: Those that have not ended, in the order of their creation.
        self._unfinished: dict[str, None] = {}
        #: Bytes of each finished job, the oldest first.
        self._finished: dict[str, int] = {}
        self._finished_bytes = 0
        #: Until when detached jobs stay after their end.
        self._linger: dict[str, float] = {}
        self._by_fingerprint = MemoryIndex(fingerprint_of)
        self._follow_ups = MemoryIndex(parent_of)
        self._leases = MemoryLeases(monotonic)
        self._owned = MemoryOwned()
        self._accounts = MemoryAccounts(self._owned)
        self._updates = MemoryUpdates()
        self._watchers = MemoryWatchers()
        #: Holds the lock, and then tells whoever watches.
        self._changing = MemoryChanging(self._lock, self._watchers)

    def create(
        self, job: Job, *, wait: bool = True, held: bool = False, quota: Quota | None = None
    ) -> None:
        """Add a job that has not begun; it is stored at once, whatever is said of that."""
        with self._changing:
            if job.id in self._jobs:
                raise ValueError(f"job {job.id} exists")
            if job.parent_id is not None:
                self._get(job.parent_id)
            if quota is not None:
                quota.check(self._standing(job.account, quota.month))
            self._accounts.check(job)
            self._accounts.created(job)
            self._jobs[job.id] = job
            self._records[job.id] = []
            self._unfinished[job.id] = None
            insort(self._order, (job.created_at, job.id))
            self._by_fingerprint.add(job)
            self._follow_ups.add(job)

    def claim(self, job_id: str, owner: str, *, attempt: int | None = None) -> Job:
        """Count ``attempt`` up, make ``owner`` the job's, and return the job."""
        with self._changing:
            job = self._get(job_id)
            if job.finished_at is not None:
                raise FencedError(f"job {job_id} has ended")
            if attempt is not None and job.attempt != attempt:
                raise FencedError(f"job {job_id} is at attempt {job.attempt}")
            return self._claim(job, owner)

    def claim_next(
        self, owner: str, backends: Collection[str], *, below: int | None = None
    ) -> Job | None:
        """Claim the oldest detached job of one of ``backends`` that nobody runs."""
        with self._changing:
            unfinished = map(self._jobs.__getitem__, self._unfinished)
            free = self._leases.free(unfinished, backends.__contains__, below)
            oldest = min(free, key=_moment, default=None)
            return None if oldest is None else self._claim(oldest, owner)

    def release(self, job_id: str, attempt: int, *, forgiven: bool = True) -> None:
        """Give a job back that did not come to its end."""
        with self._changing:
            job = self._get(job_id)
            self._fence(job, attempt)
            self._jobs[job_id] = job.changed(owner=None, released=job.released + forgiven)

    def append(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Add records to the job of this attempt, and the checkpoint if there is one."""
        # As other stores keep it; the backend may go on changing what it gave.
        kept = None if checkpoint is None else checkpoint.copy()
        with self._changing:
            job = self._get(job_id)
            self._fence(job, attempt)
            if not follow_on(job.last_seq + 1, records):
                raise FencedError(f"job {job_id} is at seq {job.last_seq}")
            self._jobs[job_id] = job = advanced(job, records, kept)
            self._records[job_id].extend(records)
            if job.finished_at is not None:
                self._finish(job)

    def job(self, job_id: str) -> Job:
        """Return the job as it stands."""
        with self._lock:
            return self._get(job_id)

    def records(
        self,
        job_id: str,
        after_seq: int = 0,
        *,
        limit: int | None = None,
        bulk: bool | None = None,
    ) -> Sequence[Record]:
        """Return the job's records with a number above ``after_seq``."""
        first = max(0, after_seq)
        with self._lock:
            self._get(job_id)
            return chosen_records(self._records[job_id], first, limit, bulk)

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
        with self._lock:
            end = len(self._order) if before is None else bisect_left(self._order, before)
            newest_first = (self._jobs[self._order[place][1]] for place in range(end - 1, -1, -1))
            fitting = chosen_jobs(
                newest_first,
                account=account,
                statuses=statuses,
                backend=backend,
                kinds=kinds,
                parent_id=parent_id,
            )
            return tuple(islice(fitting, offset, offset + limit))

    def count(self, account: str, kinds: Collection[RequestKind]) -> int:
        """Return how many jobs of these kinds the account has."""
        with self._lock:
            return sum(job.account == account and job.kind in kinds for job in self._jobs.values())

    def standing(self, account: str, month: str) -> Standing:
        """Return what the account has in progress, and what it consumed in a month."""
        with self._lock:
            return self._standing(account, month)

    def session_job(self, session_id: str) -> str | None:
        """Return the id of the job that has used a brainstorm session up, or None."""
        with self._lock:
            return self._accounts.session_job(session_id)

    def add_update(self, job_id: str, update: Update, created_at: float) -> None:
        """Note an update for whoever runs the job."""
        with self._changing:
            if self._get(job_id).finished_at is not None:
                raise JobEndedError(f"job {job_id} has ended")
            self._updates.add(job_id, update, created_at)

    def updates(self, job_id: str, after: int = 0) -> Sequence[NumberedUpdate]:
        """Return the job's updates with a number above ``after``."""
        with self._lock:
            return self._updates.after(job_id, after)

    @property
    def owned(self) -> OwnedStore:
        """What accounts own besides jobs."""
        return self._owned

    def find(self, account: str, fingerprint: str) -> Job | None:
        """Return the newest job of the account with this fingerprint, or None."""
        with self._lock:
            known = self._by_fingerprint.of((account, fingerprint))
            return max(map(self._jobs.__getitem__, known), key=_moment, default=None)

    def positions(self, job_ids: Collection[str]) -> Mapping[str, int]:
        """Return the number of the last stored record of each of these jobs that exists."""
        with self._lock:
            return {id: self._jobs[id].last_seq for id in job_ids if id in self._jobs}

    def waiting(self, *, limit: int, urgent: bool = False) -> int:
        """Return how many detached jobs have no owner, counting up to ``limit``."""
        with self._lock:
            unfinished = map(self._jobs.__getitem__, self._unfinished)
            waiting = (job for job in unfinished if job.detached and job.owner is None)
            return sum(1 for _ in islice(waiting, limit))

    def request_cancel(self, job_id: str) -> Job:
        """Note that the job is to be cancelled; no effect on one that has ended."""
        with self._changing:
            job = self._get(job_id)
            if job.finished_at is None:
                self._jobs[job_id] = job = job.changed(cancel_requested=True)
            return job

    def cancel_requests(self, owner: str) -> Collection[str]:
        """Return the ids of this owner's running jobs whose cancel was asked for."""
        with self._lock:
            running = map(self._jobs.__getitem__, self._unfinished)
            return {job.id for job in running if job.cancel_requested and job.owner == owner}

    def renew(self, owner: str, lease_s: float, backends: Collection[str] | None = None) -> None:
        """Begin a lease, or prolong it to ``lease_s`` seconds from now."""
        with self._lock:
            self._leases.renew(owner, lease_s, backends)

    def retire(self, owner: str) -> None:
        """End a lease at once."""
        with self._changing:
            self._leases.retire(owner)

    def unclaimable(self, *, limit: int = 10_000) -> Sequence[Unclaimable]:
        """Return detached jobs that nobody runs and whose backend no lease names."""
        with self._lock:
            unfinished = map(self._jobs.__getitem__, self._unfinished)
            free = self._leases.free(unfinished, lambda name: not self._leases.may_have(name))
            oldest = sorted(free, key=_moment)[:limit]
            return [Unclaimable(job.id, job.backend, job.attempt) for job in oldest]

    def lost(self, *, limit: int = 100) -> Sequence[Job]:
        """Return running jobs, detached or not, whose owner has no lease any more."""
        with self._lock:
            running = map(self._jobs.__getitem__, self._unfinished)
            lost = (job for job in running if job.owner and not self._leases.hold(job.owner))
            return tuple(islice(lost, limit))

    def delete(self, job_id: str) -> None:
        """Remove the job, all that belongs to it and its follow-ups."""
        with self._changing:
            self._delete(job_id)

    def prune(
        self, *, finished_before: float | None = None, keep: int | None = None, limit: int = 1000
    ) -> int:
        """Remove finished jobs, the oldest first."""
        with self._changing:
            beyond = 0 if keep is None else max(0, len(self._finished) - keep)
            old = {
                id: None
                for number, id in enumerate(self._finished)
                if (number < beyond and not self._lingers(id))
                or _ended_before(self._jobs[id], finished_before)
            }
            gone = [id for id in old if all(one in old for one in self._follow_ups.of(id))]
            return sum(map(self._delete, gone[:limit]))

    def changes(self) -> MemoryChanges:
        """Return what tells of changes; it begins with the call."""
        with self._lock:
            watcher = MemoryChanges(self._forget)
            self._watchers.add(watcher)
            return watcher

    def check(self) -> None:
        """Return: memory can always be read and written."""

    def close(self) -> None:
        """Forget everything."""
        with self._changing:
            for held in (self._jobs, self._records, self._order, self._unfinished, self._finished):
                held.clear()
            self._by_fingerprint.clear()
            self._follow_ups.clear()
            self._leases.clear()
            self._linger.clear()
            self._accounts.clear()
            self._updates.clear()
            self._finished_bytes = 0
        self._owned.clear()

    def _forget(self, watcher: MemoryChanges) -> None:
        with self._lock:
            self._watchers.remove(watcher)

    def _get(self, job_id: str) -> Job:
        try:
            return self._jobs[job_id]
        except KeyError:
            raise UnknownJobError(job_id) from None

    def _standing(self, account: str, month: str) -> Standing:
        unfinished = map(self._jobs.__getitem__, self._unfinished)
        in_progress = sum(
            job.account == account and job.kind in LIMITED_KINDS for job in unfinished
        )
        loops = self._accounts.loops(account, month)
        return Standing(jobs_in_progress=in_progress, loops=loops)

    def _claim(self, job: Job, owner: str) -> Job:
        job = self._jobs[job.id] = job.changed(attempt=job.attempt + 1, owner=owner)
        return job

    def _fence(self, job: Job, attempt: int) -> None:
        if job.attempt != attempt or job.owner is None:
            raise FencedError(f"job {job.id} is at attempt {job.attempt}, owner {job.owner}")

    def _delete(self, job_id: str) -> int:
        """Remove a job and what follows it up; return how many there were."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            return 0
        del self._records[job_id]
        self._accounts.removed(job)
        self._updates.remove(job_id)
        del self._order[bisect_left(self._order, _moment(job))]
        self._unfinished.pop(job_id, None)
        self._finished_bytes -= self._finished.pop(job_id, 0)
        self._linger.pop(job_id, None)
        self._by_fingerprint.remove(job)
        self._follow_ups.remove(job)
        return 1 + sum(map(self._delete, self._follow_ups.of(job_id)))

    def _finish(self, job: Job) -> None:
        """Count a finished job, and forget the oldest ones that there is no room for."""
        del self._unfinished[job.id]
        self._accounts.finished(job)
        size = size_of_job(job, self._records[job.id], self._updates.after(job.id, 0))
        self._finished_bytes += size
        self._finished[job.id] = size
        if job.detached:
            self._linger[job.id] = self._monotonic() + LINGER_S
        while len(self._finished) > self._stored_jobs or self._finished_bytes > self._stored_bytes:
            oldest = next((id for id in self._finished if self._may_go(id)), None)
            if oldest is None:
                return
            self._delete(oldest)

    def _may_go(self, job_id: str) -> bool:
        """Return whether a finished job is neither fresh nor followed up by one that stays."""
        return not self._lingers(job_id) and not self._follow_ups.of(job_id)

    def _lingers(self, job_id: str) -> bool:
        return job_id in self._linger and self._linger[job_id] > self._monotonic()


def _moment(job: Job) -> tuple[float, str]:
    return job.created_at, job.id


def _ended_before(job: Job, moment: float | None) -> bool:
    return moment is not None and job.finished_at is not None and job.finished_at < moment
