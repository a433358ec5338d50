"""A pool of threads that goes on where the system allows no further thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from caesar_server.errors import OverloadedError

logger = logging.getLogger(__name__)

#: How long nothing is begun where there was no thread; twice as long each time, up to the longest.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


class PatientPool(ThreadPoolExecutor):
    """A ``ThreadPoolExecutor`` whose work waits for one of its threads if there can be no more.

    Containers and services may have a limit on threads that is below what the settings allow.
    Python's own pool raises there *after* it has taken the work, which is then done all the same,
    although whoever gave it has been told that it was not.
    """

    _told = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Have a thread call ``fn``.

        :raises OverloadedError: if there is none, and none can be had; nothing was begun then.
        :raises RuntimeError: after ``shutdown``.
        """
        future = super().submit(fn, *args, **kwargs)
        if not self._threads and future.cancel():
            raise OverloadedError(
                "The system gives the server no thread for another answer; try again",
                retry_after_s=1,
            )
        return future

    def _adjust_thread_count(self) -> None:
        # Python's own: no public method stands between the queue and the start of a thread
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._told:
                self._told = True
                logger.warning(
                    "the system allows no further thread, so work waits for one of %d; "
                    "allow more (a container's limit of pids), or set threads lower",
                    len(self._threads),
                )


class Pauses:
    """When to try again what the system had no thread for.  For one thread at a time."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it may be tried."""
        return time.monotonic() >= self._until

    def failed(self) -> None:
        """Begin a pause, longer than the last one unless something went well meanwhile."""
        self._until = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def went_well(self) -> None:
        """Let the next pause be short."""
        self._pause_s = _FIRST_PAUSE_S
