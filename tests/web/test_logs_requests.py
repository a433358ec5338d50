"""One line a request, when its last byte is handed over."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caesar_server.blueprints.compat.rendering.answer import Answer
from caesar_server.contract import (
    BackendUnavailableError,
    Cancelled,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    UsageCounted,
)
from caesar_server.testing import FakeClock, Gate, LiveServer
from caesar_server.web.observing import access_log
from caesar_server.web.observing.logs import JsonFormatter

HELLO = (ContentDelta("hello"), ChoiceFinished(), Completed())
ACCESS = "caesar_server.access"


class Lines:
    """The records of the access log, as JSON, and of the whole log."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def all(self) -> list[dict[str, Any]]:
        return [
            json.loads(JsonFormatter().format(record))
            for record in self._caplog.records
            if record.name == ACCESS
        ]

    @property
    def only(self) -> dict[str, Any]:
        (line,) = self.all
        return line


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, "caesar_server")
    return Lines(caplog)


def test_line_of_an_answer(serve_app: Any, lines: Lines) -> None:
    clock = FakeClock()
    script = (
        lambda context: clock.advance(1.5),
        ContentDelta("hello"),
        ChoiceFinished(),
        Completed(),
    )
    served = serve_app(script, clock=clock)
    reply = served.client.post(
        "/compat/completions",
        json={"model": "gpt-x", "prompt": "p"},
        headers={"x-request-id": "r-1"},
    )
    line = lines.only
    assert line.pop("time")
    assert line.pop("process")
    assert line == {
        "level": "info",
        "logger": ACCESS,
        "message": "POST /compat/completions 200",
        "request_id": "r-1",
        "method": "POST",
        "path": "/compat/completions",
        "status": 200,
        "bytes": len(reply.data),
        "duration_ms": 1500.0,
        "time_to_first_byte_ms": 1500.0,
        "job_id": reply.json["id"],
        "backend": "scripted",
        "model": "gpt-x",
        "stream": False,
        "choices": 1,
        "events": 4,
        "outcome": "completed",
    }


def test_line_of_a_stream_is_written_at_its_end(serve_app: Any, lines: Lines) -> None:
    clock, gate = FakeClock(), Gate()
    script = (ContentDelta("a"), gate, ContentDelta("b"), ChoiceFinished(), Completed())
    served = serve_app(script, clock=clock)
    reply = served.client.post(
        "/compat/completions", json={"model": "m", "prompt": "p", "stream": True}
    )
    parts = iter(reply.response)
    data = next(parts)
    gate.wait_until_reached()
    assert lines.all == []
    clock.advance(2)
    gate.open()
    data += b"".join(parts)
    reply.close()
    line = lines.only
    assert data.endswith(b"data: [DONE]\n\n")
    assert line["bytes"] == len(data)
    assert (line["stream"], line["events"], line["outcome"]) == (True, 5, "completed")
    assert (line["time_to_first_byte_ms"], line["duration_ms"]) == (0.0, 2000.0)


def test_choices_are_those_of_all_prompts(serve_app: Any, lines: Lines) -> None:
    def steps(request: Any) -> Iterator[Event]:
        for choice in range(request.choices):
            yield ContentDelta("x", choice)
            yield ChoiceFinished(choice)
        yield Completed()

    served = serve_app(steps)
    served.complete(prompt=["a", "b"], n=3)
    assert lines.only["choices"] == 6


def stream(served: Any, **fields: Any) -> Any:
    return served.client.post(
        "/compat/completions", json={"model": "m", "prompt": "p", "stream": True, **fields}
    )


def test_client_that_closes_after_done_has_got_all(serve_app: Any, lines: Lines) -> None:
    served = serve_app()
    reply = stream(served)
    for part in reply.response:
        if part.endswith(b"data: [DONE]\n\n"):
            break
    reply.close()
    assert lines.only["outcome"] == "completed"


def test_client_that_closes_before_done_is_gone(serve_app: Any, lines: Lines) -> None:
    gate = Gate()
    served = serve_app((ContentDelta("a"), gate, ContentDelta("b"), ChoiceFinished(), Completed()))
    reply = stream(served)
    next(iter(reply.response))
    reply.close()
    line = lines.only
    assert (line["outcome"], line["status"], line["stream"]) == ("client_gone", 200, True)


