"""Follow-up questions to a mock."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract.sse import SseDecoder
from caesar_server.mock.model.reply import MockError, MockResult
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import Settings

Create = Callable[..., str]
Say = Callable[..., None]
#: Of a job's chat.
CHAT = {"path": "/research/{id}/chat"}


@pytest.fixture
def ask(client: FlaskClient, create: Create) -> Callable[..., tuple[str, dict[str, Any]]]:
    """Asks a follow-up about a job; returns the path of its message, and the answer."""

    def post(content: str = "And?", prefix: str = "", **body: Any) -> tuple[str, dict[str, Any]]:
        chat = f"{prefix}/research/{create()}/chat"
        answer = client.post(chat, json={"content": content, **body})
        assert answer.status_code == 200, answer.text
        return f"{chat}/{answer.json['id']}", answer.json

    return post


Ask = Callable[..., tuple[str, dict[str, Any]]]


@pytest.mark.parametrize("prefix", ["", "/agents"])
def test_a_rule_answers_a_follow_up(client: FlaskClient, ask: Ask, reply: Say, prefix: str) -> None:
    source = MockResult(title="A", url="https://a.example/", citation_index=1)
    reply(when={"path": f"{prefix}/research/{{id}}/chat", "prompt": "And?"},
          text="So [1].", results=(source,), queued_polls=2)  # fmt: skip
    path, begun = ask(prefix=prefix)
    assert (begun["status"], begun["content"]) == ("processing", "")
    polls = [client.get(path) for _ in range(4)]
    assert [poll.status_code for poll in polls] == [202, 202, 200, 200]
    assert [poll.json["status"] for poll in polls] == ["processing"] * 2 + ["completed"] * 2
    last = polls[-1].json
    assert last["content"] == "So [1]."
    assert [one["title"] for one in last["results"]] == ["A"]


def test_a_poll_in_capitals_is_one(client: FlaskClient, ask: Ask, reply: Say) -> None:
    reply(when=CHAT, text="So.", queued_polls=1)
    chat, _, message_id = ask()[0].rpartition("/")
    polls = [client.get(f"{chat}/{message_id.upper()}").json["status"] for _ in range(2)]
    assert polls == ["processing", "completed"]


def test_without_a_rule_it_is_repeated(client: FlaskClient, ask: Ask) -> None:
    path, _ = ask("Hm?")
    assert client.get(path).json["content"] == "Hm?"


def test_a_rule_for_queries_is_none_for_follow_ups(
    client: FlaskClient, ask: Ask, reply: Say
) -> None:
    reply(when={"query": "Why?"}, text="Because.")
    path, _ = ask("Why?")
    assert client.get(path).json["content"] == "Why?"


def test_snippets_are_parameters(client: FlaskClient, ask: Ask, reply: Say) -> None:
    reply(when={"metadata": {"snippets": ["this"]}}, text="This.")
    path, _ = ask(snippets=["this"])
    assert client.get(path).json["content"] == "This."


def test_a_failure_is_told(client: FlaskClient, ask: Ask, reply: Say) -> None:
    reply(when=CHAT, error=MockError(message="Out of luck"))
    path, _ = ask()
    found = client.get(path).json
    assert (found["status"], found["error_message"]) == ("failed", "Out of luck")


def test_a_stream_has_the_chunks_of_the_reply_and_waits_for_no_polls(
    client: FlaskClient, ask: Ask, reply: Say
) -> None:
    reply(when=CHAT, text="one two three", queued_polls=100)
    path, _ = ask()
    assert pieces(client.get(f"{path}/stream").data) == ["one", " two", " three"]


def test_faults_happen_between_the_chunks(
    client: FlaskClient, ask: Ask, reply: Say, fault: Say
) -> None:
    reply(when=CHAT, text="one two three")
    path, _ = ask()
    when = {"path": "/research/{id}/chat/{id}/stream"}
    fault("silent_close", when, times=1, after_chunks=2)
    assert pieces(client.get(f"{path}/stream").data) == ["one", " two"]
    fault("error_frame", when, times=1, after_chunks=1, message="Out of luck")
    *_, broken, done = [one.data for one in SseDecoder().feed(client.get(f"{path}/stream").data)]
    assert (json.loads(broken)["error"]["message"], done) == ("Out of luck", "[DONE]")
    fault("status", {"path": "/research/{id}/chat/{id}"}, times=1, status=503, message="No.")
    assert client.get(path).json == {"error": "No."}


def test_the_account_of_a_message_is_the_same_each_time() -> None:
    def account(name: str) -> str | None:
        app = create_app(Settings(), mock=Scopes())
        client, prefix = app.test_client(), f"/t/{name}" if name else ""
        job_id = client.post(f"{prefix}/research", json={"query": "Why?"}).json["id"]
        chat = client.post(f"{prefix}/research/{job_id}/chat", json={"content": "And?"})
        app.extensions["caesar_server"].close()
        found: str | None = chat.json["account_id"]
        return found

    assert account("") is None
    assert uuid.UUID(account("a"))
    assert account("a") == account("a") != account("b")


def pieces(data: bytes) -> list[str]:
    chunks = [json.loads(one.data) for one in SseDecoder().feed(data) if one.data != "[DONE]"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    return [delta["content"] for delta in deltas if delta.get("content")]
