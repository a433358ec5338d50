"""Acts on a client's connection that HTTP has no words for."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus

from caesar_server.mock.clock import Machine

if sys.platform != "win32":
    import fcntl
    import termios

#: Closing drops what was not sent yet and tells the other side so.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
#: Seconds that a client may take to read what was sent before a reset.
_UNREAD_S = 2.0
#: Seconds between two looks at whether it was read.
_LOOK_S = 0.001
#: The head of an answer, up to somewhere in its third line.
HALF_HEAD = b"HTTP/1.1 200 OK\r\nServer: caesar-server\r\nContent-Ty"


def reset(connection: socket.socket) -> None:
    """Reset a connection, after what was sent before.

    The host may go on to use the socket; it then writes to nobody and reads the end.
    """
    with suppress(OSError):  # the client may have been faster: there is nothing to reset then
        _wait_until_sent(connection)
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    _take_away(connection)


def break_off(connection: socket.socket, last: bytes = b"") -> None:
    """Send ``last`` as it is and end the connection; the host may go on to use the socket."""
    with suppress(OSError):  # the client may have left before
        if last:
            connection.sendall(last)
        connection.shutdown(socket.SHUT_WR)
    _take_away(connection)


def send_early_hints(connection: socket.socket, headers: Mapping[str, str]) -> None:
    """Send an interim response (RFC 8297) with ``headers``; to be called before the answer.

    If the client has left, writing the answer will tell.
    """
    status = HTTPStatus.EARLY_HINTS
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with suppress(OSError):
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))


def _wait_until_sent(connection: socket.socket) -> None:
    """Wait until the other side has got what was sent: a reset would take the rest away.

    A client that does not read is not waited for longer than :data:`_UNREAD_S`.
    """
    if sys.platform == "win32":
        return  # it does not tell
    waiting = struct.Struct("i")
    until = Machine.monotonic() + _UNREAD_S
    while Machine.monotonic() < until:
        left = fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(waiting.size))
        if not waiting.unpack(left)[0]:
            return
        select.select((), (), (), _LOOK_S)  # a test may count the calls of time.sleep


def _take_away(connection: socket.socket) -> None:
    """Close the connection under its descriptor, which leads to one without a reader from now on.

    ``close()`` would free the descriptor's number while the host still uses it, and the next client
    of the process may get the same.
    """
    ours, other = socket.socketpair()
    with ours:
        other.close()
        os.dup2(ours.fileno(), connection.fileno(), inheritable=False)
