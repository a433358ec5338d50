"""Jobs that this process takes over: lost ones are ended, waiting ones begun."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from caesar_server.contract.errors import ErrorInfo
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import Observer
from caesar_server.jobs.ending import end_job, verdict
from caesar_server.registry import Registry
from caesar_server.store.base import FencedError, Job, Store, StoreError, UnknownJobError

logger = logging.getLogger(__name__)

#: How often lost jobs are looked for, in seconds.
_LOST_APART_S = 1.0

#: Something that could not be stored and must still be; raises StoreError while it cannot.
Debt = Callable[[], None]


class Debts:
    """What the store would not take.  Left alone, such a job would be in progress for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owed: list[Debt] = []

    def add(self, debt: Debt) -> None:
        """Owe something to the store."""
        with self._lock:
            self._owed.append(debt)

    def settle(self) -> None:
        """Try to store all of it; what the store still does not take stays.

        :raises StoreError: the first one that came.
        """
        with self._lock:
            owed, self._owed = self._owed, []
        for number, debt in enumerate(owed):
            try:
                debt()
            except StoreError:
                with self._lock:
                    self._owed += owed[number:]
                raise
            except (FencedError, UnknownJobError) as error:
                logger.warning("somebody else has ended a job: %r", error)
            except Exception:
                logger.exception("how a job ended could not be stored")


class Claims:
    """Claims jobs in the name of this process.  Safe from any thread.

    :param owner: returns the name.
    :param max_attempts: see :func:`caesar_server.jobs.ending.verdict`.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: SchedulingClock,
        *,
        owner: Callable[[], str],
        max_attempts: int,
        observer: Observer,
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._owner = owner
        self._max_attempts = max_attempts
        self._observer = observer
        self._looked_at = 0.0
        #: Whether lost jobs were seen that this process could go on with.
        self._some_lost = False
        self.debts = Debts()

    @property
    def able(self) -> Collection[str]:
        """The backends that this process could run."""
        return [name for name in self._registry.names if self._can_run(name)]

    def next(self, *, last_tries: bool) -> Job | None:
        """Claim the oldest job that nobody runs and that this process could run.

        :param last_tries: whether it may be one of which :meth:`is_last_try` is true.
        """
        able = self.able
        # claimed once more it would be one of them; with one attempt in all, none is
        below = None if last_tries or self._max_attempts == 1 else self._max_attempts - 1
        return self._store.claim_next(self._owner(), able, below=below) if able else None

    def is_last_try(self, job: Job) -> bool:
        """Return whether a claimed job has cost processes, and fails if it costs this one, too."""
        return 1 < job.attempt - job.released >= self._max_attempts

    def some_wait(self) -> bool:
        """Return whether there are jobs that nobody runs, whoever had them; nothing is claimed."""
        return self._some_lost or self._store.waiting(limit=1, urgent=True) > 0

    def _can_run(self, name: str) -> bool:
        return name in self._registry.names and self._registry.report(name).state != "failed"

    def end_lost(self) -> None:
        """End the jobs of processes that are gone, except for those that can be run again."""
        now = time.monotonic()
        if now - self._looked_at < _LOST_APART_S:
            return
        self._looked_at = now
        some_lost = False
        for job in self._store.lost():
            # as it would be once claimed
            info = self.verdict(job, claims=1)
            if info is not None:
                self.claim_and_end(job.id, job.attempt, info)
            else:
                some_lost = some_lost or self._can_run(job.backend)
        self._some_lost = some_lost

    def verdict(self, job: Job, *, claims: int = 0) -> ErrorInfo | None:
        """Return how a job must end instead of being run, or None.

        :param claims: by how many it will have been claimed more often.
        """
        return verdict(job, self._max_attempts - claims)

    def claim_and_end(self, job_id: str, attempt: int, info: ErrorInfo) -> None:
        """End a job that nobody runs, unless somebody has claimed it since its ``attempt``."""
        try:
            claimed = self._store.claim(job_id, self._owner(), attempt=attempt)
        except (FencedError, UnknownJobError):
            return  # another process was quicker
        self.end(claimed, info)

    def end(self, job: Job, info: ErrorInfo) -> None:
        """End a job that this process has claimed and does not run."""
        logger.warning("job %s ends: %s", job.id, info.code)
        self._do(lambda: self._end(job, info))

    def give_back(self, job: Job, *, forgiven: bool) -> None:
        """Let others claim a job that this process has claimed and does not run."""
        self._do(lambda: self._store.release(job.id, job.attempt, forgiven=forgiven))

    def _end(self, job: Job, info: ErrorInfo) -> None:
        records = end_job(self._store, job, info, self._clock.time())
        tally = self._observer.begin(job)
        tally.add(records)
        tally.end()

    def _do(self, step: Debt) -> None:
        """Do a step now or, if the store cannot be used, as soon as it can."""
        try:
            step()
        except (FencedError, UnknownJobError):
            logger.debug("somebody else has the job by now")
        except StoreError:
            self.debts.add(step)
            raise
