"""An end to bodies that trickle in: each would hold a place for as long as it likes."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

logger = logging.getLogger(__name__)

#: On average, once :class:`Pace` looks.
MIN_BYTES_PER_S = 1024
#: Where servers leave the connection of a request: gunicorn, and werkzeug's for development.
_SOCKETS = ("gunicorn.socket", "werkzeug.socket")


class Pace:
    """Watches over the reading of a body, for a ``with`` block.

    Every ``patience_s`` seconds it looks: if the server has waited for that long and got less than
    :data:`MIN_BYTES_PER_S` on average, it ends the body, and a read that waits returns.  A server
    that does not tell of its connections goes on until its read returns by itself.

    :param slack_bytes: so many may have arrived without having been counted.
    """

    def __init__(
        self, environ: Mapping[str, Any], patience_s: float, *, slack_bytes: int = 0
    ) -> None:
        self._socket = next((environ[key] for key in _SOCKETS if key in environ), None)
        self._patience_s = patience_s
        self._slack_bytes = slack_bytes
        self._lock = threading.Lock()
        self._size = 0
        self._waited_s = 0.0
        self._since: float | None = None
        self._timer: threading.Timer | None = None
        self._ended = self._too_slow = False

    @property
    def too_slow(self) -> bool:
        """Whether the body has come too slowly so far."""
        with self._lock:
            return self._too_slow or self._is_too_slow()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block: it waits for the client."""
        with self._lock:
            self._since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._waited_s, self._since = self._waited(), None

    def count(self, size: int) -> None:
        """Add bytes that have arrived."""
        with self._lock:
            self._size += size

    def __enter__(self) -> Pace:
        if self._socket is not None:
            self._look_later()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._ended = True
            if self._timer is not None:
                self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = threading.Timer(self._patience_s, self._look)
        self._timer.name = "caesar-upload-pace"
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        with self._lock:
            if self._ended:
                return
            if not self._is_too_slow():
                self._look_later()
                return
            self._too_slow = True
            logger.info("an upload came too slowly: %d bytes in %.0f s", self._size, self._waited())
            assert self._socket is not None  # noqa: S101 - else nobody looks
            _end_reading(self._socket)

    def _is_too_slow(self) -> bool:
        waited_s = self._waited()
        least = MIN_BYTES_PER_S * waited_s - self._slack_bytes
        return waited_s >= self._patience_s and self._size < least

    def _waited(self) -> float:
        return self._waited_s + (0 if self._since is None else time.monotonic() - self._since)


def _end_reading(sock: Any) -> None:
    """Let reads of a connection return its end; answers can still be sent."""
    try:
        # a twin: TLS has a shutdown of its own, which would let the answer go in the clear
        with socket.socket(fileno=os.dup(sock.fileno())) as twin:
            twin.shutdown(socket.SHUT_RD)
    except OSError as error:
        logger.debug("the client of a slow upload had left: %s", error)
