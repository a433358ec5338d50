"""OpenAI's contract, statement by statement: what no other test of this folder shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from caesar_server.contract import (
    BackendUnavailableError,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    LogprobToken,
    ProgressNoted,
    StatusChanged,
    TopLogprob,
    UsageCounted,
)
from caesar_server.mock.backend import MockBackend
from caesar_server.testing import decode_frames

ANSWER = [ContentDelta("Par"), ContentDelta("is"), ChoiceFinished(), Completed()]
COMPLETIONS, CHAT = "/compat/completions", "/compat/chat/completions"
SCHEMAS = json.loads(Path(__file__).with_name("openai_schemas.json").read_text())


def is_valid(name: str, document: Any) -> None:
    """Check ``document`` against one of OpenAI's schemas."""
    Draft202012Validator({**SCHEMAS, "$ref": f"#/$defs/{name}"}).validate(document)


def ask(client: Any, path: str = COMPLETIONS, **body: Any) -> Any:
    question = {"prompt": "p"} if path == COMPLETIONS else {"messages": [user("p")]}
    return client.post(path, json={"model": "m", **question, **body})


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def rich(request: Any) -> Any:
    """Yield an answer with everything that an answer may have."""
    yield StatusChanged("searching")
    yield ProgressNoted("Reading")
    for choice in range(request.choices):
        yield ContentDelta("hm", choice, "reasoning")
        first = LogprobToken("Pa", None)
        second = LogprobToken("ris", -0.5, (TopLogprob("ris", -0.5), TopLogprob("ul", -2.0)))
        yield ContentDelta("Pa", choice, logprobs=(first,))
        yield ContentDelta("ris", choice, logprobs=(second,))
        yield ChoiceFinished(choice, "content_filter" if choice else "length")
    yield UsageCounted(1, 2)
    yield Completed()


@pytest.mark.parametrize(
    ("path", "logprobs", "whole", "chunk"),
    [(COMPLETIONS, 2, "completion", "completion_chunk"), (CHAT, True, "chat", "chat_chunk")],
)
@pytest.mark.parametrize("script", [rich, ANSWER])
def test_answers_are_valid_by_openais_schema(make_client, script, path, logprobs, whole, chunk):
    client = make_client(script, capabilities={"logprobs": True})
    body = {"n": 2, "logprobs": logprobs} if script is rich else {}
    is_valid(whole, ask(client, path, **body).json)
    for options in (None, {"include_usage": True}):
        chunks = decode_frames(ask(client, path, **body, stream=True, stream_options=options).data)
        assert len(chunks) >= 3
        for document in chunks:
            is_valid(chunk, document)
        assert ("usage" in chunks[0]) == (options is not None)


def test_the_schemas_can_tell(make_client):
    good = ask(make_client(ANSWER)).json
    for change in (
        {"created": 1.5},
        {"id": ""},
        {"usage": None},
        {"choices": []},
        {"choices": [{**good["choices"][0], "finish_reason": None}]},
        {"detail": "x"},
    ):
        assert not Draft202012Validator({**SCHEMAS, "$ref": "#/$defs/completion"}).is_valid(
            {**good, **change}
        )


def test_models_are_valid_by_openais_schema(make_client):
    client = make_client(ANSWER)
    listed = client.get("/compat/models").json
    is_valid("model_list", listed)
    for model in listed["data"]:
        is_valid("model", client.get(f"/compat/models/{model['id']}").json)
    is_valid("error", client.get("/compat/models/nobody").json)


# 1. The request


@pytest.mark.parametrize(
    ("field", "value"),
    [("echo", True), ("logprobs", 1), ("logprobs", 0), ("n", 2), ("best_of", 2), ("suffix", "x")],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_would_silently_give_wrong_data_is_refused_naming_the_backend(
    make_client, field, value, stream
):
    able = dict.fromkeys(("echo", "logprobs", "n", "best_of", "suffix"), False)
    client = make_client(ANSWER, capabilities=able)
    reply = ask(client, stream=stream, **{field: value})
    assert (reply.status_code, reply.json["error"]["param"]) == (400, field)
    is_valid("error", reply.json)
    if not (field == "best_of" and stream):
        assert "'scripted'" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 1),
        ("temperature", 0),
        ("top_p", 0.1),
        ("stop", ["a"]),
        ("seed", 7),
        ("presence_penalty", 1),
        ("frequency_penalty", -1),
        ("logit_bias", {"50256": -100}),
        ("user", "u"),
        ("response_format", {"type": "json_object"}),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "auto"),
        ("metadata", {"reasoning_loops": 1}),
        ("anything", {"at": ["all"]}),
    ],
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_what_a_backend_may_ignore_is_accepted(make_client, path, field, value):
    able = dict.fromkeys(("max_tokens", "stop", "seed"), False)
    reply = ask(make_client(ANSWER, capabilities=able), path, **{field: value})
    assert reply.status_code == 200


@pytest.mark.parametrize(
    "value", [{"echo": False}, {"n": 1}, {"best_of": 1}, {"suffix": None}, {"suffix": ""}]
)
def test_the_default_said_aloud_is_no_wish(make_client, value):
    able = dict.fromkeys(("echo", "n", "best_of", "suffix"), False)
    assert ask(make_client(ANSWER, capabilities=able), **value).status_code == 200


