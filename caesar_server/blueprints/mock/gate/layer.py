"""The WSGI layer of a mock: takes the scope off the path, and sees how each exchange ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from caesar_server.blueprints.mock.gate.exchange import EXCHANGE_KEY, Exchange
from caesar_server.blueprints.mock.gate.paths import take_prefix

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: A client that leaves before there is an answer makes its run end with this status.
CLIENT_GONE = 499


class MockLayer:
    """Stands around the whole app, the layer that writes the access log included."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        take_prefix(environ)
        started = _Start(environ, start_response)
        try:
            body = self._app(environ, started)
        except BaseException:
            if (exchange := environ.get(EXCHANGE_KEY)) is not None:
                exchange.end("failed")
            raise
        exchange = environ.get(EXCHANGE_KEY)
        return body if exchange is None else _Body(body, exchange, started.length)


class _Start:
    """The host's ``start_response``, with the head written down."""

    __slots__ = ("_environ", "_start_response", "length")

    def __init__(self, environ: WSGIEnvironment, start_response: StartResponse) -> None:
        self._environ = environ
        self._start_response = start_response
        self.length: int | None = None

    def __call__(self, status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
        exchange: Exchange | None = self._environ.get(EXCHANGE_KEY)
        if exchange is not None:
            if status.startswith(str(CLIENT_GONE)):
                exchange.leave()
                return self._start_response(status, headers, *exc_info)
            exchange.recording.answered(int(status[:3]), headers)
            for name, value in headers:
                if name.lower() == "content-length":
                    self.length = int(value)
        return self._start_response(status, headers, *exc_info)


class _Body:
    """The body of an answer; passes the parts on and notes when and how they end.

    :param length: as announced, or None.
    """

    __slots__ = ("_body", "_exchange", "_left", "_parts")

    def __init__(self, body: Iterable[bytes], exchange: Exchange, length: int | None) -> None:
        self._body = body
        self._exchange = exchange
        self._parts: Iterator[bytes] | None = None
        self._left = length

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._parts is None:
            self._parts = iter(self._body)
        try:
            part = next(self._parts)
        except StopIteration:
            self._end(whole=True)
            raise
        except BaseException:
            self._exchange.end("failed")
            raise
        if not self._exchange.framed and part:
            self._exchange.recording.frame(part)
        if self._left is not None:
            self._left -= len(part)
        return part

    def close(self) -> None:
        """End the body; called by the host in any case."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._end(whole=False)

    def _end(self, *, whole: bool) -> None:
        """Note the end of the body.

        :param whole: whether the host has asked for more than there is.
        """
        if self._left == 0:
            # Not every host asks for more once it has all that was announced, and a client that
            # has it may close before the host is done.
            self._exchange.end("completed")
        else:
            self._exchange.end_of_body(whole=whole)
