"""Streams, looked at as raw bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from caesar_server.contract import (
    BackendUnavailableError,
    ChoiceFinished,
    Completed,
    ContentDelta,
    InvalidRequestError,
    ProgressNoted,
    RateLimitedError,
    StatusChanged,
    UsageCounted,
)
from caesar_server.testing import Gate, decode_frames

ANSWER = [
    ContentDelta("Par"),
    ContentDelta("is \u2028 \u00e9"),
    UsageCounted(4, 3),
    ChoiceFinished(),
    Completed(),
]


def stream(client: Any, path: str = "/compat/completions", **body: Any) -> Any:
    return client.post(path, json={"model": "m", "prompt": "p", "stream": True, **body})


def chat(client: Any, **body: Any) -> Any:
    messages = [{"role": "user", "content": "p"}]
    return client.post(
        "/compat/chat/completions",
        json={"model": "m", "messages": messages, "stream": True, **body},
    )


def test_the_framing_is_plain_data_lines_and_done(make_client):
    reply = stream(make_client(ANSWER))
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-accel-buffering"] == "no"
    assert "content-length" not in reply.headers
    raw = reply.data
    assert raw.endswith(b"\n\ndata: [DONE]\n\n")
    assert b"\r" not in raw
    assert raw.isascii()
    for block in raw.removesuffix(b"\n\n").split(b"\n\n"):
        assert block.startswith(b"data: ")
        assert b"\n" not in block


@pytest.mark.parametrize("path", ["/compat/completions", "/compat/chat/completions"])
def test_a_character_that_the_backend_cuts_is_whole_at_the_client(make_client, caplog, path):
    cut = [
        ContentDelta("good \u00e9", 1),
        ContentDelta("a\ud83d"),
        ContentDelta("\ud83d", 1),
        ContentDelta("\ude00b\ud83d"),
        ContentDelta("c\ud83d"),
        ContentDelta("\ud83d", channel="reasoning"),
        ContentDelta("\ude00", channel="reasoning"),
        ChoiceFinished(0),
        ChoiceFinished(1),
        Completed(),
    ]
    client = make_client(cut)
    asked = {"model": "m", "prompt": "p", "messages": [{"role": "user", "content": "p"}], "n": 2}
    streamed = client.post(path, json={**asked, "stream": True})
    logged = [one for one in caplog.records if "within a character" in one.message]
    assert len(logged) == 1
    chunks = decode_frames(streamed.data)
    assert chunks[0]["id"] in logged[0].message
    texts = {0: "", 1: ""}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        texts[choice["index"]] += choice.get("text") or choice.get("delta", {}).get("content", "")
    assert texts == {0: "a\U0001f600b\ufffdc\ufffd", 1: "good \u00e9\ufffd"}
    whole = client.post(path, json=asked).json["choices"]
    assert [one.get("text") or one["message"]["content"] for one in whole] == [*texts.values()]
    if "chat" in path:
        assert whole[0]["message"]["reasoning_content"] == "\U0001f600"


def test_every_chunk_is_whole_and_has_the_same_identity(make_client):
    chunks = decode_frames(stream(make_client(ANSWER)).data)
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
    assert chunks[0]["object"] == "text_completion"
    assert all(
        set(choice) == {"text", "index", "logprobs", "finish_reason"}
        for chunk in chunks
        for choice in chunk["choices"]
    )
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, None, "stop"]


def test_each_choice_finishes_exactly_once(make_client):
    events = [
        ContentDelta("a", 0),
        ContentDelta("b", 1),
        ChoiceFinished(1),
        ContentDelta("a", 0),
        ChoiceFinished(0, "length"),
        Completed(),
    ]
    chunks = decode_frames(stream(make_client(events), n=2).data)
    finished = [
        (choice["index"], choice["finish_reason"])
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["finish_reason"] is not None
    ]
    assert finished == [(1, "stop"), (0, "length")]


def test_include_usage_adds_one_chunk_before_done_and_null_to_the_others(make_client):
    chunks = decode_frames(stream(make_client(ANSWER), stream_options={"include_usage": True}).data)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 3


@pytest.mark.parametrize(
    "options", [{}, {"include_usage": False}, {"include_obfuscation": True}, None]
)
def test_without_include_usage_there_is_no_usage_at_all(make_client, options):
    raw = stream(make_client(ANSWER), stream_options=options).data
    assert b"usage" not in raw


def test_progress_chunks_have_no_content(make_client):
    events = [StatusChanged("searching"), ProgressNoted("Reading 3 sources"), *ANSWER]
    client = make_client(events)
    chunks = decode_frames(stream(client).data)
    assert [c["caesar"]["status"] for c in chunks if "caesar" in c] == ["searching", "searching"]
    assert chunks[1]["caesar"] == {
        "id": chunks[0]["id"],
        "status": "searching",
        "message": "Reading 3 sources",
    }
    assert all(chunk["choices"][0]["text"] == "" for chunk in chunks if "caesar" in chunk)
    in_chat = decode_frames(chat(client).data)
    assert in_chat[0]["choices"][0]["delta"] == {
        "role": "assistant",
        "reasoning_content": "searching\n",
    }
    assert in_chat[1]["choices"][0]["delta"] == {"reasoning_content": "Reading 3 sources\n"}


def test_progress_can_be_switched_off(make_client):
    events = [StatusChanged("searching"), *ANSWER]
    assert b"caesar" not in stream(make_client(events, stream_progress=False)).data


def test_a_chat_stream_names_the_role_once_for_each_choice(make_client):
    events = [
        ContentDelta("a", 0),
        ContentDelta("b", 0),
        ChoiceFinished(0),
        ChoiceFinished(1),
        Completed(),
    ]
    deltas = [
        (choice["index"], choice["delta"])
        for chunk in decode_frames(chat(make_client(events), n=2).data)
        for choice in chunk["choices"]
    ]
    assert deltas == [
        (0, {"role": "assistant", "content": "a"}),
        (0, {"content": "b"}),
        (0, {}),
        (1, {"role": "assistant", "content": ""}),
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [(InvalidRequestError("no", param="x"), 400), (RateLimitedError("slow"), 429)],
)
def test_what_fails_at_once_is_an_error_status_and_no_stream(make_client, error, status):
    reply = stream(make_client([error]))
    assert (reply.status_code, reply.content_type) == (status, "application/json")
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}


def test_a_failure_in_mid_stream_is_an_error_frame_and_done(make_client):
    reply = stream(make_client([ContentDelta("a"), BackendUnavailableError("gone", code="lost")]))
    assert reply.status_code == 200
    frames = reply.data.decode().removesuffix("\n\n").split("\n\n")
    assert json.loads(frames[-2].removeprefix("data: ")) == {
        "error": {"message": "gone", "type": "server_error", "param": None, "code": "lost"}
    }
    assert frames[-1] == "data: [DONE]"
    assert "choices" not in frames[-2]


def test_an_unexpected_exception_in_mid_stream_keeps_its_details(make_client, caplog):
    raw = stream(make_client([ContentDelta("a"), ZeroDivisionError("secret")])).data
    assert b"An unexpected error occurred" in raw
    assert b"secret" not in raw
    assert raw.endswith(b"data: [DONE]\n\n")
    assert "secret" in caplog.text


def test_the_status_is_decided_after_the_wait_for_the_first_event(make_client):
    gate = Gate()
    client = make_client([gate, *ANSWER], first_event_wait_s=0, heartbeat_s=0.01)
    reply = client.post(
        "/compat/completions",
        json={"model": "m", "prompt": "p", "stream": True},
        buffered=False,
    )
    assert reply.status_code == 200
    writes = reply.response
    assert next(writes) == b""
    assert next(writes) == b": keep-alive\n\n"
    gate.open()
    rest = b"".join(writes)
    assert rest.endswith(b"data: [DONE]\n\n")
    reply.close()


def test_heartbeats_come_only_while_idle_and_can_be_switched_off(make_client):
    assert b"keep-alive" not in stream(make_client(ANSWER, heartbeat_s=0)).data
    assert b"keep-alive" not in stream(make_client(ANSWER)).data


def test_all_that_is_ready_leaves_in_one_write(make_client):
    events = [*(ContentDelta("x") for _ in range(100)), ChoiceFinished()]
    begin, end = Gate(), Gate()
    client = make_client([ContentDelta("first"), begin, *events, end, Completed()])
    reply = client.post(
        "/compat/completions", json={"model": "m", "prompt": "p", "stream": True}, buffered=False
    )
    writes = reply.response
    next(writes)
    begin.open()
    # all of it is ready before anybody takes it
    end.wait_until_reached()
    end.open()
    rest = list(writes)
    assert sum(write.count(b"data: {") for write in rest) == 101
    assert len(rest) < 5
    reply.close()


def test_a_client_that_leaves_cancels_the_run(make_client):
    gate = Gate()
    client = make_client([ContentDelta("a"), gate, *ANSWER])
    reply = client.post(
        "/compat/completions", json={"model": "m", "prompt": "p", "stream": True}, buffered=False
    )
    next(reply.response)
    gate.wait_until_reached()
    reply.close()
    parts = client.application.extensions["caesar_server"]
    script = parts.registry.loaded()["scripted"].script
    script.wait_for(lambda script: script.ended == 1)
    assert script.cancels == 1


def test_a_client_that_leaves_before_the_first_byte_cancels_the_run(make_client):
    gate = Gate()
    client = make_client([gate, *ANSWER], first_event_wait_s=0)
    reply = client.post(
        "/compat/completions", json={"model": "m", "prompt": "p", "stream": True}, buffered=False
    )
    gate.wait_until_reached()
    reply.close()
    script = client.application.extensions["caesar_server"].registry.loaded()["scripted"].script
    script.wait_for(lambda script: script.ended == 1)
    assert script.cancels == 1


def test_more_streams_than_places_are_refused_at_once(make_client):
    gate = Gate()
    client = make_client([gate, *ANSWER], threads=8, first_event_wait_s=0)
    # of the four places one is kept for short answers
    body = {"model": "m", "prompt": "p", "stream": True}
    held = [client.post("/compat/completions", json=body, buffered=False) for _ in range(3)]
    refused = client.post("/compat/completions", json=body)
    assert (refused.status_code, refused.json["error"]["code"]) == (503, "overloaded")
    assert refused.headers["x-should-retry"] == "true"
    assert refused.headers["retry-after"] == "1"
    assert client.get("/healthz").status_code == 200
    gate.open()
    for reply in held:
        assert reply.data.endswith(b"data: [DONE]\n\n")
    assert client.post("/compat/completions", json=body).status_code == 200


def test_nothing_is_sent_meanwhile_if_heartbeats_are_off(make_client):
    gate = Gate()
    client = make_client([gate, *ANSWER], first_event_wait_s=0, heartbeat_s=0)
    reply = client.post(
        "/compat/completions", json={"model": "m", "prompt": "p", "stream": True}, buffered=False
    )
    assert next(reply.response) == b""
    gate.wait_until_reached()
    gate.open()
    assert b"keep-alive" not in b"".join(reply.response)
    reply.close()
