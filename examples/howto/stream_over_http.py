"""Streams the answer of an HTTP service that sends server-sent events, as it arrives.

The service takes ``POST`` with ``{"prompt": "..."}`` and sends ``data: {"text": "..."}`` for each
piece of text, then ``data: [DONE]``.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from caesar_server.contract import (
    Backend,
    BackendTimeoutError,
    BackendUnavailableError,
    BadUpstreamError,
    Capabilities,
    Completed,
    CompletionRequest,
    Context,
    Event,
    InvalidRequestError,
    RateLimitedError,
    Request,
    RequestRejectedError,
    choice_events,
    option,
)
from caesar_server.contract.sse import SseDecoder


@dataclass(frozen=True)
class HttpOptions:
    """What an operator may set."""

    url: str = option("http://127.0.0.1:8080/generate", help="Where the service takes prompts.")
    api_key: str | None = option(None, help="Key of the service.", secret=True)
    connect_timeout_s: float = option(
        3.0, help="How long to wait for a connection.", unit="s", minimum=0.1, maximum=60
    )
    read_timeout_s: float = option(
        60.0, help="Longest silence of the service.", unit="s", minimum=0.1, maximum=600
    )


class HttpBackend(Backend):
    """One connection a choice; nothing is kept between runs, so there is nothing to open."""

    capabilities = Capabilities(
        accepts=frozenset({"completion"}),
        n=True,
        stop=True,  # choice_events sees to it, whatever the service can
        # Connecting cannot be interrupted; everything after it can.
        cancel_deadline_s=4.0,
    )
    options_schema = HttpOptions
    options: HttpOptions

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Ask the service once for each choice."""
        if not isinstance(request, CompletionRequest):
            raise InvalidRequestError("takes completion requests only", param=None)
        for position, prompt in enumerate(request.prompts):
            if not isinstance(prompt, str):
                raise InvalidRequestError("takes text, not token ids", param="prompt")
            for k in range(request.sampling.n):
                choice = position * request.sampling.n + k
                # closing: a stop sequence ends the choice before the service has said all.
                with closing(self._pieces(prompt, context)) as pieces:
                    yield from choice_events(pieces, context, request.sampling, choice=choice)
        yield Completed()

    def _pieces(self, prompt: str, context: Context) -> Generator[str, None, None]:
        """Yield the text of one answer in the pieces in which it arrives."""
        context.raise_if_cancelled()
        with closing(self._connection()) as connection:
            try:
                connection.connect()
                sock = connection.sock  # the connection forgets it once the answer has begun
                sock.settimeout(self.options.read_timeout_s)
                # recv() cannot poll context.cancelled; shutting the socket down ends it at once.
                with (
                    context.on_cancel(lambda: _shut_down(sock)),
                    closing(self._ask(connection, prompt)) as response,
                ):
                    _check_status(response)
                    yield from _texts(response)
            except TimeoutError as error:
                context.raise_if_cancelled()
                raise BackendTimeoutError("the service did not answer in time") from error
            except (OSError, http.client.HTTPException) as error:
                # A cancel breaks the connection, too: then that is what happened.
                context.raise_if_cancelled()
                raise BackendUnavailableError("the service cannot be reached") from error

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.options.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        return kind(parts.netloc, timeout=self.options.connect_timeout_s)

    def _ask(self, connection: http.client.HTTPConnection, prompt: str) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if self.options.api_key is not None:
            headers["Authorization"] = f"Bearer {self.options.api_key}"
        path = urlsplit(self.options.url).path or "/"
        connection.request("POST", path, json.dumps({"prompt": prompt}), headers)
        return connection.getresponse()


def _check_status(response: http.client.HTTPResponse) -> None:
    """Turn an error of the service into one that our caller understands."""
    if response.status == 200:
        return
    if response.status == 429:
        seconds = response.headers.get("Retry-After", "")
        raise RateLimitedError(
            "the service has too much to do",
            retry_after_s=float(seconds) if seconds.isdecimal() else None,
        )
    if response.status in (401, 403):
        # The operator's key, not the caller's: the caller can do nothing about it.
        raise BackendUnavailableError("the service refuses the key that it was given")
    if 400 <= response.status < 500:
        raise RequestRejectedError(
            f"the service refused the request ({response.status})", status=response.status
        )
    raise BadUpstreamError(f"the service answered with status {response.status}")


def _texts(response: http.client.HTTPResponse) -> Iterator[str]:
    """Yield the text of each event; a stream without its last event was cut off."""
    decoder = SseDecoder()
    while data := response.read1(65536):
        for event in decoder.feed(data):
            if event.data == "[DONE]":
                return
            try:
                yield str(json.loads(event.data)["text"])
            except (ValueError, LookupError, TypeError):
                raise BadUpstreamError("the service sent an event that is no text") from None
    raise BadUpstreamError("the service broke off in the middle of its answer")


def _shut_down(sock: socket.socket) -> None:
    # Not close(): the thread that reads still needs the descriptor, to notice it.
    with suppress(OSError):  # the other end may have closed it a moment ago
        sock.shutdown(socket.SHUT_RDWR)
