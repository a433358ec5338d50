"""The real time, and callbacks at a given moment of it."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from caesar_server.contract.context import Clock

logger = logging.getLogger(__name__)


class SchedulingClock(Clock, Protocol):
    """A clock that can also call back."""

    def call_at(self, moment: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` in another thread once ``monotonic()`` has reached ``moment``.

        :return: a function that calls it off; harmless once it has run.
        """


@dataclass(slots=True)
class _Alarm:
    callback: Callable[[], None] | None


class SystemClock:
    """The machine's own time.

    Callbacks of :meth:`call_at` share one daemon thread, which starts with the first of them: never
    before a fork, as long as nothing is scheduled before it.  They should be short.
    """

    def __init__(self) -> None:
        #: A heap: when, in which order those of one moment, and what.
        self._alarms: list[tuple[float, int, _Alarm]] = []
        self._called_off = 0
        # When the thread looks again by itself.  What is called off does not change it, so that of
        # many short requests with far deadlines hardly one has to wake the thread.
        self._wakes_at = math.inf
        self._numbers = itertools.count()
        # by itself it costs half of the condition around it, and each request takes it twice
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closed = False

    #: Seconds that never go back; asked for with each event, so without a call in between.
    monotonic = staticmethod(time.monotonic)

    def time(self) -> float:
        """Return Unix seconds."""
        return time.time()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Block until ``event`` is set (True) or ``timeout_s`` seconds pass (False)."""
        return event.wait(min(timeout_s, threading.TIMEOUT_MAX))

    def call_at(self, moment: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` in the alarm thread once ``monotonic()`` has reached ``moment``."""
        alarm = _Alarm(callback)
        with self._lock:
            if self._closed:
                raise RuntimeError("the clock is closed")
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="caesar-clock", daemon=True)
                thread.start()
                self._thread = thread  # not before: a start may fail
            heapq.heappush(self._alarms, (moment, next(self._numbers), alarm))
            if moment < self._wakes_at:
                self._changed.notify()

        def call_off() -> None:
            with self._lock:
                if alarm.callback is not None:
                    alarm.callback = None
                    self._called_off += 1
                    self._compact()

        return call_off

    def close(self) -> None:
        """Drop what is scheduled and end the thread; waits for a callback that is under way."""
        with self._changed:
            self._closed = True
            self._alarms.clear()
            self._called_off = 0
            self._changed.notify()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            try:
                callback()
            except BaseException:  # the thread must live on for all other callbacks
                logger.exception("a scheduled callback raised")

    def _next(self) -> Callable[[], None] | None:
        """Return the next callback when its time has come; None when the clock is closed."""
        with self._changed:
            while not self._closed:
                self._wakes_at = self._alarms[0][0] if self._alarms else math.inf
                left = self._wakes_at - self.monotonic()
                if left > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                    continue
                _, _, alarm = heapq.heappop(self._alarms)
                if alarm.callback is None:
                    self._called_off -= 1
                    continue
                callback, alarm.callback = alarm.callback, None
                return callback
            return None

    def _compact(self) -> None:
        """Throw out what was called off once it is the larger part.

        A deadline lies minutes ahead and nearly all of them are called off within milliseconds:
        left alone, a busy server would hold minutes' worth of dead entries.
        """
        if self._called_off > 64 and 2 * self._called_off > len(self._alarms):
            self._alarms = [entry for entry in self._alarms if entry[2].callback is not None]
            heapq.heapify(self._alarms)
            self._called_off = 0
