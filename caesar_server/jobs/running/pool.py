"""The bounded pool in which a process runs claimed jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from caesar_server.contract.context import Forwarded
from caesar_server.errors import SHUTDOWN, BackendLoadError, ServerError, ShuttingDownError
from caesar_server.jobs.cancellation import Reason, cancel_apart
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import Observer
from caesar_server.jobs.files import Files
from caesar_server.jobs.following.watch import Watch
from caesar_server.jobs.leasing.claims import Claims
from caesar_server.jobs.running.attempt import Attempt, HandedBackError
from caesar_server.jobs.running.threads import PatientPool
from caesar_server.registry import Registry
from caesar_server.store.base import FencedError, Job, Store, UnknownJobError

logger = logging.getLogger(__name__)


class JobPool:
    """Runs claimed jobs, at most ``threads`` at a time.  Safe from any thread.

    Whoever wants to run one takes a place first; the end of the run, or of the failure to begin it,
    gives it back.  The threads start with the first job, never before a fork.

    :param max_answer_chars: how long the text of a run may be; None: any length.
    :param files: lends uploaded files to runs; None: there are none.
    :param watch: hears of what is stored.
    :param on_end: called after each run.
    """

    def __init__(
        self,
        threads: int,
        *,
        store: Store,
        registry: Registry,
        clock: SchedulingClock,
        max_answer_chars: int | None,
        files: Files | None,
        observer: Observer,
        claims: Claims,
        watch: Watch,
        on_end: Callable[[], None],
    ) -> None:
        self._threads = threads
        self._store = store
        self._registry = registry
        self._clock = clock
        self._max_answer_chars = max_answer_chars
        self._files = files
        self._observer = observer
        self._claims = claims
        self._watch = watch
        self._on_end = on_end
        self._changed = threading.Condition()
        self._places = 0
        #: By id and number of the attempt: a process may lose a job and claim it again.
        self._runs: dict[tuple[str, int], Attempt] = {}
        #: The jobs among them that fail if this process is lost.
        self._last_tries: set[tuple[str, int]] = set()
        self._executor: PatientPool | None = None
        self._closed = False

    @property
    def running(self) -> int:
        """How many places are taken."""
        with self._changed:
            return self._places

    @property
    def runs(self) -> list[Attempt]:
        """The runs that are under way."""
        with self._changed:
            return list(self._runs.values())

    @property
    def has_room(self) -> bool:
        """Whether a place is free."""
        with self._changed:
            return self._places < self._threads and not self._closed

    @property
    def has_last_try(self) -> bool:
        """Whether a job runs that fails if it costs this process as well."""
        with self._changed:
            return bool(self._last_tries)

    def take_place(self) -> bool:
        """Take a place for a job; False if there is none."""
        with self._changed:
            if self._closed or self._places >= self._threads:
                return False
            self._places += 1
            return True

    def give_place_back(self) -> None:
        """Give back a place for which nothing was begun."""
        with self._changed:
            self._places -= 1
            self._changed.notify_all()

    def run(self, job: Job, forwarded: Forwarded | None = None) -> None:
        """Run a job that was claimed just now, and for which a place was taken.

        :param forwarded: what may be passed on of the caller's HTTP request; a durable backend gets
            nothing of it, since it could not go on elsewhere.

        :raises BackendLoadError: if its backend cannot be loaded; nothing was begun then.
        :raises ShuttingDownError: after :meth:`stop`; likewise.
        :raises OverloadedError: if there is no thread at all; likewise.
        """
        attempt = self._begin(job, None if job.durable else forwarded)
        try:
            self._submit(self._perform, attempt)
        except ServerError:
            self._release(attempt)
            self._watch.end_own(job.id)
            raise

    def run_taken_over(self, job: Job) -> None:
        """Run, end or give back a claimed job, for which a place was taken.

        All of it is done in the pool's thread: loading a backend may take long.

        :raises OverloadedError: if there is no thread at all; the job is given back.
        """
        if self._claims.is_last_try(job):
            logger.warning("job %s has cost its processes; this is its last attempt", job.id)
            with self._changed:
                # at once: the next job is claimed before this one begins
                self._last_tries.add((job.id, job.attempt))
        try:
            self._submit(self._take_over, job)
        except ServerError as error:
            # waking nobody: there would be no thread at once, and so on without a pause
            self._drop_last_try(job)
            self.give_place_back()
            self._claims.give_back(job, forgiven=True)
            if not isinstance(error, ShuttingDownError):
                raise

    def cancel(self, job_ids: Collection[str], reason: Reason = "cancelled") -> None:
        """Cancel the runs of these jobs, without waiting for what backends do then."""
        for run in self.runs:
            if run.job.id in job_ids:
                cancel_apart(run.context.cancellation, reason)

    def stop(self) -> None:
        """Take nothing new.  Durable jobs are handed back, others cancelled."""
        with self._changed:
            self._closed = True
        for run in self.runs:
            self._stop_run(run)

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until no run is under way; return False if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: self._places == 0, timeout_s)

    def close(self) -> None:
        """End the threads, if no run holds them up; after :meth:`stop`."""
        if self._executor is not None:
            self._executor.shutdown(wait=self.running == 0)

    def _submit(self, function: Callable[..., None], argument: Attempt | Job) -> None:
        # In one step, so that stop() cannot come between.
        with self._changed:
            if self._closed:
                raise ShuttingDownError(SHUTDOWN.message)
            if self._executor is None:
                self._executor = PatientPool(self._threads, thread_name_prefix="caesar-job")
            self._executor.submit(function, argument)

    def _begin(self, job: Job, forwarded: Forwarded | None = None) -> Attempt:
        """Return the attempt at a job; gives the place back if there is none."""
        try:
            attempt = Attempt(
                job,
                store=self._store,
                registry=self._registry,
                clock=self._clock,
                max_answer_chars=self._max_answer_chars,
                files=self._files,
                observer=self._observer,
                forwarded=forwarded,
                on_stored=lambda last: self._announce(attempt, last=last),
            )
        except BaseException:
            self.give_place_back()
            raise
        self._watch.begin_own(job.id)
        with self._changed:
            self._runs[job.id, job.attempt] = attempt
            closed = self._closed
        if closed:
            self._stop_run(attempt)
        return attempt

    def _stop_run(self, run: Attempt) -> None:
        run.context.cancel("handover" if run.job.durable else "shutdown")

    def _take_over(self, job: Job) -> None:
        try:
            self._run_taken_over(job)
        finally:
            if self._drop_last_try(job):
                self._on_end()  # another one may have waited for that

    def _drop_last_try(self, job: Job) -> bool:
        """Note that a job is tried no more; return whether that was its last attempt."""
        with self._changed:
            if (job.id, job.attempt) not in self._last_tries:
                return False
            self._last_tries.remove((job.id, job.attempt))
            return True

    def _run_taken_over(self, job: Job) -> None:
        info = self._claims.verdict(job)
        if info is not None:
            self.give_place_back()
            self._trying(job, lambda: self._claims.end(job, info))
            self._watch.announce(job.id)
            return
        try:
            attempt = self._begin(job)
        except Exception as error:
            logger.exception("job %s could not be begun", job.id)
            # a backend that cannot be loaded here may be there elsewhere
            forgiven = isinstance(error, (BackendLoadError, ShuttingDownError))
            self._trying(job, lambda: self._claims.give_back(job, forgiven=forgiven))
            return
        self._perform(attempt)

    def _trying(self, job: Job, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            logger.exception("what becomes of job %s could not be stored for now", job.id)

    def _perform(self, attempt: Attempt) -> None:
        """Run an attempt to its end."""
        try:
            with attempt.tally.named():
                for _ in attempt.batches():
                    pass
        except HandedBackError:
            logger.info("job %s is handed back, for the server ends", attempt.job.id)
        except (FencedError, UnknownJobError):
            logger.debug("job %s is somebody else's", attempt.job.id)  # warned of already
        except Exception:
            attempt.context.logger.exception("the job could not be run to its end")
        finally:
            self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        try:
            self._release(attempt)
        finally:
            self._watch.end_own(attempt.job.id)
            if attempt.unsettled:
                self._claims.debts.add(attempt.settle)
            self._on_end()

    def _announce(self, attempt: Attempt, *, last: bool) -> None:
        if last:
            # before anybody hears of it: who then asks again at once finds room
            self._release(attempt)
        self._watch.announce(attempt.job.id)

    def _release(self, attempt: Attempt) -> None:
        """Give the place of a run back; harmless when called twice."""
        with self._changed:
            if self._runs.pop((attempt.job.id, attempt.job.attempt), None) is None:
                return
        try:
            attempt.tally.end()
        finally:
            self.give_place_back()
