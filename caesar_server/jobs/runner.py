"""Takes requests in, gives each a job, and runs it in its own thread or in the caller's."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

from caesar_server.contract.backend import Capabilities
from caesar_server.contract.context import Forwarded
from caesar_server.contract.events import Completed, Failed
from caesar_server.contract.request import Request
from caesar_server.errors import (
    CANCELLED,
    SHUTDOWN,
    UNEXPECTED,
    OverloadedError,
    ShuttingDownError,
)
from caesar_server.jobs.adapt import fit
from caesar_server.jobs.attempt import Attempt
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import Observer, RunContext
from caesar_server.jobs.feed import Feed
from caesar_server.registry import Registry, ResolvedBackend
from caesar_server.store.base import FencedError, Job, Record, Store, UnknownJobError

logger = logging.getLogger(__name__)


class Followed:
    """A job that runs in the pool, as its one follower sees it."""

    def __init__(self, job: Job, context: RunContext, feed: Feed, *, durable: bool) -> None:
        self.job = job
        self._context = context
        self._feed = feed
        self._durable = durable
        #: Whether :meth:`leave` was called; the last record does not come then.
        self.left = False

    def take(self, timeout_s: float | None) -> list[Record]:
        """Return all records that are ready, waiting up to ``timeout_s`` seconds for the first."""
        return self._feed.take(timeout_s)

    @property
    def drained(self) -> bool:
        """Whether the last record was taken, or nobody follows any more."""
        return self._feed.drained

    def leave(self) -> None:
        """Say that nobody follows any more: a durable job goes on, another one is cancelled.

        Wakes a :meth:`take` that waits.  Harmless after the end and when called twice.
        """
        self.left = True
        self._feed.close()
        if not self._durable:
            self._context.cancel()


class Runner:
    """Runs jobs, at most ``limit`` at a time; safe from any thread.

    The pool's threads start with the first pooled job, never before a fork.

    :param limit: runs under way at once, inline and pooled together.
    :param feed_events: records that may wait for a slow reader, besides the last one.
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
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._limit = limit
        self._feed_events = feed_events
        self._observer = observer
        self._changed = threading.Condition()
        self._contexts: dict[str, RunContext] = {}
        self._admitted = 0
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def prepare(self, model: str, request: Request) -> tuple[ResolvedBackend, Request]:
        """Return the backend for ``model`` and the request as that backend can take it.

        Nothing is started or stored.

        :param model: the name that the client asked for; the request's own is set from it.
        :raises ModelNotFoundError: see :meth:`caesar_server.registry.Registry.resolve`.
        :raises BackendLoadError: likewise.
        :raises InvalidRequestError: if the backend cannot take the request.
        """
        resolved = self._registry.resolve(model)
        named = replace(request, model=resolved.model)
        return resolved, fit(named, resolved.backend.capabilities, resolved.name)

    def run_inline(
        self, job: Job, *, forwarded: Forwarded | None = None
    ) -> Generator[Record, None, None]:
        """Run a new job in this thread and yield its records; it begins with the first of them.

        :raises OverloadedError: if ``limit`` runs are under way.
        :raises ShuttingDownError: after :meth:`close`.
        """
        attempt = self._admit(job, forwarded, keep_until_end=True)
        yield from self._records(attempt)

    def follow(
        self, job: Job, capabilities: Capabilities, *, forwarded: Forwarded | None = None
    ) -> Followed:
        """Run a new job in the pool and return the follower's end of it.

        :raises OverloadedError: if ``limit`` runs are under way.
        :raises ShuttingDownError: after :meth:`close`.
        """
        if capabilities.durable:
            forwarded = None  # another process that takes the job over would not have it
        attempt = self._admit(job, forwarded, keep_until_end=not capabilities.durable)
        feed = Feed(self._feed_events)
        try:
            self._submit(attempt, feed)
        except BaseException:
            self._release(attempt)
            self._store.delete(job.id)
            raise
        return Followed(attempt.job, attempt.context, feed, durable=capabilities.durable)

    def cancel(self, job_id: str) -> None:
        """Ask a run of this process to stop; harmless if there is none."""
        with self._changed:
            context = self._contexts.get(job_id)
        if context is not None:
            context.cancel()

    def drain(self, grace_s: float) -> None:
        """Let what runs go on for ``grace_s`` seconds; then cancel it and take nothing new.

        Returns at once.  A cancelled stream still gets its last frame, if :meth:`close` leaves it
        the time.
        """
        self._clock.call_at(self._clock.monotonic() + grace_s, self._stop)

    def _stop(self) -> None:
        with self._changed:
            self._closed = True
            contexts = list(self._contexts.values())
        for context in contexts:
            context.cancel("shutdown")

    def close(self, timeout_s: float = 5.0) -> None:
        """Cancel what runs and take nothing new; waits for the runs to end, up to ``timeout_s``.

        May be called more than once.
        """
        self._stop()
        with self._changed:
            ended = self._changed.wait_for(lambda: self._admitted == 0, timeout_s)
        if not ended:
            logger.warning("some runs have not ended %g s after their cancel", timeout_s)
        if self._pool is not None:
            # Without a run nothing holds its threads up.
            self._pool.shutdown(wait=ended)

    @property
    def running(self) -> int:
        """How many runs are under way."""
        with self._changed:
            return self._admitted

    def _admit(self, job: Job, forwarded: Forwarded | None, *, keep_until_end: bool) -> Attempt:
        self._enter()
        try:
            attempt = self._begin(job, forwarded, keep_until_end=keep_until_end)
        except BaseException:
            self._leave()
            raise
        with self._changed:
            self._contexts[job.id] = attempt.context
            closed = self._closed
        if closed:
            attempt.context.cancel("shutdown")
        return attempt

    def _begin(self, job: Job, forwarded: Forwarded | None, *, keep_until_end: bool) -> Attempt:
        """Store the job and claim it; what cannot be run is not stored."""
        self._store.create(job)
        try:
            return Attempt(
                job.id,
                store=self._store,
                registry=self._registry,
                clock=self._clock,
                observer=self._observer,
                forwarded=forwarded,
                keep_until_end=keep_until_end,
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
            attempt.tally.end()
        finally:
            self._leave()

    def _submit(self, attempt: Attempt, feed: Feed) -> None:
        # In one step, so that close() cannot come between.
        with self._changed:
            self._check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="caesar-run")
            self._pool.submit(self._pump, attempt, feed)

    def _records(self, attempt: Attempt) -> Generator[Record, None, None]:
        """Yield an attempt's records; the last one is terminal, whatever happens.

        The place is given back just before the last one: a client that then asks again at once
        finds it free.
        """
        seq, ended = attempt.job.last_seq, False
        try:
            with closing(attempt.records()) as records:
                for record in records:
                    if _is_last(record):
                        self._release(attempt)
                    seq, ended = record.seq, _is_last(record)
                    yield record
        except Exception as error:
            if not isinstance(error, (FencedError, UnknownJobError)):
                attempt.context.logger.exception("the job could not be run to its end")
            if not ended:
                info = CANCELLED if isinstance(error, UnknownJobError) else UNEXPECTED
                last = Record(seq + 1, self._clock.time(), Failed(info))
                attempt.tally.add(last)
                self._release(attempt)
                yield last
        finally:
            self._release(attempt)

    def _pump(self, attempt: Attempt, feed: Feed) -> None:
        """Move a job's records into its feed until the end, even if nobody reads them."""
        try:
            with (
                attempt.tally.named(),
                attempt.context.on_cancel(feed.lift_limit),
                closing(self._records(attempt)) as records,
            ):
                for record in records:
                    if _is_last(record):
                        feed.end(record)
                    else:
                        feed.put(record)
        finally:
            feed.end()


def _is_last(record: Record) -> bool:
    return isinstance(record.event, (Completed, Failed))


def new_job(
    request: Request,
    *,
    model: str,
    resolved: ResolvedBackend,
    created_at: float,
    timeout_s: float | None,
    account: str = "",
) -> Job:
    """Return a job that has not begun, with an unguessable id."""
    return Job(
        id=str(uuid.uuid4()),
        created_at=created_at,
        model=model,
        backend=resolved.name,
        backend_model=resolved.model,
        request=request,
        account=account,
        timeout_s=timeout_s,
    )
