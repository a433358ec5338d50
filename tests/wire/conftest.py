"""Servers that are looked at through a bare socket: every byte counts here."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from caesar_server.app import create_app
from caesar_server.contract import ChoiceFinished, Completed, ContentDelta
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import LiveServer, scripted_backend

MAX_BODY_BYTES = 100_000
DEADLINE_S = 60.0

#: Backends without an end.  Each run leaves a line in a file when it begins and when it ends.
BACKENDS = """
from dataclasses import dataclass

from caesar_server.contract import Backend, Capabilities, ContentDelta, option


@dataclass(frozen=True)
class JournalOptions:
    journal: str = option("journal", help="File to write to.")


class Journaling(Backend):
    capabilities = Capabilities()
    options_schema = JournalOptions

    def run(self, request, context):
        made = 0
        self.note(f"{request.prompts[0]} began")
        try:
            while True:
                if self.text:
                    yield ContentDelta(self.text)
                    made += 1
                context.sleep(self.pause_s)
        except BaseException as end:
            self.note(f"{request.prompts[0]} ended {made} {type(end).__name__}")
            raise

    def note(self, line):
        with open(self.options.journal, "a") as journal:
            journal.write(line + "\\n")


class Ticking(Journaling):
    text, pause_s = "tick ", 0.005


class Silent(Journaling):
    text, pause_s = "", 3600


class Flooding(Journaling):
    text, pause_s = "x" * 65536, 0
"""


@dataclass(frozen=True)
class Run:
    """How a run of one of the backends ended.

    :param made: deltas that it had yielded.
    :param end: name of what was raised in it.
    """

    made: int
    end: str


@dataclass
class Reply:
    """A response as it came.

    :param interim: statuses of the 1xx responses before it.
    """

    version: str
    status: int
    headers: dict[str, str]
    body: bytes
    interim: list[int] = field(default_factory=list)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, which must have its four keys and nothing beside it."""
        assert self.headers["content-type"] == "application/json"
        document = json.loads(self.body)
        assert set(document) == {"error"}
        assert set(document["error"]) == {"message", "type", "param", "code"}
        assert document["error"]["message"].isprintable()
        assert len(self.body) < 2000
        error: dict[str, Any] = document["error"]
        return error


class Wire:
    """One connection, on which a test writes what it likes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def end_of_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reply(self, *, head: bool = False) -> Reply:
        """Read the next response; ``head`` if it has no body."""
        interim: list[int] = []
        while True:
            reply = self.reply_head()
            if reply.status >= 200:
                break
            interim.append(reply.status)
        reply.interim = interim
        if not head:
            reply.body = self._body(reply.headers)
        return reply

    def reply_head(self) -> Reply:
        """Read a status line and its headers."""
        line = self._file.readline()
        assert line.endswith(b"\r\n"), f"no status line: {line!r}"
        version, status, _ = line.decode().split(" ", 2)
        headers: dict[str, str] = {}
        while (line := self._file.readline()) != b"\r\n":
            assert line.endswith(b"\r\n"), f"headers cut off: {line!r}"
            name, _, value = line.decode().partition(":")
            assert name.lower() not in headers, f"{name} is there twice"
            headers[name.lower()] = value.strip()
        return Reply(version, int(status), headers, b"")

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return b"".join(self.chunks())
        if "content-length" in headers:
            return self.read(int(headers["content-length"]))
        return self._file.read()

    def chunks(self) -> Iterator[bytes]:
        """Yield the pieces of a chunked body, to its proper end."""
        while size := int(self._file.readline(), 16):
            yield self.read(size)
            assert self.read(2) == b"\r\n"
        assert self.read(2) == b"\r\n"

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        assert len(data) == size, "the connection was cut"
        return data

    def closed(self) -> bool:
        """Wait until the server closes; whether it did without another byte."""
        return self._file.read() == b""

    def rest(self) -> bytes:
        """Read until the server closes; a reset counts as that."""
        pieces = []
        try:
            while piece := self._file.read1(1 << 20):
                pieces.append(piece)
        except ConnectionResetError:
            return b"".join(pieces)
        return b"".join(pieces)

    def reset(self) -> None:
        """Leave without a farewell: the server gets a RST."""
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@dataclass(frozen=True)
class Host:
    """A running server.

    :param journal: where its backends note how runs end.
    """

    name: str
    port: int
    journal: Path | None = None

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        """Open a connection for the time of a ``with`` block."""
        wire = Wire(self.port)
        try:
            yield wire
        finally:
            wire.close()

    def ask(self, raw: bytes, *, head: bool = False) -> Reply:
        """Send ``raw`` on a connection of its own and return the answer."""
        with self.wire() as wire:
            wire.send(raw)
            return wire.reply(head=head)

    def wait_for_start_of(self, prompt: str) -> None:
        """Wait until the run for ``prompt`` has begun."""
        wait_until(lambda: any(line == [prompt, "began"] for line in self._journal()))

    def end_of(self, prompt: str) -> Run:
        """Wait for the end of the run for ``prompt``."""
        return wait_until(lambda: self._end_of(prompt))

    def _end_of(self, prompt: str) -> Run | None:
        for line in self._journal():
            if line[:2] == [prompt, "ended"]:
                return Run(int(line[2]), line[3])
        return None

    def _journal(self) -> list[list[str]]:
        assert self.journal is not None
        if not self.journal.exists():
            return []
        # a line may be half written
        return [line.split() for line in self.journal.read_text().split("\n")[:-1]]


def wait_until(look: Callable[[], Any]) -> Any:
    """Return what ``look`` returns once it is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.01)
    return seen


