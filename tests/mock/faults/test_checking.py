"""Which faults are taken, and what is said about the others."""

from __future__ import annotations

from typing import get_args

import pytest

from caesar_server.mock.faults import KINDS, FaultError, check_fault, fault_problems
from caesar_server.mock.model.fault import BeforeKind, BodyKind, Fault

#: For each field a value that is fine in itself.
GOOD = {
    "after_chunks": 2,
    "status": 503,
    "body": {"a": 1},
    "headers": {"x-a": "b"},
    "message": "m",
    "code": "c",
    "retry_after_s": 1.5,
    "delay_s": 2,
    "content_type": "text/plain",
    "count": 3,
}


def test_every_kind_is_known():
    assert set(KINDS) == {*get_args(BeforeKind), *get_args(BodyKind)}
    assert {kind.name for kind in KINDS.values() if kind.in_body} == set(get_args(BodyKind))
    assert {name for kind in KINDS.values() for name in kind.fields} == set(GOOD)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_kind_takes_its_fields_and_no_others(kind):
    assert fault_problems(Fault(kind=kind.name, **{name: GOOD[name] for name in kind.fields})) == []
    for name in GOOD.keys() - kind.fields:
        needed = {needed: GOOD[needed] for needed in kind.required}
        ((field, message),) = fault_problems(Fault(kind=kind.name, **needed, **{name: GOOD[name]}))
        assert field == name
        assert f"does not belong to {kind.name}; it takes " in message


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_a_kind_needs_is_asked_for(kind):
    problems = fault_problems(Fault(kind=kind.name))
    assert {field for field, _ in problems} == kind.required
    assert all("needs it" in message for _, message in problems)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"kind": "stauts"}, "kind", "did you mean 'status'?"),
        ({"kind": "status", "status": 99}, "status", ">= 100"),
        ({"kind": "status", "status": 600}, "status", "<= 599"),
        ({"kind": "status", "status": 103}, "status", "see early_hints"),
        ({"kind": "status", "status": "503"}, "status", "Expected int"),
        ({"kind": "status", "status": 204, "body": "x"}, "body", "204 has none"),
        ({"kind": "status", "status": 500, "body": {1: object()}}, "body", "JSON"),
        ({"kind": "status", "status": 500, "body": b"<html>"}, "body", "type bytes is not JSON"),
        ({"kind": "status", "status": 500, "body": {"a": {1}}}, "body", "type set is not JSON"),
        ({"kind": "status", "status": 500, "body": [float("nan")]}, "body", "not JSON compliant"),
        ({"kind": "status", "status": 500, "body": "\ud83d"}, "body", "half a surrogate pair"),
        ({"kind": "status", "status": 500, "body": {"\ud83d": 1}}, "body", "half a surrogate pair"),
        ({"kind": "error_frame", "message": "\ud83d"}, "message", "half a surrogate pair"),
        ({"kind": "error_frame", "code": "\ud83d"}, "code", "half a surrogate pair"),
        ({"kind": "status", "status": 500, "headers": {"a b": "c"}}, "headers", "no header name"),
        ({"kind": "status", "status": 500, "headers": {"a": "b\r\nc: d"}}, "headers", "characters"),
        ({"kind": "status", "status": 500, "headers": {"a": "€"}}, "headers", "characters"),
        (
            {"kind": "status", "status": 500, "headers": {"Content-Length": "1"}},
            "headers",
            "cannot be set",
        ),
        ({"kind": "status", "status": 500, "retry_after_s": -1}, "retry_after_s", ">= 0"),
        ({"kind": "delay", "delay_s": float("nan")}, "delay_s", "finite"),
        ({"kind": "delay", "delay_s": 86_401}, "delay_s", "<= 86400"),
        ({"kind": "silent_close", "after_chunks": -1}, "after_chunks", ">= 0"),
        ({"kind": "silent_close", "after_chunks": 1.5}, "after_chunks", "Expected int"),
        ({"kind": "comment_storm", "count": 0}, "count", ">= 1"),
        ({"kind": "comment_storm", "count": 100_001}, "count", "<= 100000"),
        ({"kind": "reset", "probability": 1.1}, "probability", "<= 1"),
        ({"kind": "reset", "probability": float("nan")}, "probability", "finite"),
        ({"kind": "wrong_content_type", "content_type": "a\nb"}, "content_type", "characters"),
    ],
)
def test_bad_values_are_named(fields, field, words):
    fault = Fault(**fields)
    with pytest.raises(FaultError) as caught:
        check_fault(fault)
    ((named, message),) = caught.value.problems
    assert named == field
    assert words in message
    assert str(caught.value) == f"{named}: {message}"


def test_all_problems_are_told_at_once():
    fault = Fault(kind="status", status=150, count=1, headers={"a b": ""})
    assert [field for field, _ in fault_problems(fault)] == ["count", "status", "headers"]


def test_a_good_fault_comes_back():
    fault = Fault(kind="status", status=429, retry_after_s=0, headers={"Retry-After": "Wed"})
    assert check_fault(fault) is fault
