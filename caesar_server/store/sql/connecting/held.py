"""Jobs that are not in the database yet, for it is likely that they end in a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, TypeVar

from caesar_server.store.base import Job, StoreError
from caesar_server.store.sql.rows import request_body

_T = TypeVar("_T")


class HeldJob(NamedTuple):
    """A job as it was created, and its request as the database is to have it."""

    job: Job
    body: bytes


class Held:
    """The jobs of one process that nobody else need know of so far.  Safe from any thread.

    :param add: begins to add a job to the database; called under the lock, so that whatever else is
        begun for a job comes after it.
    """

    def __init__(self, add: Callable[[HeldJob], object]) -> None:
        self._add = add
        self._jobs: dict[str, HeldJob] = {}
        #: Those that are being added with all that came of them.
        self._ending: set[str] = set()
        self._lock = threading.Lock()

    def hold(self, job: Job) -> None:
        """Keep a job back.

        :raises ValueError: if one of its id is kept back already.
        :raises TypeError: if it holds what JSON cannot carry.
        """
        # here, where it harms no other job
        held = HeldJob(job, request_body(job))
        with self._lock:
            if job.id in self._jobs:
                raise ValueError(f"job {job.id} exists")
            self._jobs[job.id] = held

    def get(self, job_id: str) -> HeldJob | None:
        """Return the job of this id if it is kept back; it may not be so any more."""
        return self._jobs.get(job_id)

    def drop(self, job_id: str) -> bool:
        """Forget a job; return whether that is all there is to do."""
        with self._lock:
            if job_id in self._ending:
                return False
            return self._jobs.pop(job_id, None) is not None

    def end(self, job_id: str, begin: Callable[[], Future[_T]]) -> Future[_T] | None:
        """Call ``begin``, which adds all of the job, and return what it does.

        A job that the store could not add is kept back as before, so that this can be tried again.
        None: the job is kept back no longer, and nothing was called.
        """
        with self._lock:
            if job_id not in self._jobs:
                return None
            self._ending.add(job_id)
            done = begin()
        done.add_done_callback(partial(self._over, job_id))
        return done

    def _over(self, job_id: str, done: Future[_T]) -> None:
        with self._lock:
            self._ending.discard(job_id)
            if not isinstance(done.exception(), StoreError):
                self._jobs.pop(job_id, None)

    def settle(self) -> None:
        """Begin to add all jobs that are kept back."""
        if not self._jobs:
            return
        with self._lock:
            for job_id, held in tuple(self._jobs.items()):
                if job_id not in self._ending:
                    # until it is begun whoever has more of it must wait for the lock
                    self._add(held)
                    del self._jobs[job_id]
