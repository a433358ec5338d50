"""Takes requests in, gives each a job, and runs it: for its client alone, or for whoever asks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Generator

import msgspec

from caesar_server.contract.backend import Backend
from caesar_server.contract.context import Forwarded
from caesar_server.contract.request import Request
from caesar_server.jobs.adapt import fit
from caesar_server.jobs.attached import AttachedJobs, Followed
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import Observer
from caesar_server.jobs.detached import DetachedJobs, JobLimits
from caesar_server.jobs.files import Files
from caesar_server.jobs.files.inlining import is_inlined
from caesar_server.jobs.following.follower import Follower
from caesar_server.registry import Registry, ResolvedBackend
from caesar_server.store.base import Job, Record, Store
from caesar_server.store.quotas import Quota

logger = logging.getLogger(__name__)

#: So long after a job has ended well, a client that repeats its request gets its answer.
REPEAT_WITHIN_S = 120.0


class Runner:
    """Runs jobs; safe from any thread.

    There are two roads.  *Attached* jobs end with their client: they run inline or in the pool, at
    most ``limit`` at a time, and are stored at their end.  *Detached* ones outlive it, and any
    process may run them: see :class:`caesar_server.jobs.detached.DetachedJobs`.

    Threads start with the first job that needs them, never before a fork.

    :param limit: attached runs under way at once, inline and pooled together.
    :param feed_events: records that may wait for a slow reader, besides the last one.
    :param job_limits: what this process does for detached jobs; None: as many at once as attached
        ones.
    :param max_answer_chars: how long the text of a run may be, over all choices; one that grows
        beyond it fails.  None: any length.
    :param files: lends uploaded files to runs; None: there are none.
    :param housekeeping: called about once a minute by a process that looks after jobs.
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
        job_limits: JobLimits | None = None,
        max_answer_chars: int | None = None,
        files: Files | None = None,
        housekeeping: Callable[[], None] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._files = files
        self._detached = DetachedJobs(
            store=store,
            registry=registry,
            clock=clock,
            limits=job_limits or JobLimits(threads=limit),
            cancel_attached=self._cancel_attached,
            housekeeping=housekeeping,
            max_answer_chars=max_answer_chars,
            files=files,
            observer=observer,
        )
        self._attached = AttachedJobs(
            store=store,
            registry=registry,
            clock=clock,
            limit=limit,
            feed_events=feed_events,
            lease=self._detached.lease,
            debts=self._detached.debts,
            max_answer_chars=max_answer_chars,
            files=files,
            observer=observer,
        )

    def start(self) -> None:
        """Begin to look for jobs that wait, or whose process is lost.

        For hosts, once a process has forked: without it that begins with the first detached job.
        A store that cannot be used now is asked again every second.
        """
        self._detached.start()

    def prepare(
        self, model: str, request: Request, *, account: str = ""
    ) -> tuple[ResolvedBackend, Request]:
        """Return the backend for ``model`` and the request as that backend can take it.

        Nothing is started or stored.

        :param model: the name that the client asked for; the request's own is set from it.
        :param account: whose files the request names.
        :raises ModelNotFoundError: see :meth:`caesar_server.registry.Registry.resolve`.
        :raises BackendLoadError: likewise.
        :raises InvalidRequestError: if the backend cannot take the request.
        """
        resolved = self._registry.resolve(model)
        named = request
        if request.model != resolved.model:
            named = msgspec.structs.replace(request, model=resolved.model)
        able = resolved.backend.capabilities
        if self._files is not None and is_inlined(named, able):
            # tried, so that it can be refused; done anew when it runs, since the job is to show
            # what was asked, and not the text of files
            fit(self._files.inlined(account, named, able, resolved.name), able, resolved.name)
            return resolved, named
        return resolved, fit(named, able, resolved.name)

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
        return self._attached.run_inline(job, quota=quota, forwarded=forwarded, backend=backend)

    def follow(
        self,
        job: Job,
        *,
        quota: Quota | None = None,
        forwarded: Forwarded | None = None,
        backend: Backend | None = None,
    ) -> Followed:
        """Run a new attached job in the pool and return the client's end of it.

        An immediate backend runs in this thread until it is going to wait.

        :param quota: what the job's account may have.
        :param backend: what the job's model name leads to, if that is known.
        :raises QuotaExceededError: if the account has no room for it.
        :raises OverloadedError: if ``limit`` runs are under way.
        :raises ShuttingDownError: after :meth:`close`.
        """
        return self._attached.follow(job, quota=quota, forwarded=forwarded, backend=backend)

    def submit(
        self, job: Job, *, quota: Quota | None = None, forwarded: Forwarded | None = None
    ) -> Follower:
        """Store a new detached job, begin with it if there is room, and follow it.

        :param quota: what the job's account may have.
        :param forwarded: what may be passed on of the caller's HTTP request; lost if the job has to
            wait, and not for durable backends.
        :raises QuotaExceededError: if the account has no room for it.
        :raises SessionUsedError: if another job has its brainstorm session.
        :raises QueueFullError: if there is none, and ``queue_limit`` jobs wait already.
        :raises ShuttingDownError: after :meth:`close`.
        :raises StoreError: if the store cannot be used: the job is not stored.
        """
        return self._detached.submit(job, quota=quota, forwarded=forwarded)

    def follow_stored(self, job: Job, after_seq: int = 0) -> Follower:
        """Follow a detached job, in whatever process it runs, or a finished one.

        :param after_seq: the number of the last record that the reader has.
        """
        return self._detached.follow(job, after_seq)

    def repeated(self, account: str, fingerprint: str) -> Job | None:
        """Return the account's job for the same request, if it runs or ended well a moment ago."""
        job = self._store.find(account, fingerprint)
        if job is None or not job.detached or job.cancel_requested or job.status == "failed":
            return None
        age_s = 0.0 if job.finished_at is None else self._clock.time() - job.finished_at
        return job if age_s <= REPEAT_WITHIN_S else None

    def cancel_stored(self, job_id: str) -> Job:
        """Cancel a job, in whatever process it runs, and return it as it then stands.

        The run of a detached job notices within a second, and so does that of an attached one in
        this process; in another one within two seconds.

        :raises UnknownJobError: if there is no such job.
        :raises StoreError: if the store cannot be used.
        """
        job = self._detached.cancel(job_id)
        self._attached.cancel(job_id)
        return job

    def runs_detached(self, job_id: str) -> bool:
        """Return whether a run of a detached job is under way in this process."""
        return self._detached.runs(job_id)

    def cancel(self, job_id: str) -> None:
        """Ask an attached run of this process to stop; harmless if there is none."""
        self._attached.cancel(job_id)

    def drain(self, grace_s: float) -> None:
        """Let what runs go on for ``grace_s`` seconds; then cancel it and take nothing new.

        Durable jobs are not cancelled but handed back, for another process to go on with.
        Returns at once.  A cancelled stream still gets its last frame, if :meth:`close` leaves it
        the time.
        """
        self._detached.leave_off()
        self._clock.call_at(self._clock.monotonic() + grace_s, self._stop)

    def close(self, timeout_s: float = 5.0) -> None:
        """Cancel what runs and take nothing new; waits for the runs to end, up to ``timeout_s``.

        Durable jobs are handed back.  May be called more than once.
        """
        self._stop()
        until = time.monotonic() + timeout_s
        ended = self._attached.close(timeout_s)
        if not self._detached.close(max(0.0, until - time.monotonic())) or not ended:
            logger.warning("some runs have not ended %g s after their cancel", timeout_s)

    @property
    def running(self) -> int:
        """How many runs are under way, attached and detached."""
        return self._attached.running + self._detached.running

    def _cancel_attached(self, job_ids: Collection[str]) -> None:
        for job_id in job_ids:
            self._attached.cancel(job_id)

    def _stop(self) -> None:
        self._attached.stop()
        self._detached.stop()


def new_id() -> str:
    """Return a UUID of version 4, made of nothing but chance of the system (RFC 9562).

    >>> new_id()[14], len(new_id())
    ('4', 36)
    """
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def new_job(
    request: Request,
    *,
    model: str,
    resolved: ResolvedBackend,
    created_at: float,
    timeout_s: float | None,
    account: str = "",
    fingerprint: str | None = None,
    id: str | None = None,
    detached: bool | None = None,
    api_version: str | None = None,
    parent_id: str | None = None,
    session_id: str | None = None,
) -> Job:
    """Return a job that has not begun; parameters as of :class:`~caesar_server.store.base.Job`.

    :param id: a UUID; None makes one that cannot be guessed.
    :param detached: None: if its backend is durable, for what cannot go on elsewhere ends with its
        client.
    """
    durable = resolved.backend.capabilities.durable
    return Job(
        id=new_id() if id is None else id,
        created_at=created_at,
        model=model,
        backend=resolved.name,
        backend_model=resolved.model,
        request=request,
        account=account,
        timeout_s=timeout_s,
        detached=durable if detached is None else detached,
        durable=durable,
        fingerprint=fingerprint,
        api_version=api_version,
        parent_id=parent_id,
        session_id=session_id,
    )
