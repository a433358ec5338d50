"""Follow-ups with backends that know nothing of them: the server asks them otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from caesar_backend_echo import EchoBackend
from caesar_server.contract import (
    Backend,
    Capabilities,
    ChatRequest,
    ChoiceFinished,
    Completed,
    ContentDelta,
    InvalidRequestError,
)
from caesar_server.testing import CaesarMock, SseClient, mock_server


class Model(Backend):
    """Chats as a model does that was told to cite: it cites whatever sources it was shown."""

    capabilities = Capabilities(accepts=frozenset({"chat"}))

    def run(self, request: Any, context: Any) -> Any:
        """Answer with the numbers of the sources in the system message."""
        if not isinstance(request, ChatRequest):
            raise InvalidRequestError("chats only", param=None)
        told = request.messages[0]
        numbers = [
            line.partition("]")[0][1:]
            for line in told.text.splitlines()
            if line.startswith("[") and "by their numbers" in told.text
        ]
        text = " ".join(f"Says [{number}]." for number in numbers) or "Nothing."
        turns = sum(message.role == "user" for message in request.messages)
        yield ContentDelta(f"{text} Turn {turns}.")
        yield ChoiceFinished()
        yield Completed()


ANSWER = "Traps [1] and qubits [2]."


def said(*texts):
    return (*map(ContentDelta, texts), ChoiceFinished(), Completed())


@pytest.mark.parametrize("kind", ["chat", "completion", "research"])
def test_the_model_that_wrote_the_answer_is_told_in_any_form(serve, kind):
    served = serve(accepts=(kind,))
    served.stage.steps[kind] = said(ANSWER)
    served.asked(served.research(model="gemini-3-flash"))
    assert served.backend.script.requests[-1].type == kind
    assert served.backend.script.requests[-1].parameters.model == "gemini-3-flash"


def test_a_backend_that_only_chats_answers_from_the_research(serve):
    served = serve(accepts=("chat",))
    served.stage.steps["chat"] = lambda request: said(
        ANSWER if len(request.messages) == 1 else "So [2]."
    )
    job_id = served.research()
    answer = served.asked(job_id, "And then?", snippets=["a passage"], excluded_domains=["x.org"])
    assert answer["content"] == "So [2]."
    asked = served.backend.script.requests[-1]
    assert isinstance(asked, ChatRequest)
    assert [message.role for message in asked.messages] == ["system", "user"]
    assert asked.messages[1].text == "And then?"
    for part in ("qubits?", ANSWER, "a passage"):
        assert part in asked.messages[0].text
    assert asked.parameters.excluded_domains == ("x.org",)
    # what was asked is shown as it was, though the backend was asked otherwise
    history = served.client.get(f"/research/{job_id}/chat").get_json()
    asked_message = history["data"][1]
    assert asked_message["content"] == "And then?"
    assert asked_message["snippets"] == ["a passage"]


def test_a_backend_that_can_do_none_of_it_refuses_at_once(serve):
    served = serve(accepts=("research",))
    served.research()
    only = serve(accepts=("brainstorm",))  # the same jobs, another backend
    (job,) = only.store.jobs()
    refused = only.client.post(f"/research/{job.id}/chat", json={"content": "?"})
    assert refused.status_code == 400
    assert "follow_up" in refused.get_json()["error"]


def test_a_model_that_chats_is_told_to_keep_the_numbers(serve):
    first = serve()
    job_id = first.research()
    model = serve(Model)  # the same jobs, asked about with another backend
    answer = model.asked(job_id, "And then?")
    assert answer["content"] == "Says [1]. Says [2]. Says [3]. Turn 1."
    assert [one["citation_index"] for one in answer["results"]] == [1, 2, 3]
    assert model.asked(job_id, "Sure?")["content"].endswith("Turn 2.")


def test_echo_repeats_what_it_is_given_with_its_sources(serve):
    first = serve()
    job_id = first.research()
    echo = serve(EchoBackend)
    answer = echo.asked(job_id, "And then?", snippets=["a passage"])
    for part in ("qubits?", "Traps [1] and qubits [2].", "a passage", "And then?"):
        assert part in answer["content"]
    assert [one["id"] for one in answer["results"]] == ["ions", "qubits", "other"]


@pytest.fixture
def mock() -> Iterator[CaesarMock]:
    with mock_server() as started:
        yield started


def test_the_mock_answers_a_question_by_its_rules_or_repeats_it(mock):
    mock.on(prompt="Why?").reply("Because.")
    client = SseClient(mock.base_url)
    job_id = client.post("/research", {"query": "q"}).json()["id"]
    assert client.get(f"/research/{job_id}").json()["status"] == "completed"
    for content, expected in (("Why?", "Because."), ("Else?", "Else?")):
        made = client.post(f"/research/{job_id}/chat", {"content": content}).json()
        with client.get(f"/research/{job_id}/chat/{made['id']}") as polled:
            # a poll of the mock waits until nothing is left to chance
            assert polled.status == 200
            assert polled.json()["content"] == expected
    history = client.get(f"/research/{job_id}/chat").json()["data"]
    assert [one["content"] for one in history] == ["Else?", "Else?", "Because.", "Why?"]


def test_after_a_reset_of_the_mock_the_same_job_has_no_old_chat(mock):
    client = SseClient(mock.base_url)
    seen = []
    for _ in range(2):
        job_id = client.post("/research", {"query": "q"}).json()["id"]
        assert client.get(f"/research/{job_id}").json()["status"] == "completed"
        assert client.get(f"/research/{job_id}/chat").json() == {"data": []}
        made = client.post(f"/research/{job_id}/chat", {"content": "And?"}).json()
        client.get(f"/research/{job_id}/chat/{made['id']}").read()
        seen.append((job_id, made["id"]))
        mock.reset()
    assert seen[0] == seen[1]
