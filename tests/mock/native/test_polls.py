"""What those see who poll a research job: the same each time, and as often as the reply says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.mock.matching import conditions
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockError, Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings
from caesar_server.store.memory import MemoryStore

Create = Callable[..., str]
Say = Callable[..., None]
Poll = Callable[..., list[str]]
PATIENCE_S = 60.0


def test_the_first_poll_after_creation_sees_the_end_each_time(
    create: Create, statuses: Poll
) -> None:
    for number in range(30):
        assert statuses(create(f"{number}?"), 1) == ["completed"]


@pytest.mark.parametrize("prefix", ["", "/agents"])
def test_so_many_polls_see_it_queued(
    create: Create, reply: Say, statuses: Poll, prefix: str
) -> None:
    reply(text="So.", queued_polls=3)
    assert statuses(create(prefix=prefix), 5, prefix) == ["queued"] * 3 + ["completed"] * 2


def test_each_status_is_what_so_many_polls_see(create: Create, reply: Say, statuses: Poll) -> None:
    reply(
        text="So.",
        queued_polls=1,
        statuses=("searching", "researching", "searching"),
        polls_per_status=2,
    )
    seen = ["queued", *["searching"] * 2, *["researching"] * 2, *["searching"] * 2, "completed"]
    assert statuses(create(), 8) == seen


def test_without_either_the_statuses_pass_by(create: Create, reply: Say, statuses: Poll) -> None:
    reply(text="So.", statuses=("searching", "summarizing"))
    assert statuses(create(), 2) == ["completed"] * 2


def test_other_requests_are_no_polls(
    client: FlaskClient, create: Create, reply: Say, statuses: Poll
) -> None:
    reply(text="So.", queued_polls=1)
    job_id = create()
    for _ in range(3):
        assert len(client.get(f"/research/{job_id}/events").json) == 1
        assert client.get("/research").json["data"][0]["status"] == "queued"
        assert client.get(f"/agents/research/{job_id}/results").json == []
    assert statuses(job_id, 2) == ["queued", "completed"]


def test_a_poll_that_a_fault_answers_is_none(
    client: FlaskClient, create: Create, reply: Say, fault: Say, statuses: Poll
) -> None:
    reply(text="So.", queued_polls=1)
    fault("status", {"path": "/research/{id}", "method": "GET"}, times=2, status=503)
    job_id = create()
    codes = [client.get(f"/research/{job_id}").status_code for _ in range(2)]
    assert codes == [503, 503]
    assert statuses(job_id, 2) == ["queued", "completed"]


def test_another_scope_neither_sees_nor_polls_a_job(
    client: FlaskClient, create: Create, reply: Say, statuses: Poll
) -> None:
    reply(text="So.", queued_polls=1)
    job_id = create()
    for _ in range(3):
        assert client.get(f"/t/other/research/{job_id}").status_code == 404
        assert client.get("/t/other/research").json["data"] == []
    assert statuses(job_id, 2) == ["queued", "completed"]


def test_polls_at_once_are_counted_exactly(
    client: FlaskClient, create: Create, reply: Say, statuses: Poll
) -> None:
    reply(text="So.", queued_polls=20)
    job_id = create()
    fresh = client.application.test_client
    with ThreadPoolExecutor(8) as pool:
        seen = list(
            pool.map(lambda _: fresh().get(f"/research/{job_id}").json["status"], range(20))
        )
    assert seen == ["queued"] * 20
    assert statuses(job_id, 1) == ["completed"]


def test_a_stream_lets_the_job_go_on(client: FlaskClient, create: Create, reply: Say) -> None:
    reply(text="So.", queued_polls=100, statuses=("searching",), polls_per_status=100)
    job_id = create()
    stream = client.get(f"/research/{job_id}/events", headers={"Accept": "text/event-stream"})
    assert b'"status":"completed"' in stream.data


def test_a_compat_call_waits_for_nobody(client: FlaskClient, reply: Say) -> None:
    reply(text="So.", queued_polls=100, statuses=("searching",), polls_per_status=100)
    answer = client.post("/compat/completions", json={"model": "m", "prompt": "Why?"})
    assert answer.json["choices"][0]["text"] == "So."


def test_a_held_job_can_be_cancelled(
    client: FlaskClient, create: Create, reply: Say, statuses: Poll
) -> None:
    reply(text="So.", queued_polls=100)
    job_id = create()
    assert statuses(job_id, 1) == ["queued"]
    client.post(f"/research/{job_id}/cancel")
    assert statuses(job_id, 1) == ["failed"]


def test_a_failure_is_told_to_who_polls(
    client: FlaskClient, create: Create, reply: Say, statuses: Poll
) -> None:
    reply(queued_polls=1, error=MockError(message="Out of luck"))
    job_id = create()
    (first, last) = (client.get(f"/research/{job_id}").json for _ in range(2))
    assert (first["status"], "error" in first) == ("queued", False)
    assert (last["status"], last["error"], last["content"]) == ("failed", "Out of luck", None)


def test_a_paced_answer_is_waited_for_by_the_scopes_clock(
    client: FlaskClient, scopes: Scopes, create: Create, reply: Say
) -> None:
    clock = scopes.get().clock
    clock.stop()
    reply(text="So.", pacing=Pacing(first_chunk_s=300), statuses=("searching",))
    job_id = create()
    for turned_s in (0, 100, 199):
        clock.advance(turned_s)
        assert client.get(f"/research/{job_id}").json["status"] == "searching"
    assert client.get(f"/research/{job_id}").json["running_time"] == 299
    clock.advance(1)
    found = client.get(f"/research/{job_id}").json
    assert (found["status"], found["running_time"], found["content"]) == ("completed", 300, "So.")
    assert found["created_at"] == "2023-11-14T22:13:20.000Z"
    assert found["completed_at"] == "2023-11-14T22:18:20.000Z"


def test_a_reply_function_is_waited_for_and_may_say_how_long_it_is_queued(
    scopes: Scopes, create: Create, statuses: Poll
) -> None:
    seen: list[Call] = []

    def answer(call: Call) -> Reply:
        seen.append(call)
        return Reply(text="Made.", queued_polls=1)

    scopes.get().add(Rule(replies=(answer,)))
    assert statuses(create(reasoning_loops=3), 2) == ["queued", "completed"]
    (call,) = seen
    assert (call.prompt, call.metadata) == ("Why?", {"reasoning_loops": 3})


def test_a_job_that_waits_for_room_is_answered_as_was_decided(scopes: Scopes) -> None:
    scope = scopes.get()
    scope.add(Rule(conditions=conditions(prompt="held"), replies=(Reply(queued_polls=1),)))
    scope.add(Rule(conditions=conditions(prompt="late"), replies=(Reply(text="one"),), times=1))
    app = create_app(Settings(job_threads=1), mock=scopes)
    client = app.test_client()
    held, late = (
        client.post("/research", json={"query": query}).json["id"] for query in ("held", "late")
    )
    scope.clear()
    assert client.get(f"/research/{late}").json["status"] == "queued"
    assert [client.get(f"/research/{held}").json["status"] for _ in range(2)] == [
        "queued",
        "completed",
    ]
    wait_until(lambda: client.get(f"/research/{late}").json["content"] == "one")
    app.extensions["caesar_server"].close()


def wait_until(condition: Callable[[], bool]) -> None:
    patience = threading.Event()
    for _ in range(int(PATIENCE_S / 0.01)):
        if condition():
            return
        patience.wait(0.01)
    raise AssertionError("it does not come to pass")


@pytest.mark.parametrize("end", ["reset", "counters", "remove"])
def test_held_jobs_come_to_their_end_when_all_is_forgotten(end: str) -> None:
    scopes, store = Scopes(), MemoryStore(100)
    scope = scopes.get("t")
    scope.add(Rule(replies=(Reply(text="So.", queued_polls=9),)))
    scope.clock.stop()
    scope.add(Rule(conditions=conditions(prompt="paced"), priority=1,
                   replies=(Reply(text="So.", pacing=Pacing(first_chunk_s=60)),)))  # fmt: skip
    app = create_app(Settings(), mock=scopes, store=store)
    client = app.test_client()
    ids = [
        client.post("/t/t/research", json={"query": query}).json["id"]
        for query in ("held", *([] if end == "counters" else ["paced"]))
    ]
    if end != "counters":
        scope.clock.wait_for_waiters(1)
    if end == "remove":
        scopes.remove("t")
    else:
        scope.reset("all" if end == "reset" else "counters")
        scope.clock.advance(60)
    for job_id in ids:
        wait_until(lambda job_id=job_id: store.job(job_id).status == "completed")
    app.extensions["caesar_server"].close()


def test_the_server_ends_while_jobs_are_held(
    client: FlaskClient, create: Create, reply: Say
) -> None:
    reply(queued_polls=1)
    job_id = create()
    parts: Any = client.application.extensions["caesar_server"]
    parts.runner.close()
    assert parts.store.job(job_id).status == "failed"
