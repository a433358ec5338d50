"""The way of a run's records into the store.

Nothing is written once the job is another attempt's: the store refuses the first write that comes
too late, and the recorder every one after it.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from caesar_server.contract.events import ContentDelta
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.store.base import FencedError, Job, Record, Store, UnknownJobError
from caesar_server.store.checkpoints import Checkpoint

#: Records of an attached job that wait for its end.  A job may have millions.
_KEPT_EVENTS = 1024
#: How long text waits for more of it, so that a transaction is not paid for each word.
_BATCH_S = 0.05
#: Records that are worth a transaction of their own.
_BATCH_EVENTS = 64
#: Records by which a run may be ahead of the store.
_AHEAD_EVENTS = 256


class Recorder(ABC):
    """Takes one attempt's records in, from the thread of its run."""

    #: Why nothing may be written any more: the job is another attempt's, or is gone.
    lost: FencedError | UnknownJobError | None = None

    @abstractmethod
    def add(self, records: Sequence[Record]) -> None:
        """Take the next records, at least one.

        :raises FencedError: if another attempt has begun.
        :raises UnknownJobError: if the job was deleted.
        :raises Exception: whatever the store raises.
        """

    @abstractmethod
    def end(self, record: Record) -> None:
        """Take the terminal record, and return once all of them are stored; raises likewise."""

    @abstractmethod
    def save(self, checkpoint: Checkpoint | None = None) -> None:
        """Store all that was added, in one step with ``checkpoint``; raises as :meth:`add` does."""


class KeptRecorder(Recorder):
    """For a job that ends with its client: keeps the records until the end, or some thousand.

    :param on_lost: called in the run's thread, once, when nothing may be written any more.
    """

    def __init__(
        self, store: Store, job: Job, on_lost: Callable[[FencedError | UnknownJobError], None]
    ) -> None:
        self._store = store
        self._job = job
        self._on_lost = on_lost
        self._unsaved: list[Record] = []

    def add(self, records: Sequence[Record]) -> None:
        """Take the next records."""
        self._unsaved += records
        if len(self._unsaved) >= _KEPT_EVENTS:
            self.save()

    def end(self, record: Record) -> None:
        """Take the last record, and store all."""
        self._unsaved.append(record)
        self.save()

    def save(self, checkpoint: Checkpoint | None = None) -> None:
        """Store all that was added; what could not be stored stays for the next call."""
        if self.lost is not None:
            raise self.lost
        if not self._unsaved and checkpoint is None:
            return
        job = self._job
        try:
            self._store.append(job.id, job.attempt, self._unsaved, checkpoint=checkpoint)
        except (FencedError, UnknownJobError) as error:
            self.lost = error
            self._on_lost(error)
            raise
        self._unsaved = []


class BatchRecorder(Recorder):
    """For a job that others follow: stores what happens soon, text in batches.

    One step is under way at a time; what comes meanwhile goes with the next one.  Once a step has
    failed nothing more is written, whatever the reason.

    :param on_stored: called after each step, with whether it was the last one; in the thread that
        stores, so it must be short and must not use the store.
    :param on_failed: called likewise after the step that failed.
    """

    def __init__(
        self,
        store: Store,
        job: Job,
        clock: SchedulingClock,
        *,
        on_stored: Callable[[bool], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._job = job
        self._clock = clock
        self._on_stored = on_stored
        self._on_failed = on_failed
        self._changed = threading.Condition()
        self._unsaved: list[Record] = []
        #: Whether something waits that is no text.
        self._urgent = False
        self._ended = False
        self._storing = False
        self._failure: BaseException | None = None
        self._began_at = -math.inf
        self._call_off: Callable[[], None] | None = None

    def add(self, records: Sequence[Record]) -> None:
        """Take the next records; waits while the store is far behind."""
        with self._changed:
            while len(self._unsaved) >= _AHEAD_EVENTS and self._failure is None:
                self._changed.wait()
            self._raise_failure()
            self._unsaved += records
            self._urgent = self._urgent or any(
                type(record.event) is not ContentDelta for record in records
            )
            self._consider()

    def end(self, record: Record) -> None:
        """Take the last record, and store all."""
        with self._changed:
            self._raise_failure()
            self._unsaved.append(record)
            self._ended = True
        self.save()

    def save(self, checkpoint: Checkpoint | None = None) -> None:
        """Store all that was added."""
        with self._changed:
            self._wait_until_stored()
            if self._unsaved or checkpoint is not None:
                self._begin(checkpoint)
                self._wait_until_stored()

    def _wait_until_stored(self) -> None:
        while self._storing:
            self._changed.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _consider(self) -> None:
        """Begin a step if it is time for one; the lock is held."""
        if self._storing or not self._unsaved or self._failure is not None:
            return
        due = self._began_at + _BATCH_S
        if self._urgent or len(self._unsaved) >= _BATCH_EVENTS or self._clock.monotonic() >= due:
            self._begin(None)
        elif self._call_off is None:
            self._call_off = self._clock.call_at(due, self._time_is_up)

    def _time_is_up(self) -> None:
        with self._changed:
            self._call_off = None
            self._consider()

    def _begin(self, checkpoint: Checkpoint | None) -> None:
        """Begin to store what waits; the lock is held."""
        if self._call_off is not None:
            self._call_off()
            self._call_off = None
        records, self._unsaved = self._unsaved, []
        self._urgent = False
        self._storing = True
        self._began_at = self._clock.monotonic()
        job = self._job
        try:
            step = self._store.append_soon(job.id, job.attempt, records, checkpoint=checkpoint)
        except BaseException as error:
            self._storing = False
            self._failure = error
            raise
        step.add_done_callback(self._finish)

    def _finish(self, step: Future[None]) -> None:
        error = step.exception()
        with self._changed:
            self._storing = False
            ended = self._ended and not self._unsaved
            if error is not None:
                self._failure = error
                if isinstance(error, (FencedError, UnknownJobError)):
                    self.lost = error
        # Told before the run's thread goes on: it may give its job away.
        try:
            if error is None:
                self._on_stored(ended)
            else:
                self._on_failed(error)
        finally:
            with self._changed:
                self._consider()
                self._changed.notify_all()
