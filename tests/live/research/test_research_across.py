"""What one worker takes in, the other one knows, tells, steers and ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

MODEL = "caesar-research"


def completion(**plan: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": json.dumps(plan)}


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_is_a_research_job_to_the_other_worker(pair, stream) -> None:
    account, (one, other) = pair.account(), pair.workers
    body = completion(loops=2) | {"stream": stream}
    with pair.open(account, "POST", "/compat/completions", body, worker=one) as answer:
        assert answer.status == 200
        told = answer.rest()
        text = told[0] if stream else answer.raw.decode()
    job_id = json.loads(text)["id"]
    assert pair.noted(job_id, "began") == one
    job = pair.job(account, job_id, worker=other)
    assert (job["status"], job["content"]) == ("completed", "Found it [1].")
    assert (job["query"], job["reasoning_loops_consumed"]) == (body["prompt"], 2)
    (result,) = job["results"]
    path = f"/research/{job_id}/results/{result['id']}/content"
    assert pair.send(account, "GET", path, worker=other).body == {"content": "<p>A page</p>"}
    (call,) = pair.send(account, "GET", f"/research/{job_id}/http_requests", worker=other).body
    assert (call["ask_id"], call["results_index"]) == (job_id, 0)


def test_a_native_job_is_known_to_both_at_once(pair, account) -> None:
    one, other = pair.workers
    for _ in range(10):
        job_id = pair.create(account, worker=one)
        assert pair.job(account, job_id, worker=other)["id"] == job_id
        (first, *_) = pair.send(account, "GET", "/research", worker=other).body["data"]
        assert first["id"] == job_id
        pair.ended(account, job_id)


def check_cancelled(pair: Any, account: str, job_id: str) -> None:
    job = pair.ended(account, job_id)
    assert job["status"] == "failed"
    assert "cancel" in job["error"]
    assert job["content"] is None
    # the run itself was told
    pair.noted(job_id, "stopped")


def test_a_cancel_of_a_stream_that_the_other_worker_sends(pair, account) -> None:
    one, other = pair.workers
    body = completion(hold="never") | {"stream": True}
    with pair.open(account, "POST", "/compat/completions", body, worker=one) as stream:
        events = stream.events()
        job_id = json.loads(next(events).data)["id"]
        pair.noted(job_id, "began")
        path = f"/research/{job_id}/cancel"
        assert pair.send(account, "POST", path, worker=other).status == 200
        *_, error, done = (event.data for event in events)
    assert json.loads(error)["error"]["code"] == "cancelled"
    assert done == "[DONE]"
    check_cancelled(pair, account, job_id)


def test_a_cancel_of_a_native_job_that_the_other_worker_runs(pair, account) -> None:
    job_id = pair.create(account, hold="never")
    other = pair.other(pair.noted(job_id, "began"))
    with pair.events(account, job_id) as follower:
        path = f"/research/{job_id}/cancel"
        assert pair.send(account, "POST", path, worker=other).status == 200
        *_, end, done = follower.rest()
    assert json.loads(end) == {"status": "failed", "id": job_id}
    assert done == "[DONE]"
    check_cancelled(pair, account, job_id)
    # once more is no error, and changes nothing
    assert pair.send(account, "POST", path).body["status"] == "failed"


def test_a_job_is_deleted_by_the_worker_that_does_not_run_it(pair, account) -> None:
    job_id = pair.create(account, hold="never")
    worker = pair.noted(job_id, "began")
    with pair.events(account, job_id, worker=worker) as follower:
        gone = pair.send(account, "DELETE", f"/research/{job_id}", worker=pair.other(worker))
        assert (gone.status, gone.body["id"]) == (200, job_id)
        assert follower.rest()[-1] == "[DONE]"
    for path in ("", "/events", "/updates", "/http_requests", "/results/r1/content"):
        for one in pair.workers:
            answer = pair.send(account, "GET", f"/research/{job_id}{path}", worker=one)
            assert (answer.status, answer.body) == (404, {"error": "Resource not found"})
    assert pair.send(account, "GET", "/research").body["data"] == []
    assert pair.noted(job_id, "stopped") == worker
    # there is room for as many as before
    for _ in range(5):
        job_id = pair.create(account, hold="never")
        assert pair.send(account, "DELETE", f"/research/{job_id}").status == 200


def test_updates_reach_the_run_whichever_worker_takes_them(pair, account) -> None:
    job_id = pair.create(account, updates=4)
    worker = pair.noted(job_id, "began")
    path = f"/research/{job_id}/updates"
    said = [f"Look at part {number}" for number in range(4)]
    for number, text in enumerate(said):
        to = worker if number % 2 else pair.other(worker)
        made = pair.send(account, "POST", path, {"update_content": text}, worker=to)
        assert (made.status, made.body["update_content"]) == (200, text)
    assert pair.ended(account, job_id)["status"] == "completed"
    events = pair.send(account, "GET", f"/research/{job_id}/events").body
    told = [event["message"] for event in events if event["message"].startswith("told")]
    assert told == [f"told {text}" for text in said]
    listed = pair.send(account, "GET", path).body
    assert [one["update_content"] for one in listed] == said
    late = pair.send(account, "POST", path, {"update_content": "Too late"})
    assert late.status == 400
    assert pair.send(account, "GET", path).body == listed


def test_a_stream_whose_job_the_other_worker_deletes_ends(pair, account) -> None:
    one, other = pair.workers
    body = completion(hold="never") | {"stream": True}
    with pair.open(account, "POST", "/compat/completions", body, worker=one) as stream:
        events = stream.events()
        job_id = json.loads(next(events).data)["id"]
        pair.noted(job_id, "began")
        gone = pair.send(account, "DELETE", f"/research/{job_id}", worker=other)
        assert gone.status == 200
        *_, error, done = (event.data for event in events)
    assert json.loads(error)["error"]["code"] == "cancelled"
    assert done == "[DONE]"
    assert pair.noted(job_id, "stopped") == one
