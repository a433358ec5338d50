"""Bugs that other OpenAI-compatible servers had: each test is named after what must hold here.

Those of proxies and of the upstream's side are only here as far as the decoder goes that such a
proxy reads with.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from flask.testing import FlaskClient

from caesar_server.app import create_app
from caesar_server.contract import (
    Backend,
    BackendUnavailableError,
    Capabilities,
    ChoiceFinished,
    Completed,
    ContentDelta,
    UsageCounted,
)
from caesar_server.contract.sse import DONE, SseDecoder
from caesar_server.mock.backend import MockBackend
from caesar_server.registry import Candidate, Registry
from caesar_server.settings import Settings
from caesar_server.testing import Gate, decode_frames, scripted_backend

ANSWER = [
    ContentDelta("Par"),
    ContentDelta("is"),
    UsageCounted(1, 2),
    ChoiceFinished(),
    Completed(),
]
FOUR = {"message", "type", "param", "code"}


def ask(client: Any, **body: Any) -> Any:
    return client.post("/compat/completions", json={"model": "m", "prompt": "p", **body})


def chunks(client: Any, **body: Any) -> list[dict[str, Any]]:
    reply = ask(client, stream=True, **body)
    assert reply.status_code == 200, reply.data
    return decode_frames(reply.data)


@pytest.fixture
def client(make_client: Callable[..., FlaskClient]) -> FlaskClient:
    return make_client(ANSWER)


@pytest.fixture
def mock(make_client: Callable[..., FlaskClient]) -> FlaskClient:
    """A client of the built-in mock, which repeats the prompt word by word."""
    return make_client(MockBackend)


def scripted(client: FlaskClient) -> Any:
    """Return the script of a client's backend, once that is loaded."""
    return client.application.extensions["caesar_server"].registry.loaded()["scripted"].script


def test_every_stream_ends_in_done(make_client):
    """text-generation-inference#1896."""
    for events in (
        ANSWER,
        [ContentDelta("a"), BackendUnavailableError("gone")],
        [ChoiceFinished(), Completed()],
    ):
        assert ask(make_client(events), stream=True).data.endswith(b"\n\n" + DONE)


def test_a_stream_ends_with_a_reason_and_if_asked_for_usage(client):
    """text-generation-inference PR#2336."""
    *_, last, usage = chunks(client, stream_options={"include_usage": True})
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"]["total_tokens"] == 3


def test_the_reason_is_null_until_the_end(client):
    """ollama#4357 (empty string), LocalAI#1194 (no such key)."""
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks(client)]
    assert reasons == [None, None, "stop"]


def test_every_chunk_has_all_members(client):
    """LocalAI#648: chunks without id, object or model."""
    for chunk in chunks(client):
        assert {"id", "object", "created", "model", "choices"} <= set(chunk)
        assert set(chunk["choices"][0]) == {"text", "index", "logprobs", "finish_reason"}


@pytest.mark.parametrize("path", ["/compat/completions", "/compat/chat/completions"])
def test_every_choice_finishes(mock, path):
    """sglang PR#8417: with n > 1 only the last choice got a reason."""
    body = {"model": "m", "n": 3, "stream": True}
    body["prompt" if path == "/compat/completions" else "messages"] = (
        "a b" if path == "/compat/completions" else [{"role": "user", "content": "a b"}]
    )
    frames = decode_frames(mock.post(path, json=body).data)
    ended = [c["index"] for f in frames for c in f["choices"] if c["finish_reason"]]
    assert sorted(ended) == [0, 1, 2]


