"""What an upstream server refuses, and what becomes of it for the client."""

from __future__ import annotations

import json

import pytest

from caesar_backend_upstream.wire.failures import retry_delay_s

ERROR = {"error": {"message": "n is too large", "type": "invalid_request_error", "param": "n"}}


@pytest.mark.parametrize("status", [400, 402, 404, 409, 413, 415, 422, 451])
def test_a_refusal_keeps_status_and_words(raw, opened, wire, told, status: int) -> None:
    body = {"error": {**ERROR["error"], "code": "too_large"}}
    server = raw(wire.json(body, status=f"{status} No"))
    error = told(opened(server, retries=3).complete()).error
    assert (error.status, error.message, error.code) == (status, "n is too large", "too_large")
    assert (error.type, error.param) == ("invalid_request_error", "n")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": "no such model"},
        {"detail": "no such model"},
        {"message": "no such model", "object": "error", "code": 404},
        {"error": {"message": "no such model", "code": 404}},
        [{"error": {"message": "no such model", "code": 404, "status": "NOT_FOUND"}}],
        {"error": ["no such model"]},
        {"success": False, "errors": [{"code": 5007, "message": "no such model"}], "result": {}},
    ],
)
def test_other_forms_of_errors_are_read(raw, opened, wire, told, body) -> None:
    error = told(opened(raw(wire.json(body, status="404 Not Found"))).complete()).error
    assert (error.status, error.message, error.code) == (404, "no such model", "request_rejected")


DEEP = b'{"error": ' + 400 * b"[" + 400 * b"]" + b"}"
PROBLEMS = [
    {"type": "less_than", "loc": ["body", "n"], "msg": "too large", "input": "their own words"},
    {"type": "extra_forbidden", "loc": ["body", "messages", 0, "name"], "msg": "not permitted"},
]


@pytest.mark.parametrize(
    "body",
    [
        {"detail": PROBLEMS},
        {"object": "error", "message": {"detail": PROBLEMS}, "type": "invalid_request_error"},
        {"object": "error", "message": PROBLEMS, "type": "invalid_request_error"},
    ],
)
def test_a_list_of_problems_is_told_by_field(raw, opened, wire, told, body) -> None:
    server = raw(wire.json(body, status="422 Unprocessable Entity"))
    error = told(opened(server).complete()).error
    assert error.status == 422
    assert error.message == "body.n: too large; body.messages.0.name: not permitted"


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("body", [b"<html>nginx</html>", b"", b"{", b"[]", b"{}", DEEP])
def test_a_refusal_without_a_word_is_not_the_clients_fault(
    raw, opened, wire, told, status: int, body: bytes
) -> None:
    error = told(opened(raw(wire.head("x", f"{status} No") + body)).complete()).error
    assert error.status == 502
    assert "url" in error.message


@pytest.mark.parametrize(
    ("status", "ours", "code"),
    [
        (500, 502, "bad_upstream"),
        (501, 502, "bad_upstream"),
        (502, 502, "bad_upstream"),
        (503, 503, "backend_unavailable"),
        (504, 504, "backend_timeout"),
        (529, 503, "backend_unavailable"),
    ],
)
def test_failures_of_the_server_are_transient(raw, opened, wire, told, status, ours, code) -> None:
    error = told(opened(raw(wire.head(status=f"{status} Oh"))).complete()).error
    assert (error.status, error.code, error.transient) == (ours, code, True)


def test_the_server_may_say_not_to_try_again(raw, opened, wire, told) -> None:
    server = raw(wire.head(status="500 Oh", x_should_retry="false"))
    error = told(opened(server, retries=3).complete()).error
    assert not error.transient
    assert len(server.asked) == 1


def test_a_429_keeps_its_delay_and_words(raw, opened, wire, told) -> None:
    body = {"error": {"message": "slow down", "type": "tokens", "code": "rate_limit_exceeded"}}
    server = raw(wire.json(body, status="429 No", Retry_After="17"))
    error = told(opened(server, retries=3).complete()).error
    assert (error.status, error.retry_after_s, error.message) == (429, 17.0, "slow down")
    assert (error.type, error.code, error.transient) == ("tokens", "rate_limit_exceeded", True)
    assert len(server.asked) == 1  # 17 s are not waited for here


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_of_ours_is_our_problem(raw, opened, wire, told, status: int) -> None:
    body = {"error": {"message": "Incorrect API key provided: sk-very-secret"}}
    server = raw(wire.json(body, status=f"{status} No"))
    error = told(opened(server, per_server={"api_key": "sk-very-secret"}).complete()).error
    assert (error.status, error.code, error.transient) == (502, "upstream_auth", False)
    assert "sk-" not in error.message
    assert server.asked[0].headers["authorization"] == "Bearer sk-very-secret"


@pytest.mark.parametrize(
    ("headers", "delay_s"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "2", "retry-after-ms": "150"}, 0.15),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 10.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "x", "retry-after": "3"}, 3.0),
    ],
)
def test_delays_are_read_in_all_their_forms(headers, delay_s) -> None:
    assert retry_delay_s(headers, now=90.0) == delay_s


def test_words_are_bounded(raw, opened, wire, told) -> None:
    body = {"error": {"message": "x" * 100_000, "code": "y" * 100_000}}
    error = told(opened(raw(wire.json(body, status="400 No"))).complete()).error
    assert len(error.message) == 2000
    assert len(error.code) == 100


def test_a_huge_error_body_is_not_read_to_its_end(raw, opened, wire, told) -> None:
    def reply(peer) -> None:
        peer.send(wire.head("application/json", "400 No"))
        while True:
            peer.send(b" " * 65536)

    server = raw(reply)
    assert told(opened(server).complete()).error.status == 502
    server.wait_for(lambda server: server.open == 0)


def test_the_request_cannot_hold_what_json_cannot(raw, opened, wire, told) -> None:
    ask = opened(raw(wire.hello()), per_server={"extra_fields": ["top_k"]})
    error = told(ask.complete(extra={"top_k": float("nan")})).error
    assert error.status == 502
    assert "not JSON" in error.message
    assert json.dumps(error.message)


@pytest.mark.parametrize("word", ["a\0b", "half a \ud800", "two\nlines"])
def test_words_that_cannot_be_printed_are_left_out(raw, opened, wire, told, word) -> None:
    body = {"error": {"message": f"no {word}", "code": word, "type": word, "param": word}}
    error = told(opened(raw(wire.json(body, status="400 No"))).complete()).error
    assert (error.status, error.message) == (400, f"no {word}")
    assert (error.code, error.type) == ("request_rejected", "invalid_request_error")
    assert error.param is None
