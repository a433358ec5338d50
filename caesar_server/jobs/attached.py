"""Jobs that end with their client: run in its own thread or in the pool, stored at their end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from itertools import chain

from caesar_server.contract.backend import Backend
from caesar_server.contract.context import Forwarded
from caesar_server.contract.events import Failed
from caesar_server.errors import (
    SHUTDOWN,
    OverloadedError,
    ShuttingDownError,
)
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import Observer, RunContext
from caesar_server.jobs.ending import end_after
from caesar_server.jobs.files import Files
from caesar_server.jobs.following.feed import Feed
from caesar_server.jobs.following.moving import move, move_at_once
from caesar_server.jobs.leasing.claims import Debts
from caesar_server.jobs.leasing.lease import Lease
from caesar_server.jobs.running.attempt import Attempt
from caesar_server.jobs.running.run import AT_ONCE
from caesar_server.jobs.running.threads import PatientPool
from caesar_server.registry import Registry
from caesar_server.store.base import FencedError, Job, Record, Store, UnknownJobError
from caesar_server.store.quotas import Quota

logger = logging.getLogger(__name__)


class Followed:
    """A job that ends with its client and runs beside it, as this client sees it."""

    def __init__(self, job: Job, context: RunContext, feed: Feed) -> None:
        self.job = job
        self._context = context
        self._feed = feed
        #: Whether :meth:`leave` was called; the last record does not come then.
        self.left = False

    def take(self, timeout_s: float | None) -> list[Record]:
        """Return all records that are ready, waiting up to ``timeout_s`` seconds for the first.

        ``queued`` comes with the first event of the run.
        """
        return self._feed.take(timeout_s)

    @property
    def drained(self) -> bool:
        """Whether the last record was taken, or nobody follows any more."""
        return self._feed.drained

    def leave(self) -> None:
        """Say that nobody follows any more: the job is cancelled.

        Wakes a :meth:`take` that waits.  Harmless after the end and when called twice.
        """
        self.left = True
        self._feed.close()
        self._context.cancel()


class AttachedJobs:
    """Runs jobs for their clients, at most ``limit`` at a time.  Safe from any thread.

    The pool's threads start with the first pooled job, never before a fork.

    :param limit: runs under way at once, inline and pooled together.
    :param feed_events: records that may wait for a slow reader, besides the last one.
    :param lease: in whose name they run.
    :param debts: gets what could not be stored.
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
        limit: int,
        feed_events: int,
        lease: Lease,
        debts: Debts,
        max_answer_chars: int | None = None,
        files: Files | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._limit = limit
        self._feed_events = feed_events
        #: So many may be told in the thread of the request, to whom nothing is sent meanwhile.
        self._at_once = min(feed_events, AT_ONCE)
        self._lease = lease
        self._debts = debts
        self._max_answer_chars = max_answer_chars
        self._files = files
        self._observer = observer
        self._changed = threading.Condition()
        self._contexts: dict[str, RunContext] = {}
        self._admitted = 0
        self._pool: PatientPool | None = None
        self._closed = False

    def run_inline(
        self,
        job: Job,
        *,
        quota: Quota | None = None,
        forwarded: Forwarded | None = None,
        backend: Backend | None = None,
    ) -> Generator[Record, None, None]:
        """Run a new attached job in this thread and yield its records, beginning with the first.

        :param quota: what the job's account may have.
        :param backend: what the job's model name leads to, if that is known.
        :raises QuotaExceededError: if the account has no room for it.
        :raises OverloadedError: if ``limit`` runs are under way.
        :raises ShuttingDownError: after :meth:`close`.
        """
        attempt = self._admit(job, quota, forwarded, backend, held=quota is None)
        with closing(self._batches(attempt)) as batches:
            for batch in batches:
                yield from batch

    def follow(
        self,
        job: Job,
        *,
        quota: Quota | None = None,
        forwarded: Forwarded | None = None,
        backend: Backend | None = None,
    ) -> Followed:
        """Run a new attached job in the pool and return the client's end of it.

        An immediate backend runs in this thread until it is going to wait; what it has told is
        there when this returns, and if that is all, no other thread is needed.

        :param quota: what the job's account may have.
        :param backend: what the job's model name leads to, if that is known.
        :raises QuotaExceededError: if the account has no room for it.
        :raises OverloadedError: if ``limit`` runs are under way, or there is no thread at all.
        :raises ShuttingDownError: after :meth:`close`.
        """
        attempt = self._admit(job, quota, forwarded, backend)
        feed = Feed(self._feed_events)
        batches = self._batches(attempt, feed.end)
        try:
            if not attempt.backend.capabilities.immediate:
                self._submit(attempt, feed, batches, ())
            elif (waiting := move_at_once(batches, feed, self._at_once)) is not None:
                self._go_on(attempt, feed, batches, waiting)
        except BaseException:
            batches.close()
            self._release(attempt)
            self._store.delete(job.id)
            raise
        return Followed(attempt.job, attempt.context, feed)

    def cancel(self, job_id: str) -> None:
        """Ask an attached run of this process to stop; harmless if there is none."""
        with self._changed:
            context = self._contexts.get(job_id)
        if context is not None:
            context.cancel()

    def stop(self) -> None:
        """Cancel what runs and take nothing new."""
        with self._changed:
            self._closed = True
            contexts = list(self._contexts.values())
        for context in contexts:
            context.cancel("shutdown")

    def close(self, timeout_s: float) -> bool:
        """Wait for the runs to end, up to ``timeout_s``, then end the threads; after :meth:`stop`.

        :return: whether all runs have ended.
        """
        with self._changed:
            ended = self._changed.wait_for(lambda: self._admitted == 0, timeout_s)
        if self._pool is not None:
            # Without a run nothing holds its threads up.
            self._pool.shutdown(wait=ended)
        return ended

    @property
    def running(self) -> int:
        """How many runs are under way."""
        with self._changed:
            return self._admitted

    def _admit(
        self,
        job: Job,
        quota: Quota | None,
        forwarded: Forwarded | None,
        backend: Backend | None,
        *,
        held: bool = False,
    ) -> Attempt:
        self._enter()
        try:
            attempt = self._begin(job, quota, forwarded, backend, held)
        except BaseException:
            self._leave()
            raise
        with self._changed:
            self._contexts[job.id] = attempt.context
            closed = self._closed
        if closed:
            attempt.context.cancel("shutdown")
        return attempt

    def _begin(
        self,
        job: Job,
        quota: Quota | None,
        forwarded: Forwarded | None,
        backend: Backend | None,
        held: bool,
    ) -> Attempt:
        """Store the job as this process's; what cannot be run is not stored."""
        if self._store.shared:
            self._lease.hold()  # or others would take the job for lost
        job = job.changed(owner=self._lease.owner, attempt=1)
        # a quota is counted with the job; without one nobody waits for it to be stored
        self._store.create(job, wait=quota is not None, held=held, quota=quota)
        try:
            return Attempt(
                job,
                store=self._store,
                registry=self._registry,
                clock=self._clock,
                backend=backend,
                max_answer_chars=self._max_answer_chars,
                files=self._files,
                observer=self._observer,
                forwarded=forwarded,
            )
        except BaseException:
            self._store.delete(job.id)
            raise

    def _enter(self) -> None:
        """Take a place among the running."""
        with self._changed:
            self._check_open()
            if self._admitted >= self._limit:
                raise OverloadedError(
                    f"The server is at its limit of {self._limit} answers at a time; try again",
                    retry_after_s=1,
                )
            self._admitted += 1

    def _leave(self) -> None:
        with self._changed:
            self._admitted -= 1
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise ShuttingDownError(SHUTDOWN.message)

    def _release(self, attempt: Attempt) -> None:
        """Give the place of a run back; harmless when called twice."""
        with self._changed:
            if self._contexts.pop(attempt.job.id, None) is None:
                return
        try:
            if attempt.unsettled:
                # before close() can miss it
                self._debts.add(attempt.settle)
            attempt.tally.end()
        finally:
            self._leave()

    def _submit(
        self,
        attempt: Attempt,
        feed: Feed,
        batches: Generator[Sequence[Record], None, None],
        waiting: Sequence[Record],
    ) -> None:
        # In one step, so that close() cannot come between.
        with self._changed:
            self._check_open()
            if self._pool is None:
                self._pool = PatientPool(self._limit, thread_name_prefix="caesar-run")
            self._pool.submit(self._pump, attempt, feed, batches, waiting)

    def _go_on(
        self,
        attempt: Attempt,
        feed: Feed,
        batches: Generator[Sequence[Record], None, None],
        waiting: Sequence[Record],
    ) -> None:
        """Let the pool go on with a run; without a thread there it goes on here, to its end.

        It has begun: what it has told and counted cannot be taken back by a refusal.
        """
        try:
            self._submit(attempt, feed, batches, waiting)
        except (OverloadedError, ShuttingDownError):
            feed.lift_limit()  # nobody takes anything meanwhile
            self._pump(attempt, feed, batches, waiting)

    def _batches(
        self, attempt: Attempt, on_deaf: Callable[[Record], None] | None = None
    ) -> Generator[Sequence[Record], None, None]:
        """Yield an attempt's records; the last one is terminal, whatever happens, and alone.

        None are yielded where the run is going to wait.

        The place is given back just before the last one: a client that then asks again at once
        finds it free.
        """
        ended = False

        def release() -> None:
            nonlocal ended
            self._release(attempt)
            ended = True

        try:
            with closing(attempt.batches(release, on_deaf)) as batches:
                yield from batches
        except Exception as error:
            if not isinstance(error, (FencedError, UnknownJobError)):
                attempt.context.logger.exception("the job could not be run to its end")
            if not ended:
                info = end_after(error)
                last = Record(attempt.told_seq + 1, self._clock.time(), Failed(info))
                attempt.tally.add((last,))
                self._release(attempt)
                yield (last,)
        finally:
            self._release(attempt)

    def _pump(
        self,
        attempt: Attempt,
        feed: Feed,
        batches: Generator[Sequence[Record], None, None],
        waiting: Sequence[Record],
    ) -> None:
        """Move a job's records into its feed until the end, even if nobody reads them.

        A client whose run heeds no cancel is told so without it.

        :param waiting: those that were taken already.
        """
        try:
            with (
                attempt.tally.named(),
                attempt.context.on_cancel(feed.lift_limit),
                closing(batches),
            ):
                move(chain((waiting,), batches), feed)
        finally:
            feed.end()