def test_the_text_of_each_choice_is_under_its_own_index(mock):
    """litellm#3276: wrong index with n > 1."""
    texts: dict[int, str] = {}
    for chunk in chunks(mock, prompt="one two three", n=3):
        for choice in chunk["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == dict.fromkeys(range(3), "one two three")


@pytest.mark.parametrize("member", ["id", "created", "model", "object"])
def test_the_identity_does_not_change_between_chunks(client, member):
    """sglang#39864, foundry-local#144, llama.cpp#5876."""
    found = {chunk[member] for chunk in chunks(client, stream_options={"include_usage": True})}
    assert len(found) == 1


def test_the_id_is_not_empty_and_not_used_twice(client):
    """text-generation-inference#1782: empty id."""
    ids = {ask(client).json["id"] for _ in range(10)} | {chunks(client)[0]["id"] for _ in range(10)}
    assert len(ids) == 20
    assert all(ids)


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_cut_by_max_tokens_says_length(mock, stream):
    """LocalAI#3533: stop although cut."""
    body = {"prompt": "one two three", "max_tokens": 2}
    last = chunks(mock, **body)[-1] if stream else ask(mock, **body).json
    assert last["choices"][0]["finish_reason"] == "length"
    whole = chunks(mock, prompt="one two", max_tokens=2)[-1]
    assert whole["choices"][0]["finish_reason"] == "stop"


def test_created_is_an_integer_and_null_is_not_the_word_none(client):
    """litellm#699: a float, and "None" as a string."""
    for document in (ask(client).json, *chunks(client)):
        assert type(document["created"]) is int
    assert b"None" not in ask(client).data + ask(client, stream=True).data


@pytest.mark.parametrize("body", [{}, {"stream": None}, {"stream": False}])
def test_without_stream_there_are_no_events(client, body):
    """9router#3492."""
    assert ask(client, **body).content_type == "application/json"


def test_include_usage_is_honoured(client):
    """vllm#6371."""
    assert chunks(client, stream_options={"include_usage": True})[-1]["usage"]["prompt_tokens"] == 1


@pytest.mark.parametrize("options", [{}, {"include_usage": None}, {"include_usage": False}])
def test_stream_options_without_include_usage_give_no_usage(client, options):
    """vllm PR#36379: an empty object switched it on."""
    assert b"usage" not in ask(client, stream=True, stream_options=options).data


def test_the_decoder_keeps_a_last_usage_chunk_without_choices():
    """litellm PR#25410: a proxy dropped it."""
    raw = b'data: {"choices":[],"usage":{"total_tokens":3}}\n\ndata: [DONE]\n\n'
    usage, done = SseDecoder().feed(raw)
    assert json.loads(usage.data) == {"choices": [], "usage": {"total_tokens": 3}}
    assert done.data == "[DONE]"


def test_a_stream_can_echo(mock):
    """vllm#15119: stream and echo together were refused."""
    text = "".join(c["choices"][0]["text"] for c in chunks(mock, prompt="Say it. ", echo=True))
    assert (
        text
        == "Say it. Say it. "
        == ask(mock, prompt="Say it. ", echo=True).json["choices"][0]["text"]
    )


def test_a_stop_sequence_does_not_leak_where_it_spans_chunks(mock):
    """vllm#3574, text-generation-inference#1254."""
    for stream in (False, True):
        body = {"prompt": "one two three four", "stop": ["wo th"]}
        found = chunks(mock, **body) if stream else [ask(mock, **body).json]
        assert "".join(c["choices"][0]["text"] for c in found) == "one t"
        assert found[-1]["choices"][0]["finish_reason"] == "stop"


def test_what_only_looked_like_a_stop_sequence_is_not_lost(mock):
    """koboldcpp PR#1031: text held back was lost at the end."""
    found = chunks(mock, prompt="one two thr", stop=["three"])
    assert "".join(c["choices"][0]["text"] for c in found) == "one two thr"


@pytest.mark.parametrize("stream", [False, True])
def test_no_choice_of_several_prompts_is_lost(mock, stream):
    """openai-python#90."""
    body = {"prompt": ["a", "b", "c"], "n": 2}
    found = chunks(mock, **body) if stream else [ask(mock, **body).json]
    texts: dict[int, str] = {}
    for choice in (choice for document in found for choice in document["choices"]):
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2], [3]], [0], [2**31 - 1]])
def test_token_ids_are_no_crash(mock, prompt):
    """lmdeploy#4186."""
    reply = ask(mock, prompt=prompt)
    prompts = prompt if isinstance(prompt[0], list) else [prompt]
    texts = [choice["text"] for choice in reply.json["choices"]]
    assert texts == [" ".join(map(str, ids)) for ids in prompts]


