"""The faults that clients are tried with, and mocks that serve them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from caesar_server.app import create_app
from caesar_server.mock.files import load_into
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings
from caesar_server.testing import LiveServer

#: What the mock answers, a word a chunk.
TEXT = "one two three four"
#: So often a client tries again by itself.
RETRIES = 1
#: How long a client waits; far more than it needs, and the time of those that are to wait in vain.
PATIENT_S, IMPATIENT_S = 60.0, 4.0
#: A stall is over before anybody would call the test stuck.
STALL_S = 10.0
#: Shorter than any SDK's own pause before it tries again, and not 0, which they take for no delay.
SOON_S = 0.001


@dataclass(frozen=True, slots=True)
class Case:
    """A fault that every try of a call meets.

    :param name: for people.
    :param stream: the fault of a stream, or None.
    :param plain: the fault of an answer in JSON, or None.
    """

    name: str
    stream: Fault | None
    plain: Fault | None

    def fault(self, *, stream: bool) -> Fault | None:
        """Return the fault for one of the two ways to answer."""
        return self.stream if stream else self.plain

    def timeout_s(self) -> float:
        """Return how long a client is to wait."""
        waits = self.name.startswith(("hang", "stall"))
        return IMPATIENT_S if waits else PATIENT_S


def _both(name: str, kind: str, **fields: Any) -> Case:
    fault = Fault(kind=kind, **fields)  # type: ignore[arg-type]
    return Case(name, fault, fault)


def _status(status: int, **fields: Any) -> Case:
    name = f"status {status}"
    if fields:
        name += ", x-should-retry: false"
    return _both(name, "status", status=status, retry_after_s=SOON_S, **fields)


def _placed(kind: str, *, chunks: int = 2, **fields: Any) -> Case:
    """Return a case whose fault comes after so many chunks, or 20 bytes of JSON."""
    stream = Fault(kind=kind, after_chunks=chunks, **fields)  # type: ignore[arg-type]
    plain = Fault(kind=kind, after_chunks=20, **fields)  # type: ignore[arg-type]
    return Case(f"{kind}, after_chunks {chunks}", stream, plain)


def _streamed(kind: str, **fields: Any) -> Case:
    name = f"{kind}, after_chunks {fields['after_chunks']}" if "after_chunks" in fields else kind
    return Case(name, Fault(kind=kind, **fields), None)  # type: ignore[arg-type]


CASES: tuple[Case, ...] = (
    *map(_status, (400, 401, 404, 408, 409, 429, 500, 503)),
    _status(500, headers={"x-should-retry": "false"}),
    _both("delay", "delay", delay_s=0.01),
    _both("hang", "hang"),
    _both("reset", "reset"),
    _both("half_headers", "half_headers"),
    _both("early_hints", "early_hints"),
    Case(
        "error_frame, after_chunks 2",
        Fault(kind="error_frame", after_chunks=2),
        Fault(kind="error_frame"),
    ),
    Case("silent_close, after_chunks 0", Fault(kind="silent_close"), Fault(kind="silent_close")),
    _placed("silent_close"),
    Case(
        "connection_reset, after_chunks 0",
        Fault(kind="connection_reset"),
        Fault(kind="connection_reset"),
    ),
    _placed("connection_reset"),
    _placed("stall", delay_s=STALL_S),
    _placed("malformed_json"),
    _placed("truncated_utf8"),
    _streamed("missing_done"),
    _streamed("duplicate_chunk", after_chunks=2),
    _streamed("reorder_chunks", after_chunks=2),
    _both("wrong_content_type", "wrong_content_type"),
    _streamed("crlf"),
    _streamed("empty_data", after_chunks=2),
    _streamed("comment_storm", after_chunks=2),
    _both("slow_drip", "slow_drip", delay_s=SOON_S, count=64),
)


@dataclass(frozen=True, slots=True)
class Question:
    """One call of one client.

    :param key: what its header ``x-case`` says, by which the mock finds the fault.
    """

    case: Case
    stream: bool
    key: str


#: Every case in each way in which it can be met.
QUESTIONS: tuple[Question, ...] = tuple(
    Question(case, stream, f"{number}-{'stream' if stream else 'json'}")
    for number, case in enumerate(CASES)
    for stream in (True, False)
    if case.fault(stream=stream) is not None
)


#: The same, those first that take long, so that the others are asked meanwhile.
LONGEST_FIRST: tuple[Question, ...] = tuple(
    sorted(QUESTIONS, key=lambda question: question.case.timeout_s())
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client made of a question.

    :param text: the text that the program had in hand at the end.
    :param error: the class of what was raised, or None.
    :param instead: what the call returned instead of an answer with text, or None.
    :param tries: how many requests it sent.
    """

    text: str = ""
    error: str | None = None
    instead: str | None = None
    tries: int = 1


def fixtures() -> dict[str, Any]:
    """Return the rules as a fixture file has them."""
    rules = [
        {"when": {"headers": {"x-case": question.key}}, "fault": _data(question)}
        for question in QUESTIONS
    ]
    return {"fallback": {"text": TEXT}, "rules": rules}


def _data(question: Question) -> dict[str, Any]:
    fault, plain = question.case.fault(stream=question.stream), Fault(kind="reset")
    fields = msgspec.structs.asdict(fault) if fault is not None else {}
    return {name: value for name, value in fields.items() if value != getattr(plain, name)} | {
        "kind": fields["kind"]
    }


@contextlib.contextmanager
def serve_in_process(folder: Path) -> Iterator[str]:
    """Serve the rules as the test fixtures do; return the base URL."""
    scopes = Scopes()
    load_into(scopes, _written(folder))
    with LiveServer(create_app(Settings(), mock=scopes)) as server:
        yield f"{server.base_url}/compat"


@contextlib.contextmanager
def serve_by_command(folder: Path) -> Iterator[str]:
    """Serve the rules with ``caesar-server mock``; return the base URL."""
    options = ["--fixtures", str(_written(folder)), "--port", "0", "--print-port"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "caesar_server", "mock", *options],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            assert port, (folder / "log").read_text()
            yield f"http://127.0.0.1:{port}/compat"
        finally:
            server.terminate()
            try:
                server.wait(60)
            finally:
                server.kill()


def _written(folder: Path) -> Path:
    path = folder / "rules.json"
    path.write_text(json.dumps(fixtures()))
    return path
