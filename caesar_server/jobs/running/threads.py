"""A pool of threads that goes on where the system allows no further thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from caesar_server.errors import OverloadedError

logger = logging.getLogger(__name__)

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
