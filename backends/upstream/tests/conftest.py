"""A server of raw bytes to put behind the backend, and ways to ask the backend."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from caesar_backend_upstream import UpstreamBackend
from caesar_server.contract import (
    ChatRequest,
    CompletionRequest,
    ContentDelta,
    Event,
    Failed,
    Message,
    Part,
    Request,
    Sampling,
    UsageCounted,
)
from caesar_server.contract.options import parse_options
from caesar_server.testing import collect_events

#: How long a condition may take to come true, in seconds.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Peer:
    """The raw server's end of one connection."""

    sock: socket.socket
    asked: Asked
    stop: threading.Event

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def hang(self) -> None:
        """Say nothing more until the other side leaves; fail if it does not."""
        self.sock.settimeout(PATIENCE_S)
        with suppress(ConnectionError):
            while self.sock.recv(4096):
                pass

    def reset(self) -> None:
        """End the connection with a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()


#: What is done with a request: bytes are sent and the connection is closed.
Reply: TypeAlias = bytes | Callable[[Peer], None]


@dataclass
class RawServer:
    """Answers each request with the next reply, and with the last one from then on.

    After a reply that is a function which returns True the connection is kept.
    """

    replies: list[Reply]
    tls: Any = None
    asked: list[Asked] = field(default_factory=list)
    #: Connections that were made, and those that are open.
    made: int = 0
    open: int = 0

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._socks: set[socket.socket] = set()
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/v1"

    def wait_for(self, condition: Callable[[RawServer], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), PATIENCE_S):
                raise TimeoutError(f"made {self.made}, open {self.open}, asked {len(self.asked)}")

    def close(self) -> None:
        self._stop.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in tuple(self._socks):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self.made += 1
                self.open += 1
                self._socks.add(sock)
                self._changed.notify_all()
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        plain = sock
        try:
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True)
            with sock.makefile("rb") as reader:
                while (asked := _read_request(reader)) is not None:
                    with self._changed:
                        number = min(len(self.asked), len(self.replies) - 1)
                        self.asked.append(asked)
                        self._changed.notify_all()
                    reply = self.replies[number]
                    if isinstance(reply, bytes):
                        sock.sendall(reply)
                        break
                    if not reply(Peer(sock, asked, self._stop)):
                        break
        except (OSError, ValueError):
            pass  # the other side has left, or speaks no HTTP
        finally:
            sock.close()
            plain.close()
            with self._changed:
                self.open -= 1
                self._socks.discard(plain)
                self._changed.notify_all()


def _read_request(reader: Any) -> Asked | None:
    line = reader.readline()
    if not line:
        return None
    method, path, _ = line.decode().split(" ", 2)
    headers = {}
    while row := reader.readline().strip():
        name, _, value = row.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    data = reader.read(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, json.loads(data) if data else None)


RawServers = Callable[..., RawServer]


@pytest.fixture
def raw() -> Iterator[RawServers]:
    """Start raw servers that give these replies."""
    with ExitStack() as stack:

        def start(*replies: Reply, tls: Any = None) -> RawServer:
            server = RawServer(list(replies), tls)
            stack.callback(server.close)
            return server

        yield start


class Ask:
    """A backend with these options, and requests to it."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.backend = UpstreamBackend(parse_options(UpstreamBackend.options_schema, options))

    def events(self, request: Request, context: Any = None) -> list[Event]:
        return collect_events(self.backend, request, context)

    def complete(self, *prompts: str, model: str = "m", **fields: Any) -> list[Event]:
        return self.events(completion(*prompts, model=model, **fields))

    def chat(self, *texts: str, model: str = "m", **fields: Any) -> list[Event]:
        return self.events(chat(*texts, model=model, **fields))


def completion(*prompts: str, model: str = "m", **fields: Any) -> CompletionRequest:
    return CompletionRequest(prompts=prompts or ("hi",), model=model, **_split(fields))


def chat(*texts: str, model: str = "m", **fields: Any) -> ChatRequest:
    messages = [Message(role="user", parts=(Part(text=text),)) for text in texts or ("hi",)]
    return ChatRequest(**{"messages": tuple(messages), "model": model, **_split(fields)})


