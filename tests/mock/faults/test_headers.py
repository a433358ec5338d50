"""Faults that a request asks for."""

from __future__ import annotations

import pytest

from caesar_server.mock.faults import HEADERS, FaultError, header_faults, header_strict
from caesar_server.mock.model.fault import Fault


def ask(**headers):
    names = {name: f"x-caesar-mock-{name.replace('_', '-')}" for name in headers}
    return header_faults({names[name]: value for name, value in headers.items()})


def test_a_request_that_says_nothing():
    assert header_faults({"accept": "*/*", "x-caesar": "y"}) is None
    assert ask(scope="team", strict="true", call="call-1") is None


def test_none_is_no_fault_at_all():
    assert ask(fault="none") == ()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"fault": "reset"}, Fault(kind="reset")),
        (
            {"fault": " silent_close ", "after_chunks": "3"},
            Fault(kind="silent_close", after_chunks=3),
        ),
        (
            {"fault": "status", "status": "429", "retry_after": "0.5", "body": "Slow down"},
            Fault(kind="status", status=429, retry_after_s=0.5, body="Slow down"),
        ),
        (
            {"fault": "status", "status": "500", "body": '{"detail": ["x"]}'},
            Fault(kind="status", status=500, body={"detail": ["x"]}),
        ),
        (
            {"fault": "status", "status": "500", "body": "{half"},
            Fault(kind="status", status=500, body="{half"),
        ),
        (
            {"fault": "error_frame", "message": "No", "code": "nope"},
            Fault(kind="error_frame", message="No", code="nope"),
        ),
        (
            {"fault": "slow_drip", "delay": "0", "count": "7"},
            Fault(kind="slow_drip", delay_s=0, count=7),
        ),
        (
            {"fault": "wrong_content_type", "content_type": "text/plain", "probability": "0.25"},
            Fault(kind="wrong_content_type", content_type="text/plain", probability=0.25),
        ),
    ],
)
def test_one_fault(given, wanted):
    assert ask(**given) == (wanted,)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"fault": "rest"}, "X-Caesar-Mock-Fault: unknown fault 'rest'; did you mean 'reset'?"),
        ({"fault": "none", "status": "500"}, "X-Caesar-Mock-Fault: unknown fault 'none'"),
        ({"status": "500"}, "X-Caesar-Mock-Status: needs X-Caesar-Mock-Fault beside it"),
        ({"fault": "status"}, "X-Caesar-Mock-Status: status needs it"),
        ({"fault": "status", "status": "5OO"}, "X-Caesar-Mock-Status: expected a number"),
        ({"fault": "status", "status": "٥٠٠"}, "X-Caesar-Mock-Status: expected a number"),
        ({"fault": "delay", "delay": "soon"}, "X-Caesar-Mock-Delay: expected a number"),
        ({"fault": "delay", "delay": "NaN"}, "X-Caesar-Mock-Delay: expected a number"),
        ({"fault": "delay", "delay": "true"}, "X-Caesar-Mock-Delay: expected a number"),
        ({"fault": "delay", "delay": "-1"}, "X-Caesar-Mock-Delay: Expected float >= 0"),
        ({"fault": "reset", "count": "2"}, "X-Caesar-Mock-Count: does not belong to reset"),
        ({"fualt": "reset"}, "did you mean 'x-caesar-mock-fault'?"),
    ],
)
def test_what_makes_no_sense_is_told_by_the_headers_name(given, words):
    with pytest.raises(FaultError) as caught:
        ask(**given)
    assert words in str(caught.value)


@pytest.mark.parametrize(("value", "wanted"), [("true", True), ("false", False)])
def test_strictness(value, wanted):
    assert header_strict({"x-caesar-mock-strict": value}) is wanted
    assert header_strict({}) is None


def test_strictness_is_true_or_false():
    with pytest.raises(FaultError, match="X-Caesar-Mock-Strict: expected true or false, got '1'"):
        header_strict({"x-caesar-mock-strict": "1"})


def test_every_header_is_described_and_read():
    for header in HEADERS:
        if header.lower() not in ("x-caesar-mock-scope", "x-caesar-mock-strict"):
            with pytest.raises(FaultError):
                header_faults({header.lower(): "%"})
