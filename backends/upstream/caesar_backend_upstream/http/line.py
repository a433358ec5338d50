"""One exchange's hold on its connection, through which others can end it at any moment.

urllib3 forgets the socket of a connection that will not be kept (HTTP/1.0, ``Connection: close``),
replaces it when TLS begins and shows none while it connects.  So a line keeps a duplicate of the
descriptor: shutting that down ends the connection in every state, and a descriptor that somebody
else has got meanwhile cannot be met.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: Why a line was shut down.
Why: TypeAlias = Literal["cancelled", "connect", "first_byte", "gap", "total", "over"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long what may take, in seconds."""

    connect_s: float
    first_byte_s: float
    gap_s: float
    total_s: float


class Line:
    """The connection of one exchange.  :meth:`shut` is for any thread, the rest for its own.

    :ivar due: when it is to be shut down, on the monotonic clock.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._changed = threading.Condition(threading.Lock())
        self._handle: socket.socket | None = None
        self._why: Why | None = None
        self._phase: Why = "first_byte"
        self.total_due = time.monotonic() + limits.total_s
        self.due = self.total_due
        self.enter("first_byte")

    @property
    def why(self) -> Why | None:
        """Why it was shut down, or None."""
        return self._why

    def enter(self, phase: Literal["connect", "first_byte", "gap"], limit_s: float = 0.0) -> None:
        """Begin a phase, whose time runs from now.

        :param limit_s: in place of the phase's own limit.
        """
        limits = self._limits
        own = {"connect": limits.connect_s, "first_byte": limits.first_byte_s, "gap": limits.gap_s}
        due = time.monotonic() + (limit_s or own[phase])
        self._phase, self.due = phase, min(due, self.total_due)

    def touch(self) -> None:
        """Note that bytes came."""
        self._phase = "gap"
        self.due = min(time.monotonic() + self._limits.gap_s, self.total_due)

    def expire(self, now: float) -> None:
        """Shut down if time is up."""
        due = self.due
        if now >= due:
            self.shut("total" if due >= self.total_due else self._phase)

    def hold(self, sock: socket.socket) -> None:
        """Take hold of the socket that the exchange uses; it may have been shut down before."""
        # Not sock.dup(), which a TLS socket refuses.
        handle = socket.socket(sock.family, sock.type, sock.proto, fileno=os.dup(sock.fileno()))
        with self._changed:
            old, self._handle = self._handle, handle
            if self._why is not None:
                _shut_down(handle)
        if old is not None:
            old.close()

    def shut(self, why: Why) -> None:
        """End the connection, for the first reason that is given; harmless after the end."""
        with self._changed:
            if self._why is not None:
                return
            self._why = why
            self._changed.notify_all()
            if self._handle is not None:
                _shut_down(self._handle)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Block until ``condition`` holds (True), the line is shut or time is up (False).

        Whoever makes the condition true calls :meth:`wake`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._why is not None or condition(), timeout_s)
            return self._why is None and condition()

    def wake(self) -> None:
        """Let :meth:`wait_for` look again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of the connection, which stays as it is."""
        with self._changed:
            handle, self._handle = self._handle, None
            self._why = self._why or "over"
        if handle is not None:
            handle.close()


def _shut_down(handle: socket.socket) -> None:
    try:
        handle.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Not connected yet, or not any more: there is nothing left to end.
        return
