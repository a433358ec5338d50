"""``stop`` on echo and on mock: the same text, streamed or not, wherever the words are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

PROMPT = "one two three, café 日本語 😀 abcabd END"


def cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """Return ``text`` up to the stop that is complete first, found letter by letter."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


STOPS: list[Any] = [
    [],
    None,
    "three",
    ["three"],
    [" three,"],  # a whole event
    ["one"],  # at the very beginning
    ["END"],  # at the very end
    ["END."],  # begun and not finished
    ["wo thr"],  # across events
    ["e t", "two"],  # overlapping; the second is complete first
    ["two", "two three"],  # one the beginning of the other
    ["ne two", "one two"],  # one the end of the other
    ["abd"],  # after a false start: abcabd
    ["本", "é"],
    ["😀"],
    ["é 日本語 😀"],
    ["\n", "\r\n", "\u2028", "\x00"],
    ["x", "y", "z", " two"],
    ["One", "TWO"],
    ["e"],
    [PROMPT],
    [PROMPT + "x"],
    ["two", "two", "two", "two"],
]


@pytest.fixture(scope="session")
def gunicorn(gthread: Any) -> Any:
    """One server: where a text ends does not depend on what serves it."""
    return gthread


@pytest.fixture(scope="session", params=["echo", "mock"])
def model(request: pytest.FixtureRequest, gunicorn: Any) -> str:
    listed = gunicorn.ask(b"GET /compat/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert request.param in {model["id"] for model in json.loads(listed.body)["data"]}
    name: str = request.param
    return name


@pytest.mark.parametrize("stop", STOPS, ids=repr)
@pytest.mark.parametrize("chat", [False, True])
def test_the_text_ends_before_the_first_stop(gunicorn, post, model, stop, chat):
    stops = [stop] if isinstance(stop, str) else stop or []
    expected, stopped = cut(PROMPT, stops)
    body: dict[str, Any] = {"model": model, "prompt": PROMPT, "stop": stop}
    path = "/compat/completions"
    if chat:
        path = "/compat/chat/completions"
        body["messages"] = [{"role": "user", "content": PROMPT}]
    whole = json.loads(gunicorn.ask(post(body, path=path)).body)["choices"][0]
    assert (whole["message"]["content"] if chat else whole["text"]) == expected
    assert whole["finish_reason"] == "stop"

    streamed = gunicorn.ask(post({**body, "stream": True}, path=path)).body
    frames = [frame.removeprefix("data: ") for frame in streamed.decode().split("\n\n")[:-2]]
    choices = [json.loads(frame)["choices"][0] for frame in frames]
    if chat:
        assert "".join(choice["delta"].get("content", "") for choice in choices) == expected
    else:
        assert "".join(choice["text"] for choice in choices) == expected
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["stop"]
    assert stopped or expected == PROMPT


@pytest.mark.parametrize(
    ("stop", "param"),
    [
        (["a", "b", "c", "d", "e"], "stop"),
        ("", "stop"),
        ([""], "stop[0]"),
        (["a", ""], "stop[1]"),
        (["a", None], "stop[1]"),
        ([["a"]], "stop[0]"),
        (5, "stop"),
        (False, "stop"),
        ({}, "stop"),
    ],
)
def test_a_wrong_stop_names_its_place(gunicorn, post, stop, param):
    for stream in (False, True):
        reply = gunicorn.ask(post({"stop": stop, "stream": stream}))
        assert (reply.status, reply.error["param"]) == (400, param)
        assert "expected" in reply.error["message"]


def test_a_stop_is_not_looked_for_in_the_echo(gunicorn, post, model):
    body = {"model": model, "prompt": "a b c", "echo": True, "stop": "b"}
    whole = json.loads(gunicorn.ask(post(body)).body)
    assert whole["choices"][0]["text"] == "a b ca "


@pytest.mark.parametrize("count", [1, 2, 256])
def test_many_prompts_are_answered_in_their_order(gunicorn, post, model, count):
    prompts = [f"prompt {i}" for i in range(count)]
    choices = json.loads(gunicorn.ask(post({"model": model, "prompt": prompts})).body)["choices"]
    assert [choice["text"] for choice in choices] == prompts


def test_more_prompts_than_allowed_are_refused(gunicorn, post):
    reply = gunicorn.ask(post({"prompt": ["p"] * 257}))
    assert (reply.status, reply.error["param"]) == (400, "prompt")
    assert "256" in reply.error["message"]
    assert "257" in reply.error["message"]
