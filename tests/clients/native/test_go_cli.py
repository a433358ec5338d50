"""The public Go command line client: what it sends, and how strictly Go decodes the answers.

It always sends ``reasoning_loops``, names no version and leaves empty fields out.  Numbers go into
``int``, lists come as bare arrays, moments go into ``time.Time``; any status of 400 or more ends
the program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

#: What ``time.Time`` reads.
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")

JOB = {
    "id": "string",
    "created_at": "time",
    "status": "string",
    "query": "string",
    "reasoning_loops_consumed": "int",
    "running_time": "int",
    "results": ["result"],
    "content": "string",
    "transformed_content": "string",
}
RESULT = {"id": "string", "title": "string", "url": "string", "citation_index": "int"}
EVENT = {"message": "string", "created_at": "time"}
UPDATE = {
    "id": "string",
    "ask_id": "string",
    "update_content": "string",
    "files": ["string"],
    "created_at": "time",
}
LOG = {
    "id": "string",
    "request_url": "string",
    "request_method": "string",
    "response_status": "int",
    "duration_ms": "int",
    "request_headers": "string",
    "request_body": "string",
    "response_headers": "string",
    "response_body": "string",
}
CALL = {
    "ask_id": "string",
    "url": "string",
    "http_logs": ["log"],
    "results_index": "int",
    "provider": "string",
    "provider_display_name": "string",
    "provider_icon": "string",
}
STRUCTS: Mapping[str, Mapping[str, Any]] = {
    "job": JOB,
    "result": RESULT,
    "event": EVENT,
    "update": UPDATE,
    "log": LOG,
    "call": CALL,
}


class GoDecodeError(Exception):
    """Go could not decode it."""


def decode(kind: Any, text: str) -> Any:
    """Return what Go's ``encoding/json`` decodes: 34.0 stays a float, as it is none for ``int``."""
    return _value(kind, json.loads(text), "")


def _value(kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, list):
        if value is None:
            return []
        _need(isinstance(value, list), "a slice", value, where)
        return [_value(kind[0], one, f"{where}[{n}]") for n, one in enumerate(value)]
    if value is None:
        # whatever was there before stays there
        return None
    if kind in STRUCTS:
        _need(isinstance(value, dict), "a struct", value, where)
        fields = STRUCTS[kind]
        return {
            name: _value(fields[name], one, f"{where}.{name}")
            for name, one in value.items()
            if name in fields
        }
    if kind == "int":
        _need(type(value) is int and -(2**63) <= value < 2**63, "int", value, where)
    else:
        _need(isinstance(value, str), "string", value, where)
    if kind == "time":
        _need(bool(RFC_3339.fullmatch(value)), "time.Time", value, where)
    return value


def _need(holds: bool, kind: str, value: Any, where: str) -> None:
    if not holds:
        raise GoDecodeError(f"cannot unmarshal {value!r} into Go value{where} of type {kind}")


@pytest.mark.parametrize(
    "text",
    [
        '{"running_time": 34.2}',
        '{"running_time": 34.0}',
        '{"running_time": "34"}',
        '{"running_time": true}',
        '{"created_at": "2025-09-14 12:00:00Z"}',
        '{"created_at": "2025-09-14T12:00:00"}',
        '{"results": {}}',
        '{"content": {"a": 1}}',
        "[]",
    ],
)
def test_the_decoder_of_these_tests_is_strict(text) -> None:
    with pytest.raises(GoDecodeError):
        decode("job", text)


def test_null_is_fine_for_the_decoder_of_these_tests() -> None:
    job = '{"running_time": null, "results": null, "unknown": 1.5}'
    assert decode("job", job) == {"running_time": None, "results": []}


@pytest.fixture
def ended(native: Any) -> str:
    """The id of a job as this client begins one, which has ended."""
    body = {"query": "research", "reasoning_loops": 1}
    created = decode("job", native.send("POST", "/research", body).text)
    assert created["status"] == "queued"
    native.poll(created["id"])
    return str(created["id"])


def test_a_job_decodes_at_every_poll(native) -> None:
    body = {"query": "research", "reasoning_loops": 2, "auto": True}
    job_id = decode("job", native.send("POST", "/research", body).text)["id"]
    jobs = [decode("job", answer.text) for answer in native.poll(job_id)]
    assert {job["status"] for job in jobs[:-1]} & {"searching", "analyzing", "summarizing"}
    last = jobs[-1]
    assert last["status"] == "completed"
    assert (type(last["running_time"]), last["reasoning_loops_consumed"]) == (int, 2)
    assert last["transformed_content"] is None
    assert [result.get("citation_index") for result in last["results"]] == [1, 2, None]


def test_events_are_a_bare_array_that_only_grows(native) -> None:
    job_id = native.send("POST", "/research", {"query": "research", "reasoning_loops": 1}).body[
        "id"
    ]
    seen: list[list[Any]] = []
    while native.send("GET", f"/research/{job_id}").body["status"] != "completed":
        seen.append(decode(["event"], native.send("GET", f"/research/{job_id}/events").text))
    seen.append(decode(["event"], native.send("GET", f"/research/{job_id}/events").text))
    for before, after in pairwise(seen):
        assert after[: len(before)] == before
    messages = [event["message"] for event in seen[-1]]
    assert "Reading two pages" in messages
    assert len(messages) == 6
    times = [event["created_at"] for event in seen[-1]]
    assert times == sorted(times)


def test_calls_to_third_parties_are_a_bare_array(native, ended) -> None:
    calls = decode(["call"], native.send("GET", f"/research/{ended}/http_requests").text)
    assert [(call["url"], call.get("results_index")) for call in calls] == [
        ("https://a.example/", 0),
        ("https://search.example/?q=1", None),
        ("https://gone.example/", None),
    ]
    assert {call["ask_id"] for call in calls} == {ended}
    ((news,), (search,), (gone,)) = (call["http_logs"] for call in calls)
    assert (news["response_status"], news["duration_ms"]) == (200, 12)
    assert (search["response_status"], type(gone["response_status"])) == (503, int)


def test_updates_are_a_bare_array(native) -> None:
    body = {"query": "takes long", "reasoning_loops": 1}
    job_id = native.send("POST", "/research", body).body["id"]
    path = f"/research/{job_id}/updates"
    assert decode(["update"], native.send("GET", path).text) == []
    made = decode("update", native.send("POST", path, {"update_content": "Europe only"}).text)
    assert (made["ask_id"], made["update_content"]) == (job_id, "Europe only")
    assert made["files"] == []
    assert decode(["update"], native.send("GET", path).text) == [made]
    native.send("POST", f"/research/{job_id}/cancel")
    (*_, last) = native.poll(job_id)
    assert last.body["status"] == "failed"
    refused = native.send("POST", path, {"update_content": "Too late"})
    assert refused.status == 400
    assert isinstance(refused.body["error"], str)


@pytest.mark.parametrize(
    ("query", "content"),
    [("", "<h1>News</h1>"), ("?format=raw", "<h1>News</h1>"), ("?format=markdown", "# News")],
)
def test_the_content_of_a_result(native, ended, query, content) -> None:
    (result, *_) = native.send("GET", f"/research/{ended}").body["results"]
    answer = native.send("GET", f"/research/{ended}/results/{result['id']}/content{query}")
    assert answer.body == {"content": content}


def test_an_unknown_format_ends_the_program(native, ended) -> None:
    answer = native.send("GET", f"/research/{ended}/results/x/content?format=pdf")
    assert answer.status == 400
    assert "format" in answer.body["error"]
