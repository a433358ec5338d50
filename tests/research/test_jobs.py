"""Research jobs over HTTP: create, retrieve, list, cancel, delete."""

from __future__ import annotations

import threading
import uuid
from datetime import datetime

import pytest

from caesar_server.blueprints.research import jobs as jobs_module
from caesar_server.contract import (
    BackendError,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    LoopFinished,
    RateLimitedError,
    StatusChanged,
)
from caesar_server.settings import ModelRoute
from caesar_server.testing import FakeClock, Gate, scripted_backend
from caesar_server.web.services import services_of

WITHIN_S = 60.0

OLD = {"API-Version": "2025-08-08"}


def test_a_job_is_created_run_and_read(serve) -> None:
    served = serve()
    job_id = served.create()
    assert str(uuid.UUID(job_id)) == job_id
    job = served.ended(job_id)
    assert job["status"] == "completed"
    assert (job["query"], job["content"]) == ("Why?", "It works [1] and [2].")
    assert job["transformed_content"] is None
    assert job["reasoning_loops_consumed"] == 2
    assert type(job["running_time"]) is int
    assert [result["id"] for result in job["results"]] == ["r1", "r2", "r3"]
    assert job["results"][0] == {
        "id": "r1",
        "title": "First",
        "url": "https://example.org/1",
        "citation_index": 1,
    }
    assert datetime.fromisoformat(job["created_at"]) <= datetime.fromisoformat(job["completed_at"])
    assert "error" not in job


def test_a_slash_behind_an_id_changes_nothing(serve) -> None:
    served = serve()
    job = served.ended(served.create())
    for written in (job["id"], job["id"].upper()):
        assert served.get(f"/research/{written}/") == job


def test_a_job_that_cannot_be_shown_is_not_to_be_begun_again(serve, monkeypatch) -> None:
    served = serve()

    def break_off(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(jobs_module, "standing_headers", break_off)
    refused = served.client.post("/research", json={"query": ""})
    assert (refused.status_code, refused.headers.get("x-should-retry")) == (400, None)
    failed = served.client.post("/research", json={"query": "Why?"})
    assert (failed.status_code, failed.headers["x-should-retry"]) == (500, "false")
    assert "secret" not in failed.text
    (listed,) = served.get("/research")["data"]
    assert served.ended(listed["id"])["status"] == "completed"


def test_a_running_job_has_no_content_but_its_results(serve) -> None:
    gate = Gate()
    served = serve([LoopFinished(1), ContentDelta("half"), gate, ChoiceFinished(), Completed()])
    job_id = served.create()
    running = served.until(
        lambda: served.get(f"/research/{job_id}"),
        lambda found: found["reasoning_loops_consumed"] == 1,
    )
    assert (running["content"], running["transformed_content"]) == (None, None)
    assert "completed_at" not in running
    gate.open()
    assert served.ended(job_id)["content"] == "half"


def test_an_answer_without_text_is_a_string_all_the_same(serve) -> None:
    served = serve([ChoiceFinished(), Completed()])
    assert served.ended(served.create())["content"] == ""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RateLimitedError("Slow down"), "Slow down"),
        (BackendError("No luck"), "No luck"),
        (RuntimeError("a secret"), "An unexpected error occurred"),
    ],
)
def test_a_job_that_fails_says_why_and_only_then(serve, error, message) -> None:
    served = serve([ContentDelta("half"), error])
    job = served.ended(served.create())
    assert (job["status"], job["error"], job["content"]) == ("failed", message, None)


