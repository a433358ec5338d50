"""The worker of threads, which is the default."""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from caesar_server.cli.workers.connections import PollingWorker
from caesar_server.cli.workers.manners import Manners


class ServerWorker(Manners, PollingWorker):
    """gunicorn's ``gthread`` worker with this server's manners."""

    def in_background(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in a thread of its own, or in the loop if the system allows none."""
        thread = threading.Thread(target=function, args=arguments, name="caesar-drain", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # out of a signal handler it would end the worker, and cut all that it answers
            self.method_queue.defer(function, *arguments)

    def handle(self, conn: Any) -> Any:
        """Serve the next request of a connection."""
        if not getattr(conn, "is_limited", False):
            # Once a connection: each of these calls into the kernel hands the interpreter over.
            limit_waiting(conn.sock, self.patience_s)
            conn.is_limited = True
        return super().handle(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer a request; give up if the client does not take the answer."""
        try:
            return super().handle_request(req, conn)
        except (BlockingIOError, TimeoutError):
            raise self.give_up() from None


def limit_waiting(sock: socket.socket, timeout_s: float) -> None:
    """Let blocking reads and writes fail after ``timeout_s`` seconds in which nothing went on.

    A write fails only if no byte at all was taken for so long, with ``BlockingIOError`` or
    ``TimeoutError``.  The options are the kernel's, for gunicorn takes Python's own time-out off
    each socket.
    """
    seconds = int(timeout_s)
    timeval = struct.pack("@ll", seconds, int((timeout_s - seconds) * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, timeval)
    if sys.platform == "linux" and sock.family in (socket.AF_INET, socket.AF_INET6):
        # Linux packs its full buffer more tightly while it waits, so two more writes get in a few
        # bytes, and each waits anew: three times as long.  This option asks what the client takes,
        # and notices, too, that a client's machine is gone without a word.
        timeout_ms = max(1, int(timeout_s * 1000))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
