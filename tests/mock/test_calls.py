"""From an HTTP body to a call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.contract import (
    ChatRequest,
    CompletionRequest,
    FollowUpRequest,
    Message,
    Part,
    Request,
    ResearchRequest,
)
from caesar_server.mock.calls import (
    asks_for_answer,
    attempt_of,
    call_from_http,
    call_from_request,
    documented_path,
    turn_of,
)
from caesar_server.mock.model.call import Call


def posted(body: object, **more: Any) -> Call:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return call_from_http(method="post", path="/compat/completions", headers={}, body=data, **more)


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("body", "prompt", "prompts"),
    [
        ({"prompt": "a"}, "a", ("a",)),
        ({"prompt": ["a", "b"]}, "a", ("a", "b")),
        ({"prompt": [1, 2]}, None, ()),
        ({"prompt": [[1], [2]]}, None, ()),
        ({"prompt": []}, None, ()),
        ({"body": {"prompt": "wrapped"}}, "wrapped", ("wrapped",)),
        ({"messages": [user("a"), {"role": "assistant", "content": "b"}]}, "a", ()),
        ({"messages": [user([{"type": "text", "text": "a"}, {"text": "b"}])]}, "a\nb", ()),
        ({"messages": [user([{"type": "file", "file": {}}, 3, {"text": 4}])]}, "", ()),
        ({"messages": [{"role": "system", "content": "s"}]}, None, ()),
        ({"messages": "no list"}, None, ()),
        ({"query": "why"}, "why", ()),
        ({"content": "and then?"}, "and then?", ()),
        ({}, None, ()),
        ([1], None, ()),
        (b"", None, ()),
        (b"{", None, ()),
        (b"\xff\xfe", None, ()),
    ],
)
def test_what_replies_are_looked_up_by(
    body: object, prompt: str | None, prompts: tuple[str, ...]
) -> None:
    call = posted(body)
    assert (call.prompt, call.prompts) == (prompt, prompts)


def test_the_rest_of_a_call() -> None:
    body = {"model": "m", "stream": True, "metadata": {"auto": True}, "query": "q"}
    call = call_from_http(
        method="post",
        path="/v1/completions",
        raw_path="/t/x/v1/completions?a=1",
        headers={"X-Team": "blue"},
        body=json.dumps(body).encode(),
        scope="x",
        call_id="x-1",
        api_key="secret",
    )
    assert (call.id, call.scope, call.method) == ("x-1", "x", "POST")
    assert (call.path, call.raw_path) == ("/compat/completions", "/t/x/v1/completions?a=1")
    assert (call.model, call.stream, call.metadata) == ("m", True, {"auto": True})
    assert (call.query, call.headers, call.body) == ("q", {"x-team": "blue"}, body)
    assert "secret" not in repr(call)


def test_fields_of_other_types_are_absent() -> None:
    call = posted({"model": 1, "stream": "true", "metadata": [1], "query": 2, "prompt": {}})
    assert (call.model, call.stream, call.metadata, call.query) == (None, False, {}, None)


def test_what_only_pythons_parser_takes_is_taken() -> None:
    assert posted(b'{"prompt": "a", "temperature": NaN}').prompt == "a"
    assert posted('{"prompt": "é"}'.encode("utf-16")).prompt == "é"


@pytest.mark.parametrize(
    ("path", "documented"),
    [
        ("/v1/models", "/compat/models"),
        ("/compat/v1/chat/completions", "/compat/chat/completions"),
        ("/compat/completions", "/compat/completions"),
        ("/research/7", "/research/7"),
        ("/v1", "/v1"),
    ],
)
def test_a_path_is_as_documented(path: str, documented: str) -> None:
    assert documented_path(path) == documented


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [
        ({}, 1),
        ({"x-stainless-retry-count": "0"}, 1),
        ({"x-stainless-retry-count": "2"}, 3),
        ({"x-retry-count": "1"}, 2),
        ({"x-stainless-retry-count": "-1"}, 1),
        ({"x-stainless-retry-count": "9" * 5000}, 1),
        ({"x-stainless-retry-count": "²"}, 1),
    ],
)
def test_the_attempt_is_what_the_sdk_announces(headers: dict[str, str], attempt: int) -> None:
    assert attempt_of(headers) == attempt


@pytest.mark.parametrize(
    ("roles", "turn"),
    [("", 1), ("u", 1), ("su", 1), ("uau", 2), ("uaua", 2), ("uauau", 3), ("aa", 1)],
)
def test_the_turn_counts_answers_before_the_last_question(roles: str, turn: int) -> None:
    names = {"u": "user", "a": "assistant", "s": "system"}
    assert turn_of([{"role": names[role]} for role in roles]) == turn


@pytest.mark.parametrize(
    ("request_", "prompt"),
    [
        (CompletionRequest(prompts=("a", "b")), "a"),
        (CompletionRequest(prompts=((1, 2),)), None),
        (ChatRequest(messages=(Message(role="user", parts=(Part(text="a"),)),)), "a"),
        (ResearchRequest(query="a"), "a"),
        (FollowUpRequest(content="a", query="b", answer="c"), "a"),
    ],
)
def test_a_request_without_http_is_a_call_too(request_: Request, prompt: str | None) -> None:
    call = call_from_request(request_)
    assert call.prompt == prompt
    assert call.request is request_
    assert asks_for_answer(call)


def test_only_what_a_backend_answers_asks_for_an_answer() -> None:
    assert asks_for_answer(posted({"prompt": "a"}))
    assert not asks_for_answer(posted([1]))
    assert not asks_for_answer(call_from_http(method="GET", path="/compat/models", headers={}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["prompt", "messages", "role", "content", "text", "query", "body"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(JSON | st.binary())
def test_any_body_is_a_call(body: object) -> None:
    assert isinstance(posted(body), Call)
