"""Waiting for the moment at which a chunk is due."""

from __future__ import annotations

from contextlib import nullcontext

from caesar_server.contract import Context
from caesar_server.mock.clock import MockClock
from caesar_server.mock.course import Course


class Waiter:
    """Counts from its making.  Waits by the scope's clock, or by the run's where there is no scope.

    :param clock: the scope's; it may be stopped and turned meanwhile.
    :param course: of a job that others poll: is told of the waits, and waits for polls.
    """

    def __init__(
        self, context: Context, clock: MockClock | None, course: Course | None = None
    ) -> None:
        self._context = context
        self._course = course
        self._clock = clock
        self._epoch = 0 if clock is None else clock.epoch
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
            pause = self._clock.pause_until(self._start_s + due_s, self._epoch)
            told = nullcontext() if self._course is None else self._course.waiting(pause)
            with told, self._context.on_cancel(pause.end):
                pause.wait()
        self._context.raise_if_cancelled()

    def wait_for_polls(self, polls: int) -> None:
        """Block until so many more polls have seen the job as it is; where nobody polls, never.

        :raises Cancelled: as soon as the run is cancelled.
        """
        if self._course is not None:
            self._course.hold(polls, self._context)
