"""A worker's state over HTTP, for whoever restarts it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from flask import Flask
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from caesar_server.cli.workers.listening import listening, url_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_PATHS = ("/healthz", "/health", "/readyz", "/metrics")
_BACKLOG = 128


@contextmanager
def serving_health(app: Flask, host: str, port: int | None) -> Iterator[str | None]:
    """Answer the operator's questions in a ``with`` block.

    Nothing else of ``app`` can be reached: a worker takes no requests.

    :param host: the address to listen on.
    :param port: 0 takes a free one; None serves nothing.
    :return: the address, or None.
    :raises click.ClickException: if the port cannot be listened on.
    """
    if port is None:
        yield None
        return
    with _listening(host, port) as listener:
        own_host, own_port = listener.getsockname()[:2]
        server = ThreadedWSGIServer(
            own_host, own_port, OnlyHealth(app), _QuietHandler, fd=listener.fileno()
        )
        thread = threading.Thread(
            target=server.serve_forever, args=(0.1,), name="caesar-health", daemon=True
        )
        thread.start()
        try:
            yield url_of(listener)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        listener = listening(host, port, _BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise click.ClickException(
            f"--health-port: cannot listen on port {port} of {host}: {reason}; take another one "
            "(0 takes a free one)"
        ) from error
    with listener:
        yield listener


class _QuietHandler(WSGIRequestHandler):
    """Leaves requests out of the log; errors still go there."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing: the app does."""


class OnlyHealth:
    """The operator's part of an app; everything else is not there."""

    def __init__(self, app: Flask) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in _PATHS:
            return self._app(environ, start_response)
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"a worker answers only /healthz, /readyz and /metrics\n"]
