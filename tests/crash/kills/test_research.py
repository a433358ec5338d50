"""Native jobs over HTTP while the server's workers are killed: by their creators and followers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from caesar_server.contract.sse import SseDecoder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOBS, CLIENTS = 60, 6
WITHIN_S = 60.0
SERVING = ("--job-threads", "2")
#: Reached once each, in this order, by whichever worker comes there first.
POINTS = (
    "before-creation",
    "after-creation",
    "after-progress_noted",
    "inside-a-batch",
    "before-announcement",
    "after-the-checkpoint",
    "after-content_delta",
    "before-the-end",
    "before-the-end-is-told",
)
#: What the backend ``finding`` lets people know, after the first event of every job.
TOLD = ["looking around", "reading", "weighing", "doubting"]
#: What happens to a client whose worker is killed.
CUT_OFF = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True)
class Seen:
    """What a client had of a job: its id, the items and the end of its events."""

    query: str
    job_id: str
    items: list[dict[str, Any]]
    end: dict[str, Any]
    connections: int


def create(farm: Any, model: str, query: str) -> str:
    """Begin a job and return its id, asking again as Caesar's SDKs do."""
    until, tries = time.monotonic() + WITHIN_S, 0
    while True:
        headers = {"x-stainless-retry-count": str(tries)}
        try:
            body = {"query": query, "model": model}
            with farm.client.post("/research", body, headers=headers) as response:
                if response.status == 200:
                    created = response.json()
                    assert created["status"] == "queued"
                    return str(created["id"])
                assert response.status == 503, response.read()
        except CUT_OFF:
            pass
        assert time.monotonic() < until, f"{query} is not taken"
        tries += 1
        threading.Event().wait(0.05)


def follow(farm: Any, query: str, job_id: str) -> Seen:
    """Follow a job's events to the end, however often the connection is lost."""
    until, connections = time.monotonic() + WITHIN_S, 0
    items: list[dict[str, Any]] = []
    last = ""
    while True:
        connections += 1
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        try:
            with farm.client.get(f"/research/{job_id}/events", headers=headers) as response:
                assert response.status in (200, 503), response.read()
                decoder = SseDecoder()
                for chunk in response.chunks():
                    for event in decoder.feed(chunk):
                        if event.data == "[DONE]":
                            continue
                        item = json.loads(event.data)
                        if "status" in item:
                            return Seen(query, job_id, items, item, connections)
                        if "error" not in item:
                            items.append(item)
                            last = event.id
        except CUT_OFF:
            pass
        assert time.monotonic() < until, f"{job_id} does not end"
        threading.Event().wait(0.02)


def get(farm: Any, path: str) -> Any:
    with farm.client.get(path) as response:
        assert response.status == 200, response.read()
        return response.json()


def test_kills_lose_double_and_leave_nothing(farm: Any, kills: Any) -> None:
    farm.serve(*SERVING)

    def act(number: int) -> Seen:
        query = f"job {number}"
        return follow(farm, query, create(farm, "finding", query))

    followed = kills.run(POINTS, act, times=JOBS, clients=CLIENTS)
    assert [fired.point for fired in farm.fired()] == list(POINTS)
    jobs = {job.id: job for job in farm.wait_until_ended()}
    assert len(followed) >= JOBS
    # what was acknowledged is there, and a creation that was repeated is there once
    assert sorted(seen.job_id for seen in followed) == sorted(jobs)
    for seen in followed:
        farm.check_whole(jobs[seen.job_id])
        check_shown(farm, seen, jobs[seen.job_id].checkpoint["text"])
    assert sum(seen.connections for seen in followed) > len(followed)


def check_shown(farm: Any, seen: Seen, text: str) -> None:
    """Check that the API tells of a job what its follower heard, each thing once."""
    path = f"/research/{seen.job_id}"
    job = get(farm, path)
    assert (job["status"], job["query"], job["content"]) == ("completed", seen.query, text)
    assert [result["id"] for result in job["results"]] == ["r1", "r2", "r3"]
    assert job["reasoning_loops_consumed"] == 1
    assert "error" not in job
    assert seen.items == get(farm, f"{path}/events")
    assert [item["message"] for item in seen.items][1:] == TOLD
    assert seen.end == {"status": "completed", "id": seen.job_id}
    assert len(get(farm, f"{path}/http_requests")) == 1
    assert get(farm, f"{path}/results/r2/content") == {"content": "<p>" + "x" * 500}


def kill_owner(farm: Any, job_id: str) -> None:
    """Kill the process that runs a job."""
    os.kill(int(farm.store.job(job_id).owner.split("-")[-2]), signal.SIGKILL)


def test_a_job_that_is_not_durable_fails_if_it_had_begun_else_begins_again(farm: Any) -> None:
    farm.serve(*SERVING)
    check_fails(farm)
    check_begins_again(farm)


def check_fails(farm: Any) -> None:
    job_id = create(farm, "attached", "anything")
    # more than `queued` is stored
    farm.wait_for(lambda: farm.store.job(job_id).last_seq > 1)
    with ThreadPoolExecutor(1, thread_name_prefix="test-client") as pool:
        following = pool.submit(follow, farm, "anything", job_id)
        kill_owner(farm, job_id)
        seen = following.result()
    assert seen.end == {"status": "failed", "id": job_id}
    job = get(farm, f"/research/{job_id}")
    assert (job["status"], job["content"]) == ("failed", None)
    assert job["error"]
    assert farm.store.job(job_id).error_code == "worker_lost"
    assert [record.event.type for record in farm.store.records(job_id)].count("failed") == 1


def check_begins_again(farm: Any) -> None:
    job_id = create(farm, "late", "anything")
    begun = farm.folder / "late"
    # with its line: killed between the two, the first run would have left none
    farm.wait_for(lambda: begun.exists() and begun.read_text())
    kill_owner(farm, job_id)
    farm.wait_for(lambda: len(begun.read_text().splitlines()) == 2)
    (farm.folder / "go-on").touch()
    seen = follow(farm, "anything", job_id)
    assert seen.end == {"status": "completed", "id": job_id}
    job = get(farm, f"/research/{job_id}")
    assert (job["status"], job["content"]) == ("completed", "word end")
    assert farm.store.job(job_id).attempt == 2
