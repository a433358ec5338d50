"""Rules and faults on Caesar's own routes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract.sse import SseDecoder
from caesar_server.mock.matching import conditions, contains
from caesar_server.mock.model.reply import MockError, MockQuestion, MockRequest, MockResult, Reply
from caesar_server.mock.model.rule import Rule
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings

Create = Callable[..., str]
Say = Callable[..., None]
SSE = {"Accept": "text/event-stream"}
RESULTS = (
    MockResult(title="A", url="https://a.example/", citation_index=1, raw="<p>", markdown="*"),
    MockResult(title="B", url="https://b.example/", score=0.25),
)


def test_a_slash_at_the_end_of_a_path_changes_nothing(
    client: FlaskClient, reply: Say, fault: Say
) -> None:
    reply(text="Because.", when={"path": "/research", "query": "Why?"}, queued_polls=1)
    reply(text="Hello", when={"path": "/compat/completions/"})
    fault("status", {"path": "/research/{id}/updates"}, status=418)
    job_id = client.post("/research/", json={"query": "Why?"}).json["id"]
    assert [client.get(f"/research/{job_id}/").json["status"] for _ in range(2)] == [
        "queued",
        "completed",
    ]
    assert client.get(f"/research/{job_id}").json["content"] == "Because."
    assert client.get(f"/research/{job_id}/updates/").status_code == 418
    asked = {"model": "any", "prompt": "Hi"}
    for path in ("/compat/completions", "/v1/completions/"):
        assert client.post(path, json=asked).json["choices"][0]["text"] == "Hello"


def test_a_reply_is_the_whole_research_object(
    client: FlaskClient, create: Create, reply: Say
) -> None:
    reply(text="It is [1].", results=RESULTS, progress=("Reading",), loops=2)
    job_id = create()
    found = client.get(f"/research/{job_id}").json
    first, second = found["results"]
    assert (found["status"], found["content"]) == ("completed", "It is [1].")
    assert (found["reasoning_loops_consumed"], found["running_time"]) == (2, 0)
    assert found["transformed_content"] is None
    assert (first["title"], first["citation_index"]) == ("A", 1)
    assert "citation_index" not in second
    old = client.get(f"/research/{job_id}", headers={"API-Version": "2025-08-08"}).json
    assert old["results"][1]["score"] == 0.25
    assert [one["message"] for one in client.get(f"/research/{job_id}/events").json][1:] == [
        "Reading"
    ]
    path = f"/research/{job_id}/results/{first['id']}/content"
    assert client.get(path).json == {"content": "<p>"}
    assert client.get(f"{path}?format=markdown").json == {"content": "*"}


def test_a_system_prompt_gets_both_texts(client: FlaskClient, create: Create, reply: Say) -> None:
    reply(text="Plain", transformed='{"a": 1}')
    found = client.get(f"/research/{create(system_prompt='As JSON')}").json
    assert (found["content"], found["transformed_content"]) == ("Plain", '{"a": 1}')


def test_third_party_calls_are_listed(client: FlaskClient, create: Create, reply: Say) -> None:
    request = MockRequest(url="https://api.example/b", response_status=429, provider="b", result=1)
    reply(results=RESULTS, requests=(request,))
    (found,) = client.get(f"/research/{create()}/http_requests").json
    assert (found["url"], found["provider"], found["results_index"]) == (request.url, "b", 1)
    assert found["http_logs"][0]["response_status"] == 429


def test_rules_see_the_parameters(client: FlaskClient, create: Create, reply: Say) -> None:
    reply(when={"metadata": {"reasoning_loops": 3}}, text="three")
    reply(when={"metadata": {"system_prompt": contains("brief")}}, text="brief")
    reply(when={"path": "/research", "query": "Why?", "model": "gpt-*"}, text="model")
    texts = [
        client.get(f"/research/{create(**body)}").json["content"]
        for body in (
            {"reasoning_loops": 3},
            {"compute_units": 3},
            {"system_prompt": "Be brief"},
            {"model": "gpt-5.2"},
            {},
        )
    ]
    assert texts == ["three", "three", "brief", "model", "Why?"]


def test_only_questions_use_a_rule_up(client: FlaskClient, scopes: Scopes, create: Create) -> None:
    scope = scopes.get()
    scope.add(Rule(replies=(Reply(text="one"), Reply(text="two"))))
    job_id = create()
    client.get(f"/research/{job_id}")
    client.post(f"/research/{job_id}/updates", json={"update_content": "Be quick"})
    client.post(f"/research/{job_id}/cancel", json={})
    client.post("/research/collections", json={"name": "c"})
    assert scope.uses("r1") == 1
    assert client.get(f"/research/{create()}").json["content"] == "two"


def test_strict_refuses_a_question_at_once_and_nothing_else(
    client: FlaskClient, scopes: Scopes, create: Create
) -> None:
    job_id = create()
    scopes.get().strict = True
    refused = client.post("/research", json={"query": "Why?"})
    assert refused.status_code == 404
    assert refused.json["error"].startswith("No rule of the default scope matches")
    assert len(client.get("/research").json["data"]) == 1
    assert client.get(f"/research/{job_id}").status_code == 200
    # what is wrong with the request is told first
    assert client.post("/research", json={"query": 1}).status_code == 400


@pytest.mark.parametrize("status", [401, 402, 404, 429, 500])
def test_a_status_on_creation_is_an_error_string(
    client: FlaskClient, fault: Say, status: int
) -> None:
    fault("status", {"path": "/research"}, status=status, retry_after_s=0, message="No.")
    answer = client.post("/research", json={"query": "Why?"})
    assert (answer.status_code, answer.json) == (status, {"error": "No."})
    assert answer.headers["Retry-After"] == "0"
    assert client.get("/research").json == {"error": "No."}


def test_a_path_with_an_id_means_jobs_and_no_files(
    client: FlaskClient, create: Create, fault: Say
) -> None:
    fault("status", {"path": "/research/{id}", "method": "GET"}, status=503)
    job_id = create()
    codes = {
        path: client.get(path).status_code
        for path in (f"/research/{job_id}", f"/research/{job_id}/events", "/research/files")
    }
    assert list(codes.values()) == [503, 200, 200]


def test_the_body_of_a_poll_can_be_broken(client: FlaskClient, create: Create, fault: Say) -> None:
    job_id = create()
    path = f"/research/{job_id}"
    whole = client.get(path).data
    for kind, fields in (
        ("silent_close", {"after_chunks": 20}),
        ("malformed_json", {"after_chunks": 20}),
        ("truncated_utf8", {"after_chunks": 20}),
    ):
        fault(kind, {"path": "/research/{id}", "method": "GET"}, times=1, **fields)
        broken = client.get(path).data
        assert broken[:20] == whole[:20]
        with pytest.raises(ValueError, match=r"."):
            json.loads(broken)
    fault("wrong_content_type", {"path": path}, times=1, content_type="text/plain")
    assert client.get(path).mimetype == "text/plain"
    fault("error_frame", {"path": path}, times=1, message="Out of luck")
    assert client.get(path).json == {"error": "Out of luck"}
    fault("slow_drip", {"path": path}, times=1, delay_s=0, count=7)
    assert client.get(path).data == whole


@pytest.fixture
def followed(client: FlaskClient, create: Create, reply: Say) -> Callable[[], list[str]]:
    """Returns the messages of a job's stream; ``frames`` is all that came."""
    reply(text="So.", progress=("one", "two", "three"))

    def follow() -> list[str]:
        data = client.get(f"/research/{create()}/events", headers=SSE).data
        return [event.data for event in SseDecoder().feed(data)]

    return follow


