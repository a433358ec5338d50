"""Time as the scopes have it, for what is written down of their jobs and shown to their clients.

It stands until a scope's clock is turned by hand, so that the same calls show the same moments.
What waits or lets leases run out goes by the machine's time all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from flask import has_request_context

from caesar_server.blueprints.mock.seams import HELD_KEY
from caesar_server.contract.context import Metrics
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import Observer, Tally
from caesar_server.mock.clock import MockClock
from caesar_server.mock.scope import EPOCH_S
from caesar_server.mock.scopes import Held, Scopes
from caesar_server.store.base import Job, Record
from caesar_server.web.incoming import incoming


def scoped(
    scopes: Scopes, clock: SchedulingClock, observer: Observer
) -> tuple[SchedulingClock, Observer]:
    """Return clock and observer of a server whose time of day is that of the scopes."""
    time = ScopedTime(scopes, clock)
    return time, ScopedObserver(observer, time)


class _Run(threading.local):
    """What a thread runs: the clock of the job's scope and when the job was made, or nothing."""

    scope: tuple[MockClock, float] | None = None


class ScopedTime:
    """A clock of the server whose time of day is that of the scope for which it is asked.

    In a run that is its job's scope, in a request the request's, else the default one.

    :param clock: measures what passes.
    """

    def __init__(self, scopes: Scopes, clock: SchedulingClock) -> None:
        self._scopes = scopes
        self._run = _Run()
        #: Seconds that never go back; asked for with each event, so without a call in between.
        self.monotonic: Callable[[], float] = clock.monotonic
        self.wait: Callable[[threading.Event, float], bool] = clock.wait
        self.call_at: Callable[[float, Callable[[], None]], Callable[[], None]] = clock.call_at
        #: of the one scope that is there as long as the server
        self._default = scopes.get()

    def time(self) -> float:
        """Return Unix seconds; in a run never less than the job's ``created_at``."""
        run = self._run.scope
        if run is not None:
            clock, earliest = run
            now_s = EPOCH_S + clock.turned_s
            return now_s if now_s > earliest else earliest  # max() costs as much as all of it
        try:
            held: Held | None = incoming().environ.get(HELD_KEY)
        except LookupError:  # outside of a request; inside, to ask first costs as much as this
            held = None
        return EPOCH_S + (self._default if held is None else held.scope).clock.turned_s

    @contextmanager
    def of(self, job_id: str) -> Iterator[None]:
        """Let this thread have the time of a job's scope inside the block."""
        before = self._run.scope
        course = self._scopes.courses.find(job_id)
        if course is not None:
            self._run.scope = course.scope.clock, course.created_at
        else:
            self._run.scope = None if has_request_context() else (self._default.clock, 0.0)
        try:
            yield
        finally:
            self._run.scope = before


class ScopedObserver:
    """Tells each run's thread whose time it has; otherwise another observer."""

    def __init__(self, observer: Observer, time: ScopedTime) -> None:
        self._observer = observer
        self._time = time

    def begin(self, job: Job) -> Tally:
        """Return what follows the run."""
        return _ScopedTally(self._observer.begin(job), self._time, job.id)

    def metrics(self, backend: str) -> Metrics:
        """Return what the backend of this name counts with."""
        return self._observer.metrics(backend)


class _ScopedTally:
    __slots__ = ("_job_id", "_tally", "_time", "add", "end")

    def __init__(self, tally: Tally, time: ScopedTime, job_id: str) -> None:
        self._tally = tally
        self._time = time
        self._job_id = job_id
        self.add: Callable[[Sequence[Record]], None] = tally.add
        self.end: Callable[[], None] = tally.end

    def named(self) -> AbstractContextManager[None]:
        return self._named()

    @contextmanager
    def _named(self) -> Iterator[None]:
        with self._tally.named(), self._time.of(self._job_id):
            yield
