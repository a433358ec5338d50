"""One reader of a job that may run in any process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import Completed, Failed
from caesar_server.errors import CANCELLED, FOLLOWED_AWAY, UNEXPECTED
from caesar_server.jobs.following.tail import Tail
from caesar_server.store.base import Job, Record, StoreError, UnknownJobError
from caesar_server.store.unreadable import UnreadableRecordError

logger = logging.getLogger(__name__)

#: A store that fails for so long is given up; a database may be restarted.  The read that is then
#: under way is waited for.
_PATIENCE_S = 10.0
_RETRY_S = 0.5


class Following(Protocol):
    """What whoever answers with a job's records needs, wherever the job runs."""

    job: Job
    #: Whether :meth:`leave` was called; the last record does not come then.
    left: bool

    def take(self, timeout_s: float | None) -> list[Record]:
        """Return all records that are ready, waiting up to ``timeout_s`` seconds for the first.

        :param timeout_s: None waits until there is one, or the end.
        :return: an empty list when the time is up or, if :attr:`drained`, at the end.
        """

    @property
    def drained(self) -> bool:
        """Whether the last record was taken, or nobody follows any more."""

    def leave(self) -> None:
        """Say that nobody follows any more; wakes a :meth:`take` that waits.

        Harmless after the end and when called twice.
        """


class Follower:
    """Reads a job's records from the store, each once and in order, from any number on.

    One thread takes; any thread may wake, end or leave.  The job goes on without its followers.
    A follower that this process cannot serve to the end gets a last record that is not stored.

    :param tail: reads the job's records.
    :param after_seq: the number of the last record that is known already.
    :param forget: called once, when nothing follows any more.
    :param time: Unix seconds, for a last record that is not stored.
    """

    def __init__(
        self,
        tail: Tail,
        job: Job,
        *,
        after_seq: int,
        forget: Callable[[Follower], None],
        time: Callable[[], float],
    ) -> None:
        self.job = job
        self.left = False
        #: Whether the last record is none of the job's: it goes on, but not for this follower.
        self.given_up = False
        self.after_seq = after_seq
        self._tail = tail
        self._forget = forget
        self._time = time
        self._changed = threading.Event()
        self._drained = False
        self._farewell: ErrorInfo | None = None
        self._fails_since: float | None = None

    def take(self, timeout_s: float | None) -> list[Record]:
        """Return the records that are ready, waiting up to ``timeout_s`` seconds for the first."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.drained:
            self._changed.clear()
            records = self._read()
            if records:
                self._note(records[-1])
                return records
            if not self._wait(until):
                break
        return []

    @property
    def drained(self) -> bool:
        """Whether the last record was taken, or nobody follows any more."""
        return self._drained or self.left

    def leave(self) -> None:
        """Say that nobody follows any more; the job goes on."""
        self.left = True
        self._changed.set()
        self._forget(self)

    def wake(self) -> None:
        """Say that there may be more records, or that they may be read again."""
        self._changed.set()

    def end(self, info: ErrorInfo) -> None:
        """Let the follower have what is stored now, then a failure in place of the rest."""
        self._farewell = self._farewell or info
        self._tail.note_news()
        self._changed.set()

    def _read(self) -> list[Record]:
        """Return the next records; none if there are none yet."""
        farewell, began = self._farewell, time.monotonic()
        try:
            records = self._tail.after(self.after_seq)
        except UnknownJobError:
            return [self._last(farewell or CANCELLED)]
        except UnreadableRecordError as error:
            logger.error("job %s cannot be followed any more: %s", self.job.id, error)
            # it stays so: whoever came back would not get further
            return [self._last(UNEXPECTED, given_up=False)]
        except StoreError as error:
            return self._endure(error, began)
        self._fails_since = None
        if not records and farewell is not None:
            records.append(self._last(farewell))
        return records

    def _endure(self, error: StoreError, began: float) -> list[Record]:
        """Wait for a store that fails, but not for ever.

        :param began: when it was asked; that may be long ago, for it has patience of its own.
        """
        if self._fails_since is None:
            self._fails_since = began
            logger.warning("job %s cannot be followed for now: %s", self.job.id, error)
        if self._farewell is not None:
            return [self._last(self._farewell)]
        if time.monotonic() - self._fails_since >= _PATIENCE_S:
            logger.error("job %s cannot be followed any more: %s", self.job.id, error)
            return [self._last(FOLLOWED_AWAY)]
        return []

    def _wait(self, until: float | None) -> bool:
        """Wait for news; return False if the time is up before there are any."""
        left_s = None if until is None else until - time.monotonic()
        if left_s is not None and left_s <= 0:
            return False
        if self._fails_since is None:
            return self._changed.wait(left_s)
        # nobody tells when the store works again
        self._changed.wait(_RETRY_S if left_s is None else min(left_s, _RETRY_S))
        return True

    def _last(self, info: ErrorInfo, *, given_up: bool = True) -> Record:
        self.given_up = given_up
        return Record(self.after_seq + 1, self._time(), Failed(info))

    def _note(self, record: Record) -> None:
        self.after_seq = record.seq
        if isinstance(record.event, (Completed, Failed)):
            self._drained = True
            self._forget(self)
