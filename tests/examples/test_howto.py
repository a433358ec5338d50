"""The how-to backends: each keeps the contract, and does what its page promises besides."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from caesar_server.contract import (
    Backend,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Event,
    Failed,
    ResearchRequest,
    Sampling,
    StatusChanged,
)
from caesar_server.contract.options import parse_options
from caesar_server.errors import CANCELLED
from caesar_server.jobs.running.run import run_events
from caesar_server.registry import extra_candidates
from caesar_server.testing import check_backend, collect_events, make_context

HOWTO = Path(__file__).resolve().parents[2] / "examples" / "howto"
WITHIN_S = 60


@pytest.fixture
def load(monkeypatch) -> Iterator[Callable[[str], type[Backend]]]:
    """Load the backend class of a file, as ``--backend FILE`` does."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded = []

    def load(name: str) -> Any:
        loaded.append(name)
        return extra_candidates([str(HOWTO / f"{name}.py")])[0].load()

    yield load
    for name in loaded:
        sys.modules.pop(name, None)


@contextmanager
def opened(cls: type[Backend], **options: object) -> Iterator[Backend]:
    backend = cls(parse_options(cls.options_schema, options))
    backend.open()
    try:
        yield backend
    finally:
        backend.close()


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ContentDelta))


def failure(events: list[Event]) -> Any:
    assert isinstance(events[-1], Failed), events[-1]
    return events[-1].error


def ask(backend: Backend, prompt: str = "hello world", context=None, **sampling) -> list[Event]:
    request = CompletionRequest(prompts=(prompt,), sampling=Sampling(**sampling))
    return collect_events(backend, request, context)


def test_every_file_is_on_a_page(root: Path) -> None:
    pages = "".join(path.read_text() for path in (root / "docs" / "extending").glob("*.rst"))
    for path in HOWTO.glob("*.py"):
        assert f"literalinclude:: ../../examples/howto/{path.name}" in pages


@pytest.mark.parametrize("name", ["blocking_library", "words_of_program", "durable_report"])
def test_it_keeps_the_contract(load, name: str) -> None:
    report = check_backend(load(name))
    assert not report.failed, str(report)


# --- an HTTP service ------------------------------------------------------------------------------


