"""The time of a scope: the machine's, or one that a test turns by hand."""

from __future__ import annotations

import sys
import threading
import time

#: Real seconds that :meth:`MockClock.wait_for_waiters` allows by itself.
_PATIENCE_S = 10.0
_ROUNDING_S = 1e-6
#: By so much it may be turned in all: times are dates, of which 9999 is the last year.
_FARTHEST_S = 200e9
#: Real seconds between two looks at an event of which this module is not told.
_LOOK_S = 0.005
#: While the clock runs; somebody may stop it meanwhile.
_LONGEST_LOOK_S = 0.25


class Machine:
    """The time that passes, also in a test that puts another one into its process.

    Such tests want no wait to last for ever.  freezegun replaces ``time.monotonic`` wherever a
    module has a name for it, perhaps before this one is loaded, and time-machine 2 what it does;
    both leave this clock of the system alone.
    """

    if sys.platform == "win32":  # has none; there it must be loaded before the time is frozen
        monotonic = staticmethod(time.monotonic)
    else:

        @staticmethod
        def monotonic() -> float:
            """Return seconds from an arbitrary start."""
            return time.clock_gettime(time.CLOCK_MONOTONIC)


class MockClock:
    """Runs with the machine until it is stopped; then it moves only by :meth:`advance`.

    Safe to use from any thread.

    >>> clock = MockClock()
    >>> clock.stop()
    >>> before = clock.monotonic()
    >>> clock.advance(90)
    >>> clock.monotonic() - before
    90.0
    >>> clock.turned_s
    90.0

    :ivar turned_s: by how many seconds it was turned by hand, in all; to be read only.
    :ivar epoch: how often it was reset; to be read only.
    """

    def __init__(self) -> None:
        # by itself it costs a fraction of the condition around it, and every frame takes it
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stopped = False
        self.turned_s = 0.0
        self.epoch = 0
        # what is added to the machine's time while it runs; the time itself while it stands
        self._time_s = 0.0
        self._monotonic_s = 0.0
        self._pauses: set[Pause] = set()
        self._closed = False

    @property
    def stopped(self) -> bool:
        """Whether it moves only by hand."""
        return self._stopped

    def time(self) -> float:
        """Return Unix seconds."""
        with self._lock:
            return self._time_s if self._stopped else time.time() + self._time_s

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back, also not by stop and go."""
        with self._lock:
            return self._monotonic_s if self._stopped else Machine.monotonic() + self._monotonic_s

    def stop(self) -> None:
        """Let it stand still.  Who waits goes on to wait, from now on for :meth:`advance`."""
        with self._changed:
            if not self._stopped:
                self._time_s += time.time()
                self._monotonic_s += Machine.monotonic()
                self._stopped = True
                self._look()

    def go(self) -> None:
        """Let it run again with the machine, from the moment at which it stands."""
        with self._changed:
            if self._stopped:
                self._time_s -= time.time()
                self._monotonic_s -= Machine.monotonic()
                self._stopped = False
                self._look()

    def advance(self, seconds: float) -> None:
        """Turn it forward; a clock that runs is stopped first.

        All whose waiting is over then go on, at the latest moment: several waits of one call that
        are over by then end one right after the other.  When this returns, all of them have left
        their wait; some may be in the next one already.

        :param seconds: 0 or more; 200,000,000,000 in all, which are 6,000 years.
        :raises ValueError: if it is less, or more.
        :raises TimeoutError: if one does not leave within 10 real seconds.
        """
        if not 0 <= seconds <= _FARTHEST_S - self.turned_s:
            raise ValueError(
                f"seconds: expected a number from 0 to {_FARTHEST_S:.0f} in all, got {seconds}"
            )
        self.stop()
        with self._changed:
            self._time_s += seconds
            self._monotonic_s += seconds
            self.turned_s += seconds
            self._look()
            if not self._changed.wait_for(self._all_left, _PATIENCE_S):
                raise TimeoutError("a thread whose waiting time is over does not go on")

    def reset(self) -> None:
        """Let it run with the machine, as if it had never been turned.

        Who waits goes on at once, and so does each wait to come of an earlier epoch: what it is
        for has been forgotten.
        """
        self.go()
        with self._changed:
            self.turned_s = 0.0
            # what monotonic() says never goes back
            self._time_s = 0.0
            self.epoch += 1
            self._look()

    def close(self) -> None:
        """End all waits, those to come included, as if their time had passed."""
        with self._changed:
            self._closed = True
            self._look()

    def pause(self, seconds: float, epoch: int | None = None) -> Pause:
        """Return a wait of so many seconds of this clock, which begins now.

        :param epoch: in which the call began that waits; None: this one.
        """
        return self.pause_until(self.monotonic() + seconds, epoch)

    def pause_until(self, moment: float, epoch: int | None = None) -> Pause:
        """Return a wait until :meth:`monotonic` has reached ``moment``; see :meth:`pause`."""
        return Pause(self, moment, self.epoch if epoch is None else epoch)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Block until ``event`` is set (True) or ``timeout_s`` of this clock pass (False).

        While the clock stands this looks at the event every few milliseconds: :meth:`pause` is
        better where there is a choice.
        """
        due = self.monotonic() + timeout_s
        while not event.is_set():
            left_s = due - self.monotonic()
            if left_s <= 0 or self._closed:
                return False
            event.wait(_LOOK_S if self._stopped else min(left_s, _LONGEST_LOOK_S))
        return True

    def wait_for_waiters(self, count: int = 1, timeout_s: float = _PATIENCE_S) -> None:
        """Block until at least ``count`` threads wait for this clock.

        :param timeout_s: real seconds.
        :raises TimeoutError: if that does not happen in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._pauses) >= count, timeout_s):
                raise TimeoutError(f"{len(self._pauses)} calls wait for the clock, not {count}")

    def _now(self) -> float:
        return self._monotonic_s if self._stopped else Machine.monotonic() + self._monotonic_s

    def _all_left(self) -> bool:
        return not self._stopped or all(self._left_s(pause) > 0 for pause in self._pauses)

    def _left_s(self, pause: Pause) -> float:
        if self._closed or pause.epoch < self.epoch:
            return 0.0
        left_s = pause.moment - self._now()
        # 0.1 and 0.2 are not 0.3: many small turns must come as far as one large one
        return left_s if left_s > _ROUNDING_S else 0.0

    def _look(self) -> None:
        for pause in self._pauses:
            pause._event.set()

    def _is_over(self, pause: Pause) -> bool:
        with self._changed:
            return not self._left_s(pause)

    def _wait(self, pause: Pause) -> bool:
        with self._changed:
            self._pauses.add(pause)
            self._changed.notify_all()
        try:
            while True:
                pause._event.clear()  # before the looks: what comes after them sets it again
                if pause.ended:
                    return False
                with self._changed:
                    left_s, stopped = self._left_s(pause), self._stopped
                if not left_s:
                    return True
                pause._event.wait(None if stopped else min(left_s, threading.TIMEOUT_MAX))
        finally:
            with self._changed:
                self._pauses.discard(pause)
                self._changed.notify_all()


class Pause:
    """A wait for a moment of a clock, which others may cut short.

    :param moment: on the clock's ``monotonic()``.
    :param epoch: of the clock, after which there is nothing to wait for.
    """

    def __init__(self, clock: MockClock, moment: float, epoch: int) -> None:
        self.moment = moment
        self.epoch = epoch
        self.ended = False
        self._clock = clock
        self._event = threading.Event()

    @property
    def is_over(self) -> bool:
        """Whether whoever waits goes on now, if it has not yet."""
        return self.ended or self._clock._is_over(self)

    def wait(self) -> bool:
        """Block until the moment (True), or until :meth:`end` is called or was (False)."""
        return self._clock._wait(self)

    def end(self) -> None:
        """End the wait, now or when it begins.  From any thread, more than once if need be."""
        self.ended = True
        self._event.set()
