"""Jobs by what they have in common, as a store in memory finds them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from caesar_server.store.base import Job


class MemoryIndex:
    """The ids of the jobs of each key, in the order of their creation; needs the store's lock.

    :param key: of a job, or None for one that is not to be found.
    """

    def __init__(self, key: Callable[[Job], Hashable | None]) -> None:
        self._key = key
        self._ids: dict[Hashable, dict[str, None]] = {}

    def add(self, job: Job) -> None:
        """Add a job that is not there."""
        key = self._key(job)
        if key is not None:
            self._ids.setdefault(key, {})[job.id] = None

    def of(self, key: Hashable) -> Collection[str]:
        """Return the ids of a key's jobs as they are now."""
        return tuple(self._ids.get(key, ()))

    def remove(self, job: Job) -> None:
        """Forget a job that was added."""
        key = self._key(job)
        if key is None:
            return
        ids = self._ids[key]
        del ids[job.id]
        if not ids:
            del self._ids[key]

    def clear(self) -> None:
        """Forget everything."""
        self._ids.clear()


def fingerprint_of(job: Job) -> Hashable | None:
    """Return the key by which a repeat of the job's request finds it."""
    return None if job.fingerprint is None else (job.account, job.fingerprint)


def parent_of(job: Job) -> Hashable | None:
    """Return the key by which the follow-ups of a job are found: its id."""
    return job.parent_id
