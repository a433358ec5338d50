"""Updates that were sent to jobs, as a store in memory keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from caesar_server.contract.context import Update
from caesar_server.store.updates import NumberedUpdate


class MemoryUpdates:
    """The updates of each job; needs the store's lock."""

    def __init__(self) -> None:
        self._of_jobs: dict[str, list[NumberedUpdate]] = {}

    def add(self, job_id: str, update: Update, created_at: float) -> None:
        """Add an update behind those that the job has."""
        own = self._of_jobs.setdefault(job_id, [])
        own.append(NumberedUpdate(len(own) + 1, created_at, update))

    def after(self, job_id: str, number: int) -> Sequence[NumberedUpdate]:
        """Return the job's updates with a number above ``number``."""
        return tuple(self._of_jobs.get(job_id, ())[max(0, number) :])

    def remove(self, job_id: str) -> None:
        """Forget the job's updates."""
        self._of_jobs.pop(job_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self._of_jobs.clear()
