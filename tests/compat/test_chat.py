"""``POST /compat/chat/completions`` and how chats and prompts become each other."""

from __future__ import annotations

from typing import Any

import pytest

from caesar_server.app import create_app
from caesar_server.contract import (
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    LogprobToken,
    ResearchRequest,
    TopLogprob,
    UsageCounted,
)
from caesar_server.mock.scopes import Scopes
from caesar_server.settings import ModelRoute, Settings

ANSWER = [
    ContentDelta("Par"),
    ContentDelta("is"),
    UsageCounted(4, 1),
    ChoiceFinished(),
    Completed(),
]
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Capital"}, {"type": "text", "text": "?"}],
    },
]


def chat(client: Any, **body: Any) -> Any:
    return client.post(
        "/compat/chat/completions", json={"model": "m", "messages": MESSAGES, **body}
    )


def request_seen(client: Any) -> Any:
    registry = client.application.extensions["caesar_server"].registry
    return registry.loaded()["scripted"].script.requests[-1]


def test_the_body_has_the_documented_shape(make_client):
    body = chat(make_client(ANSWER)).json
    assert len(body.pop("id")) == 36
    assert body == {
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Paris", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5},
    }


def test_reasoning_is_beside_the_content(make_client):
    events = [ContentDelta("hm ", channel="reasoning"), ContentDelta("so", channel="reasoning")]
    message = chat(make_client([*events, *ANSWER])).json["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm so", "Paris")


def test_logprobs_have_the_chat_form(make_client):
    token = LogprobToken("é", -0.25, (TopLogprob("é", -0.25),))
    events = [ContentDelta("é", logprobs=(token,)), ChoiceFinished(), Completed()]
    reply = chat(make_client(events), logprobs=True, top_logprobs=1)
    entry = {"token": "é", "logprob": -0.25, "bytes": [195, 169]}
    assert reply.json["choices"][0]["logprobs"] == {
        "content": [{**entry, "top_logprobs": [entry]}],
        "refusal": None,
    }


def test_a_chat_backend_gets_all_messages(make_client):
    client = make_client(ANSWER, capabilities={"accepts": frozenset({"chat"})})
    chat(client, tools=[{"type": "function"}], tool_choice="auto", max_completion_tokens=9)
    request = request_seen(client)
    assert isinstance(request, ChatRequest)
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "user"]
    assert request.messages[3].text == "Capital\n?"
    assert request.parameters.system_prompt == "Be brief."
    assert request.parameters.auto
    assert (request.tools, request.tool_choice) == (({"type": "function"},), "auto")
    assert request.sampling.max_tokens == 9


def test_a_completion_backend_gets_the_last_user_message(make_client):
    client = make_client(ANSWER, capabilities={"accepts": frozenset({"completion"})})
    assert chat(client).json["choices"][0]["message"]["content"] == "Paris"
    request = request_seen(client)
    assert isinstance(request, CompletionRequest)
    assert request.prompts == ("Capital\n?",)


def test_a_research_backend_gets_the_last_user_message_as_query(make_client):
    client = make_client(ANSWER, capabilities={"accepts": frozenset({"research"})})
    chat(client, metadata={"reasoning_loops": 2})
    request = request_seen(client)
    assert isinstance(request, ResearchRequest)
    assert (request.query, request.parameters.reasoning_loops) == ("Capital\n?", 2)


def test_metadata_wins_over_the_system_message(make_client):
    client = make_client(ANSWER)
    chat(client, metadata={"system_prompt": "From metadata"})
    assert request_seen(client).parameters.system_prompt == "From metadata"


def test_a_prompt_becomes_a_chat_or_a_query(make_client):
    body = {"model": "m", "prompt": "Why?", "metadata": {"system_prompt": "Short."}}
    client = make_client(ANSWER, capabilities={"accepts": frozenset({"chat"})})
    client.post("/compat/completions", json=body)
    assert [(m.role, m.text) for m in request_seen(client).messages] == [
        ("system", "Short."),
        ("user", "Why?"),
    ]
    client = make_client(ANSWER, capabilities={"accepts": frozenset({"research"})})
    client.post("/compat/completions", json=body)
    assert request_seen(client).query == "Why?"


@pytest.mark.parametrize("kind", ["chat", "research"])
def test_several_prompts_are_refused_by_a_backend_that_takes_one(make_client, kind):
    client = make_client(ANSWER, capabilities={"accepts": frozenset({kind})})
    reply = client.post("/compat/completions", json={"model": "m", "prompt": ["a", "b"]})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, "prompt")


def test_the_model_list_names_what_can_be_asked(make_client):
    client = make_client(ANSWER)
    body = client.get("/compat/models").json
    assert body["object"] == "list"
    assert [model["id"] for model in body["data"]] == ["caesar-research", "scripted"]
    for model in body["data"]:
        assert client.get(f"/compat/models/{model['id']}").json == model
    reply = client.get("/compat/models/nobody/knows")
    assert (reply.status_code, reply.json["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("unknown_model", ["default", "reject"])
def test_a_model_that_is_claimed_and_not_listed_can_be_retrieved(make_client, unknown_model):
    routes = {"gpt-*": ModelRoute(backend="scripted")}
    client = make_client(ANSWER, unknown_model=unknown_model, models=routes)
    for name in ("gpt-3", "scripted/x", "scripted/x/y"):
        for end in ("", "/"):
            reply = client.get(f"/compat/models/{name}{end}")
            assert (reply.status_code, reply.json["id"]) == (200, name)
    assert client.get("/v1/models/scripted/").json["id"] == "scripted"
    assert client.get("/compat/models/").json["object"] == "list"
    assert client.get("/compat/models/llama").status_code == 404


def test_a_mock_has_every_model():
    app = create_app(Settings(), mock=Scopes())
    for name in ("gpt-4", "org/model"):
        assert app.test_client().get(f"/v1/models/{name}").json["id"] == name
    app.extensions["caesar_server"].close()


def test_an_unknown_model_is_answered_unless_told_otherwise(make_client):
    assert chat(make_client(ANSWER), model="gpt-4/x").json["model"] == "gpt-4/x"
    strict = make_client(ANSWER, unknown_model="reject")
    reply = chat(strict, model="gpt-4/x")
    assert (reply.status_code, reply.json["error"]["code"], reply.json["error"]["param"]) == (
        404,
        "model_not_found",
        "model",
    )
    assert chat(strict, model="scripted").status_code == 200
    assert chat(strict, model="scripted/inner").status_code == 200
    assert request_seen(strict).model == "inner"
