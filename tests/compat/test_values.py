"""Values of fields: null at every depth, and messages that stay short and printable."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from caesar_server.contract import ChoiceFinished, Completed, ContentDelta, ResearchParameters

ANSWER = [ContentDelta("x"), ChoiceFinished(), Completed()]
COMPLETIONS, CHAT = "/compat/completions", "/compat/chat/completions"
USER = {"role": "user", "content": "q"}

#: What a message says of any mistake: what was expected, or what must not be.
SAYS_WHY = re.compile(
    r"expected|required|only allowed|not possible|unknown|does not|no backend answers",
    re.IGNORECASE,
)


def answer_all(request: Any) -> Iterator[Any]:
    for choice in range(request.choices):
        yield ChoiceFinished(choice)
    yield Completed()


@pytest.fixture
def client(make_client):
    return make_client(ANSWER)


@pytest.fixture
def script(client):
    ask(client)
    return client.application.extensions["caesar_server"].registry.loaded()["scripted"].script


def ask(client: Any, path: str = COMPLETIONS, **body: Any) -> Any:
    question = {"prompt": "p"} if path == COMPLETIONS else {"messages": [USER]}
    return client.post(path, json={"model": "m", **question, **body})


@pytest.mark.parametrize(
    "body",
    [
        {"stream": True, "stream_options": {"include_usage": None, "include_obfuscation": None}},
        {"stream_options": None},
        {"metadata": {"trace": None}},
        {"logit_bias": {"1": None}},
        {"tools": None, "tool_choice": None},
    ],
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_null_is_absent_at_every_depth(client, script, path, body):
    assert ask(client, path, **body).status_code == 200
    request = script.requests[-1]
    assert request.sampling.logit_bias == {}
    assert request.parameters == ResearchParameters(auto=True)
    assert request.extra == {}


@pytest.mark.parametrize(
    "key",
    ["auto", "reasoning_loops", "compute_units", "source_timeout", "reasoning_mode",
     "allow_early_exit", "exclude_social", "excluded_domains", "system_prompt", "model",
     "collection_ids"],
)  # fmt: skip
def test_a_research_parameter_that_is_null_is_absent(client, script, key):
    assert ask(client, metadata={key: None}).status_code == 200
    assert script.requests[-1].parameters == ResearchParameters(auto=True)


def test_null_is_absent_in_messages(client, script):
    messages = [
        {"role": "system", "content": "s", "name": None},
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": None, "audio": None},
        {"role": "user", "content": [{"type": "text", "text": "q", "file": None}], "name": None},
    ]
    assert ask(client, CHAT, messages=messages).status_code == 200
    for message in script.requests[-1].messages:
        assert (message.name, message.extra) == (None, {})


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [None]}, "messages[0]"),
        (CHAT, {"messages": [{"role": None, "content": "x"}]}, "messages[0].role"),
        (CHAT, {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (CHAT, {"messages": [{"role": "user", "content": [None]}]}, "messages[0].content[0]"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
            "messages[0].content[0].text",
        ),
        (CHAT, {"tools": [None]}, "tools[0]"),
        (COMPLETIONS, {"prompt": [None]}, "prompt[0]"),
        (COMPLETIONS, {"stop": [None]}, "stop[0]"),
        (COMPLETIONS, {"metadata": {"excluded_domains": [None]}}, "metadata.excluded_domains[0]"),
    ],
)
def test_null_is_nothing_where_something_must_be(client, path, body, param):
    reply = ask(client, path, **body)
    assert (reply.status_code, reply.json["error"]["param"]) == (400, param)
    assert "null" in reply.json["error"]["message"]


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(
    "field",
    ["max_tokens", "max_completion_tokens", "temperature", "top_p", "n", "seed", "top_logprobs",
     "frequency_penalty", "presence_penalty"],
)  # fmt: skip
def test_a_boolean_is_no_number_in_a_chat(client, field, value):
    reply = ask(client, CHAT, logprobs=True, **{field: value})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, field)
    assert f"got {str(value).lower()}" in reply.json["error"]["message"]


@pytest.mark.parametrize("value", [1, 0, 1.0, "1"])
def test_a_number_is_no_boolean(client, value):
    assert ask(client, CHAT, logprobs=value).json["error"]["param"] == "logprobs"
    reply = ask(client, stream=True, stream_options={"include_usage": value})
    assert reply.json["error"]["param"] == "stream_options.include_usage"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("reasoning_loops", "1", 1),
        ("reasoning_loops", "10", 10),
        ("reasoning_loops", "007", 7),
        ("source_timeout", " 3 ", 3),
        ("source_timeout", "180", 180),
        ("reasoning_mode", "TRUE", True),
        ("allow_early_exit", " false", False),
    ],
)
def test_metadata_that_is_text_is_read(client, script, key, text, value):
    assert ask(client, metadata={key: text}).status_code == 200
    name = {"source_timeout": "source_timeout_s"}.get(key, key)
    assert getattr(script.requests[-1].parameters, name) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("reasoning_loops", "0"),
        ("reasoning_loops", "11"),
        ("reasoning_loops", "-1"),
        ("reasoning_loops", "1.5"),
        ("reasoning_loops", "1e1"),
        ("reasoning_loops", "0x5"),
        ("reasoning_loops", "٣"),
        ("reasoning_loops", ""),
        ("reasoning_loops", "9" * 5000),
        ("source_timeout", "2"),
        ("source_timeout", "181"),
        ("reasoning_mode", ""),
        ("reasoning_mode", "1"),
        ("reasoning_mode", "null"),
    ],
)
def test_metadata_that_cannot_be_read_is_refused(client, key, text):
    reply = ask(client, metadata={key: text})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, f"metadata.{key}")


HUGE = "x" * 50_000
EVIL = "\x1b[31m\x00\r\n\x85\u2028\u202e\ud800"


def variants() -> list[Any]:
    texts = (HUGE, EVIL, EVIL * 1000)
    return [
        *texts,
        *([text] * 20 for text in texts),
        *({text: text} for text in texts),
        {f"{HUGE}{i}": EVIL for i in range(20)},
        [{HUGE: HUGE}],
        [[[[HUGE]]]],
        10**300,
        -(10**300),
        1e308,
        [10**300] * 1000,
    ]


FIELDS = [
    "model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p",
    "frequency_penalty", "presence_penalty", "logit_bias", "seed", "stop", "n", "stream",
    "stream_options", "user", "metadata", "suffix", "echo", "best_of", "logprobs", "top_logprobs",
    "tools", EVIL, HUGE,
]  # fmt: skip


def is_bounded(reply: Any) -> None:
    """Check that an error says why, shortly, and cannot do harm to a terminal."""
    if reply.status_code == 200:
        return
    assert reply.status_code in (400, 404)
    error = reply.json["error"]
    assert len(reply.data) < 2500
    assert error["message"].isprintable()
    assert SAYS_WHY.search(error["message"])
    assert error["param"] is None or (error["param"].isprintable() and len(error["param"]) < 300)
    assert reply.data.isascii()


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("field", FIELDS, ids=lambda name: ascii(name)[:20])
@pytest.mark.parametrize("strict", [False, True])
def test_a_message_never_echoes_more_than_a_little(make_client, path, field, strict):
    settings = {"unknown_fields": "reject", "unknown_model": "reject"} if strict else {}
    client = make_client(answer_all, **settings)
    for value in variants():
        is_bounded(ask(client, path, **{field: value}))
        if field in ("stop", "messages", "tools"):
            is_bounded(ask(client, path, **{field: [value]}))


@pytest.mark.parametrize("key", ["role", "content", "name", "type", "text", "file", EVIL])
def test_a_message_about_messages_never_echoes_more_than_a_little(client, key):
    for value in variants():
        is_bounded(ask(client, CHAT, messages=[{**USER, key: value}]))
        is_bounded(
            ask(client, CHAT, messages=[{**USER, "content": [{"type": "text", key: value}]}])
        )
        file = {"type": "file", "file": {"file_id": value, "filename": value}}
        is_bounded(ask(client, CHAT, messages=[{**USER, "content": [file]}]))


@pytest.mark.parametrize(
    "key", ["reasoning_loops", "reasoning_mode", "excluded_domains", "system_prompt", "model",
            "collection_ids", EVIL]
)  # fmt: skip
def test_a_message_about_metadata_never_echoes_more_than_a_little(client, key):
    for value in variants():
        is_bounded(ask(client, metadata={key: value}))


def test_all_mistakes_at_once_make_no_endless_message(client):
    body = dict.fromkeys(FIELDS[3:-2], EVIL * 1000)
    for path in (COMPLETIONS, CHAT):
        is_bounded(client.post(path, data=json.dumps(body), content_type="application/json"))


def test_the_path_of_a_list_of_many_is_found(client):
    messages = [USER] * 1000 + [{"role": "user"}]
    assert ask(client, CHAT, messages=messages).json["error"]["param"] == "messages[1000].content"
