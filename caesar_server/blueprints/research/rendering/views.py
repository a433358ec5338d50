"""What was made of jobs before, so that who polls a long one does not read all of it each time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from caesar_server.blueprints.research.rendering.folding import Fold, JobView
from caesar_server.store.base import Job, Record

#: Jobs that one process remembers, and characters of them all; it forgets the least used.
MAX_JOBS = 1000
MAX_CHARACTERS = 32 * 1024 * 1024


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.fold = Fold()


class Views:
    """Folds of jobs by id.  Safe from any thread: who asks for the same job at once, waits for one.

    Right because a job's records are only ever added to, and ids are never used again.
    """

    def __init__(self, max_jobs: int = MAX_JOBS, max_characters: int = MAX_CHARACTERS) -> None:
        self._max_jobs = max_jobs
        self._max_characters = max_characters
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._characters = 0

    def of(self, job: Job, read: Callable[[int], Sequence[Record]]) -> JobView:
        """Return a job with what its events say.

        :param read: returns its records after a number, without those with bulk; what it raises is
            passed on.
        """
        entry = self._entry(job.id)
        with entry.lock:
            before = entry.fold.characters
            if entry.fold.seq < job.last_seq:
                entry.fold.add(read(entry.fold.seq))
            view, more = entry.fold.view(job), entry.fold.characters - before
        self._note(job.id, entry, more)
        return view

    def _entry(self, job_id: str) -> _Entry:
        with self._lock:
            entry = self._entries.setdefault(job_id, _Entry())
            self._entries.move_to_end(job_id)
            return entry

    def _note(self, job_id: str, entry: _Entry, more: int) -> None:
        """Count what an entry holds, and forget others if that is too much."""
        with self._lock:
            if self._entries.get(job_id) is not entry:
                return  # forgotten meanwhile
            self._characters += more
            while self._entries and (
                len(self._entries) > self._max_jobs or self._characters > self._max_characters
            ):
                _, oldest = self._entries.popitem(last=False)
                self._characters -= oldest.fold.characters