def messages(data: list[str]) -> list[str]:
    return [json.loads(one)["message"] for one in data if '"message"' in one]


def test_faults_count_the_frames_of_a_stream_of_events(
    followed: Callable[[], list[str]], fault: Say
) -> None:
    when = {"path": "/research/{id}/events", "stream": True}
    queued, *progress = messages(followed())
    assert progress == ["one", "two", "three"]
    fault("silent_close", when, times=1, after_chunks=2)
    assert messages(followed()) == [queued, "one"]
    fault("error_frame", when, times=1, after_chunks=1, message="Out of luck")
    assert [json.loads(one) for one in followed()[1:-1]] == [{"error": "Out of luck"}]
    fault("duplicate_chunk", when, times=1, after_chunks=1)
    assert messages(followed()) == [queued, "one", "one", "two", "three"]
    fault("reorder_chunks", when, times=1, after_chunks=1)
    assert messages(followed()) == [queued, "two", "one", "three"]
    fault("missing_done", when, times=1)
    assert "[DONE]" not in followed()
    fault("malformed_json", when, times=1, after_chunks=1)
    with pytest.raises(ValueError, match=r"."):
        [json.loads(one) for one in followed()[:-1]]
    fault("truncated_utf8", when, times=1, after_chunks=1)
    assert messages(followed())[1].startswith("one\ufffd")


