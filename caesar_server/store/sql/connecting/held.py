"""Jobs that are not in the database yet, for it is likely that they end in a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from caesar_server.store.base import Job

_T = TypeVar("_T")


class Held:
    """The jobs of one process that nobody else need know of so far.  Safe from any thread.

    :param add: begins to add a job to the database; called under the lock, so that whatever else is
        begun for a job comes after it.
    """

    def __init__(self, add: Callable[[Job], object]) -> None:
        self._add = add
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def hold(self, job: Job) -> None:
        """Keep a job back.

        :raises ValueError: if one of its id is kept back already.
        """
        with self._lock:
            if job.id in self._jobs:
                raise ValueError(f"job {job.id} exists")
            self._jobs[job.id] = job

    def get(self, job_id: str) -> Job | None:
        """Return the job of this id if it is kept back; it may not be so any more."""
        return self._jobs.get(job_id)

    def drop(self, job_id: str) -> bool:
        """Forget a job; return whether it was kept back."""
        with self._lock:
            return self._jobs.pop(job_id, None) is not None

    def end(self, job_id: str, begin: Callable[[], _T]) -> _T | None:
        """Call ``begin``, which adds all of the job, and return what it does.

        None: the job is kept back no longer, and nothing was called.
        """
        with self._lock:
            if self._jobs.pop(job_id, None) is None:
                return None
            return begin()

    def settle(self) -> None:
        """Begin to add all jobs that are kept back."""
        if not self._jobs:
            return
        with self._lock:
            jobs, self._jobs = self._jobs, {}
            for job in jobs.values():
                self._add(job)
