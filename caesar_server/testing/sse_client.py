"""A small HTTP client for streams that keeps every raw byte.  No SDK in between."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from caesar_server.contract.sse import ServerSentEvent, SseDecoder

_DONE = "[DONE]"


def decode_events(raw: bytes) -> list[ServerSentEvent]:
    """Return the events of a whole recorded stream.

    :raises ValueError: if the stream ends inside an event.
    """
    decoder = SseDecoder()
    events = list(decoder.feed(raw))
    if decoder.pending:
        raise ValueError(f"the stream ends inside an event: {raw[-200:]!r}")
    return events


def decode_frames(raw: bytes) -> list[dict[str, Any]]:
    """Return the JSON bodies of a whole recorded stream that ends, as it must, with ``[DONE]``.

    :raises ValueError: if it is cut off, has no ``[DONE]`` or goes on after it.
    """
    data = [event.data for event in decode_events(raw)]
    if data.count(_DONE) != 1 or data[-1] != _DONE:
        raise ValueError(f"expected exactly one [DONE], at the end; the stream ends {data[-3:]!r}")
    return [json.loads(item) for item in data[:-1]]


class SseClient:
    """Sends requests to one server.

    :param base_url: such as ``http://127.0.0.1:8000``.
    :param headers: sent with each request.
    :param timeout_s: seconds that a read may block.
    """

    def __init__(
        self, base_url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> None:
        self._url = urllib.parse.urlsplit(base_url)
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> SseResponse:
        """Send a request on a connection of its own; the response's head has arrived on return.

        :param body: sent as JSON unless it is bytes; None sends none.
        """
        connection = http.client.HTTPConnection(
            self._url.hostname or "", self._url.port, timeout=self._timeout_s
        )
        sent = {"Connection": "close", **self._headers, **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent = {"Content-Type": "application/json", **sent}
        try:
            connection.request(method, self._url.path + path, body, sent)
            return SseResponse(connection, connection.getresponse())
        except BaseException:
            connection.close()
            raise

    def post(
        self, path: str, body: object, *, headers: Mapping[str, str] | None = None
    ) -> SseResponse:
        """Send a POST request; see :meth:`request`."""
        return self.request("POST", path, body, headers=headers)

    def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> SseResponse:
        """Send a GET request; see :meth:`request`."""
        return self.request("GET", path, headers=headers)


class SseResponse:
    """A response whose body is read as it comes.  Close it, or use it as a context manager.

    Closing it before its end is how a client leaves.
    """

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._response = response
        #: The body so far, byte by byte as it came.
        self.raw = b""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status

    @property
    def headers(self) -> http.client.HTTPMessage:
        """The headers; names in any case."""
        return self._response.headers

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as they arrive.

        :raises http.client.IncompleteRead: if the body is cut off.
        """
        while chunk := self._response.read1():
            self.raw += chunk
            yield chunk
        if self._response.length:  # read1 says nothing when fewer bytes come than were announced
            raise http.client.IncompleteRead(self.raw, self._response.length)

    def events(self) -> Iterator[ServerSentEvent]:
        """Yield the events as they arrive."""
        decoder = SseDecoder()
        for chunk in self.chunks():
            yield from decoder.feed(chunk)

    def read(self) -> bytes:
        """Read to the end and return the whole body."""
        for _ in self.chunks():
            pass
        return self.raw

    def json(self) -> Any:
        """Read to the end and return the body as JSON."""
        return json.loads(self.read())

    def frames(self) -> list[dict[str, Any]]:
        """Read to the end and return the JSON bodies; see :func:`decode_frames`."""
        return decode_frames(self.read())

    def close(self) -> None:
        """Hang up."""
        self._response.close()
        self._connection.close()

    def __enter__(self) -> SseResponse:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
