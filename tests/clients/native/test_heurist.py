"""Heurist's public Caesar agent: what it sends, and what it makes of the answers.

It posts ``{"query", "compute_units": 4}``, names no version, sends ``Content-Type:
application/json`` with every request, GET included, and polls.  It knows four statuses and takes
an object with a member ``error`` for a failure.
"""

from __future__ import annotations

from typing import Any

import pytest

HEADERS = {"Content-Type": "application/json"}
KNOWN = {"queued", "researching", "completed", "failed"}


def decoded(answer: Any) -> dict[str, Any]:
    """Return a body as aiohttp's ``.json()`` does, which refuses any other content type."""
    kind = answer.headers["content-type"].partition(";")[0].strip()
    assert kind == "application/json", answer
    body = answer.body
    assert isinstance(body, dict), answer
    return body


def began(native: Any, query: str) -> str:
    body = {"query": query, "compute_units": 4}
    answer = native.send("POST", "/research", body, headers=HEADERS)
    created = decoded(answer)
    assert answer.status == 200
    assert "error" not in created
    assert isinstance(created["id"], str)
    assert created["status"] in KNOWN
    return str(created["id"])


def test_each_poll_of_a_job_is_understood(native) -> None:
    seen = [decoded(answer) for answer in native.poll(began(native, "research"), headers=HEADERS)]
    assert all("error" not in body for body in seen)
    statuses = [body["status"] for body in seen]
    assert set(statuses) <= KNOWN
    assert "researching" in statuses, "it was over before anybody could look"
    assert statuses[-1] == "completed"
    last = seen[-1]
    assert len(last["content"]) == len("Much is new [1], and more [2].")
    assert last["results"][0]["url"] == "https://a.example/"
    assert all(body["content"] is None for body in seen[:-1])


def test_a_failed_job_is_the_only_one_with_an_error(native) -> None:
    *before, last = map(decoded, native.poll(began(native, "breaks"), headers=HEADERS))
    assert (last["status"], last["error"]) == ("failed", "It is gone")
    assert isinstance(last["completed_at"], str)
    assert all("error" not in body for body in before)


@pytest.mark.parametrize(("path", "text"), [("/research/no-such-job", "Resource not found")])
def test_an_error_is_a_text_in_json(native, path, text) -> None:
    answer = native.send("GET", path, headers=HEADERS)
    assert (answer.status, decoded(answer)) == (404, {"error": text})


def objects_of(body: Any) -> list[dict[str, Any]]:
    """Return all objects in a body that an error could be in."""
    if isinstance(body, list):
        return body
    return [body, *body.get("data", ())]


def test_no_good_body_of_any_route_has_an_error(native) -> None:
    job_id = began(native, "research")
    native.poll(job_id, headers=HEADERS)
    looked = 0
    for path in ("", f"/{job_id}", f"/{job_id}/events", f"/{job_id}/http_requests"):
        answer = native.send("GET", f"/research{path}", headers=HEADERS)
        assert answer.status == 200
        for one in objects_of(answer.body):
            assert "error" not in one or one["status"] == "failed"
            looked += 1
    assert looked > 8
