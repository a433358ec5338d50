"""Sends requests over pooled connections and reads the answers as they come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import (
    HTTPError,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as UrllibTimeoutError

from caesar_backend_upstream.http.connections import LinedPool, LinedTlsPool, current_line
from caesar_backend_upstream.http.line import Limits, Line
from caesar_backend_upstream.http.problems import Problem, ProblemKind
from caesar_backend_upstream.http.watchman import Watchman
from caesar_server.contract import Context

#: As much as is taken from the connection at once.
_READ_BYTES = 64 * 1024
#: How long the end of a body may take after the end of what it says, so that its connection can be
#: used again.
_DRAIN_S = 0.05
_POOLS = {"http": LinedPool, "https": LinedTlsPool}


class _Adapter(HTTPAdapter):
    """requests' own, with pools whose connections have lines."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


class Reply:
    """An answer whose body is still to be read, by one thread."""

    def __init__(self, response: requests.Response, line: Line, max_bytes: int) -> None:
        self.status: int = response.status_code
        #: Names in any case.
        self.headers: Mapping[str, str] = response.headers
        self._raw = response.raw
        self._line = line
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._ended = False

    def read(self) -> bytes:
        """Return what has come, waiting for it if nothing has; empty at the end.

        :raises Problem: if the answer is cut off, too long or too slow.
        """
        if self._ended:
            return b""
        try:
            data: bytes = self._raw.read1(_READ_BYTES, decode_content=True) or b""
        except (HTTPError, OSError, ValueError) as error:
            raise self._cut(error) from error
        if self._line.why is not None:
            raise self._cut(None)
        if not data:
            self._ended = True
            return data
        self._line.touch()
        self._left -= len(data)
        if self._left < 0:
            raise Problem("too_long", f"it is longer than {self._max_bytes} bytes")
        return data

    def read_all(self, max_bytes: int | None = None) -> bytes:
        """Return the whole body.

        :param max_bytes: what is beyond is left out.
        :raises Problem: likewise.
        """
        parts: list[bytes] = []
        size = 0
        while data := self.read():
            parts.append(data)
            size += len(data)
            if max_bytes is not None and size >= max_bytes:
                return b"".join(parts)[:max_bytes]
        return b"".join(parts)

    def drain(self) -> None:
        """Read what is left of a body that has said all, so that the connection can be kept."""
        if self._ended or self._raw.version == 10:
            return
        self._line.enter("gap", _DRAIN_S)
        try:
            self._ended = not self._raw.read1(_READ_BYTES, decode_content=True)
        except (HTTPError, OSError, ValueError):
            return  # it is closed instead

    def close(self) -> None:
        """Give the connection back, or end it if there is more to come."""
        if self._ended and self._line.why is None:
            self._raw.release_conn()
        else:
            self._line.shut("over")
            self._raw.close()

    def _cut(self, error: BaseException | None) -> Problem:
        return problem_of(error, self._line, "cut")


class Transport:
    """Exchanges with one server.  Safe for threads.

    :param proxy: URL of the proxy to use, or None.
    :param ca_file: file of the authorities to trust, or None.
    """

    def __init__(
        self,
        *,
        watchman: Watchman,
        limits: Limits,
        connections: int,
        max_bytes: int,
        proxy: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        # Not a session: it would keep cookies, which are one caller's, and follow redirects, with
        # the key; it would also read netrc and the environment's proxies.
        self._adapter = _Adapter(pool_connections=4, pool_maxsize=connections)
        self._watchman = watchman
        self._limits = limits
        self._max_bytes = max_bytes
        self._proxies = {"http": proxy, "https": proxy} if proxy else None
        self._verify: bool | str = ca_file or True

    @contextmanager
    def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        context: Context | None,
        body: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> Iterator[Reply]:
        """Send a request and give the reply; a cancel of ``context`` ends it at any moment.

        :raises Problem: if no answer comes.
        """
        line = Line(limits or self._limits)
        with self._watchman.watching(line):
            if context is None:
                yield from self._exchange(method, url, headers, line, body)
            else:
                with context.on_cancel(lambda: line.shut("cancelled")):
                    yield from self._exchange(method, url, headers, line, body)

    def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        line: Line,
        body: Mapping[str, Any] | None,
    ) -> Iterator[Reply]:
        try:
            reply = Reply(self._send(method, url, headers, line, body), line, self._max_bytes)
            try:
                yield reply
            finally:
                reply.close()
        finally:
            line.close()

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        line: Line,
        body: Mapping[str, Any] | None,
    ) -> requests.Response:
        data = None if body is None else _to_json(body)
        prepared = requests.PreparedRequest()
        prepared.prepare_method(method)
        prepared.prepare_headers(dict(headers))
        prepared.url, prepared.body = url, data
        if data is not None:
            prepared.headers["Content-Length"] = str(len(data))
        token = current_line.set(line)
        try:
            return self._adapter.send(
                prepared,
                stream=True,
                timeout=(self._limits.connect_s, None),
                verify=self._verify,
                proxies=self._proxies,
            )
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            raise problem_of(error, line, "no_answer") from error
        finally:
            current_line.reset(token)

    def close(self) -> None:
        """Close the connections that are kept."""
        self._adapter.close()


def _to_json(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise Problem("unsendable", "the request is not JSON") from error


def problem_of(error: BaseException | None, line: Line, otherwise: ProblemKind) -> Problem:
    """Return what went wrong, by class and never by text; texts may hold keys.

    :param otherwise: what it is if nothing more can be told.
    """
    if (kind := _ENDED.get(line.why or "over")) is not None:
        return Problem(kind)
    causes = list(_causes(error))
    for found, classes in _KINDS:
        if any(isinstance(cause, classes) for cause in causes):
            return Problem(found)
    return Problem(otherwise)


_ENDED: Mapping[str, ProblemKind] = {
    "cancelled": "cancelled",
    "connect": "connect_timeout",
    "first_byte": "first_byte_timeout",
    "gap": "gap_timeout",
    "total": "total_timeout",
}
_KINDS: tuple[tuple[ProblemKind, tuple[type[BaseException], ...]], ...] = (
    ("dns", (NameResolutionError,)),
    ("proxy", (ProxyError, requests.exceptions.ProxyError)),
    ("tls", (SSLError, requests.exceptions.SSLError)),
    # before the next one: to urllib3 it is a kind of it
    ("refused", (NewConnectionError,)),
    # sockets have a limit of their own only until they are connected, TLS included
    ("connect_timeout", (TimeoutError, UrllibTimeoutError)),
    ("unsendable", (requests.exceptions.InvalidURL, LocationValueError, UnicodeError)),
)


def _causes(error: BaseException | None, depth: int = 8) -> Iterator[BaseException]:
    """Yield an exception and those that it was made of, however they are wrapped."""
    if error is None or depth == 0:
        return
    yield error
    reason = getattr(error, "reason", None)
    for inner in (reason, *error.args, error.__cause__ or error.__context__):
        if isinstance(inner, BaseException) and inner is not error:
            yield from _causes(inner, depth - 1)