def test_the_old_form_is_remembered_for_readers_without_a_version(serve) -> None:
    served = serve()
    job_id = served.create(compute_units=3)
    served.ended(job_id)
    for path in (f"/research/{job_id}", "/research"):
        found = served.get(path)
        job = found["data"][0] if "data" in found else found
        assert job["compute_units_consumed"] == 2
        assert "reasoning_loops_consumed" not in job
        assert [result["score"] for result in job["results"]] == pytest.approx([0.9, 0.4, 1 / 3])
    response = served.client.get(f"/research/{job_id}")
    assert response.headers["API-Version"] == "2025-08-08"
    new = served.client.get(f"/research/{job_id}", headers={"API-Version": "2025-11-27"})
    assert new.headers["API-Version"] == "2025-11-27"
    assert new.json["reasoning_loops_consumed"] == 2
    assert "score" not in new.json["results"][0]


def test_a_named_version_is_not_remembered(serve) -> None:
    served = serve()
    job_id = served.create(OLD, compute_units=3)
    assert "reasoning_loops_consumed" in served.ended(job_id)
    assert "compute_units_consumed" in served.get(f"/research/{job_id}", OLD)


def test_later_statuses_are_researching_to_old_readers(serve) -> None:
    gate = Gate()
    served = serve([StatusChanged("searching"), gate, ChoiceFinished(), Completed()])
    job_id = served.create()
    served.until(
        lambda: served.get(f"/research/{job_id}")["status"], lambda status: status == "searching"
    )
    assert served.get(f"/research/{job_id}", OLD)["status"] == "researching"
    gate.open()
    served.ended(job_id)


def test_the_request_reaches_the_backend(serve) -> None:
    served = serve()
    served.ended(
        served.create(
            reasoning_loops=4,
            source_timeout=30,
            reasoning_mode=True,
            allow_early_exit=True,
            exclude_social=True,
            excluded_domains=["example.com"],
            system_prompt="Be brief.",
            model="gpt-5.2",
        )
    )
    job = served.store.jobs(limit=1)[0]
    parameters = job.request.parameters
    assert (parameters.reasoning_loops, parameters.source_timeout_s) == (4, 30)
    assert (parameters.reasoning_mode, parameters.exclude_social) == (True, True)
    assert parameters.allow_early_exit
    assert parameters.excluded_domains == ("example.com",)
    assert (parameters.system_prompt, parameters.model) == ("Be brief.", "gpt-5.2")


def test_a_shaped_answer_is_a_string_that_may_hold_json(serve) -> None:
    served = serve(
        [
            ContentDelta("plain"),
            ContentDelta('{"answer": 1}', channel="transformed"),
            ChoiceFinished(),
            Completed(),
        ]
    )
    job = served.ended(served.create(system_prompt="As JSON."))
    assert (job["content"], job["transformed_content"]) == ("plain", '{"answer": 1}')


@pytest.mark.parametrize(
    ("model", "backend", "written_by"),
    [
        ("claude-opus-4.6", "scripted", "claude-opus-4.6"),
        ("caesar-research", "scripted", None),
        ("scripted/small", "scripted", None),
        ("house-model", "scripted", None),
    ],
)
def test_models_are_looked_up_as_elsewhere(serve, model, backend, written_by) -> None:
    served = serve(models={"house-*": ModelRoute(backend="scripted")})
    served.ended(served.create(model=model))
    job = served.store.jobs(limit=1)[0]
    assert (job.backend, job.request.parameters.model) == (backend, written_by)


