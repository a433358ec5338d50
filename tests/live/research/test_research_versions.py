"""Which version each answer is in, and that every answer says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

NEW, OLD = "2025-11-27", "2025-08-08"
COMPLETION = {"model": "caesar-research", "prompt": "{}"}


def form(job: Any) -> str:
    """Return the version in whose form a job is shown."""
    old = "compute_units_consumed" in job and all("score" in one for one in job["results"])
    new = {"reasoning_loops_consumed", "running_time"} <= set(job) and not any(
        "score" in one for one in job["results"]
    )
    assert old != new, job
    return OLD if old else NEW


def asked(pair: Any, account: str, job_id: str, **headers: str) -> tuple[str, str]:
    """Return the version that a job's answer names, and the one whose form it has."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = pair.send(account, "GET", f"/research/{job_id}", headers=named)
    assert answer.status == 200
    return answer.headers["api-version"], form(answer.body)


@pytest.mark.parametrize(
    ("account", "body", "usual"),
    [
        ("many", {}, NEW),
        ("many", {"reasoning_loops": 2}, NEW),
        ("many", {"compute_units": 2}, OLD),
        ("many", {"compute_units": 2, "reasoning_loops": 2}, NEW),
        ("pinned", {}, OLD),
        ("pinned", {"reasoning_loops": 2}, OLD),
    ],
)
def test_a_job_in_each_version(pair, account, body, usual) -> None:
    created = pair.send(account, "POST", "/research", {"query": "{}", **body})
    assert created.headers["api-version"] == usual
    job_id = created.body["id"]
    pair.ended(account, job_id)
    assert asked(pair, account, job_id) == (usual, usual)
    assert asked(pair, account, job_id, API_Version=OLD) == (OLD, OLD)
    assert asked(pair, account, job_id, API_Version=NEW) == (NEW, NEW)


def test_a_header_at_the_creation_is_not_remembered(pair, account) -> None:
    body = {"query": "{}", "compute_units": 2}
    created = pair.send(account, "POST", "/research", body, headers={"API-Version": NEW})
    assert created.headers["api-version"] == NEW
    assert asked(pair, account, created.body["id"]) == (NEW, NEW)


def test_old_clients_see_four_statuses(pair, account) -> None:
    hold = f"go-{account}"
    job_id = pair.create(account, hold=hold)
    pair.server.wait(lambda: pair.job(account, job_id)["status"] == "searching")
    answer = pair.job(account, job_id, headers={"API-Version": OLD})
    assert answer["status"] == "researching"
    pair.release(hold)
    pair.ended(account, job_id)


ANSWERS = [
    ("", "GET", "/healthz", None, 200),
    ("", "GET", "/readyz", None, 200),
    ("", "GET", "/openapi.json", None, 200),
    ("", "GET", "/research", None, 401),
    ("", "POST", "/compat/completions", COMPLETION, 401),
    ("many", "GET", "/research", None, 200),
    ("many", "GET", "/research/none", None, 404),
    ("many", "GET", "/no/such/path", None, 404),
    ("many", "GET", "/compat/no/such/path", None, 404),
    ("many", "PUT", "/research", None, 405),
    ("many", "GET", "/compat/completions", None, 405),
    ("many", "OPTIONS", "/research", None, 200),
    ("many", "POST", "/research", {}, 400),
    ("many", "POST", "/compat/completions", COMPLETION, 200),
    ("many", "POST", "/compat/completions", COMPLETION | {"stream": True}, 200),
    ("many", "POST", "/research", {"query": "{}"}, 200),
    ("many", "GET", "/compat/models", None, 200),
    ("many", "GET", "/research/files", None, 200),
]


@pytest.mark.parametrize(("account", "method", "path", "body", "status"), ANSWERS)
def test_every_answer_names_its_version(pair, account, method, path, body, status) -> None:
    for version in (NEW, OLD):
        headers = {"API-Version": version}
        with pair.open(account, method, path, body, headers=headers) as answer:
            assert (answer.status, answer.headers.get("api-version")) == (status, version)
            answer.rest()
    with pair.open(account, method, path, body) as answer:
        assert (answer.status, answer.headers["api-version"]) == (status, NEW)
        answer.rest()


def test_streams_of_events_name_the_version_of_their_job(pair, account) -> None:
    body = {"query": "{}", "compute_units": 1}
    job_id = pair.send(account, "POST", "/research", body).body["id"]
    with pair.events(account, job_id) as stream:
        assert stream.status == 200
        assert stream.headers["api-version"] in (OLD, NEW)
        assert stream.rest()[-1] == "[DONE]"


def test_a_refusal_for_the_account_s_sake_names_it_too(pair, account) -> None:
    hold = f"go-{account}"
    jobs = [pair.create(account, hold=hold) for _ in range(5)]
    refused = pair.send(account, "POST", "/research", {"query": "{}"})
    assert (refused.status, refused.headers["api-version"]) == (429, NEW)
    pair.release(hold)
    for job in jobs:
        pair.ended(account, job)


def test_an_unknown_version_is_refused_on_every_route(pair) -> None:
    for version in ("2024-01-01", "yesterday", "2025-11-27, 2025-08-08"):
        for method, path, body in (
            ("GET", "/research", None),
            ("POST", "/research", {"query": "{}"}),
            ("GET", "/research/none/events", None),
            ("GET", "/research/files", None),
        ):
            answer = pair.send("many", method, path, body, headers={"API-Version": version})
            assert answer.status == 400
            assert answer.headers["api-version"] == NEW
            assert answer.body["error"].startswith(f'Unsupported API version "{version}"')
        body = COMPLETION
        answer = pair.send(
            "many", "POST", "/compat/completions", body, headers={"API-Version": version}
        )
        assert answer.status == 400
        assert "Unsupported API version" in answer.body["error"]["message"]


def test_a_list_shows_each_job_in_its_own_version(pair, account) -> None:
    for body in ({"compute_units": 1}, {"reasoning_loops": 1}):
        created = pair.send(account, "POST", "/research", {"query": json.dumps({}), **body})
        pair.ended(account, created.body["id"])
    listed = pair.send(account, "GET", "/research")
    assert [form(job) for job in listed.body["data"]] == [NEW, OLD]
    older = pair.send(account, "GET", "/research", headers={"API-Version": OLD})
    assert older.headers["api-version"] == OLD
    assert [form(job) for job in older.body["data"]] == [OLD, OLD]
