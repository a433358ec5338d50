"""What servers write differently from OpenAI, and what is made of it."""

from __future__ import annotations

import json
import math

import pytest

from caesar_server.contract import ContentDelta, LogprobToken, TopLogprob

USAGE = {"prompt_tokens": 2, "completion_tokens": 3}
#: As OpenAI has it for what has no chance.
LEAST = -9999.0


def with_logprobs(body: dict, logprobs: object) -> dict:
    body["choices"][0]["logprobs"] = logprobs
    return body


def parallel(own: object, top: object) -> dict:
    return {"tokens": ["hi"], "token_logprobs": [own], "top_logprobs": [top], "text_offset": [0]}


class TestLogprobs:
    @pytest.mark.parametrize("written", [None, -math.inf, -(10**400)], ids=["null", "inf", "big"])
    def test_no_chance_at_all_is_a_number(self, raw, opened, wire, told, written) -> None:
        body = with_logprobs(wire.text("hi", reason="stop"), parallel(-0.5, {"yo": written}))
        events = opened(raw(wire.stream(body))).complete(logprobs=1)
        tokens = (LogprobToken("hi", -0.5, (TopLogprob("yo", LEAST),)),)
        assert ContentDelta("hi", logprobs=tokens) in events
        assert told(events).error is None

    @pytest.mark.parametrize("written", [None, -math.inf])
    def test_nor_is_it_in_a_chat(self, raw, opened, wire, told, written) -> None:
        top = [{"token": "yo", "logprob": written}]
        token = {"token": "hi", "logprob": written, "top_logprobs": top}
        body = with_logprobs(wire.delta({"content": "hi"}, reason="stop"), {"content": [token]})
        events = opened(raw(wire.stream(body))).chat(logprobs=1)
        tokens = (LogprobToken("hi", LEAST, (TopLogprob("yo", LEAST),)),)
        assert ContentDelta("hi", logprobs=tokens) in events
        assert told(events).error is None

    @pytest.mark.parametrize("written", [math.nan, math.inf, True, "-1"])
    def test_what_is_no_log_probability_is_named(self, raw, opened, wire, told, written) -> None:
        body = with_logprobs(wire.text("hi", reason="stop"), parallel(written, None))
        error = told(opened(raw(wire.stream(body))).complete(logprobs=1)).error
        assert (error.status, error.code) == (502, "bad_upstream")
        assert "logprobs" in error.message

    @pytest.mark.parametrize("written", [{}, [], 0, 7, {"tokens": ["a"]}, parallel(-1, None)])
    def test_those_that_nobody_asked_for_are_not_read(
        self, raw, opened, wire, told, written
    ) -> None:
        bodies = (with_logprobs(wire.text(text), written) for text in ("so ST", "OP on"))
        answer = told(opened(raw(wire.stream(*bodies))).complete(stop=("STOP",)))
        assert (answer.text(), answer.error) == ("so ", None)

    @pytest.mark.parametrize("written", [None, {}, [], {"tokens": None}, {"content": None}])
    def test_a_chunk_may_have_none(self, raw, opened, wire, told, written) -> None:
        first = with_logprobs(wire.text("hi"), parallel(-1, {}))
        last = with_logprobs(wire.text("", reason="length"), written)
        answer = told(opened(raw(wire.stream(first, last))).complete(logprobs=1))
        assert (answer.text(), answer.reasons, answer.error) == ("hi", {0: "length"}, None)


class TestUsage:
    def test_what_cannot_be_counted_is_estimated(self, raw, opened, wire, told) -> None:
        usage = {"prompt_tokens": 4, "completion_tokens": 10**12}
        answer = told(
            opened(raw(wire.stream(wire.text("a b", reason="stop", usage=usage)))).complete()
        )
        assert (answer.usage, answer.error) == ((4, 2), None)
        assert answer.details["usage_estimated"]

    def test_what_json_has_no_word_for_is_left_out(self, raw, opened, wire, told) -> None:
        usage = {**USAGE, "cost": math.nan, "details": {"cached": 1, "cost": math.inf}, "more": []}
        answer = told(
            opened(raw(wire.stream(wire.text("hi", reason="stop", usage=usage)))).complete()
        )
        assert (answer.usage, answer.error) == ((2, 3), None)
        assert answer.details["usage"] == {**USAGE, "details": {"cached": 1}}


