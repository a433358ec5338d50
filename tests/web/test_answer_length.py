"""An answer that grows beyond ``max_answer_chars`` ends as a failure, on every road."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from flask import Flask

from caesar_server.app import create_app
from caesar_server.contract import Context, Event
from caesar_server.contract.generation import choice_events
from caesar_server.contract.request import Sampling
from caesar_server.contract.sse import SseDecoder
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.testing import scripted_backend
from caesar_server.web.services import services_of

WITHIN_S = 60.0
LIMIT = 1000
PATH = "/compat/completions"


def endless(context: Context) -> Iterator[Event]:
    """Write and write."""

    def words() -> Iterator[str]:
        while True:
            yield "word "

    yield from choice_events(words(), context, Sampling(), choice=0)


@pytest.fixture(params=["attached", "durable"])
def app(request: pytest.FixtureRequest) -> Iterator[Flask]:
    backend = scripted_backend([endless], durable=request.param == "durable")
    settings = Settings(default_backend="b", max_answer_chars=LIMIT)
    app = create_app(settings, Registry.of({"b": backend}, settings))
    yield app
    app.extensions["caesar_server"].close()
    assert backend.script.closed == 1


def check_counted(app: Flask) -> None:
    """Check that the job has failed, and that it is counted."""
    (job,) = services_of(app).store.jobs()
    assert job.status == "failed"
    last = list(services_of(app).store.records(job.id))[-1]
    assert last.event.error.code == "answer_too_long"
    # a client may have read its end before the thread of the run has counted that
    counted = 'caesar_errors_total{code="answer_too_long"} 1.0'
    until = time.monotonic() + WITHIN_S
    while counted not in app.test_client().get("/metrics").text:
        assert time.monotonic() < until


def test_json(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    reply = app.test_client().post(PATH, json={"model": "m", "prompt": "p"})
    assert reply.status_code == 422
    assert reply.json["error"]["code"] == "answer_too_long"
    assert "max_answer_chars, 1000 characters" in reply.json["error"]["message"]
    assert reply.headers["x-should-retry"] == "false"
    assert "max_answer_chars" in caplog.text
    check_counted(app)


def test_stream(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    reply = app.test_client().post(PATH, json={"model": "m", "prompt": "p", "stream": True})
    assert reply.status_code == 200
    *chunks, failure, done = [event.data for event in SseDecoder().feed(reply.data)]
    text = "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks)
    assert text == "word " * (LIMIT // len("word "))
    assert json.loads(failure)["error"]["code"] == "answer_too_long"
    assert done == "[DONE]"
    assert "max_answer_chars" in caplog.text
    check_counted(app)