@pytest.mark.parametrize("streamed", [False, True])
def test_client_that_hangs_up_is_gone(serve_app: Any, lines: Lines, streamed: bool) -> None:
    gate = Gate()
    served = serve_app(
        (gate, ContentDelta("a"), ChoiceFinished(), Completed()),
        heartbeat_s=0,
        first_event_wait_s=0.0,
    )
    with LiveServer(served.app) as server:
        body = json.dumps({"model": "m", "prompt": "p", "stream": streamed}).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(
                b"POST /compat/completions HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            gate.wait_until_reached()
        served.backend.script.wait_for(lambda script: script.ended == 1)
    assert lines.only["outcome"] == "client_gone"


@pytest.mark.parametrize("streamed", [False, True])
def test_answer_that_cannot_be_rendered_is_a_failure(
    serve_app: Any, lines: Lines, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "_plain", lambda *_: 1 / 0)
    assert serve_app().complete(stream=streamed).data
    assert (lines.only["outcome"], lines.only["code"]) == ("failed", "internal_error")
    assert lines.only["status"] == (200 if streamed else 500)


def test_failed_answers_say_why(serve_app: Any, lines: Lines) -> None:
    served = serve_app((ContentDelta("a"), BackendUnavailableError("gone")))
    assert served.complete().status_code == 503
    assert stream(served).data
    for line, streamed in zip(lines.all, (False, True), strict=True):
        assert (line["outcome"], line["code"]) == ("failed", "backend_unavailable")
        assert (line["stream"], line["status"]) == (streamed, 200 if streamed else 503)


@pytest.mark.parametrize("streamed", [False, True])
def test_passed_deadline_is_told(serve_app: Any, lines: Lines, streamed: bool) -> None:
    clock = FakeClock()
    script = (ContentDelta("a"), lambda context: clock.advance(9), ContentDelta("b"))
    served = serve_app(script, clock=clock, request_timeout_s=5.0)
    assert served.complete(stream=streamed).data
    assert (lines.only["outcome"], lines.only["code"]) == ("deadline", "deadline_exceeded")


@pytest.mark.parametrize("streamed", [False, True])
def test_cancelled_job_is_told(serve_app: Any, lines: Lines, streamed: bool) -> None:
    def cancel(context: Any) -> None:
        runner = served.app.extensions["caesar_server"].runner
        runner.cancel(context.job_id)

    served = serve_app((ContentDelta("a"), cancel, ContentDelta("b")))
    assert served.complete(stream=streamed).data
    assert lines.only["outcome"] == "cancelled"


def test_end_of_the_server_is_told(serve_app: Any, lines: Lines) -> None:
    gate = Gate()
    served = serve_app((ContentDelta("a"), gate, ContentDelta("b")))
    reply = stream(served)
    parts = iter(reply.response)
    next(parts)
    gate.wait_until_reached()
    served.app.extensions["caesar_server"].close()
    list(parts)
    assert (lines.only["outcome"], lines.only["code"]) == ("shutdown", "shutting_down")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/compat/completions", {"model": "m"}, 400, "missing_required_parameter"),
        ("POST", "/compat/completions", {"model": "m", "prompt": 1}, 400, "invalid_value"),
        ("GET", "/nothing", None, 404, "not_found"),
        ("DELETE", "/compat/completions", None, 405, "method_not_allowed"),
    ],
)
def test_refused_requests_say_why(
    serve_app: Any, lines: Lines, method: str, path: str, body: Any, status: int, code: str
) -> None:
    serve_app().client.open(path, method=method, json=body)
    line = lines.only
    assert (line["status"], line["outcome"], line["code"]) == (status, "refused", code)
    assert "job_id" not in line


def test_plain_requests_have_no_outcome(serve_app: Any, lines: Lines) -> None:
    serve_app().client.get("/healthz")
    assert "outcome" not in lines.only
    assert lines.only["bytes"] > 0