class TestSignsOfLife:
    @pytest.mark.parametrize(
        "sign",
        [
            b"data:\n\n",
            b"data: \n\n",
            b"data: : keepalive\n\n",
            b'event: ping\ndata: {"type": "ping"}\n\n',
            b'data: {"type": "keepalive", "sequence_number": 1}\n\n',
        ],
    )
    def test_are_no_part_of_the_answer(self, raw, opened, wire, told, sign) -> None:
        head, _, frames = wire.hello().partition(b"\r\n\r\n")
        reply = head + b"\r\n\r\n" + sign + frames.replace(b"\n\n", b"\n\n" + sign, 1)
        answer = told(opened(raw(reply)).complete())
        assert (answer.text(), answer.error) == ("Hello you", None)

    def test_alone_are_no_answer(self, raw, opened, wire, told) -> None:
        answer = told(opened(raw(wire.head() + b"data:\n\n: ping\n\n")).complete())
        assert "sent an empty stream" in answer.error.message

    def test_a_chunk_may_have_a_name(self, raw, opened, wire, told) -> None:
        chunk = json.dumps(wire.text("hi", reason="stop")).encode()
        answer = told(
            opened(raw(wire.head() + b"event: chunk\ndata: " + chunk + b"\n\n")).complete()
        )
        assert (answer.text(), answer.error) == ("hi", None)


class TestTheOtherEndpointsForm:
    """An answer in it is not taken for an empty one."""

    @pytest.mark.parametrize("key", ["delta", "message"])
    def test_of_a_chat_in_a_completion(self, raw, opened, wire, told, key) -> None:
        choice = {"index": 0, key: {"content": "hi"}, "finish_reason": "stop"}
        answer = told(opened(raw(wire.stream({"choices": [choice]}))).complete())
        assert (answer.text(), answer.error) == ("hi", None)

    @pytest.mark.parametrize("more", [{}, {"delta": {}}, {"delta": None}])
    def test_of_a_completion_in_a_chat(self, raw, opened, wire, told, more) -> None:
        choice = {"index": 0, "text": "hi", "finish_reason": "stop", **more}
        answer = told(opened(raw(wire.stream({"choices": [choice]}))).chat())
        assert (answer.text(), answer.error) == ("hi", None)

    def test_of_both_the_one_that_was_asked_for_counts(self, raw, opened, wire, told) -> None:
        choice = {"index": 0, "text": "t", "delta": {"content": "d"}, "finish_reason": "stop"}
        server = raw(wire.stream({"choices": [choice]}))
        assert told(opened(server).complete()).text() == "t"
        assert told(opened(server).chat()).text() == "d"


def test_a_whole_bias_is_sent_as_one(raw, opened, wire) -> None:
    """Some servers read a table of integers."""
    server = raw(wire.hello())
    opened(server).complete(logit_bias={5: -100.0, 6: 0.5})
    assert repr(server.asked[0].body["logit_bias"]) == "{'5': -100, '6': 0.5}"


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_query_of_a_base_url_goes_along(raw, opened, wire, told, slash: str) -> None:
    server = raw(wire.hello())
    ask = opened(f"{server.url}/deployments/d{slash}?api-version=2024-10-21")
    assert told(ask.complete()).text() == "Hello you"
    assert server.asked[0].path == "/v1/deployments/d/completions?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"finish_reason": "error"}, "ended a choice with an error"),
        ({"error": {"code": 502, "message": "lost the GPU"}}, "an error: lost the GPU"),
    ],
)
def test_a_choice_that_broke_off_is_not_whole(raw, opened, wire, told, more, words) -> None:
    first, last = wire.text("hal"), wire.text("f", reason="stop")
    last["choices"][0] |= more
    answer = told(opened(raw(wire.stream(first, last))).complete())
    assert (answer.text(), answer.error.status) == ("hal", 502)
    assert words in answer.error.message


def test_the_only_choice_may_have_numbers_for_its_parts(raw, opened, wire, told) -> None:
    reply = wire.stream(
        wire.delta({"reasoning_content": "hm"}, 0),
        wire.delta({"content": "4"}, 1),
        wire.delta({"content": "2"}, 1),
        wire.delta({}, 0, "stop"),
    )
    answer = told(opened(raw(reply)).chat())
    assert (answer.text(), answer.text(channel="reasoning")) == ("42", "hm")
    assert (answer.error, answer.reasons) == (None, {0: "stop"})


def test_tool_calls_without_a_form_in_json_are_kept_without(raw, opened, wire, told) -> None:
    calls = '[{"a": NaN, "b": [-Infinity, 1e400], "c": 1.5, "d": "x"}]'
    frame = '{"choices": [{"delta": {"tool_calls": ' + calls + '}, "finish_reason": "stop"}]}'
    answer = told(opened(raw(wire.stream(frame))).chat())
    kept = [{"a": None, "b": [None, None], "c": 1.5, "d": "x"}]
    assert answer.details["tool_calls"] == [{"choice": 0, "tool_calls": kept}]
