"""urllib3's connections, with a line that holds their socket from its first moment on."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import threading
import time
from contextvars import ContextVar
from typing import Any, TypeAlias

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from caesar_backend_upstream.http.line import Line

#: The line of the exchange that the current thread is about to begin.
current_line: ContextVar[Line | None] = ContextVar("caesar_upstream_line", default=None)

_Address: TypeAlias = tuple[Any, Any, int, str, Any]


#: Answers before the answer; more of them are taken for it.
_INTERIM_ANSWERS = 32


class FinalResponse(http.client.HTTPResponse):
    """The answer itself, whatever the server says before it, such as ``103 Early Hints``.

    ``http.client`` passes over 100 alone; whoever is sent another one has to read on (RFC 9110,
    15.2).  After 101 another protocol would follow, which nobody has asked for.
    """

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(_INTERIM_ANSWERS):
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not 100 < status < 200 or status == http.client.SWITCHING_PROTOCOLS:
                break
            http.client.parse_headers(self.fp)
        return version, status, reason


class LinedConnection(HTTPConnection):
    """Gives its socket to the current line: while it connects, and when it is used again."""

    response_class = FinalResponse

    def connect(self) -> None:
        """Connect, in the time that a line gives for it."""
        line = current_line.get()
        if line is None:
            super().connect()
            return
        line.enter("connect")
        super().connect()
        line.enter("first_byte")

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request."""
        line, sock = current_line.get(), getattr(self, "sock", None)
        if line is not None and sock is not None:
            line.hold(sock)
        super().request(*args, **kwargs)

    def _new_conn(self) -> socket.socket:
        line = current_line.get()
        return super()._new_conn() if line is None else open_socket(self, line)


class LinedTlsConnection(LinedConnection, HTTPSConnection):
    """The same over TLS; the order of the bases lets ``connect`` reach that of urllib3."""


class LinedPool(HTTPConnectionPool):
    """A pool of such connections."""

    ConnectionCls = LinedConnection


class LinedTlsPool(HTTPSConnectionPool):
    """A pool of such connections over TLS."""

    ConnectionCls = LinedTlsConnection


def open_socket(connection: HTTPConnection, line: Line) -> socket.socket:
    """Return a new, connected socket; each of the host's addresses is tried.

    :raises NameResolutionError: if the host has none.
    :raises ConnectTimeoutError: if it takes too long.
    :raises NewConnectionError: if nothing answers, or ``line`` is shut down.
    """
    host, port = connection.host.strip("[]"), connection.port or connection.default_port
    until = time.monotonic() + float(connection.timeout or 0)
    try:
        addresses = look_up(host, port, line, until)
    except OSError as error:
        failure = error if isinstance(error, socket.gaierror) else socket.gaierror(str(error))
        raise NameResolutionError(host, connection, failure) from error
    problem: OSError = OSError("no address")
    for address in addresses:
        try:
            return _connected(address, connection, line, until)
        except OSError as error:
            problem = error
        if line.why is not None:
            break
    if isinstance(problem, TimeoutError):
        raise ConnectTimeoutError(connection, "timed out") from problem
    raise NewConnectionError(connection, str(problem)) from problem


def _connected(
    address: _Address, connection: HTTPConnection, line: Line, until: float
) -> socket.socket:
    family, kind, protocol, _, target = address
    sock = socket.socket(family, kind, protocol)
    try:
        line.hold(sock)
        for item in connection.socket_options or ():
            sock.setsockopt(*item)
        sock.settimeout(max(0.001, until - time.monotonic()))
        sock.connect(target)
    except BaseException:
        sock.close()
        raise
    return sock


def look_up(host: str, port: int, line: Line, until: float) -> list[_Address]:
    """Return the addresses of a host, in a thread that is left alone if it takes too long.

    :raises OSError: if there is none, or time is up.
    """
    if _is_address(host):
        return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    outcome: list[list[_Address] | OSError] = []

    def work() -> None:
        try:
            outcome.append(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            outcome.append(error if isinstance(error, OSError) else OSError("not a host's name"))
        line.wake()

    threading.Thread(target=work, name="upstream-dns", daemon=True).start()
    line.wait_for(lambda: bool(outcome), until - time.monotonic())
    found = outcome[0] if outcome else OSError("looking the name up takes too long")
    if isinstance(found, OSError):
        raise found
    return found


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
