"""What the public Go command line client makes of chats and brainstorms, re-created.

Go's ``encoding/json`` ignores unknown members, takes null for "not there", and fails on any other
value of another type than the field's: so does :func:`decode`.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from caesar_server.contract import ChoiceFinished, Completed, ContentDelta
from caesar_server.testing import Gate

SOURCE = {"id": str, "title": str, "url": str, "citation_index": int}
MESSAGE = {
    "id": str,
    "role": str,
    "content": str,
    "status": str,
    "snippets": [str],
    "created_at": datetime,
    "error_message": str,
    "results": [SOURCE],
}
CHUNK = {
    "choices": [{"delta": {"role": str, "content": str}, "finish_reason": str}],
    "results": [SOURCE],
}


class Map:
    """A map from strings to values of a type."""

    def __init__(self, item: Any) -> None:
        self.item = item


BRAINSTORM = {
    "id": str,
    "status": str,
    "questions": [{"id": str, "question": str, "options": Map(str)}],
}


class DecodeError(ValueError):
    """Go cannot decode a value into a field."""


def decode(value: Any, kind: Any) -> Any:
    """Return a decoded JSON value as Go would have it in a variable of a type."""
    if isinstance(kind, dict):
        found = _expect(value, dict, kind)
        return {name: decode(found.get(name), field) for name, field in kind.items()}
    if isinstance(kind, list):
        return [decode(item, kind[0]) for item in _expect(value, list, kind)]
    if isinstance(kind, Map):
        return {name: decode(item, kind.item) for name, item in _expect(value, dict, kind).items()}
    if kind is datetime:
        text = _expect(value, str, kind)
        moment = datetime.fromisoformat(text) if text else None
        if moment is not None and moment.tzinfo is None:
            raise DecodeError(f"{text!r} is no RFC 3339 time")
        return moment
    return _expect(value, kind, kind)


def _expect(value: Any, python_type: type, kind: Any) -> Any:
    if value is None:
        return python_type()
    if type(value) is not python_type:
        raise DecodeError(f"cannot decode {value!r} into {kind}")
    return value


class Go:
    """Sends what the client sends: no version, a JSON content type also without a body."""

    def __init__(self, served: Any, headers: Any = None) -> None:
        self._served = served
        self._client = served.client
        self._headers = {"Content-Type": "application/json", **(headers or {})}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded body; any status from 400 on is fatal."""
        data = None if body is None else json.dumps(body)
        response = self._client.open(path, method=method, data=data, headers=self._headers)
        if response.status_code >= 400:
            raise AssertionError(response.text)
        return response.get_json()

    def ask(self, job_id: str, content: str, between_polls: Any) -> Any:
        """Ask a follow-up question and poll until it is answered, as ``chat send`` does."""
        path = f"/research/{job_id}/chat"
        message = decode(self.call("POST", path, {"content": content}), MESSAGE)
        polls = 0
        while message["status"] == "processing":
            # the next poll goes to the id in the reply before
            message = decode(self.call("GET", f"{path}/{message['id']}"), MESSAGE)
            polls += 1
            between_polls(message)
        return message, polls

    def stream(self, job_id: str, message_id: str) -> tuple[str, Any]:
        """Return the text of a stream and its sources, as ``chat stream`` prints them."""
        path = f"/research/{job_id}/chat/{message_id}/stream"
        response = self._client.get(path, headers=self._headers)
        text, results = "", []
        for line in response.text.splitlines():
            if not line.startswith("data: "):
                continue
            data = line.removeprefix("data: ")
            if data == "[DONE]":
                return text, results
            chunk = decode(json.loads(data), CHUNK)
            text += "".join(choice["delta"]["content"] for choice in chunk["choices"])
            results += chunk["results"]
        raise AssertionError("no [DONE]")

    def history(self, job_id: str) -> Any:
        """Return the history, which must be a bare array."""
        return decode(self.call("GET", f"/research/{job_id}/chat"), [MESSAGE])

    def brainstorm(self, query: str) -> Any:
        """Return a session, whose options must be a map of strings."""
        return decode(self.call("POST", "/research/brainstorm", {"query": query}), BRAINSTORM)


def prepare(served):
    gate = Gate()
    served.stage.steps["follow_up"] = (
        gate,
        ContentDelta("Slow "),
        ContentDelta("[1]."),
        ChoiceFinished(),
        Completed(),
    )
    served.stage.steps["brainstorm"] = (
        Completed({"questions": [{"question": "For whom?", "options": ["Us", "All"]}]}),
    )
    return gate


def test_asking_and_polling_needs_no_switch(serve):
    served = serve()
    gate = prepare(served)
    job_id = served.research()
    client = Go(served)

    def open_after_the_first(message):
        assert message["id"]
        gate.open()
        served.ended(message["id"])

    message, polls = client.ask(job_id, "Why?", open_after_the_first)
    assert polls == 2
    assert (message["status"], message["content"]) == ("completed", "Slow [1].")
    (source,) = message["results"]
    assert (source["id"], source["citation_index"]) == ("ions", 1)
    assert client.stream(job_id, message["id"]) == ("Slow [1].", [source])


def test_without_the_switch_history_and_options_are_the_documented_ones(serve):
    served = serve()
    prepare(served).open()
    job_id = served.research()
    served.asked(job_id)
    client = Go(served)
    with pytest.raises(DecodeError):
        client.history(job_id)
    with pytest.raises(DecodeError):
        client.brainstorm("qubits")


def check_switched(client, job_id):
    messages = client.history(job_id)
    assert [message["role"] for message in messages] == ["assistant", "user"]
    assert messages[0]["results"][0]["citation_index"] == 1
    (question,) = client.brainstorm("qubits")["questions"]
    assert question == {"id": "q1", "question": "For whom?", "options": {"0": "Us", "1": "All"}}


def test_the_setting_switches_for_everybody(serve):
    served = serve(cli_shapes=True)
    prepare(served).open()
    job_id = served.research()
    assert Go(served).history(job_id) == []
    served.asked(job_id)
    check_switched(Go(served), job_id)


def test_a_key_switches_for_those_who_show_it(serve, make_key):
    plain, switched = make_key(), make_key(cli_shapes=True)
    served = serve(keys=True)
    prepare(served).open()
    job_id = served.research(headers=plain)
    served.asked(job_id, headers=plain)
    check_switched(Go(served, switched), job_id)
    with pytest.raises(DecodeError):
        Go(served, plain).history(job_id)


def test_a_session_without_questions_reads_the_same_either_way(serve):
    for cli_shapes in (False, True):
        served = serve(accepts=("research",), cli_shapes=cli_shapes)
        assert Go(served).brainstorm("Which qubits did Delft build in 2023?")["questions"] == []