def test_another_model_is_400_with_those_that_are_known(serve) -> None:
    response = serve().client.post("/research", json={"query": "q", "model": "gpt-1"})
    assert response.status_code == 400
    assert "model: 'gpt-1' is not known" in response.json["error"]
    assert "claude-opus-4.6" in response.json["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "query"),
        ({"query": " "}, "query"),
        (
            {"query": "q", "compute_units": "4"},
            'Body contains incorrect JSON type for field "compute_units"',
        ),
        ({"query": "q", "reasoning_loops": 11}, "reasoning_loops"),
        ({"query": "q", "files": ["nope"]}, "unknown file 'nope'"),
        ({"query": "q", "collection_ids": ["nope"]}, "unknown collection 'nope'"),
        ({"query": "q", "brainstorm_session_id": "nope"}, "unknown session 'nope'"),
        ({"query": "q", "answers": [{"question_id": "q1", "selected_option": 0}]}, "answers"),
    ],
)
def test_bad_requests_are_400_with_a_string_and_start_nothing(serve, body, message) -> None:
    served = serve()
    response = served.client.post("/research", json=body)
    assert response.status_code == 400
    assert list(response.json) == ["error"]
    assert message in response.json["error"]
    assert not served.store.jobs()


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"", "application/json"),
        (b"{}", "text/plain"),
        (b'{"query": "' + b"x" * 2000 + b'"}', "application/json"),
    ],
)
def test_what_is_no_body_is_400_whatever_it_is(serve, data, content_type) -> None:
    served = serve(max_body_bytes=1024)
    response = served.client.post("/research", data=data, content_type=content_type)
    assert (response.status_code, list(response.json)) == (400, ["error"])


def test_unknown_fields_are_refused_if_the_server_was_told(serve) -> None:
    body = {"query": "q", "quary": 1}
    assert serve().client.post("/research", json=body).status_code == 200
    refused = serve(unknown_fields="reject").client.post("/research", json=body)
    assert refused.status_code == 400
    assert "quary" in refused.json["error"]


def test_pages_go_from_the_newest_to_the_oldest(serve) -> None:
    served = serve([ChoiceFinished(), Completed()])
    ids = [served.create(query=f"q{number}") for number in range(5)]
    for job_id in ids:
        served.ended(job_id)
    found, page = [], 1
    while True:
        body = served.get(f"/research?page={page}&limit=2")
        found += [job["id"] for job in body["data"]]
        assert body["pagination"] == {
            "page": page,
            "limit": 2,
            "has_next": page < 3,
            "total": 5,
        }
        if not body["pagination"]["has_next"]:
            break
        page += 1
    assert found == ids[::-1]
    assert served.get("/research?page=9")["data"] == []