def test_an_explicit_null_is_no_crash(client):
    """vllm#19862."""
    names = ("suffix", "max_tokens", "temperature", "top_p", "n", "stream", "logprobs", "echo",
             "stop", "presence_penalty", "frequency_penalty", "best_of", "logit_bias", "user",
             "seed", "stream_options", "metadata")  # fmt: skip
    assert ask(client, **dict.fromkeys(names)).status_code == 200


def test_unknown_fields_are_accepted(client):
    """garak#748."""
    assert ask(client, top_k=5, service_tier="auto", store=False, prediction={}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "/compat/completions", {"prompt": 5}),
        ("post", "/compat/completions", []),
        ("get", "/compat/completions", None),
        ("get", "/compat/models/nobody", None),
        ("post", "/compat/nothing", {}),
    ],
)
def test_the_envelope_is_always_the_same(client, method, path, body):
    """ray#64833."""
    reply = getattr(client, method)(path, **({} if body is None else {"json": body}))
    assert set(reply.json) == {"error"}
    assert set(reply.json["error"]) == FOUR
    assert reply.content_type == "application/json"


@pytest.mark.parametrize(
    "body",
    [{"prompt": None}, {"n": -1}, {"max_tokens": 0}, {"stop": 5}, {"logit_bias": {"x": 1}},
     {"stream_options": {"include_usage": "yes"}, "stream": True}, {"metadata": []}],
)  # fmt: skip
def test_a_clients_mistake_is_no_500(client, body):
    """llama.cpp#23463."""
    assert ask(client, **body).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_is_a_404_where_such_are_refused(make_client, stream):
    """worker-vllm#57."""
    strict = make_client(ANSWER, unknown_model="reject")
    reply = ask(strict, model="nobody", stream=stream)
    assert (reply.status_code, reply.json["error"]["code"]) == (404, "model_not_found")
    assert reply.json["error"]["param"] == "model"
    assert ask(strict, model="scripted", stream=stream).status_code == 200


def test_a_stream_that_is_asked_for_wrongly_is_a_status_not_a_frame(client):
    """llama.cpp#14566, litellm#6629."""
    reply = ask(client, stream=True, temperature=5)
    assert (reply.status_code, reply.content_type) == (400, "application/json")


@pytest.mark.parametrize("path", ["/compat/completions", "/compat/chat/completions"])
def test_a_failure_in_mid_stream_is_told(make_client, path):
    """any-llm PR#847, litellm PR#39748: the stream just ended."""
    client = make_client([ContentDelta("a"), BackendUnavailableError("gone")])
    body = {"model": "m", "prompt": "p", "messages": [{"role": "user", "content": "p"}]}
    frames = client.post(path, json={**body, "stream": True}).data.split(b"\n\n")
    assert set(json.loads(frames[-3].removeprefix(b"data: "))["error"]) == FOUR


def test_the_frame_of_a_failure_keeps_code_and_type(make_client):
    """vercel/ai PR#17279."""
    failure = BackendUnavailableError("gone", code="lost")
    frames = ask(make_client([ContentDelta("a"), failure]), stream=True).data.split(b"\n\n")
    error = json.loads(frames[-3].removeprefix(b"data: "))["error"]
    assert (error["code"], error["type"]) == ("lost", "server_error")


def test_a_heartbeat_is_a_comment_and_nothing_else(make_client):
    """openai-python#2722: a keep-alive that the SDK choked on."""
    gate = Gate()
    client = make_client([gate, *ANSWER], first_event_wait_s=0, heartbeat_s=0.01)
    reply = client.post(
        "/compat/completions", json={"model": "m", "prompt": "p", "stream": True}, buffered=False
    )
    beats = [next(reply.response) for _ in range(4)]
    gate.open()
    rest = b"".join(reply.response)
    reply.close()
    assert set(beats) == {b"", b": keep-alive\n\n"}
    for block in rest.split(b"\n\n")[:-1]:
        assert block == b": keep-alive" or block.startswith((b"data: {", b"data: [DONE]"))


def test_the_content_type_is_right_for_each_kind_of_answer(client):
    """ramalama#2837."""
    assert ask(client).content_type == "application/json"
    assert ask(client, stream=True).content_type == "text/event-stream; charset=utf-8"
    assert ask(client, n=0).content_type == "application/json"