def test_the_default_said_aloud_asks_nothing_of_a_backend_that_cannot(make_client):
    client = make_client(ANSWER, capabilities={"logprobs": False})
    assert ask(client, CHAT, logprobs=False).status_code == 200


# 2. The response


@pytest.fixture
def mock(make_client: Callable[..., Any]) -> Any:
    """Return a client of the built-in mock, which repeats the prompt."""
    return make_client(MockBackend)


@pytest.mark.parametrize("stream", [False, True])
def test_an_index_is_prompt_times_n_plus_k(make_client, stream):
    def label(request: CompletionRequest) -> Any:
        for position, prompt in enumerate(request.prompts):
            for k in range(request.sampling.n):
                choice = position * request.sampling.n + k
                yield ContentDelta(f"{prompt}{k}", choice)
                yield ChoiceFinished(choice)
        yield Completed()

    reply = ask(make_client(label), prompt=["a", "b", "c"], n=2, stream=stream)
    texts: dict[int, str] = {}
    for chunk in decode_frames(reply.data) if stream else [reply.json]:
        for choice in chunk["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == {0: "a0", 1: "a1", 2: "b0", 3: "b1", 4: "c0", 5: "c1"}


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_every_reason_is_told_once_and_last(make_client, path, reason):
    client = make_client([ContentDelta("x"), ChoiceFinished(0, reason), Completed()])
    assert ask(client, path).json["choices"][0]["finish_reason"] == reason
    chunks = decode_frames(ask(client, path, stream=True).data)
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, reason]


def test_usage_adds_up_prompts_once_and_every_choice(mock):
    body = {"prompt": ["one two", "three"], "n": 2}
    usage = {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}
    assert ask(mock, **body).json["usage"] == usage
    streamed = ask(mock, **body, stream=True, stream_options={"include_usage": True})
    assert decode_frames(streamed.data)[-1]["usage"] == usage


# 3. Framing


@pytest.mark.parametrize(
    "end", [[], [ZeroDivisionError("x")], [SystemExit(1)], [Completed()], [ChoiceFinished(5)]]
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_stream_that_goes_wrong_never_ends_without_a_word(make_client, path, end):
    raw = ask(make_client([ContentDelta("a"), *end]), path, stream=True).data
    *_, error, done = raw.decode().removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    document = json.loads(error.removeprefix("data: "))
    is_valid("error", document)
    assert document["error"]["code"] == "internal_error"


def test_nothing_but_data_lines_even_in_a_rich_stream(make_client):
    client = make_client(rich, capabilities={"logprobs": True})
    for path in (COMPLETIONS, CHAT):
        raw = ask(client, path, stream=True, n=2, stream_options={"include_usage": True}).data
        lines = raw.split(b"\n")
        assert {line[:6] for line in lines} == {b"", b"data: "}
        assert raw.count(b"[DONE]") == 1
        assert all(line != b"data: " for line in lines)


def test_a_client_that_closes_right_after_done_has_succeeded(make_client):
    client = make_client(ANSWER)
    reply = client.post(
        COMPLETIONS, json={"model": "m", "prompt": "p", "stream": True}, buffered=False
    )
    raw = b""
    for write in reply.response:
        raw += write
        if raw.endswith(b"data: [DONE]\n\n"):
            break
    reply.close()
    parts = client.application.extensions["caesar_server"]
    job_id = decode_frames(raw)[0]["id"]
    assert parts.store.job(job_id).status == "completed"
    assert parts.registry.loaded()["scripted"].script.cancels == 0


# 4. Errors


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    "wrong", [{"temperature": 9}, {"model": None}, {"stop": [""]}, {"n": 0}, {"metadata": 1}]
)
def test_a_mistake_is_a_status_also_of_a_stream(make_client, path, wrong):
    reply = ask(make_client(ANSWER), path, **{"stream": True, **wrong})
    assert (reply.status_code, reply.content_type) == (400, "application/json")
    is_valid("error", reply.json)
    assert "x-should-retry" not in reply.headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_stream_and_an_answer_have_a_request_id(make_client, path, stream):
    client = make_client(ANSWER)
    reply = client.post(
        path,
        json={"model": "m", "prompt": "p", "messages": [user("p")], "stream": stream},
        headers={"x-request-id": "mine"},
    )
    assert reply.headers["x-request-id"] == "mine"


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("stream", [False, True])
def test_a_success_has_no_error_member_and_a_failure_no_choices(make_client, path, stream):
    good = ask(make_client(ANSWER), path, stream=stream)
    assert good.status_code == 200
    assert b'"error"' not in good.data
    bad = ask(make_client([BackendUnavailableError("gone")]), path, stream=stream)
    assert bad.status_code == 503
    assert set(bad.json) == {"error"}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_the_content_type_tells_a_stream_from_an_answer(make_client, path):
    client = make_client(ANSWER)
    assert ask(client, path).headers["content-type"] == "application/json"
    for stream in (False, None):
        assert ask(client, path, stream=stream).headers["content-type"] == "application/json"
    streamed = ask(client, path, stream=True)
    assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
