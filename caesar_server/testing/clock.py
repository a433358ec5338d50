"""Time that a test turns by hand."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

#: Real seconds between two looks at an event: a plain ``threading.Event`` tells nobody that it was
#: set.
_LOOK_S = 0.001
#: Real seconds after which a thread that should have moved is taken for stuck.
_STUCK_S = 10.0


@dataclass(order=True, slots=True)
class _Alarm:
    moment: float
    number: int
    callback: Callable[[], None] = field(compare=False)


class FakeClock:
    """A clock that stands still until :meth:`advance` is called.  Safe to use from any thread.

    It has all that :class:`caesar_server.contract.Clock` promises, and the server's ``call_at``.

    >>> clock = FakeClock(time_s=100.0)
    >>> cancel = clock.call_at(clock.monotonic() + 5, lambda: print("five"))
    >>> clock.advance(4.5)
    >>> clock.advance(0.5)
    five
    >>> clock.time()
    105.0

    :param time_s: Unix seconds at the start.
    :param monotonic_s: what :meth:`monotonic` says at the start.
    """

    def __init__(self, time_s: float = 1_700_000_000.0, monotonic_s: float = 1_000.0) -> None:
        self._time_s = time_s
        self._monotonic_s = monotonic_s
        self._alarms: list[_Alarm] = []
        self._waiters: dict[int, float] = {}
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._advancing = threading.Lock()

    def time(self) -> float:
        """Return Unix seconds."""
        with self._changed:
            return self._time_s

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start."""
        with self._changed:
            return self._monotonic_s

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Block until ``event`` is set (True) or the clock is ``timeout_s`` further (False)."""
        number = next(self._numbers)
        with self._changed:
            due = self._monotonic_s + timeout_s
            self._waiters[number] = due
            self._changed.notify_all()
        try:
            while not event.wait(_LOOK_S):
                if self.monotonic() >= due:
                    return event.is_set()
            return True
        finally:
            with self._changed:
                del self._waiters[number]
                self._changed.notify_all()

    def call_at(self, moment: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` in the thread that advances the clock to ``moment`` or beyond.

        A moment that is over already is due at the next :meth:`advance`, be it by 0.

        :return: a function that calls it off; harmless once it has run.
        """
        alarm = _Alarm(moment, next(self._numbers), callback)
        with self._changed:
            heapq.heappush(self._alarms, alarm)
            self._changed.notify_all()

        def call_off() -> None:
            with self._changed:
                if alarm in self._alarms:
                    self._alarms.remove(alarm)
                    heapq.heapify(self._alarms)

        return call_off

    def advance(self, seconds: float) -> None:
        """Turn the clock forward, stopping at each moment at which something is due.

        Callbacks run in this thread in the order of their moments; what they raise comes out here.
        When this returns, every thread whose waiting time is over has left :meth:`wait`.

        :param seconds: 0 or more.
        :raises TimeoutError: if such a thread does not leave within 10 real seconds.
        """
        if seconds < 0:
            raise ValueError(f"seconds: expected 0 or more, got {seconds}")
        with self._advancing:
            target = self.monotonic() + seconds
            while (moment := self._next_stop(target)) is not None:
                self._move_to(moment)
                self._run_due()
                self._let_waiters_leave()
            self._move_to(target)

    def wait_for_waiters(self, count: int = 1, timeout_s: float = _STUCK_S) -> None:
        """Block until at least ``count`` threads are inside :meth:`wait`.

        :param timeout_s: real seconds.
        :raises TimeoutError: if that does not happen in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._waiters) >= count, timeout_s):
                raise TimeoutError(f"{len(self._waiters)} threads wait, expected {count}")

    @property
    def alarms(self) -> tuple[float, ...]:
        """The moments of the callbacks that are scheduled, the next one first."""
        with self._changed:
            return tuple(alarm.moment for alarm in sorted(self._alarms))

    def _next_stop(self, target: float) -> float | None:
        with self._changed:
            moments = [alarm.moment for alarm in self._alarms[:1]] + list(self._waiters.values())
            due = [moment for moment in moments if moment <= target]
            return max(min(due), self._monotonic_s) if due else None

    def _move_to(self, moment: float) -> None:
        with self._changed:
            self._time_s += moment - self._monotonic_s
            self._monotonic_s = moment

    def _run_due(self) -> None:
        while True:
            with self._changed:
                if not self._alarms or self._alarms[0].moment > self._monotonic_s:
                    return
                callback = heapq.heappop(self._alarms).callback
            callback()

    def _let_waiters_leave(self) -> None:
        with self._changed:
            now = self._monotonic_s
            # Only those whose time is over now: one may come back and wait for a later moment.
            if not self._changed.wait_for(
                lambda: all(due > now for due in self._waiters.values()), _STUCK_S
            ):
                raise TimeoutError("a thread whose waiting time is over does not leave wait()")