def test_unexpected_error_is_a_failure_with_its_traceback_under_the_same_id(
    serve_app: Any, lines: Lines, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    served = serve_app()
    registry = served.app.extensions["caesar_server"].registry
    monkeypatch.setattr(type(registry), "models", lambda self: 1 / 0)
    reply = served.client.get("/compat/models", headers={"x-request-id": "r-9"})
    assert reply.status_code == 500
    assert (lines.only["outcome"], lines.only["code"]) == ("failed", "internal_error")
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "ZeroDivisionError" in caplog.text
    assert "r-9" in error.getMessage()


class Told(logging.Handler):
    """Formats records as they come, in the thread that logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def told() -> Iterator[Told]:
    handler = Told()
    logger = logging.getLogger("caesar_server")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize("streamed", [False, True])
def test_exception_of_a_backend_has_job_and_request_in_the_same_record(
    serve_app: Any, told: Told, streamed: bool
) -> None:
    served = serve_app((ContentDelta("a"), RuntimeError("broken glass")))
    reply = served.client.post(
        "/compat/completions",
        json={"model": "m", "prompt": "p", "stream": streamed},
        headers={"x-request-id": "r-7"},
    )
    assert reply.data
    (error,) = [line for line in told.lines if line["level"] == "error"]
    (line,) = [line for line in told.lines if line["logger"] == ACCESS]
    assert "broken glass" in error["exception"]
    assert (error["request_id"], error["job_id"]) == ("r-7", line["job_id"])
    assert line["request_id"] == "r-7"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_backends_own_logger_names_job_and_request_too(
    serve_app: Any, told: Told, streamed: bool
) -> None:
    def note(context: Any) -> None:
        logging.getLogger("caesar_server.test_backend").info("at work")

    served = serve_app((note, *HELLO))
    assert served.complete(stream=streamed).data
    (at_work,) = [line for line in told.lines if line["message"] == "at work"]
    (line,) = [line for line in told.lines if line["logger"] == ACCESS]
    assert (at_work["request_id"], at_work["job_id"]) == (line["request_id"], line["job_id"])


def test_after_a_request_its_thread_names_it_no_more(serve_app: Any, told: Told) -> None:
    served = serve_app()
    assert served.complete().data
    assert served.complete(stream=True).data
    logging.getLogger("caesar_server").info("afterwards")
    assert set(told.lines[-1]) == {"time", "level", "logger", "process", "message"}


def test_nothing_that_the_client_keeps_secret_is_logged(
    serve_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    served = serve_app((ContentDelta("answer-XYZZY"), ChoiceFinished(), Completed()))
    secret = {"Authorization": "Bearer key-XYZZY", "Cookie": "c=XYZZY", "x-other": "XYZZY"}
    for fields in ({}, {"stream": True}, {"n": "XYZZY"}):
        served.client.post(
            "/compat/completions?api_key=XYZZY",
            json={"model": "m", "prompt": "prompt-XYZZY", "suffix": "XYZZY", **fields},
            headers=secret,
        ).get_data()
        served.client.post(
            "/compat/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": "XYZZY"}], **fields},
            headers=secret,
        ).get_data()
    served.client.get("/nothing?token=XYZZY", headers=secret)
    assert len(caplog.records) >= 7
    everything = [f"{JsonFormatter().format(record)} {record.args}" for record in caplog.records]
    assert [line for line in everything if "XYZZY" in line] == []


def test_path_is_readable_and_short(serve_app: Any, lines: Lines) -> None:
    serve_app().client.get("/gr%C3%BC%C3%9Fe/%0a" + "x" * 500)
    path = lines.only["path"]
    assert path.startswith("/grüße/\nxx")
    assert len(path) == access_log.MAX_CHARS


def test_model_is_short(serve_app: Any, lines: Lines) -> None:
    serve_app().complete(model="m" * 1000)
    assert len(lines.only["model"]) == access_log.MAX_CHARS


def test_account_and_key_are_named_and_the_key_is_not(serve_app: Any, lines: Lines) -> None:
    served = serve_app()
    key = served.keys.make("acme")
    served.clock.advance(5)
    assert served.complete(key).status_code == 200
    line = lines.only
    assert line["account"] == "acme"
    assert line["key_id"]
    assert key not in json.dumps(line)


def test_refusal_for_want_of_a_key_is_told(serve_app: Any, lines: Lines) -> None:
    served = serve_app()
    served.keys.make("acme")
    served.clock.advance(5)
    assert served.complete().status_code == 401
    assert (lines.only["outcome"], lines.only["status"]) == ("refused", 401)
    assert "account" not in lines.only


def test_no_line_is_made_where_info_is_off(
    serve_app: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "caesar_server")
    monkeypatch.setattr(access_log._Response, "_log", lambda *_: pytest.fail("a line was made"))
    served = serve_app()
    assert served.complete().status_code == 200
    assert stream(served).data
    assert caplog.records == []


def test_usage_and_events_of_a_run_that_failed_at_once(serve_app: Any, lines: Lines) -> None:
    served = serve_app((UsageCounted(5, 0), Cancelled()))
    assert served.complete().status_code >= 400
    assert lines.only["events"] == 3


ID = re.compile(r"[0-9a-f]{32}")


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "DELETE", "BREW"])
@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/compat/models", "/nothing", "/"]
)
def test_every_response_has_a_request_id(
    serve_app: Any, lines: Lines, method: str, path: str
) -> None:
    reply = serve_app().client.open(path, method=method)
    assert ID.fullmatch(reply.headers["x-request-id"])
    reply.get_data()
    reply.close()
    assert lines.only["request_id"] == reply.headers["x-request-id"]
    assert lines.only["method"] == method


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"n": 0}, {"model": 3}])
def test_answers_streams_and_errors_have_the_callers_request_id(
    serve_app: Any, fields: dict[str, Any]
) -> None:
    for script in (HELLO, (BackendUnavailableError("no"),), (RuntimeError("no"),)):
        with serve_app(script).client.post(
            "/compat/completions",
            json={"model": "m", "prompt": "p", **fields},
            headers={"x-request-id": "mine"},
        ) as reply:
            assert reply.headers["x-request-id"] == "mine"


def test_refused_host_has_a_request_id(serve_app: Any) -> None:
    reply = serve_app().client.get("/healthz", headers={"Host": "evil.example"})
    assert reply.status_code == 403
    assert ID.fullmatch(reply.headers["x-request-id"])


def test_every_field_of_a_line_is_documented(serve_app: Any, lines: Lines, root: Path) -> None:
    served = serve_app((ContentDelta("a"), RuntimeError("no")))
    key = served.keys.make("acme")
    served.clock.advance(5)
    served.complete(key)
    page = (root / "docs" / "observing.rst").read_text()
    assert {"account", "code", "outcome", "job_id"} <= set(lines.only)
    assert [field for field in lines.only if f"``{field}``" not in page] == []
