"""The one thread of a process that looks for what other processes have stored."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

from caesar_server.contract.errors import ErrorInfo
from caesar_server.jobs.following.follower import Follower
from caesar_server.jobs.following.tail import Tail
from caesar_server.store.base import Job, Store, StoreError
from caesar_server.store.changes import Changes

logger = logging.getLogger(__name__)

#: Changes that come closer together are looked at together.
_LOOK_APART_S = 0.05
#: How often changes are told to others besides the followers, in seconds.
_REACT_APART_S = 0.1
#: Everything is looked at so often, whether something seems to have changed or not.
_LOOK_ANYWAY_S = 1.0


class Watch:
    """Wakes the followers in this process when there is more of their jobs.

    What this process stores it announces itself, at once.  For everything else there is one thread,
    which starts with the first follower, never before a fork, and asks for all of them together.

    :param on_change: called by that thread when other processes may have changed something; what it
        raises is logged.
    :param time: Unix seconds.
    """

    def __init__(
        self, store: Store, *, on_change: Callable[[], None], time: Callable[[], float]
    ) -> None:
        self._store = store
        self._on_change = on_change
        self._time = time
        self._lock = threading.Lock()
        self._followers: dict[str, set[Follower]] = {}
        self._tails: dict[str, Tail] = {}
        #: Jobs whose records this process announces, with how many runs do.
        self._own: Counter[str] = Counter()
        self._changes: Changes | None = None
        self._thread: threading.Thread | None = None
        self._farewell: ErrorInfo | None = None
        self._closed = threading.Event()

    def follow(self, job: Job, after_seq: int = 0) -> Follower:
        """Return a follower of a stored job.

        :param after_seq: the number of the last record that the reader has.
        """
        self.start()
        with self._lock:
            farewell = self._farewell
            tail = self._tails.setdefault(job.id, Tail(self._store, job.id))
            follower = Follower(
                tail, job, after_seq=after_seq, forget=self._forget, time=self._time
            )
            group = self._followers.setdefault(job.id, set())
            group.add(follower)
            tail.readers = len(group)
        if farewell is not None:
            follower.end(farewell)
        return follower

    def start(self) -> None:
        """Begin to watch, if that has not begun."""
        with self._lock:
            if self._thread is not None or self._closed.is_set():
                return
            self._thread = threading.Thread(target=self._run, name="caesar-watch", daemon=True)
            self._thread.start()

    def begin_own(self, job_id: str) -> None:
        """Say that this process will announce what is stored of a job."""
        with self._lock:
            self._own[job_id] += 1

    def end_own(self, job_id: str) -> None:
        """Say that it will not any more; wakes the followers."""
        with self._lock:
            self._own[job_id] -= 1
            if self._own[job_id] <= 0:
                del self._own[job_id]
        self.announce(job_id)

    def announce(self, job_id: str) -> None:
        """Say that there is more of a job; quick."""
        with self._lock:
            followers = tuple(self._followers.get(job_id, ()))
            tail = self._tails.get(job_id)
        if tail is not None:
            tail.note_news()
        for follower in followers:
            follower.wake()

    def end_followers(self, info: ErrorInfo) -> None:
        """Give every follower, and each that comes later, a last record."""
        with self._lock:
            self._farewell = info
            followers = [one for group in self._followers.values() for one in group]
        for follower in followers:
            follower.end(info)

    @property
    def followed(self) -> int:
        """How many jobs have followers here."""
        with self._lock:
            return len(self._followers)

    def close(self) -> None:
        """End the thread and wait for it."""
        self._closed.set()
        with self._lock:
            thread, self._thread = self._thread, None
            if self._changes is not None:
                self._changes.wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _forget(self, follower: Follower) -> None:
        with self._lock:
            group = self._followers.get(follower.job.id)
            if group is not None:
                group.discard(follower)
                self._tails[follower.job.id].readers = len(group)
                if not group:
                    del self._followers[follower.job.id], self._tails[follower.job.id]

    def _run(self) -> None:
        looked_at = reacted_at = 0.0
        reaction_due = False
        while not self._closed.is_set():
            changed = self._wait(_REACT_APART_S if reaction_due else _LOOK_ANYWAY_S)
            now = time.monotonic()
            everything = now - looked_at >= _LOOK_ANYWAY_S
            if everything:
                looked_at = now
            if changed or everything:
                reaction_due = True
                self._attempt(self._wake_all if everything else self._wake_others)
            if reaction_due and now - reacted_at >= _REACT_APART_S:
                reaction_due, reacted_at = False, now
                self._attempt(self._on_change)
            self._closed.wait(_LOOK_APART_S)
        with self._lock:
            changes, self._changes = self._changes, None
        if changes is not None:
            self._attempt(changes.close, at_last=True)

    def _wait(self, timeout_s: float) -> bool:
        """Wait for a change; a store that cannot be watched now is asked again and again."""
        changes = self._changes
        try:
            if changes is not None:
                return changes.wait(timeout_s)
            changes = self._store.changes()
        except StoreError as error:
            logger.warning("changes by other processes cannot be seen for now: %s", error)
            self._closed.wait(_LOOK_ANYWAY_S)
            return False
        with self._lock:
            self._changes = changes
        return True

    def _attempt(self, look: Callable[[], None], *, at_last: bool = False) -> None:
        if self._closed.is_set() and not at_last:
            return
        try:
            look()
        except StoreError as error:
            logger.warning("changes by other processes cannot be seen for now: %s", error)
        except Exception:
            logger.exception("looking for changes by other processes failed")

    def _wake_all(self) -> None:
        self._wake_followers(everything=True)

    def _wake_others(self) -> None:
        self._wake_followers(everything=False)

    def _wake_followers(self, *, everything: bool) -> None:
        """Wake the followers of jobs that have more records than these have read.

        Those of the jobs that this process announces are looked at now and then only: it may have
        lost one to another process without knowing it yet.
        """
        with self._lock:
            groups = {
                job_id: (self._tails[job_id], tuple(group))
                for job_id, group in self._followers.items()
                if everything or job_id not in self._own
            }
        if not groups:
            return
        positions = self._store.positions(groups.keys())
        for job_id, (tail, followers) in groups.items():
            _wake_behind(tail, followers, positions.get(job_id))


def _wake_behind(tail: Tail, followers: Iterable[Follower], position: int | None) -> None:
    """Wake those that have not read up to ``position``; all, if the job is gone."""
    behind = [one for one in followers if position is None or one.after_seq < position]
    if behind:
        tail.note_news()
    for follower in behind:
        follower.wake()
