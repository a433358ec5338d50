"""One thread that ends the exchanges whose time is up, in whatever they are blocked.

Time-outs of sockets count from each single read, so a server that sends a byte now and then, within
its headers or its TLS handshake, would never meet one; they also cost a system call a read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from caesar_backend_upstream.http.line import Line

#: How often it looks, in seconds: time-outs are as exact as that.
TICK_S = 0.05
#: How long it goes on looking when nothing is under way, so that a request need not wake it.
LINGER_S = 5.0


class Watchman:
    """Shuts lines down when they are due.  Safe from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._lines: set[Line] = set()
        self._asleep = False
        self._closed = False
        self._thread = threading.Thread(
            target=self._run, name="caesar-upstream-watchman", daemon=True
        )

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Shut down what is under way and end the thread."""
        with self._changed:
            self._closed = True
            lines = tuple(self._lines)
            self._changed.notify_all()
        for line in lines:
            line.shut("cancelled")
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def watching(self, line: Line) -> Iterator[None]:
        """Look after a line while the block lasts."""
        with self._changed:
            self._lines.add(line)
            if self._asleep:
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._lines.discard(line)

    def _run(self) -> None:
        idle_since = time.monotonic()
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                lines = tuple(self._lines)
                if lines:
                    idle_since = now
                self._asleep = now - idle_since > LINGER_S
                if self._asleep:
                    self._changed.wait()
                    idle_since = time.monotonic()
                    continue
            for line in lines:
                line.expire(now)
            with self._changed:
                if not self._closed:
                    self._changed.wait(TICK_S)