@pytest.mark.parametrize("query", ["page=0", "page=x", "limit=0", "limit=201", "page=" + "9" * 40])
def test_pages_out_of_range_are_400(serve, query) -> None:
    response = serve().client.get(f"/research?{query}")
    assert response.status_code == 400
    assert query.partition("=")[0] in response.json["error"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_compat_answer_is_a_research_job(serve, stream) -> None:
    served = serve()
    response = served.client.post(
        "/compat/completions", json={"model": "m", "prompt": "Why?", "stream": stream}
    )
    assert response.status_code == 200
    job_id = (
        response.text.partition('"id":"')[2].partition('"')[0] if stream else response.json["id"]
    )
    job = served.ended(job_id)
    # the compat answer has the list of references, the native one never
    assert (job["query"], job["content"]) == ("Why?", "It works [1] and [2].")
    assert served.get("/research")["data"][0]["id"] == job_id


def test_a_stream_that_goes_on_is_shown_as_running(serve) -> None:
    gate = Gate()
    served = serve([gate, ContentDelta("a"), ChoiceFinished(), Completed()])
    asked = {"model": "m", "prompt": "Why?", "stream": True}
    stream = served.client.post("/compat/completions", json=asked)
    gate.wait_until_reached()
    (job,) = served.get("/research")["data"]
    assert (job["status"], job["content"]) == ("researching", None)
    assert served.get(f"/agents/research/{job['id']}")["status"] == "researching"
    refused = served.client.post(f"/research/{job['id']}/chat", json={"content": "And?"})
    assert "not completed but researching" in refused.json["error"]
    gate.open()
    assert stream.data.endswith(b"data: [DONE]\n\n")
    assert served.get(f"/research/{job['id']}")["status"] == "completed"


def test_a_job_that_runs_can_be_cancelled(serve) -> None:
    gate = Gate()
    served = serve([ContentDelta("half"), gate])
    job_id = served.create()
    gate.wait_until_reached()
    response = served.client.post(f"/research/{job_id}/cancel")
    assert response.status_code == 200
    job = served.ended(job_id)
    assert (job["status"], job["error"]) == ("failed", "The job was cancelled")
    # once more does nothing
    assert served.client.post(f"/research/{job_id}/cancel").json == job


def test_a_cancel_leaves_a_finished_job_as_it_is(serve) -> None:
    served = serve()
    job_id = served.create()
    job = served.ended(job_id)
    assert served.client.post(f"/research/{job_id}/cancel").json == job


@pytest.mark.parametrize("running", [False, True])
def test_a_deleted_job_is_gone(serve, running) -> None:
    gate = Gate()
    served = serve(
        [gate, ChoiceFinished(), Completed()] if running else [ChoiceFinished(), Completed()]
    )
    job_id = served.create()
    if running:
        gate.wait_until_reached()
    else:
        served.ended(job_id)
    response = served.client.delete(f"/research/{job_id}")
    assert response.json == {"id": job_id, "deleted": True}
    for path in ("", "/events", "/updates", "/http_requests", "/results/r1/content"):
        assert served.client.get(f"/research/{job_id}{path}").status_code == 404
    assert served.client.delete(f"/research/{job_id}").status_code == 404
    assert served.get("/research")["data"] == []


def test_a_run_that_does_not_heed_its_cancel_does_not_hold_its_deletion_up(
    serve, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(jobs_module, "_END_WITHIN_S", 3600.0)
    begun, deleted = threading.Event(), threading.Event()
    ended = threading.Event()

    def stick(context: Context) -> ContentDelta:
        begun.set()
        assert deleted.wait(WITHIN_S)
        return ContentDelta("too late")

    backend = scripted_backend([stick, ChoiceFinished(), Completed()], heeds_cancel=False)
    served = serve(backend)
    monkeypatch.setattr(services_of(served.app).runner._detached._pool, "_on_end", ended.set)
    job_id = served.create()
    assert begun.wait(WITHIN_S)
    response = served.client.delete(f"/research/{job_id}")
    assert response.json == {"id": job_id, "deleted": True}
    deleted.set()
    assert ended.wait(WITHIN_S)
    assert backend.script.closed == 1
    assert served.get("/research")["data"] == []


@pytest.mark.parametrize("path", ["/research/{}", "/research/{}/events", "/research/{}/updates"])
@pytest.mark.parametrize(
    "job_id", ["nope", "6f1c2a4e-5b0d-4c3a-9d2e-7a8b9c0d1e2f", "%00", "\u00e4"]
)
def test_what_is_not_there_is_404(serve, path, job_id) -> None:
    response = serve().client.get(path.format(job_id))
    assert (response.status_code, response.json) == (404, {"error": "Resource not found"})


def test_a_get_may_announce_a_body_that_it_has_not(serve) -> None:
    served = serve()
    job_id = served.create()
    response = served.client.get(f"/research/{job_id}", content_type="application/json")
    assert response.status_code == 200


def test_a_request_that_is_sent_again_gets_the_same_job(serve) -> None:
    gate = Gate()
    served = serve([gate, ChoiceFinished(), Completed()])
    first = served.create()
    again = served.create({"x-stainless-retry-count": "1"})
    another = served.create({"x-stainless-retry-count": "1"}, query="Else?")
    assert (again == first, another == first) == (True, False)
    gate.open()
    served.ended(first), served.ended(another)


def test_running_time_is_whole_seconds_of_the_clock(serve) -> None:
    clock, gate = FakeClock(time_s=1_700_000_000.25), Gate()
    served = serve([gate, ChoiceFinished(), Completed()], clock=clock)
    job_id = served.create()
    gate.wait_until_reached()
    clock.advance(34.9)
    running = served.get(f"/research/{job_id}")["running_time"]
    assert (running, type(running)) == (34, int)
    gate.open()
    job = served.ended(job_id)
    assert job["running_time"] == 34
    assert job["created_at"].startswith("2023-11-14T22:13:20")