def _folder(factory: pytest.TempPathFactory, **settings: Any) -> Path:
    """Return a folder with the backends and a settings file that names them."""
    folder = factory.mktemp("wire")
    (folder / "unending.py").write_text(BACKENDS)
    values = {
        "default_backend": "mock",
        "workers": 2,
        "max_body_bytes": MAX_BODY_BYTES,
        "first_event_wait_s": 0.05,
        "extra_backends": [
            f"{name}=unending:{name.title()}" for name in ("ticking", "silent", "flooding")
        ],
        **settings,
    }
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items()]
    (folder / "caesar-server.toml").write_text("".join(lines))
    return folder


@contextmanager
def _served(serve: Any, folder: Path) -> Iterator[Host]:
    """Run ``caesar-server serve`` in a folder."""

    def command(port: int) -> list[str]:
        store = f"sqlite:///{folder}/jobs.sqlite3"
        return [
            sys.executable,
            "-m",
            "caesar_server",
            "serve",
            "--port",
            str(port),
            "--store",
            store,
        ]

    with serve(command, folder) as port:
        yield Host("gunicorn", port, folder / "journal")


@pytest.fixture(scope="session")
def gthread(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """``caesar-server serve`` with two workers of threads."""
    with _served(serve, _folder(tmp_path_factory, worker_class="gthread")) as host:
        yield host


@pytest.fixture(scope="session")
def gevent(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The same with two workers of greenlets."""
    pytest.importorskip("gevent")
    with _served(serve, _folder(tmp_path_factory, worker_class="gevent")) as host:
        yield host


@pytest.fixture(scope="session", params=["gthread", "gevent"])
def gunicorn(request: pytest.FixtureRequest) -> Host:
    """Both of them in turn."""
    found: Host = request.getfixturevalue(request.param)
    return found


#: Of answers that flood whoever does not read them: the client ends them, and no limit.
_ENDLESS = 1024**4


@pytest.fixture(scope="session")
def impatient(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The same with little patience for clients that do nothing."""
    with _served(
        serve, _folder(tmp_path_factory, write_timeout_s=0.5, max_answer_chars=_ENDLESS)
    ) as host:
        yield host


@pytest.fixture(scope="session")
def live() -> Iterator[Host]:
    """``caesar_server.testing.LiveServer`` with a backend that repeats the first prompt."""

    def repeat(request: Any) -> Iterator[Any]:
        for choice in range(request.choices):
            yield ContentDelta(str(request.prompts[0]), choice)
            yield ChoiceFinished(choice)
        yield Completed()

    settings = Settings(default_backend="repeating", max_body_bytes=MAX_BODY_BYTES)
    backend = scripted_backend(repeat, accepts=frozenset({"completion"}))
    app = create_app(settings, Registry.of({"repeating": backend}, settings))
    with LiveServer(app) as server:
        yield Host("live", server.port)


@pytest.fixture(scope="session", params=["gthread", "gevent", "live"])
def host(request: pytest.FixtureRequest) -> Host:
    """Each of the servers in turn."""
    found: Host = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def post() -> Callable[..., bytes]:
    """Return a function from a body and further header lines to a whole request."""

    def request(
        body: bytes | dict[str, Any],
        *lines: str,
        path: str = "/compat/completions",
        content_type: str | None = "application/json",
        length: int | None = None,
        version: str = "1.1",
    ) -> bytes:
        if isinstance(body, dict):
            body = json.dumps({"model": "m", "prompt": "p", **body}).encode()
        head = [f"POST {path} HTTP/{version}", "Host: localhost"]
        if content_type is not None:
            head.append(f"Content-Type: {content_type}")
        if not any(line.lower().startswith("transfer-encoding") for line in lines):
            head.append(f"Content-Length: {len(body) if length is None else length}")
        return "\r\n".join([*head, *lines, "", ""]).encode("latin-1") + body

    return request
