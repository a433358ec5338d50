"""Waiting for the moment at which a chunk is due."""

from __future__ import annotations

from caesar_server.contract import Context
from caesar_server.mock.clock import MockClock


class Waiter:
    """Counts from its making.  Waits by the scope's clock, or by the run's where there is no scope.

    :param clock: the scope's; it may be stopped and turned meanwhile.
    """

    def __init__(self, context: Context, clock: MockClock | None) -> None:
        self._context = context
        self._clock = clock
        self._start_s = (context.clock if clock is None else clock).monotonic()

    def wait_until(self, due_s: float) -> None:
        """Block until ``due_s`` seconds have passed since the beginning.

        :raises Cancelled: as soon as the run is cancelled.
        """
        if self._clock is None:
            left_s = self._start_s + due_s - self._context.clock.monotonic()
            if left_s > 0:
                self._context.sleep(left_s)
            return
        if self._start_s + due_s > self._clock.monotonic():
            pause = self._clock.pause_until(self._start_s + due_s)
            with self._context.on_cancel(pause.end):
                pause.wait()
        self._context.raise_if_cancelled()
