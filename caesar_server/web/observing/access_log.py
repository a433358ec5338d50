"""One line and one count for each request, when its last byte is handed over.

A WSGI layer around the app, for nobody else sees the end: a view returns long before its stream is
over, and the host closes the body in any case, also when the client left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from flask import Flask, Response

from caesar_server.contract import sse
from caesar_server.errors import UNEXPECTED
from caesar_server.web.incoming import incoming
from caesar_server.web.observing.exchange import Exchange, Outcome, current_exchange, enter
from caesar_server.web.observing.metrics import OTHER, ServerMetrics

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger("caesar_server.access")

#: As much of a path or of a model's name as is logged.
MAX_CHARS = 200

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None] | None
)


def register(app: Flask, metrics: ServerMetrics, monotonic: Callable[[], float]) -> None:
    """Make ``app`` write a line for each request and count it.

    To be called after the request ids were registered.

    :param monotonic: seconds that never go back.
    """
    names: dict[str | None, tuple[str, str]] = {None: (OTHER, OTHER)}

    @app.before_request
    def note_request() -> None:
        exchange = current_exchange()
        if exchange is None:
            return  # the app is called without its WSGI layer
        request = incoming()
        endpoint = request.endpoint
        if endpoint not in names:
            names[endpoint] = _names(app, endpoint)
        exchange.surface, exchange.endpoint = names[endpoint]
        exchange.request_id = request.request_id

    @app.after_request
    def note_caller(response: Response) -> Response:
        exchange = current_exchange()
        if exchange is not None:
            who = incoming().caller
            exchange.account, exchange.key_id = who.account, who.key_id
        return response

    app.wsgi_app = _Observed(app.wsgi_app, metrics, monotonic)  # type: ignore[method-assign]


def _names(app: Flask, endpoint: str | None) -> tuple[str, str]:
    """Return surface and name of a view: the package it is from, and the function's own."""
    view = app.view_functions[endpoint or ""]
    _, _, below = view.__module__.partition(".blueprints.")
    return below.partition(".")[0] or OTHER, getattr(view, "__name__", OTHER)