class Service(http.server.ThreadingHTTPServer):
    """A service that sends what the test tells it, and knows when its client has left."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.headers: dict[str, str] = {}
        self.sends: list[bytes] = [event("Hello "), event("wörld"), b"data: [DONE]\n\n"]
        self.stall = threading.Event()
        self.stalls = False
        self.stalled = threading.Event()
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/generate"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        service = self.server
        assert isinstance(service, Service)
        self.rfile.read(int(self.headers["Content-Length"]))
        service.keys.append(self.headers["Authorization"])
        self.send_response(service.status)
        for name, value in service.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in service.sends:
            self.wfile.write(piece)
            self.wfile.flush()
        if service.stalls:
            service.stalled.set()
            service.stall.wait(WITHIN_S)

    def log_message(self, *args: object) -> None:
        pass


def event(piece: str) -> bytes:
    return b"data: " + json.dumps({"text": piece}, ensure_ascii=False).encode() + b"\n\n"


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    thread = threading.Thread(target=service.serve_forever, args=(0.02,))
    thread.start()
    yield service
    service.stall.set()
    service.shutdown()
    thread.join()
    service.server_close()


def test_http_keeps_the_contract(load, service: Service) -> None:
    report = check_backend(load("stream_over_http"), {"url": service.url})
    assert not report.failed, str(report)


def test_http_passes_on_what_arrives(load, service: Service) -> None:
    with opened(load("stream_over_http"), url=service.url, api_key="k") as backend:
        events = ask(backend)
        assert text(events) == "Hello wörld"
        assert [e.text for e in events if isinstance(e, ContentDelta)] == ["Hello ", "wörld"]
        # cut anywhere, also within a character
        whole = b"".join(service.sends)
        service.sends = [whole[at : at + 1] for at in range(len(whole))]
        assert text(ask(backend)) == "Hello wörld"
    assert set(service.keys) == {"Bearer k"}


@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [
        (400, 400, "request_rejected"),
        (401, 503, "backend_unavailable"),
        (429, 429, "rate_limit_exceeded"),
        (500, 502, "bad_upstream"),
    ],
)
def test_http_errors_are_told_by_class(load, service, status, expected, code) -> None:
    service.status, service.headers, service.sends = status, {"Retry-After": "7"}, []
    with opened(load("stream_over_http"), url=service.url, api_key="secret-key") as backend:
        error = failure(ask(backend))
    assert (error.status, error.code) == (expected, code)
    assert error.retry_after_s == (7 if status == 429 else None)
    assert "secret-key" not in error.message


@pytest.mark.parametrize("sends", [[event("Hel")], [b"data: no json\n\n"], [b'data: {"x": 1}\n\n']])
def test_http_answer_that_is_not_whole_is_a_failure(load, service: Service, sends) -> None:
    service.sends = sends
    with opened(load("stream_over_http"), url=service.url) as backend:
        assert failure(ask(backend)).code == "bad_upstream"


def test_http_service_that_is_not_there_is_unavailable(load) -> None:
    with opened(load("stream_over_http"), url="http://127.0.0.1:1/") as backend:
        assert failure(ask(backend)).code == "backend_unavailable"


def test_http_silence_is_a_timeout(load, service: Service) -> None:
    service.stalls = True
    service.sends = [event("Hel")]
    with opened(load("stream_over_http"), url=service.url, read_timeout_s=0.2) as backend:
        assert failure(ask(backend)).code == "backend_timeout"


def test_http_cancel_ends_a_blocked_read_at_once(load, service: Service) -> None:
    service.stalls = True
    service.sends = [event("Hel")]
    context, got = make_context(), []
    with opened(load("stream_over_http"), url=service.url) as backend:
        thread = threading.Thread(target=lambda: got.extend(ask(backend, context=context)))
        thread.start()
        assert service.stalled.wait(WITHIN_S)
        context.cancel()
        thread.join(WITHIN_S)
    assert got[-1] == Failed(CANCELLED)


def test_http_cancel_ends_a_read_in_the_middle_of_the_answer(load, service: Service) -> None:
    service.stalls = True
    service.sends = [event("Hel")]
    context, begun, got = make_context(), threading.Event(), []
    request = CompletionRequest(prompts=("hello",))

    def read(backend: Backend) -> None:
        for found in run_events(backend, request, context):
            got.append(found)
            if isinstance(found, ContentDelta):
                begun.set()

    with opened(load("stream_over_http"), url=service.url) as backend:
        thread = threading.Thread(target=read, args=(backend,))
        thread.start()
        assert begun.wait(WITHIN_S)
        context.cancel()
        thread.join(WITHIN_S)
    assert got[-1] == Failed(CANCELLED)


# --- a library that blocks ------------------------------------------------------------------------


@pytest.fixture
def library(monkeypatch):
    """A module ``slow_library`` whose call waits until the test lets it go on."""

    class Library:
        def __init__(self) -> None:
            self.called = threading.Event()
            self.go_on = threading.Event()
            self.at_once = 0
            self.most_at_once = 0

        def answer(self, prompt: str) -> str:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.called.set()
            self.go_on.wait(WITHIN_S)
            self.at_once -= 1
            if prompt == "fail":
                raise KeyError("internals")
            return prompt.upper()

    library = Library()
    monkeypatch.setitem(sys.modules, "slow_library", library)
    yield library
    library.go_on.set()


SLOW = {"module": "slow_library", "function": "answer"}


def test_library_cancel_does_not_wait_for_the_call(load, library) -> None:
    context, got = make_context(), []
    with opened(load("blocking_library"), **SLOW) as backend:
        thread = threading.Thread(target=lambda: got.extend(ask(backend, context=context)))
        thread.start()
        assert library.called.wait(WITHIN_S)
        context.cancel()
        thread.join(WITHIN_S)
        assert not library.go_on.is_set()
        library.go_on.set()
    assert got == [Failed(CANCELLED)]


def test_library_is_never_called_twice_at_once(load, library) -> None:
    library.go_on.set()
    with opened(load("blocking_library"), **SLOW) as backend:
        threads = [threading.Thread(target=ask, args=(backend,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN_S)
        assert text(ask(backend)) == "HELLO WORLD"
    assert library.most_at_once == 1


def test_library_that_is_overrun_says_so(load, library) -> None:
    with opened(load("blocking_library"), max_waiting=1, **SLOW) as backend:
        thread = threading.Thread(target=ask, args=(backend,))
        thread.start()
        assert library.called.wait(WITHIN_S)
        assert failure(ask(backend)).code == "rate_limit_exceeded"
        library.go_on.set()
        thread.join(WITHIN_S)
        assert text(ask(backend)) == "HELLO WORLD"


def test_library_that_fails_tells_no_internals(load, library) -> None:
    library.go_on.set()
    with opened(load("blocking_library"), **SLOW) as backend:
        error = failure(ask(backend, "fail"))
    assert (error.code, error.message) == ("backend_unavailable", "the library failed")


# --- an asynchronous library ----------------------------------------------------------------------


@pytest.fixture
def async_library(monkeypatch):
    """A module ``async_library_of_test`` that streams words, and tells how its streams ended."""

    class Library:
        def __init__(self) -> None:
            self.waits = threading.Event()
            self.loops: set[asyncio.AbstractEventLoop] = set()
            self.ended: list[str] = []

        async def stream(self, prompt: str) -> AsyncIterator[str]:
            self.loops.add(asyncio.get_running_loop())
            try:
                for word in prompt.split():
                    await asyncio.sleep(0)
                    if word == "fail":
                        raise KeyError("internals")
                    if word == "wait":
                        self.waits.set()
                        await asyncio.Event().wait()
                    yield word.upper()
            finally:
                await asyncio.sleep(0)  # what cleans up may have to wait, too
                self.ended.append(prompt)

    library = Library()
    monkeypatch.setitem(sys.modules, "async_library_of_test", library)
    return library


AWAITED = {"module": "async_library_of_test"}


def test_async_library_keeps_the_contract(load, async_library) -> None:
    report = check_backend(load("async_library"), AWAITED)
    assert not report.failed, str(report)


def test_async_pieces_are_passed_on_by_one_loop(load, async_library) -> None:
    with opened(load("async_library"), **AWAITED) as backend:
        for _ in range(2):
            events = ask(backend, "to be")
            assert [e.text for e in events if isinstance(e, ContentDelta)] == ["TO", "BE"]
    assert len(async_library.loops) == 1
    assert async_library.ended == ["to be", "to be"]


def test_async_library_cleans_up_after_a_cancel_while_others_go_on(load, async_library) -> None:
    context, got = make_context(), []
    with opened(load("async_library"), **AWAITED) as backend:
        thread = threading.Thread(
            target=lambda: got.extend(ask(backend, "to wait", context=context))
        )
        thread.start()
        assert async_library.waits.wait(WITHIN_S)
        assert text(ask(backend, "to be")) == "TOBE"
        context.cancel()
        thread.join(WITHIN_S)
        assert async_library.ended == ["to be", "to wait"]
    assert got[-1] == Failed(CANCELLED)


def test_async_stream_is_closed_where_the_text_stops(load, async_library) -> None:
    with opened(load("async_library"), **AWAITED) as backend:
        assert text(ask(backend, "to be or wait", stop=("OR",))) == "TOBE"
    assert async_library.ended == ["to be or wait"]


def test_async_library_that_fails_tells_no_internals(load, async_library) -> None:
    with opened(load("async_library"), **AWAITED) as backend:
        error = failure(ask(backend, "to fail"))
    assert (error.code, error.message) == ("backend_unavailable", "the library failed")


# --- a program ------------------------------------------------------------------------------------


def test_program_prints_word_by_word(load) -> None:
    with opened(load("words_of_program")) as backend:
        events = ask(backend, "to be,\nor not ")
        assert [e.text for e in events if isinstance(e, ContentDelta)] == [
            "TO",
            " BE,",
            "\nOR",
            " NOT ",
        ]
        assert ChoiceFinished(0, "length") in ask(backend, "one two three", max_tokens=2)
        long = "word " * 100_000  # more than pipes hold
        assert text(ask(backend, long)) == long.upper()


def test_prompt_is_no_part_of_a_command(load, tmp_path: Path) -> None:
    with opened(load("words_of_program"), command=("cat",)) as backend:
        prompt = f"$(touch {tmp_path}/made); --help `id`"
        assert text(ask(backend, prompt)) == prompt
    assert not (tmp_path / "made").exists()


def test_program_that_fails_or_is_not_there_is_told(load) -> None:
    cls = load("words_of_program")
    with opened(cls, command=("sh", "-c", "echo half; echo why >&2; exit 3")) as backend:
        events = ask(backend)
        assert failure(events).message == "the program ended with status 3"
        assert text(events).strip() == "half"
    with opened(cls, command=("no-such-program-here",)) as backend:
        assert failure(ask(backend)).code == "backend_unavailable"


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_program_and_its_children_end_with_the_run(load, tmp_path: Path, how: str) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    script = f"sleep 1000 & echo $! $$ >{tmp_path}/pids; echo one two three; wait"
    context, got = make_context(), []
    sampling = {"stop": ("two",)} if how == "stop" else {}
    with opened(load("words_of_program"), command=("sh", "-c", script)) as backend:
        thread = threading.Thread(
            target=lambda: got.extend(ask(backend, context=context, **sampling))
        )
        thread.start()
        until = time.monotonic() + WITHIN_S
        while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text().strip():
            assert time.monotonic() < until
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        if how == "cancel":
            context.cancel()
        thread.join(WITHIN_S)
    while any(map(is_alive, pids)):
        assert time.monotonic() < until
    assert isinstance(got[-1], Failed if how == "cancel" else Completed)
    assert os.getpid() not in pids


# --- a durable one --------------------------------------------------------------------------------


def test_durable_asks_for_no_part_twice(load, monkeypatch) -> None:
    cls: Any = load("durable_report")
    asked: list[str] = []
    monkeypatch.setattr(
        cls, "look_into", lambda self, part: asked.append(part) or f"{part} {len(asked)}"
    )
    request = ResearchRequest(query="fleas, ticks and lice")
    states: list[Any] = []
    whole = collect_events(cls(), request, make_context(checkpoints=states))
    assert asked == ["fleas", "ticks", "lice"]
    assert len(states) == 4
    for number, state in enumerate(states):
        del asked[:]
        again = collect_events(cls(), request, make_context(restored=state))
        assert asked == ["fleas", "ticks", "lice"][number + 1 :]
        if number >= 2:
            assert text(again) == text(whole)
        assert StatusChanged("summarizing") in again