def test_a_brainstorm_asks_what_the_reply_says(client: FlaskClient, reply: Say) -> None:
    asked = MockQuestion(question="Where?", options=("Here", "There"))
    reply(when={"path": "/research/brainstorm", "query": contains("vague")}, questions=(asked,))
    reply(when={"query": contains("bad")}, error=MockError(message="No.", status=503))
    session = client.post("/research/brainstorm", json={"query": "vague"}).json
    (question,) = session["questions"]
    assert (question["question"], session["status"]) == ("Where?", "ready")
    assert [option["text"] for option in question["options"]] == ["Here", "There"]
    assert client.post("/research/brainstorm", json={"query": "clear"}).json["questions"] == []
    failed = client.post("/research/brainstorm", json={"query": "bad"})
    assert (failed.status_code, failed.json) == (503, {"error": "No."})


def test_a_session_leads_to_a_job_that_rules_know_by_its_query(
    client: FlaskClient, create: Create, reply: Say
) -> None:
    asked = MockQuestion(question="Where?", options=("Here", "There"))
    reply(when={"path": "/research/brainstorm"}, questions=(asked,))
    reply(when={"path": "/research", "query": "vague"}, text="Found.")
    session = client.post("/research/brainstorm", json={"query": "vague"}).json["id"]
    answers = [{"question_id": "q1", "selected_option": 1}]
    job_id = create("vague", brainstorm_session_id=session, answers=answers)
    assert client.get(f"/research/{job_id}").json["content"] == "Found."


def test_ids_are_the_same_each_time_also_after_a_reset(
    client: FlaskClient, scopes: Scopes, create: Create
) -> None:
    first = [create("a"), create("b"), create("a")]
    assert len(set(first)) == 3
    listed = [one["id"] for one in client.get("/research").json["data"]]
    assert listed == first[::-1]
    scopes.get().reset("counters")
    assert [create("a"), create("b"), create("a")] == first
    scopes.get().reset()
    assert client.get("/research").json["data"] == []
    assert client.get(f"/research/{first[0]}").status_code == 404


def test_a_brainstorm_after_a_reset_is_another_session(client: FlaskClient, scopes: Scopes) -> None:
    ids = set()
    for _ in range(3):
        ids.add(client.post("/research/brainstorm", json={"query": "a"}).json["id"])
        scopes.get().reset()
    assert len(ids) == 3


ASKED: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/research", {"query": "a"}),
    ("POST", "/research", {"query": "a"}),
    ("POST", "/research/brainstorm", {"query": "a"}),
    ("POST", "/research/collections", {"name": "c"}),
    ("GET", "/research", None),
    ("GET", "/research/{0}", None),
    ("GET", "/research/{0}", None),
    ("GET", "/research/{1}/events", None),
    ("POST", "/research/{0}/updates", {"update_content": "x"}),
)


@pytest.fixture
def make_app() -> Iterator[Callable[[Scopes], Flask]]:
    apps: list[Flask] = []

    def make(scopes: Scopes) -> Flask:
        apps.append(create_app(Settings(), mock=scopes))
        return apps[-1]

    yield make
    for app in apps:
        app.extensions["caesar_server"].close()


def test_the_same_calls_get_the_same_bytes(make_app: Callable[[Scopes], Flask]) -> None:
    def answers(prefix: str) -> list[bytes]:
        scopes, ids, found = Scopes(), [], []
        scope = scopes.get(prefix.removeprefix("/t/"))
        reply = Reply(results=RESULTS, text="So [1].", queued_polls=1, progress=("Reading",))
        scope.add(Rule(conditions=conditions(query="a"), replies=(reply,)))
        client = make_app(scopes).test_client()
        for method, path, body in ASKED:
            response = client.open(prefix + path.format(*ids), method=method, json=body)
            found.append(response.data)
            if (method, path) == ("POST", "/research"):
                ids.append(response.json["id"])
        return found

    assert answers("") == answers("")
    assert answers("/t/x") == answers("/t/x")
