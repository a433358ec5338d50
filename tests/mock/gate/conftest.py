"""A mock on a real connection, and a client that sees every byte."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from caesar_server.app import create_app
from caesar_server.mock.journal import Entry
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings
from caesar_server.testing import LiveServer

DEADLINE_S = 60.0
TEXT = "one two three four"
STREAM = {"model": "m", "prompt": "hello", "stream": True}
PLAIN = {"model": "m", "prompt": "hello"}


class Received(NamedTuple):
    """All that came over one connection.

    :param end: ``closed`` or ``reset``.
    """

    raw: bytes
    end: str

    @property
    def head(self) -> str:
        """Status line and headers."""
        return self.raw.partition(b"\r\n\r\n")[0].decode("latin-1")

    @property
    def chunks(self) -> list[bytes]:
        """The whole chunks of a body in chunks; the last one is empty if the end is proper."""
        rest, found = self.raw.partition(b"\r\n\r\n")[2], []
        while (size := rest.partition(b"\r\n")) and size[1]:
            length = int(size[0], 16)
            found.append(size[2][:length])
            rest = size[2][length + 2 :]
        return found

    @property
    def body(self) -> bytes:
        """The body, out of its chunks if it has some."""
        if "transfer-encoding: chunked" in self.head.lower():
            return b"".join(self.chunks)
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def frames(self) -> list[bytes]:
        """The frames of a stream, without the blank line at their end."""
        return self.body.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]

    @property
    def texts(self) -> list[str]:
        """What each frame that is a whole chunk adds to the text."""
        bodies = [json.loads(frame[6:]) for frame in self.frames if frame.startswith(b"data: {")]
        return [choice["text"] for body in bodies for choice in body.get("choices", ())]

    @property
    def ends_properly(self) -> bool:
        """Whether a body in chunks was not cut off."""
        return self.chunks[-1:] == [b""]


@dataclass(frozen=True)
class Mock:
    """A server in mock mode.

    :param scope: the default one; every prompt has the answer ``one two three four``.
    """

    scopes: Scopes
    port: int

    @property
    def scope(self) -> Scope:
        return self.scopes.get()

    def fault(self, kind: str, **fields: Any) -> Rule:
        """Add a rule with one fault for all calls."""
        fault = Fault(kind=kind, **fields)  # type: ignore[arg-type]
        return self.scope.add(Rule(id="", faults=(fault,)))

    def open(self, body: Any = None, path: str = "/compat/completions", **headers: str) -> Any:
        """Send a request and return the connection; a body makes it a POST."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return send_request(self.port, body, path, named)

    def ask(self, body: Any = None, path: str = "/compat/completions", **headers: str) -> Received:
        """Send a request and return all that comes."""
        return read_all(self.open(body, path, **headers))

    def entry_now(self) -> Entry:
        """Return the first entry of the default scope's journal as it stands."""
        return self.scope.journal.wait_for(1, DEADLINE_S)[0]

    def entry(self, number: int = 0, scope: str = "") -> Entry:
        """Return an entry of a scope's journal once it has ended."""
        entries = self.scopes.get(scope).journal.wait_for(number + 1, DEADLINE_S, ended=True)
        return entries[number]


def send_request(port: int, body: Any, path: str, headers: Mapping[str, str]) -> socket.socket:
    """Send a request and return the connection; a body makes it a POST."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    data = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        *("Host: localhost", "Connection: close", "Content-Type: application/json"),
        f"Content-Length: {len(data)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + data)
    return sock


def read_all(sock: socket.socket) -> Received:
    """Return all that comes until the other side ends the connection, in whatever way."""
    received = b""
    with sock:
        try:
            while data := sock.recv(65536):
                received += data
        except ConnectionResetError:
            return Received(received, "reset")
    return Received(received, "closed")


@pytest.fixture
def scopes() -> Scopes:
    """Scopes in which every prompt has the same answer."""
    scopes = Scopes()
    scopes.get().add(Rule(id="text", replies=(Reply(text=TEXT),)))
    return scopes


@pytest.fixture
def mock(scopes: Scopes) -> Iterator[Mock]:
    """Serve a mock."""
    with LiveServer(create_app(Settings(), mock=scopes)) as server:
        yield Mock(scopes, server.port)


@pytest.fixture
def send() -> Callable[..., socket.socket]:
    """Ask a port for an answer, with a fault if wanted; the fields are those of the headers."""

    def ask(
        port: int,
        body: Any,
        kind: str = "",
        fields: Mapping[str, str] = MappingProxyType({}),
        scope: str = "",
    ) -> socket.socket:
        asked = {"Fault": kind, **fields} if kind else {}
        headers = {f"X-Caesar-Mock-{name}": value for name, value in asked.items()}
        path = "/compat/completions"
        return send_request(port, body, f"/t/{scope}{path}" if scope else path, headers)

    return ask


@pytest.fixture
def read() -> Callable[[socket.socket], Received]:
    """Read a connection to its end."""
    return read_all