def test_the_decoder_keeps_events_apart():
    """tapes#71: a proxy lost the blank lines."""
    assert [e.data for e in SseDecoder().feed(b"data: a\n\n\ndata: b\n\ndata: c\ndata: d\n\n")] == [
        "a",
        "b",
        "c\nd",
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_characters_that_are_cut_apart_come_out_whole(size):
    """plano#980, llama-cpp-python#372."""
    raw = 'data: {"text":"日本語 😀 é"}\n\n'.encode()
    decoder = SseDecoder()
    found = [e for i in range(0, len(raw), size) for e in decoder.feed(raw[i : i + size])]
    assert [json.loads(event.data)["text"] for event in found] == ["日本語 😀 é"]


def test_the_decoder_reads_crlf():
    """praxis PR#739."""
    assert [e.data for e in SseDecoder().feed(b"data: a\r\n\r\ndata: [DONE]\r\n\r\n")] == [
        "a",
        "[DONE]",
    ]


def test_a_client_that_left_ends_the_generation(make_client):
    """llama.cpp#11720."""
    gate = Gate()
    client = make_client([ContentDelta("a"), gate, *ANSWER])
    reply = client.post(
        "/compat/completions", json={"model": "m", "prompt": "p", "stream": True}, buffered=False
    )
    next(reply.response)
    gate.wait_until_reached()
    reply.close()
    script = scripted(client)
    script.wait_for(lambda script: script.ended == 1)
    assert script.cancels == 1


def test_the_generator_of_a_backend_is_closed_whatever_happens(make_client):
    """gunicorn#2010, flask#4385."""
    closed: list[str] = []

    class Careful(Backend):
        capabilities = Capabilities()

        def run(self, request: Any, context: Any) -> Iterator[Any]:
            try:
                while True:
                    yield ContentDelta("x")
            finally:
                closed.append(request.prompts[0])

    client = make_client(Careful, request_timeout_s=600)
    reply = client.post(
        "/compat/completions", json={"model": "m", "prompt": "left", "stream": True}, buffered=False
    )
    next(reply.response)
    reply.close()
    client.application.extensions["caesar_server"].close()
    assert closed == ["left"]


def test_proxies_are_told_not_to_buffer_a_stream(client):
    """llama-swap#236."""
    headers = ask(client, stream=True).headers
    assert (headers["x-accel-buffering"], headers["cache-control"]) == ("no", "no-cache")


class Broken(Backend):
    """A plugin that cannot be used."""

    capabilities = Capabilities()

    def open(self) -> None:
        raise RuntimeError("no such library")

    def run(self, request: Any, context: Any) -> Iterator[Any]:
        raise AssertionError("never opened")


@contextmanager
def app_of(registry: Registry, settings: Settings) -> Iterator[FlaskClient]:
    app = create_app(settings, registry)
    try:
        yield app.test_client()
    finally:
        app.extensions["caesar_server"].close()


def test_one_broken_plugin_stops_nothing_else():
    """llm#1280, datachain#1904."""
    settings = Settings(default_backend="good")
    registry = Registry.of({"good": scripted_backend(ANSWER), "broken": Broken}, settings)
    with app_of(registry, settings) as client:
        assert ask(client, model="good").status_code == 200
        for stream in (False, True):
            reply = ask(client, model="broken", stream=stream)
            assert (reply.status_code, reply.json["error"]["code"]) == (
                503,
                "backend_failed_to_load",
            )
            assert "library" not in reply.text
        assert client.get("/compat/models").status_code == 200
        assert ask(client, model="good").status_code == 200


def test_two_plugins_of_one_name_are_both_named_in_a_warning(caplog):
    """CLIProxyAPI#5559: the conflict was settled without a word."""
    settings = Settings(default_backend="same")
    both = [
        Candidate(
            name="same",
            entry_point=f"{name}:Backend",
            distribution=name,
            version="1.0",
            load=lambda: scripted_backend(ANSWER),
        )
        for name in ("first-dist", "second-dist")
    ]
    with caplog.at_level(logging.WARNING), app_of(Registry(both, settings), settings) as client:
        assert ask(client).status_code == 200
    assert "first-dist" in caplog.text
    assert "second-dist" in caplog.text
