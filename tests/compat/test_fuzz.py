"""Bodies that are nearly right: one of five statuses, four keys, never a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caesar_server.mock.backend import MockBackend
from caesar_server.testing import decode_frames

COMPLETIONS, CHAT = "/compat/completions", "/compat/chat/completions"
FOUR = {"message", "type", "param", "code"}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, 2, -1, 128, 129, 2**31, 2**63, 10**30]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["", "user", "text", "true", "4", "\ud800", "\x00", "a b"]),
)
names = st.sampled_from(
    ["role", "content", "type", "text", "file", "file_id", "include_usage", "reasoning_loops",
     "system_prompt", "excluded_domains", "1", "50256", "-1", "name", "body"]
) | st.text(max_size=4)  # fmt: skip
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)

part = st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=5)})
message = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool", "developer"]),
        "content": st.text(max_size=8) | st.lists(part, min_size=1, max_size=2),
    }
)
#: Good values, so that a mutation of one field meets a body that is right otherwise.
good: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.integers(1, 4),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0, 1),
    "n": st.integers(1, 3),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "stop": st.lists(st.text(min_size=1, max_size=2), max_size=4),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}),
    "user": st.text(max_size=3),
    "metadata": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    "logit_bias": st.dictionaries(st.sampled_from(["0", "7"]), st.floats(-100, 100), max_size=2),
    "presence_penalty": st.floats(-2, 2),
}
asked: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    COMPLETIONS: {
        "prompt": st.text(min_size=1, max_size=8)
        | st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=3),
        "echo": st.booleans(),
    },
    CHAT: {"messages": st.lists(message, min_size=1, max_size=3), "tools": st.just([{}])},
}
others = ["suffix", "best_of", "logprobs", "top_logprobs", "max_completion_tokens", "body", "zzz"]


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw an endpoint and a body: a good one of which up to three members were exchanged."""
    path = draw(st.sampled_from([COMPLETIONS, CHAT]))
    fields = {**good, **asked[path]}
    chosen = draw(st.sets(st.sampled_from(sorted(fields)), max_size=6))
    required = "prompt" if path == COMPLETIONS else "messages"
    body = {name: draw(fields[name]) for name in sorted({*chosen, required})}
    body["model"] = "m"
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from([*sorted(fields), "model", *others]) | st.text(max_size=3))
        if draw(st.booleans()) and name in body:
            del body[name]
        else:
            body[name] = draw(anything)
    if draw(st.integers(0, 19)) == 0:
        return path, draw(anything)
    return path, {"body": body} if draw(st.integers(0, 19)) == 0 else body


@pytest.fixture
def mock(make_client):
    return make_client(MockBackend)


@settings(
    max_examples=800,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(request=requests())
def test_a_body_that_is_nearly_right_is_answered_or_refused(mock, request):
    path, body = request
    reply = mock.post(path, data=json.dumps(body), content_type="application/json")
    assert reply.status_code in (200, 400, 404, 413, 415), reply.data
    if reply.status_code != 200:
        assert set(reply.json) == {"error"}
        assert set(reply.json["error"]) == FOUR
        assert reply.json["error"]["message"].isprintable()
    elif reply.content_type == "application/json":
        assert all(c["finish_reason"] in ("stop", "length") for c in reply.json["choices"])
    else:
        chunks = decode_frames(reply.data)
        assert all("choices" in chunk for chunk in chunks)
        assert reply.data.endswith(b"data: [DONE]\n\n")


@settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    path=st.sampled_from([COMPLETIONS, CHAT]),
    raw=st.binary(max_size=40)
    | st.text('{}[]":,\\ntrue0123456789eE+-. \x00', max_size=40).map(str.encode),
    content_type=st.sampled_from(
        ["application/json"] * 4 + ["text/plain", "", "application/json;x"]
    ),
)
def test_bytes_of_any_kind_are_refused(mock, path, raw, content_type):
    reply = mock.post(path, data=raw, content_type=content_type)
    assert reply.status_code in (400, 415), reply.data
    assert set(reply.json["error"]) == FOUR
