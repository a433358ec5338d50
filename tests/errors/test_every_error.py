"""Every error on every road to a client: status, envelope, headers; and what is not told."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract import ContentDelta, Failed
from caesar_server.contract.errors import BackendError, ErrorInfo
from caesar_server.contract.sse import SseDecoder
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import scripted_backend
from caesar_server.web.error_reference import VALUES, error_classes

#: What the constructors are given, by the name of the parameter.
GIVEN: dict[str, Any] = {
    "message": "Told as it stands",
    "param": "metadata.auto",
    "status": 451,
    "retry_after_s": 1.25,
}


def made(cls: type[Any]) -> Any:
    names = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in GIVEN.items() if name in names})


ERRORS = [made(cls) for cls in error_classes()]
INFOS = [error.info() for error in ERRORS] + list(VALUES)

every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
every_info = pytest.mark.parametrize(
    "info", INFOS, ids=[*(type(error).__name__ for error in ERRORS), *(one.code for one in VALUES)]
)

MakeApp = Callable[..., Flask]


@pytest.fixture
def make_app() -> Iterator[MakeApp]:
    """Return a function from a script to an app whose path ``/native`` raises the script's end."""
    apps = []

    def make(*script: Any) -> Flask:
        settings = Settings(default_backend="scripted")
        app = create_app(settings, Registry.of({"scripted": scripted_backend(script)}, settings))

        @app.get("/native")
        def raise_error() -> None:
            raise script[-1]

        apps.append(app)
        return app

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


def post(client: FlaskClient, **body: Any) -> Any:
    return client.post(
        "/compat/completions",
        json={"model": "m", "prompt": "p", **body},
        headers={"x-request-id": "req-7"},
    )


def failing_client(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, error: Any) -> FlaskClient:
    """Return a client whose request fails with ``error`` before there is any answer.

    Backends raise their own errors; those of the server come before a backend is asked.
    """
    app = make_app(error)
    if not isinstance(error, BackendError):
        runner = app.extensions["caesar_server"].runner
        monkeypatch.setattr(runner, "prepare", lambda *args, **more: _raise(error))
    return app.test_client()


def _raise(error: Exception) -> None:
    raise error


def envelope(info: ErrorInfo) -> dict[str, Any]:
    return {
        "error": {
            "message": info.message,
            "type": info.type,
            "param": info.param,
            "code": info.code,
        }
    }


def check_headers(reply: Any, info: ErrorInfo) -> None:
    assert reply.headers["x-request-id"] == "req-7"
    assert reply.headers.get("x-should-retry") == ("true" if info.transient else None)
    waits = reply.headers.get("Retry-After"), reply.headers.get("retry-after-ms")
    assert waits == ((None, None) if info.retry_after_s is None else ("2", "1250"))


def test_there_are_errors_of_all_kinds() -> None:
    assert len(ERRORS) > 15
    assert {400, 404, 405, 413, 415, 429, 451, 500, 502, 503, 504} <= {one.status for one in INFOS}
    assert any(info.retry_after_s for info in INFOS)
    assert any(info.param for info in INFOS)


@every_error
def test_as_a_json_answer(make_app: MakeApp, monkeypatch, error: Any) -> None:
    reply = post(failing_client(make_app, monkeypatch, error))
    info = error.info()
    assert (reply.status_code, reply.content_type) == (info.status, "application/json")
    assert reply.json == envelope(info)
    check_headers(reply, info)


@every_error
def test_before_the_first_byte_of_a_stream(make_app: MakeApp, monkeypatch, error: Any) -> None:
    reply = post(failing_client(make_app, monkeypatch, error), stream=True)
    info = error.info()
    assert (reply.status_code, reply.content_type) == (info.status, "application/json")
    assert reply.json == envelope(info)
    check_headers(reply, info)


@every_info
def test_in_the_middle_of_a_stream(make_app: MakeApp, info: ErrorInfo) -> None:
    reply = post(make_app(ContentDelta("Half "), Failed(info)).test_client(), stream=True)
    assert (reply.status_code, reply.mimetype) == (200, "text/event-stream")
    assert reply.headers["x-request-id"] == "req-7"
    chunk, failure, done = [event.data for event in SseDecoder().feed(reply.data)]
    assert json.loads(chunk)["choices"][0]["text"] == "Half "
    assert json.loads(failure) == envelope(info)
    assert done == "[DONE]"


@every_info
def test_after_work_has_begun_a_json_answer_is_not_to_be_repeated(
    make_app: MakeApp, info: ErrorInfo
) -> None:
    reply = post(make_app(ContentDelta("Half "), Failed(info)).test_client())
    assert (reply.status_code, reply.json) == (info.status, envelope(info))
    assert reply.headers["x-should-retry"] == "false"


@every_error
def test_outside_the_compat_paths(make_app: MakeApp, error: Any) -> None:
    client = make_app(error).test_client()
    reply = client.get("/native", headers={"x-request-id": "req-7"})
    info = error.info()
    assert (reply.status_code, reply.content_type) == (info.status, "application/json")
    assert reply.json == {"error": info.message}
    check_headers(reply, info)


@every_info
def test_the_api_description_has_its_status(make_app: MakeApp, info: ErrorInfo) -> None:
    document = make_app(BackendError("m")).test_client().get("/openapi.json").json
    for path in ("/compat/completions", "/compat/chat/completions"):
        described = document["paths"][path]["post"]["responses"]
        assert str(info.status) in described or (info.status < 500 and "4XX" in described)


SECRET = "password=hunter2 in /etc/shadow"
GENERIC = {
    "error": {
        "message": "An unexpected error occurred",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
}


def test_of_an_unforeseen_exception_the_client_gets_an_id_and_the_log_the_rest(
    make_app: MakeApp, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_app(ZeroDivisionError(SECRET)).test_client()
    reply = client.get("/native", headers={"x-request-id": "req-7"})
    assert (reply.status_code, reply.json) == (500, {"error": "An unexpected error occurred"})
    assert reply.headers["x-request-id"] == "req-7"
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "req-7" in record.getMessage()
    assert SECRET in caplog.text
    assert "raise_error" in caplog.text


@pytest.mark.parametrize("stream", [False, True])
def test_of_a_backends_exception_too(
    make_app: MakeApp, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    app = make_app(ZeroDivisionError(SECRET))
    reply = post(app.test_client(), stream=stream)
    assert (reply.status_code, reply.json) == (500, GENERIC)
    assert reply.headers["x-request-id"] == "req-7"
    assert SECRET not in reply.text + str(reply.headers)
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.levelno == logging.ERROR
    # under the job's id, since it may come from another thread, or another machine
    job = app.extensions["caesar_server"].store.job(record.job_id)
    assert job.status == "failed"
    assert SECRET in caplog.text


def test_of_a_backends_exception_in_the_middle_of_a_stream_too(
    make_app: MakeApp, caplog: pytest.LogCaptureFixture
) -> None:
    script = ContentDelta("Half "), ZeroDivisionError(SECRET)
    reply = post(make_app(*script).test_client(), stream=True)
    chunk, failure, done = [event.data for event in SseDecoder().feed(reply.data)]
    assert json.loads(failure) == GENERIC
    assert done == "[DONE]"
    assert SECRET not in reply.text
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.job_id == json.loads(chunk)["id"]
