"""The stream and the JSON body of one request say the same, whatever the backend yields."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caesar_server.blueprints.compat.rendering.answer import Answer
from caesar_server.blueprints.compat.rendering.chunks import (
    ChatWire,
    CompletionWire,
    Envelope,
    Wire,
)
from caesar_server.blueprints.compat.rendering.frames import Frames
from caesar_server.contract import (
    Capabilities,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    LogprobToken,
    ProgressNoted,
    ResultFound,
    Started,
    StatusChanged,
    TopLogprob,
    UsageCounted,
    sse,
)
from caesar_server.testing import decode_frames

text = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["[1]", " [2] ", "\n", "data: x", '",', "\x7f", "\\u007f", "\ud83d", "\ude00", "\u2028\xe9"]
)
logprob = st.floats(-20, 0)
tokens = st.lists(
    st.builds(
        LogprobToken,
        text,
        st.none() | logprob,
        st.lists(st.builds(TopLogprob, text, logprob), max_size=2).map(tuple),
    ),
    max_size=3,
).map(tuple)
noise = st.one_of(
    st.builds(StatusChanged, st.sampled_from(["searching", "summarizing"]), text),
    st.builds(ProgressNoted, text),
    st.builds(
        ResultFound,
        st.sampled_from("ab"),
        text,
        st.just("https://a.example/"),
        citation_index=st.none() | st.integers(1, 3),
    ),
    st.builds(UsageCounted, st.integers(0, 9), st.integers(0, 9)),
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, list[Any]]:
    """Draw a number of choices and well-formed events for them."""
    choices = draw(st.integers(1, 3))
    open_choices = list(range(choices))
    events: list[Any] = [Started({"upstream": "a"})] if draw(st.booleans()) else []
    while open_choices:
        kind = draw(st.integers(0, 9))
        choice = draw(st.sampled_from(open_choices))
        if kind == 0:
            events.append(ChoiceFinished(choice, draw(st.sampled_from(["stop", "length"]))))
            open_choices.remove(choice)
        elif kind <= 2:
            events.append(draw(noise))
        else:
            channel = draw(st.sampled_from(["content", "content", "transformed", "reasoning"]))
            events.append(ContentDelta(draw(text), choice, channel, draw(st.none() | tokens)))
    return choices, [*events, Completed()]


def joined_completion(chunks: list[dict[str, Any]]) -> list[Any]:
    """Put the chunks of a completion together as a client would."""
    texts: defaultdict[int, str] = defaultdict(str)
    logprobs: dict[int, Any] = {}
    reasons: dict[int, str] = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        index = choice["index"]
        texts[index] += choice["text"]
        if choice["logprobs"] is not None:
            sofar = logprobs.setdefault(index, {key: [] for key in choice["logprobs"]})
            for key, values in choice["logprobs"].items():
                sofar[key] += values
        if choice["finish_reason"] is not None:
            assert index not in reasons
            reasons[index] = choice["finish_reason"]
    return [
        {
            "text": texts[index],
            "index": index,
            "logprobs": logprobs.get(index),
            "finish_reason": reasons[index],
        }
        for index in sorted(reasons)
    ]


def joined_chat(chunks: list[dict[str, Any]]) -> list[Any]:
    """Put the chunks of a chat together as a client would; progress is no part of the answer."""
    texts: defaultdict[int, str] = defaultdict(str)
    reasoning: defaultdict[int, str] = defaultdict(str)
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
            if "caesar" not in chunk:
                reasoning[choice["index"]] += choice["delta"].get("reasoning_content", "")
    return [(texts[index], reasoning[index]) for index in sorted(texts)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(
    max_examples=600,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(run=runs(), system_prompt=st.none() | st.just("Short."))
def test_stream_and_body_say_the_same(shared_client, run, system_prompt):
    client, script = shared_client
    choices, script.events = run
    body = {
        "model": "m",
        "prompt": "p",
        "n": choices,
        "metadata": {"system_prompt": system_prompt},
    }
    plain = client.post("/compat/completions", json=body).json
    streamed = client.post(
        "/compat/completions",
        json={**body, "stream": True, "stream_options": {"include_usage": True}},
    )
    *chunks, usage = decode_frames(streamed.data)
    assert joined_completion(chunks) == plain["choices"]
    assert usage["usage"] == plain["usage"]

    chat_body = {**body, "messages": [{"role": "user", "content": "p"}]}
    del chat_body["prompt"]
    plain = client.post("/compat/chat/completions", json=chat_body).json
    streamed = client.post("/compat/chat/completions", json={**chat_body, "stream": True})
    assert joined_chat(decode_frames(streamed.data)) == [
        (choice["message"]["content"], choice["message"].get("reasoning_content", ""))
        for choice in plain["choices"]
    ]


def rendering(wire_class: type[Wire]) -> tuple[Answer, Wire]:
    """Return what renders one answer, whose client asks for a model with a text of our own."""
    envelope = Envelope(id="1", created=2, model="caesar text", include_usage=True)
    request = CompletionRequest(prompts=("p",))
    return Answer(request, Capabilities(), "counted"), wire_class(envelope)


@pytest.mark.parametrize("wire_class", [CompletionWire, ChatWire])
@given(run=runs(), cuts=st.lists(st.integers(0, 30)))
def test_however_many_events_are_ready_their_frames_are_those_of_one_chunk_each(
    wire_class, run, cuts
):
    _, events = run
    answer, wire = rendering(wire_class)
    one_by_one = b"".join(
        sse.frame(chunk)
        for event in events
        for piece in answer.pieces([event])
        for chunk in wire.chunks(piece)
    )
    frames = Frames(*rendering(wire_class))
    places = [0, *sorted(cuts), len(events)]
    parts = [events[start:end] for start, end in pairwise(places)]
    assert b"".join(data for part in parts for data in frames.of(part)) == one_by_one
