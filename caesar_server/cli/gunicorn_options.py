"""gunicorn's settings for this server, for ``serve`` and for ``gunicorn.conf.py``."""

from __future__ import annotations

import json
import math
import socket
import struct
import sys
import threading
import uuid
from http import HTTPStatus
from typing import Any, ClassVar

from gunicorn import util  # type: ignore[import-untyped]
from gunicorn.http import errors as http_errors  # type: ignore[import-untyped]
from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

from caesar_server.contract.errors import ErrorInfo
from caesar_server.errors import BadRequestError, SettingsError
from caesar_server.settings import Settings
from caesar_server.web.errors import error_object

#: Connections of a worker beyond its threads; with none of them gunicorn switches keep-alive off.
_SPARE_CONNECTIONS = 200
#: A worker that gives no sign for so long is killed.  The sign comes from its main thread, so slow
#: requests do not matter, but a plugin that blocks the interpreter does.
_SIGN_OF_LIFE_S = 60
#: Longer than the 5 seconds for which httpx, and with it openai-python, keeps idle connections: so
#: it never sends a request on one that is being closed.
_KEEP_ALIVE_S = 10
#: The exit status with which a worker tells gunicorn not to start another one.
_BOOT_FAILED = 3


class ServerWorker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's ``gthread`` worker, with this server's errors and an end to its patience.

    What gunicorn cannot read as HTTP never reaches the app.  gunicorn itself answers such requests
    with HTML, which no client of this server can read; this worker answers with OpenAI's error
    object, whatever the path, since there may be none.
    """

    #: How long answers may go on when the worker is to end; they then have some time for a last
    #: frame before gunicorn cuts them off.
    grace_s: ClassVar[float] = 25.0
    #: A client that neither sends nor takes a byte for so many seconds while it is its turn is cut
    #: off.  gunicorn waits for ever, so a few dozen such clients would hold all threads.
    patience_s: ClassVar[float] = 60.0

    @property
    def alive(self) -> bool:
        """Whether the worker goes on; gunicorn sets it when it is to end, for whatever reason."""
        return self._alive

    @alive.setter
    def alive(self, value: bool) -> None:
        ends, self._alive = getattr(self, "_alive", False) and not value, value
        services = _services(self)
        if ends and services is not None:
            # Not in this thread: it may be in a signal handler, where a lock could be its own.
            threading.Thread(
                target=services.runner.drain, args=(self.grace_s,), name="caesar-drain", daemon=True
            ).start()

    def handle(self, conn: Any) -> Any:
        """Serve the next request of a connection."""
        limit_waiting(conn.sock, self.patience_s)
        return super().handle(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer a request; give up if the client does not take the answer."""
        try:
            return super().handle_request(req, conn)
        except BlockingIOError:
            self.log.info("gave up on a client that took nothing for %g s", self.patience_s)
            # gunicorn's word for: close this connection
            raise StopIteration from None

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Answer what is no HTTP request, or not one that gunicorn takes."""
        if not isinstance(exc, http_errors.ParseException) or req is not None:
            super().handle_error(req, client, addr, exc)
            return
        self.log.warning("refused what is no request: %s", str(exc)[:200])
        try:
            util.write_nonblock(client, _refusal(exc))
        except OSError as error:
            self.log.debug("the client did not wait for the refusal: %s", error)


def limit_waiting(sock: socket.socket, timeout_s: float) -> None:
    """Let blocking reads and writes fail with ``BlockingIOError`` after ``timeout_s`` seconds.

    A write fails only if no byte at all was taken for so long.  The option is the kernel's, for
    gunicorn takes Python's own time-out off each socket.
    """
    seconds = int(timeout_s)
    timeval = struct.pack("@ll", seconds, int((timeout_s - seconds) * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, timeval)


def _refusal(error: BaseException) -> bytes:
    """Return the whole response to a request that gunicorn refuses."""
    status = next(
        (status for kind, status in _REFUSALS.items() if isinstance(error, kind)),
        HTTPStatus.BAD_REQUEST,
    )
    info = ErrorInfo(
        message=f"{status.phrase}: {str(error)[:200]}",
        code=BadRequestError.code,
        type=BadRequestError.type,
        status=status,
    )
    body = json.dumps(error_object(info)).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Connection: close\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"x-request-id: {uuid.uuid4().hex}\r\n\r\n"
    )
    return head.encode("ascii") + body


#: What is more than a plain 400.
_REFUSALS = {
    http_errors.LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    http_errors.LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    http_errors.ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
}


def gunicorn_options(settings: Settings) -> dict[str, Any]:
    """Return gunicorn's settings by name, all but the address."""
    # A subclass carries the settings: gunicorn itself has no place for them.
    worker = type(
        "ServerWorker",
        (ServerWorker,),
        {
            "patience_s": settings.write_timeout_s,
            "grace_s": settings.graceful_timeout_s - min(2.0, settings.graceful_timeout_s / 4),
        },
    )
    return {
        "worker_class": worker,
        "workers": settings.workers,
        "threads": settings.threads,
        "worker_connections": settings.threads + _SPARE_CONNECTIONS,
        "timeout": _SIGN_OF_LIFE_S,
        "graceful_timeout": math.ceil(settings.graceful_timeout_s),
        "keepalive": _KEEP_ALIVE_S,
        "max_requests": settings.max_requests,
        # not all workers at once
        "max_requests_jitter": settings.max_requests // 10,
        "loglevel": settings.log_level,
        # or each instance would open one in the home directory
        "control_socket_disable": True,
        "proc_name": "caesar-server",
        "post_worker_init": load_strictly,
        "worker_exit": close_app,
    }


def bind_address(settings: Settings) -> str:
    """Return ``host:port`` as gunicorn wants it, an IPv6 address in brackets.

    >>> bind_address(Settings(host="::1"))
    '[::1]:8000'
    """
    host = settings.host.strip("[]")
    return f"[{host}]:{settings.port}" if ":" in host else f"{host}:{settings.port}"


def load_strictly(worker: Any) -> None:
    """In a new worker: load all backends if ``strict_plugins`` wants it, or end the server."""
    services = _services(worker)
    if services is None or not services.settings.strict_plugins:
        return
    try:
        services.registry.load_all()
    except SettingsError as error:
        for problem in error.problems:
            worker.log.critical("%s", problem)
        sys.exit(_BOOT_FAILED)


def close_app(server: Any, worker: Any) -> None:
    """In a worker that ends: cancel its runs, close its backends and its store."""
    services = _services(worker)
    if services is not None:
        services.close()


def _services(worker: Any) -> Any:
    """Return the parts of the worker's app; None before there is one, or if it is wrapped."""
    app = getattr(worker, "wsgi", None)
    return getattr(app, "extensions", {}).get("caesar_server")
