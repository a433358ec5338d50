"""How far the run of a job has come, for those who poll it: the same poll sees the same each time.

The run of a research job goes on without the request that began it, in a thread of its own.  Its
*course* leads it to what was decided on that request, holds it until it was polled as often as its
reply says, and tells when it stands still, so that a poll waits until there is nothing left that
chance could decide.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from caesar_server.mock.clock import Machine, Pause

if TYPE_CHECKING:
    from caesar_server.contract import Context
    from caesar_server.mock.scopes import Held

#: So many jobs are known at once; of more the oldest are forgotten, and then decided on anew.
MOST_COURSES = 4096
#: Real seconds between two looks at the store, of which nobody tells.
_LOOK_S = 0.002


class Course:
    """Of one job.  Safe for threads.

    :param held: the call that began it, and what was decided.
    :param created_at: of the job, in Unix seconds.
    :ivar begun: whether the run has begun.
    :ivar ended: whether it is over; the store may not know yet.
    :ivar stored: whether the store is known to have its end.
    """

    def __init__(self, held: Held, created_at: float) -> None:
        self.held: Held | None = held
        self.scope = held.scope
        self.created_at = created_at
        self.begun = False
        self.ended = False
        self.stored = False
        self._changed = threading.Condition()
        self._polls = 0
        self._due = 0
        self._holds = False
        self._released = False
        self._cancelled = False
        self._pause: Pause | None = None
        #: Events that the run has told, and the last of them that is stored at once; the first
        #: record, ``queued``, is the server's own.
        self._telling = 1
        self._told = 1

    def begin(self) -> Held | None:
        """Return the call, for its run, which begins; None for every later caller."""
        with self._changed:
            held = None if self.begun else self.held
            self.begun = True
            self._changed.notify_all()
            return held

    def end(self) -> bool:
        """Note that the run is over; return whether nobody will ask for its course."""
        with self._changed:
            self.ended, self.held = True, None
            self._changed.notify_all()
            return self._released

    def poll(self) -> None:
        """Note that somebody polls the job now."""
        with self._changed:
            self._polls += 1
            self._changed.notify_all()

    def release(self) -> None:
        """Hold the run for polls no more, since nobody will poll it or all is to be forgotten."""
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def hold(self, polls: int, context: Context) -> None:
        """Block the run until so many more polls have seen it as it is, and another one begins.

        :raises Cancelled: as soon as the run is cancelled.
        """
        if polls:
            with context.on_cancel(self._cancel), self._changed:
                self._due += polls
                self._holds = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._held_back())
                self._holds = False
        context.raise_if_cancelled()

    @contextmanager
    def waiting(self, pause: Pause) -> Iterator[None]:
        """Show within the block that the run waits for a moment of a clock."""
        with self._changed:
            self._pause = pause
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._pause = None

    def tell(self, *, at_once: bool) -> None:
        """Note that the run tells an event.

        :param at_once: whether it is stored without waiting for more like it.
        """
        with self._changed:
            self._telling += 1
            if at_once:
                self._told = self._telling

    @property
    def stands_at(self) -> int | None:
        """Up to which of its records a run that stands still is stored; None: it goes on."""
        with self._changed:
            pause = self._pause
            stands = self._held_back() or (pause is not None and not pause.is_over)
            return self._told if stands and not self.ended else None

    def wait_for_change(self, timeout_s: float) -> None:
        """Block until something has changed, or perhaps not, for so many real seconds at most."""
        with self._changed:
            self._changed.wait(timeout_s)

    def _held_back(self) -> bool:
        done = self._released or self._cancelled or self._polls > self._due
        return self._holds and not done

    def _cancel(self) -> None:
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()


class Courses:
    """Of the jobs of all scopes, by their ids.  Safe for threads.

    :param most: so many are kept.
    """

    def __init__(self, most: int = MOST_COURSES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._courses: OrderedDict[str, Course] = OrderedDict()

    def open(self, job_id: str, held: Held, created_at: float) -> Course:
        """Return the course of a job that is about to be made."""
        course = Course(held, created_at)
        with self._lock:
            self._courses[job_id] = course
            self._courses.move_to_end(job_id)
            while len(self._courses) > self._most:
                self._courses.popitem(last=False)[1].release()
        return course

    def find(self, job_id: str) -> Course | None:
        """Return the course of a job, if it is known."""
        # one step, unless the lock's owner is in the middle of several: then either answer is right
        return self._courses.get(job_id)

    def of(self, scope: object) -> dict[str, Course]:
        """Return the courses of a scope's jobs by their ids, the oldest first."""
        with self._lock:
            return {id: one for id, one in self._courses.items() if one.scope is scope}

    def end(self, job_id: str) -> None:
        """Note that the run of a job is over."""
        course = self.find(job_id)
        if course is not None and course.end():
            self._drop(job_id)

    def release(self, scope: object) -> None:
        """Let the jobs of a scope come to their end unpolled; forget those that have."""
        for job_id, course in self.of(scope).items():
            course.release()
            if course.ended:
                self._drop(job_id)

    def _drop(self, job_id: str) -> None:
        with self._lock:
            self._courses.pop(job_id, None)


def settle(course: Course, settled: Callable[[], bool], patience_s: float) -> None:
    """Block until ``settled`` says so, for so many real seconds at most."""
    until = Machine.monotonic() + patience_s
    while not settled() and Machine.monotonic() < until:
        course.wait_for_change(_LOOK_S)
