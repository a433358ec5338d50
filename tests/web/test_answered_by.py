"""What a backend tells in ``Started`` becomes headers, a field of the log, and nothing worse."""

from __future__ import annotations

import logging

import pytest

from caesar_server.app import create_app
from caesar_server.contract import Backend, ChoiceFinished, Completed, ContentDelta, Started
from caesar_server.registry import Registry
from caesar_server.testing import LiveServer, scripted_backend
from caesar_server.web.observing.answered_by import started_headers

DETAILS = {
    "upstream": "gpu-1",
    "headers": {
        "x-ratelimit-remaining-requests": "7",
        "openai-processing-ms": "12",
        "set-cookie": "a=b",
        "x-request-id": "theirs",
        "content-length": "1",
    },
}
STEPS = [Started(DETAILS), ContentDelta("hi"), ChoiceFinished(), Completed()]


@pytest.mark.parametrize("stream", [False, True])
def test_who_answered_is_in_headers_and_log(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "caesar_server.access")
    backend: type[Backend] = scripted_backend(STEPS)
    app = create_app(registry=Registry.of({"one": backend}))
    with LiveServer(app) as server:
        body = {"model": "one", "prompt": "hi", "stream": stream}
        response = server.client().post("/compat/completions", body)
        headers = {name.lower(): value for name, value in response.headers.items()}
        response.read()
    assert headers["x-caesar-upstream"] == "gpu-1"
    assert headers["x-ratelimit-remaining-requests"] == "7"
    assert headers["openai-processing-ms"] == "12"
    assert headers["x-request-id"] != "theirs"
    assert "set-cookie" not in headers
    (record,) = [one for one in caplog.records if one.name == "caesar_server.access"]
    assert record.upstream == "gpu-1"


@pytest.mark.parametrize(
    "value", ["", "two\r\nlines: x", "trailing ", "nul\0", "ü", "x" * 1001, 7, None, ["a"]]
)
def test_what_is_no_header_value_is_left_out(value: object) -> None:
    details = {"upstream": value, "headers": {"x-one": value, "x-two": "good"}}
    assert started_headers([Started(details)]) == {"x-two": "good"}


@pytest.mark.parametrize(
    "name",
    [
        *("X-One", "x-", "x one", "x-a\r\nb", "server", "location", "access-control-allow-origin"),
        *("x-should-retry", "x-accel-redirect", "x-sendfile", "x-frame-options", 7, None),
    ],
)
def test_names_that_are_not_a_backends_are_left_out(name: object) -> None:
    assert started_headers([Started({"headers": {name: "value"}})]) == {}


def test_details_of_any_form_do_no_harm() -> None:
    assert started_headers([]) == {}
    assert started_headers([ContentDelta("x")]) == {}
    for details in ({}, {"headers": ["x-one"]}, {"headers": {"x-one": 1}}, {"upstream": {}}):
        assert started_headers([Started(details)]) == {}


def test_only_the_first_of_many_headers_are_taken() -> None:
    many = {f"x-{number}": "v" for number in range(100)}
    assert len(started_headers([Started({"headers": many})])) == 32
