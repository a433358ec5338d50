"""One switch a run, thrown once, that polls, sleeps and blocking calls all notice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from caesar_server.contract.errors import Cancelled

logger = logging.getLogger(__name__)

#: Why a run was cancelled.  ``fenced``: another attempt has begun; ``shutdown``: the server ends,
#: and the job with it; ``handover``: the server ends, and another process goes on with the job.
Reason: TypeAlias = Literal["cancelled", "deadline", "fenced", "shutdown", "handover"]


class Cancellation:
    """Whether and why to stop.  Safe to use from any thread."""

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self._lock = threading.Lock()
        #: Made by the first who must wait for a callback to end; most runs have no callback at all.
        self._callback_ended: threading.Condition | None = None
        self._event: threading.Event | None = None
        self._callbacks: dict[object, Callable[[], object]] = {}
        #: The callback that :meth:`cancel` is calling, and the thread in which it does.
        self._running: object = None
        self._thread_id: int | None = None

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self.reason is not None

    @property
    def event(self) -> threading.Event:
        """Set by :meth:`cancel`.  Made for the first who asks: most runs never wait for it."""
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
                if self.reason is not None:
                    self._event.set()
            return self._event

    def raise_if_cancelled(self) -> None:
        """Return at once, or raise.

        :raises Cancelled: after :meth:`cancel`, with its reason.
        """
        if self.reason is not None:
            raise Cancelled(self.reason)

    def cancel(self, reason: Reason = "cancelled") -> None:
        """Throw the switch; the first reason stays.  Callbacks run in this thread."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
            self._thread_id = threading.get_ident()
            if self._event is not None:
                self._event.set()
        while (callback := self._next()) is not None:
            try:
                _call(callback)
            finally:
                with self._lock:
                    self._running = None
                    if self._callback_ended is not None:
                        self._callback_ended.notify_all()

    @contextmanager
    def on_cancel(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call ``callback`` once on cancel, at once if that has happened, until the block ends.

        A call that is under way in another thread is waited for at the end of the block: what the
        callback needs, a lock above all, must not be held there.
        """
        key = object()
        with self._lock:
            now = self.reason is not None
            if not now:
                self._callbacks[key] = callback
        if now:
            _call(callback)
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.pop(key, None)
                if self._running is key and self._thread_id != threading.get_ident():
                    # Left earlier, a socket could be closed whose number is already another one's.
                    self._wait_until_ended(key)

    def _wait_until_ended(self, key: object) -> None:
        """Wait for the call of a callback; the lock is held, but while this waits."""
        if self._callback_ended is None:
            self._callback_ended = threading.Condition(self._lock)
        self._callback_ended.wait_for(lambda: self._running is not key)

    def _next(self) -> Callable[[], object] | None:
        """Take the next callback; one at a time, since each may be called off until its turn."""
        with self._lock:
            for key in self._callbacks:
                self._running = key
                return self._callbacks.pop(key)
            return None


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except (Exception, SystemExit):
        # It belongs to a backend; the other callbacks must run all the same.
        logger.exception("an on_cancel callback raised")


def cancel_apart(cancellation: Cancellation, reason: Reason) -> None:
    """Throw the switch from a thread of its own.

    For threads that serve many runs: what a backend does in its callbacks may take a while.
    """
    threading.Thread(
        target=cancellation.cancel, args=(reason,), name="caesar-cancel", daemon=True
    ).start()
