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
        ({"prompt": [1, 2]}, "1 2", ("1 2",)),
        ({"prompt": [[1, 2], "a", [3]]}, "1 2", ("1 2", "a", "3")),
        ({"prompt": [1, "a"]}, None, ()),
        ({"prompt": [[]]}, None, ()),
        ({"prompt": [True]}, None, ()),
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
        headers={"x-team": "blue"},
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
        ("/research/", "/research"),
        ("/v1/completions//", "/compat/completions"),
        ("/", "/"),
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
        (CompletionRequest(prompts=((1, 2),)), "1 2"),
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


def native(path: str, body: object = None, method: str = "POST", **more: Any) -> Call:
    data = b"" if body is None else json.dumps(body).encode()
    path, _, query = path.partition("?")
    raw_path = f"{path}?{query}" if query else path
    headers = more.get("headers", {})
    return call_from_http(method=method, path=path, headers=headers, body=data, raw_path=raw_path)


@pytest.mark.parametrize(
    ("path", "asks"),
    [
        ("/research", True),
        ("/agents/research", True),
        ("/research/brainstorm", True),
        ("/research/7/chat", True),
        ("/agents/research/7/chat", True),
        ("/research/7/updates", False),
        ("/research/7/cancel", False),
        ("/research/files", False),
        ("/research/collections", False),
        ("/research/files/chat", False),
        ("/agents/auth", False),
    ],
)
def test_what_a_backend_answers_of_caesars_own_routes(path: str, asks: bool) -> None:
    assert asks_for_answer(native(path, {"query": "q", "content": "c"})) is asks
    assert not asks_for_answer(native(path, method="GET"))


def test_a_research_request_has_its_parameters_as_metadata() -> None:
    body = {"query": "q", "model": "gpt-5.2", "compute_units": 2, "files": ["f"]}
    call = native("/research", body)
    assert (call.prompt, call.query, call.model) == ("q", "q", "gpt-5.2")
    assert call.metadata == {"compute_units": 2, "reasoning_loops": 2, "files": ["f"]}
    both = native("/research", {"query": "q", "compute_units": 2, "reasoning_loops": 5})
    assert both.metadata["reasoning_loops"] == 5


def test_a_follow_up_has_its_content_as_prompt_and_no_query() -> None:
    call = native("/research/7/chat", {"content": "And then?", "snippets": ["s"]})
    assert (call.prompt, call.query, call.messages) == ("And then?", None, ())
    assert call.metadata == {"snippets": ["s"]}


def test_an_update_and_a_get_have_no_prompt() -> None:
    assert native("/research/7/updates", {"update_content": "Be quick"}).prompt is None
    assert native("/research/7", method="GET").prompt is None


SSE = {"accept": "text/event-stream"}


@pytest.mark.parametrize(
    ("call", "stream"),
    [
        (native("/research/7/events", method="GET", headers=SSE), True),
        (native("/research/7/events", method="GET"), False),
        (native("/research/7", method="GET", headers=SSE), False),
        (native("/research/7/chat/8/stream", method="GET"), True),
        (native("/agents/research?stream=true", {"query": "q"}), True),
        (native("/agents/research?stream=false", {"query": "q"}), False),
        (native("/research", {"query": "q"}, headers=SSE), False),
    ],
)
def test_a_stream_is_asked_for_by_path_query_or_accept(call: Call, stream: bool) -> None:
    assert call.stream is stream


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
