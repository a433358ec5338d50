"""Jobs that outlive their clients: stored as they come, run here or elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from caesar_server.contract.context import Forwarded
from caesar_server.errors import SHUTDOWN, OverloadedError, QueueFullError, ShuttingDownError
from caesar_server.jobs.cancellation import cancel_apart
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import NoObserver, Observer
from caesar_server.jobs.ending import cancel_job
from caesar_server.jobs.files import Files
from caesar_server.jobs.following.follower import Follower
from caesar_server.jobs.following.watch import Watch
from caesar_server.jobs.leasing.claims import Claims
from caesar_server.jobs.leasing.lease import Lease
from caesar_server.jobs.leasing.orphans import Orphans
from caesar_server.jobs.running.pool import JobPool
from caesar_server.jobs.running.threads import Pauses
from caesar_server.registry import Registry
from caesar_server.store.base import Job, Store, UnknownJobError
from caesar_server.store.quotas import Quota
from caesar_server.store.unreadable import UnreadableRecordError

logger = logging.getLogger(__name__)

#: How often old jobs are looked for, in seconds, and how many are forgotten in one step.
_PRUNE_APART_S = 60.0
_PRUNED_AT_ONCE = 500
#: When to ask again for a place in the queue, in seconds.
_ASK_AGAIN_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """What one process does for jobs that outlive their clients.

    :param threads: jobs that it runs at once.
    :param queue_limit: jobs that may wait in the store, for all processes together.
    :param max_attempts: processes that a job may cost until it counts as the cause.
    :param lease_s: how long a process may be silent before its jobs are others' to claim.
    :param orphan_timeout_s: how long a job waits for a backend that no living process has until it
        has failed; 0: for ever.
    :param run_here: whether it runs jobs at all, or leaves them to others.
    :param kept_jobs: finished jobs that are kept; None: all.
    :param kept_s: how long finished jobs are kept; None: for ever.
    """

    threads: int
    queue_limit: int = 1000
    max_attempts: int = 3
    lease_s: float = 30.0
    orphan_timeout_s: float = 0.0
    run_here: bool = True
    kept_jobs: int | None = None
    kept_s: float | None = None


class DetachedJobs:
    """This process's share in the jobs of a store.  Safe from any thread.

    Threads start with :meth:`start` or the first job, never before a fork.

    :param cancel_attached: cancels those of these jobs that run here for their clients; None: there
        are none.
    :param housekeeping: called about once a minute, for what is not a job.
    :param max_answer_chars: how long the text of a run may be; None: any length.
    :param files: lends uploaded files to runs; None: there are none.
    :param observer: hears of every run; None: nobody does.
    """

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        clock: SchedulingClock,
        limits: JobLimits,
        cancel_attached: Callable[[Collection[str]], None] | None = None,
        housekeeping: Callable[[], None] | None = None,
        max_answer_chars: int | None = None,
        files: Files | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._cancel_attached = cancel_attached
        self._housekeeping = housekeeping
        observer = observer or NoObserver()
        self.lease = Lease(
            store,
            limits.lease_s,
            backends=self._claimable,
            beat=self.look_after,
            lapsed=self._stop_what_was_taken,
        )
        self._watch = Watch(store, on_change=self._react, time=clock.time)
        self._claims = Claims(
            store,
            registry,
            clock,
            owner=lambda: self.lease.owner,
            max_attempts=limits.max_attempts,
            observer=observer,
        )
        self._orphans = Orphans(store, limits.orphan_timeout_s, end=self._claims.claim_and_end)
        #: What could not be stored and must still be.
        self.debts = self._claims.debts
        self._pool = JobPool(
            limits.threads,
            store=store,
            registry=registry,
            clock=clock,
            max_answer_chars=max_answer_chars,
            files=files,
            observer=observer,
            claims=self._claims,
            watch=self._watch,
            on_end=self.lease.wake,
        )
        #: Whether jobs are known to wait: new ones then wait behind them.
        self._some_wait = False
        #: Each try costs the job a claim and a release, and these wake all processes.
        self._pauses = Pauses()
        self._leaving = False
        self._closed = False
        self._prune_at = 0.0

    def start(self) -> None:
        """Begin to look for jobs that wait or are lost."""
        self.lease.start()
        self._watch.start()

    def submit(
        self, job: Job, *, quota: Quota | None = None, forwarded: Forwarded | None = None
    ) -> Follower:
        """Store a new job, begin with it if there is room, and return a follower from its start.

        :param quota: what the job's account may have.
        :param forwarded: what may be passed on of the caller's HTTP request: never stored, so it is
            there only if the run begins now, in this process.
        :raises QuotaExceededError: if the account has no room for it.
        :raises SessionUsedError: if another job has its brainstorm session.
        :raises QueueFullError: if there is no room and ``queue_limit`` jobs wait already.
        :raises ShuttingDownError: after :meth:`stop`.
        :raises StoreError: if the store cannot be used: the job is not stored.
        """
        if self._closed:
            raise ShuttingDownError(SHUTDOWN.message)
        self.lease.hold()
        # a process that leaves begins none of those that wait
        is_next = self._leaving or not self._some_wait
        if self._limits.run_here and is_next and self._pool.take_place():
            return self._begin(job, quota, forwarded)
        self._check_queue()
        self._store.create(job, quota=quota)
        self._some_wait = True
        self.lease.wake()
        return self._watch.follow(job)

    def follow(self, job: Job, after_seq: int = 0) -> Follower:
        """Return a follower of a stored job, wherever it runs.

        :param after_seq: the number of the last record that the reader has.
        """
        return self._watch.follow(job, after_seq)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job, in whatever process it runs, and return it as it then stands.

        A run notices within a second.

        :raises UnknownJobError: if there is no such job.
        """
        job = cancel_job(self._store, job_id, self.lease.owner, self._clock.time())
        self._pool.cancel({job_id})
        self._watch.announce(job_id)
        return job

    def runs(self, job_id: str) -> bool:
        """Return whether a run of the job is under way in this process."""
        return any(run.job.id == job_id for run in self._pool.runs)

    @property
    def running(self) -> int:
        """How many jobs run in this process."""
        return self._pool.running

    def leave_off(self) -> None:
        """Claim nothing more; what runs goes on, and new jobs are still taken."""
        self._leaving = True

    def stop(self) -> None:
        """Take nothing new; durable jobs are handed back, others cancelled, followers ended."""
        self._leaving = self._closed = True
        self._pool.stop()
        self._watch.end_followers(SHUTDOWN)

    def close(self, timeout_s: float) -> bool:
        """Wait for the runs to end, up to ``timeout_s``, then end threads and lease.

        After :meth:`stop`; may be called more than once.  What is still held may then be claimed.

        :return: whether all runs have ended.
        """
        ended = self._pool.wait_until_idle(timeout_s)
        self._pool.close()
        try:
            self.debts.settle()
        except Exception:
            logger.exception("how some jobs ended could not be stored")
        self.lease.close()
        self._watch.close()
        return ended

    def look_after(self) -> None:
        """Settle what is owed, end what is lost, begin what waits: the beat of the lease."""
        self.debts.settle()
        if self._cancel_attached is not None and self._store.shared:
            # asked for in other processes; the watch looks for its own jobs alone, and at once
            self._cancel_attached(self._store.cancel_requests(self.lease.owner))
        self._stop_what_was_deleted()
        if self._leaving:
            return
        self._claims.end_lost()
        self._orphans.look()
        self._begin_waiting()
        self._prune()

    def _begin_waiting(self) -> None:
        while self._may_begin():
            job = self._claims.next(last_tries=not self._pool.has_last_try)
            if job is None:
                self._some_wait = False
                return
            if self._may_begin() and self._pool.take_place():
                self._run_taken_over(job)
            else:
                # a new job was quicker, or the process began to end meanwhile
                self._claims.give_back(job, forgiven=True)
        if self._limits.run_here and self._claims.some_wait():
            # of other processes too: or new jobs would take each place that becomes free
            self._some_wait = True

    def _run_taken_over(self, job: Job) -> None:
        try:
            self._pool.run_taken_over(job)
        except OverloadedError:
            self._pauses.failed()
            raise
        self._pauses.went_well()

    def _claimable(self) -> Collection[str]:
        """Return the backends whose jobs this process takes from the queue."""
        return self._claims.able if self._limits.run_here and not self._leaving else ()

    def _may_begin(self) -> bool:
        has_room = self._pool.has_room and self._pauses.is_over
        return self._limits.run_here and has_room and not self._leaving

    def _prune(self) -> None:
        """Forget old jobs now and then; many of them in several steps, for other steps wait."""
        now = time.monotonic()
        if now < self._prune_at:
            return
        limits = self._limits
        before = None if limits.kept_s is None else self._clock.time() - limits.kept_s
        gone = self._store.prune(
            finished_before=before, keep=limits.kept_jobs, limit=_PRUNED_AT_ONCE
        )
        if gone < _PRUNED_AT_ONCE:
            self._prune_at = now + _PRUNE_APART_S
            if self._housekeeping is not None:
                self._housekeeping()

    def _begin(self, job: Job, quota: Quota | None, forwarded: Forwarded | None) -> Follower:
        """Store and run a job for which a place was taken."""
        job = job.changed(owner=self.lease.owner, attempt=1)
        try:
            self._store.create(job, quota=quota)
        except BaseException:
            self._pool.give_place_back()
            raise
        follower = self._watch.follow(job)
        try:
            self._pool.run(job, forwarded)
        except BaseException:
            follower.leave()
            self._store.delete(job.id)
            raise
        return follower

    def _check_queue(self) -> None:
        limit = self._limits.queue_limit
        if self._store.waiting(limit=limit) >= limit:
            raise QueueFullError(
                f"The server's queue is full, at {limit} jobs; try again",
                retry_after_s=_ASK_AGAIN_S,
            )

    def _react(self) -> None:
        """See to cancels, and to room for what waits; in the watch's thread."""
        if self._pool.runs:
            self._pool.cancel(self._store.cancel_requests(self.lease.owner))
        if self._may_begin():
            self.lease.wake()

    def _stop_what_was_deleted(self) -> None:
        """Stop runs whose jobs other processes have deleted: a request to cancel went with them."""
        runs = self._pool.runs
        left = self._store.positions([run.job.id for run in runs]) if runs else {}
        for run in runs:
            if run.job.id not in left:
                cancel_apart(run.context.cancellation, "fenced")

    def _stop_what_was_taken(self) -> None:
        """Stop runs whose jobs others have claimed while this process was silent."""
        for run in self._pool.runs:
            try:
                taken = self._store.job(run.job.id).attempt != run.job.attempt
            except UnknownJobError:
                taken = True
            except UnreadableRecordError:
                continue  # the store refuses what such a run writes, if it is no longer its
            if taken:
                cancel_apart(run.context.cancellation, "fenced")