class _Observed:
    """The app with a :class:`_Response` around each of its responses."""

    def __init__(
        self, app: WSGIApplication, metrics: ServerMetrics, monotonic: Callable[[], float]
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._monotonic = monotonic

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        response = _Response(environ, start_response, self._metrics, self._monotonic)
        try:
            response.body = self._app(environ, response.start)
        except BaseException:
            response.finish(raised=True)
            raise
        return response


class _Response:
    """The body of a response: passes the parts on and notes when and how they end."""

    __slots__ = (
        *("body", "_environ", "_start_response", "_metrics", "_monotonic", "_exchange", "_began"),
        *("_status", "_is_stream", "_length", "_parts", "_sent", "_last", "_first_after_s"),
        *("_left_before", "_finished"),
    )

    def __init__(
        self,
        environ: WSGIEnvironment,
        start_response: StartResponse,
        metrics: ServerMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self.body: Iterable[bytes] = ()
        self._environ = environ
        self._start_response = start_response
        self._metrics = metrics
        self._monotonic = monotonic
        self._exchange = Exchange()
        self._began = monotonic()
        self._status = 500
        self._is_stream = False
        self._length: int | None = None
        self._parts: Iterator[bytes] | None = None
        self._sent = 0
        self._last = b""
        self._first_after_s: float | None = None
        #: Whether the client was known to be gone before the last part.
        self._left_before = False
        self._finished = False
        enter(self._exchange)

    def start(
        self, status: str, headers: list[tuple[str, str]], exc_info: _ExcInfo = None, /
    ) -> Callable[[bytes], object]:
        """Note what the response is, and start it."""
        self._status = int(status[:3])
        was_stream = self._is_stream
        for name, value in headers:
            lower = name.lower()
            if lower == "content-type":
                self._is_stream = was_stream or value.startswith("text/event-stream")
            elif lower == "content-length":
                self._length = int(value)
        if self._is_stream and not was_stream:
            self._metrics.stream_opened()
        if exc_info is None:
            return self._start_response(status, headers)
        return self._start_response(status, headers, exc_info)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._parts is None:
            self._parts = iter(self.body)
        try:
            part = next(self._parts)
        except StopIteration:
            self.finish(ended=True)
            raise
        except BaseException:
            self.finish(raised=True)
            raise
        if part:
            if self._first_after_s is None:
                self._first_after_s = self._monotonic() - self._began
            self._sent += len(part)
            self._last = part
            self._left_before = self._exchange.client_left
            if self._sent == self._length:
                # Nothing can follow, so no host need ask for more; Flask's test client does not.
                self.finish(ended=True)
        return part

    def close(self) -> None:
        """End the body; called by the host in any case."""
        try:
            close = getattr(self.body, "close", None)
            if close is not None:
                close()
        finally:
            # A host that got the stream's last frame need not ask for more.
            self.finish(ended=self._is_done)

    def finish(self, *, ended: bool = False, raised: bool = False) -> None:
        """Write the line and count, once.

        :param ended: whether the whole body was handed over.
        :param raised: whether an exception cut it off.
        """
        if self._finished:
            return
        self._finished = True
        duration_s = self._monotonic() - self._began
        exchange, status = self._exchange, self._status
        if self._is_stream:
            self._metrics.stream_closed()
        if raised:
            exchange.code = UNEXPECTED.code
        self._metrics.request_ended(exchange.surface, exchange.endpoint, status, duration_s)
        outcome = self._outcome(ended)
        run_code = None if exchange.run is None else exchange.run.code
        code = exchange.code or run_code
        if outcome == "refused":
            self._metrics.refused(code or OTHER)
        elif outcome == "failed" and run_code is None:
            # not the run's failure, which is counted with the run
            self._metrics.failed(code or OTHER)
        if logger.isEnabledFor(logging.INFO):
            self._log(duration_s, outcome, code)
        enter(None)

    @property
    def _is_done(self) -> bool:
        """Whether the last frame of a stream was handed over."""
        return self._is_stream and self._last.endswith(sse.DONE)

    def _outcome(self, ended: bool) -> Outcome | None:
        """Return how it ended, or None for a plain response that is no answer."""
        exchange = self._exchange
        if exchange.code == UNEXPECTED.code:
            return "failed"
        # A stream whose client left ends by itself, but without its last frame.
        cut = self._is_stream and exchange.client_left and not self._is_done
        if cut or self._left_before or not ended:
            return "client_gone"
        if exchange.run is not None:
            return exchange.run.outcome
        return "refused" if self._status >= 400 else None

    def _log(self, duration_s: float, outcome: Outcome | None, code: str | None) -> None:
        exchange, first_s = self._exchange, self._first_after_s
        method, path = self._environ["REQUEST_METHOD"], _path(self._environ)
        arguments = (method, path, self._status)
        # Neither logger.info() nor ``extra``: the look for the line of code that logs, and the
        # check of each name, cost as much as all the rest.
        record = logging.LogRecord(
            logger.name, logging.INFO, __name__, 0, "%s %s %d", arguments, None
        )
        fields = vars(record)
        fields["request_id"] = exchange.request_id
        fields["method"] = method
        fields["path"] = path
        fields["status"] = self._status
        fields["bytes"] = self._sent
        fields["duration_ms"] = round(duration_s * 1000, 3)
        if first_s is not None:
            fields["time_to_first_byte_ms"] = round(first_s * 1000, 3)
        if (run := exchange.run) is not None:
            fields["job_id"] = run.job.id
            fields["backend"] = run.job.backend
            fields["model"] = run.job.model[:MAX_CHARS]
            fields["stream"] = self._is_stream
            fields["choices"] = run.job.request.choices
            fields["events"] = run.events
            if run.upstream:
                fields["upstream"] = run.upstream
        for name, value in (
            ("outcome", outcome),
            ("code", code),
            ("account", exchange.account),
            ("key_id", exchange.key_id),
        ):
            if value:
                fields[name] = value
        logger.handle(record)


def _path(environ: WSGIEnvironment) -> str:
    """Return the path without its query, where people put keys."""
    path: str = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    # WSGI gives the bytes as Latin-1
    return path.encode("latin-1", "replace").decode("utf-8", "replace")[:MAX_CHARS]