def _split(fields: dict[str, Any]) -> dict[str, Any]:
    names = set(Sampling.__dataclass_fields__) & set(fields)
    sampling = {name: fields.pop(name) for name in names}
    return {**fields, "sampling": Sampling(**sampling)}


#: Waits for nothing: no models are listed, retries come at once.
QUICK: Mapping[str, Any] = {"models_ttl_s": 0, "retries": 0}


@pytest.fixture
def opened() -> Iterator[Callable[..., Ask]]:
    """Open a backend in front of servers; what is no server's option is the backend's."""
    with ExitStack() as stack:

        def make(*servers: RawServer | str, per_server: Any = None, **options: Any) -> Ask:
            table = {
                f"s{number}": {
                    "url": server if isinstance(server, str) else server.url,
                    **(per_server or {}),
                }
                for number, server in enumerate(servers, start=1)
            }
            ask = Ask({**QUICK, "servers": table, **options})
            ask.backend.open()
            stack.callback(ask.backend.close)
            return ask

        yield make


class Wire:
    """Answers as bytes, and what was made of them."""

    @staticmethod
    def head(content_type: str = "text/event-stream", status: str = "200 OK", **more: str) -> bytes:
        rows = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", "Connection: close"]
        rows += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        return ("\r\n".join(rows) + "\r\n\r\n").encode()

    @classmethod
    def json(cls, body: Any, status: str = "200 OK", **more: str) -> bytes:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        length = {"Content_Length": str(len(data))}
        return cls.head("application/json", status, **length, **more) + data

    @staticmethod
    def frame(body: Any) -> bytes:
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        return f"data: {text}\n\n".encode()

    @staticmethod
    def text(text: str, index: int = 0, reason: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"text": text, "index": index, "finish_reason": reason, "logprobs": None}
        return {"id": "c", "object": "text_completion", "choices": [choice], **more}

    @staticmethod
    def delta(delta: Any, index: int = 0, reason: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"delta": delta, "index": index, "finish_reason": reason}
        return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more}

    @classmethod
    def stream(cls, *bodies: Any, done: bool = True) -> bytes:
        end = (cls.frame("[DONE]"),) if done else ()
        return b"".join((cls.head(), *map(cls.frame, bodies), *end))

    @classmethod
    def hello(cls) -> bytes:
        """A whole, good stream: ``Hello you``, 2 and 3 tokens."""
        usage = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
        return cls.stream(
            cls.text("Hello"),
            cls.text(" you", reason="stop"),
            {"id": "c", "object": "text_completion", "choices": [], "usage": usage},
        )


@pytest.fixture
def wire() -> type[Wire]:
    return Wire


class Told:
    """What the events of a run say."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def text(self, choice: int = 0, channel: str = "content") -> str:
        return "".join(
            event.text
            for event in self.events
            if isinstance(event, ContentDelta)
            and (event.choice, event.channel) == (choice, channel)
        )

    @property
    def usage(self) -> tuple[int, int]:
        counted = [event for event in self.events if isinstance(event, UsageCounted)]
        return (
            sum(event.prompt_tokens for event in counted),
            sum(event.completion_tokens for event in counted),
        )

    @property
    def reasons(self) -> dict[int, str]:
        return {
            event.choice: event.reason for event in self.events if event.type == "choice_finished"
        }

    @property
    def error(self) -> Any:
        last = self.events[-1]
        return last.error if isinstance(last, Failed) else None

    @property
    def details(self) -> Mapping[str, Any]:
        """Those of the terminal event."""
        return self.events[-1].details

    @property
    def answered_by(self) -> str | None:
        return next((e.details["upstream"] for e in self.events if e.type == "started"), None)


@pytest.fixture
def told() -> type[Told]:
    return Told


@pytest.fixture
def requests_of() -> Any:
    """Make requests: ``completion(...)`` and ``chat(...)``."""

    class Make:
        pass

    made = Make()
    made.completion, made.chat = completion, chat
    return made


@contextmanager
def listening_but_not_accepting() -> Iterator[int]:
    """Give a port where connections are never completed."""
    with socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):  # fill the queue
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(listener.getsockname())
        yield int(listener.getsockname()[1])


@pytest.fixture
def black_hole() -> Iterator[str]:
    """A URL to which connecting takes for ever."""
    with listening_but_not_accepting() as port:
        yield f"http://127.0.0.1:{port}/v1"
