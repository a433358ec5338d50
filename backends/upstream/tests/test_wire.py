"""What is sent upstream for a request, and what is read of an answer besides its text."""

from __future__ import annotations

import pytest

from caesar_backend_upstream.options import ServerOptions
from caesar_backend_upstream.wire.answers import AnswerReader
from caesar_backend_upstream.wire.asks import asks_for, metadata_of
from caesar_server.contract import (
    ChatRequest,
    CompletionRequest,
    ContentDelta,
    InvalidRequestError,
    LogprobToken,
    Message,
    Part,
    ProgressNoted,
    ResearchParameters,
    ResearchRequest,
    Sampling,
    StatusChanged,
    TopLogprob,
)

ALL = Sampling(
    max_tokens=5,
    temperature=0.5,
    top_p=0.9,
    frequency_penalty=0.1,
    presence_penalty=-0.1,
    logit_bias={50256: -100.0},
    seed=7,
    stop=("a", "b"),
    n=2,
    logprobs=3,
)
SENT = {
    "model": "m",
    "max_tokens": 5,
    "temperature": 0.5,
    "top_p": 0.9,
    "frequency_penalty": 0.1,
    "presence_penalty": -0.1,
    "logit_bias": {"50256": -100.0},
    "seed": 7,
    "stop": ["a", "b"],
    "n": 2,
    "user": "u",
    "stream": True,
    "stream_options": {"include_usage": True},
}


def server(**options) -> ServerOptions:
    return ServerOptions(url="http://x/v1", **options)


def user(text: str) -> Message:
    return Message(role="user", parts=(Part(text=text),))


def test_every_parameter_of_a_completion_is_sent() -> None:
    request = CompletionRequest(prompts=("p",), sampling=ALL, echo=True, suffix="s", user="u")
    (ask,) = asks_for(request, "m", server())
    assert ask.path == "completions"
    assert ask.body == {**SENT, "prompt": "p", "echo": True, "suffix": "s", "logprobs": 3}


def test_every_parameter_of_a_chat_is_sent() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    called = Message(role="assistant", extra={"tool_calls": [{"id": "1"}]})
    answered = Message(role="tool", parts=(Part(text="42"),), extra={"tool_call_id": "1"})
    two = Message(role="user", parts=(Part(text="a"), Part(text="b")), name="Ann")
    request = ChatRequest(
        messages=(user("hi"), called, answered, two),
        sampling=ALL,
        tools=(tool,),
        tool_choice="auto",
        user="u",
    )
    (ask,) = asks_for(request, "m", server())
    assert ask.path == "chat/completions"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert ask.body == {
        **SENT,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
            {"role": "tool", "content": "42", "tool_call_id": "1"},
            {"role": "user", "content": parts, "name": "Ann"},
        ],
        "logprobs": True,
        "top_logprobs": 3,
        "tools": [tool],
        "tool_choice": "auto",
    }


def test_what_was_not_asked_for_is_not_sent() -> None:
    (ask,) = asks_for(CompletionRequest(prompts=("p",)), "m", server(include_usage=False))
    assert ask.body == {"model": "m", "prompt": "p", "stream": True}
    (ask,) = asks_for(CompletionRequest(prompts=("p",)), "m", server(stream=False))
    assert ask.body == {"model": "m", "prompt": "p", "stream": False}


@pytest.mark.parametrize(
    ("prompts", "sent"),
    [(("a", "b"), ["a", "b"]), (((1, 2),), [1, 2]), (((1, 2), (3,)), [[1, 2], [3]])],
)
def test_prompts_keep_their_form(prompts, sent) -> None:
    (ask,) = asks_for(CompletionRequest(prompts=prompts), "m", server())
    assert ask.body["prompt"] == sent


def test_best_of_is_asked_for_without_a_stream() -> None:
    request = CompletionRequest(prompts=("p",), sampling=Sampling(best_of=3))
    (ask,) = asks_for(request, "m", server())
    assert (ask.body["best_of"], ask.body["stream"]) == (3, False)
    assert "stream_options" not in ask.body


@pytest.mark.parametrize(
    ("allowed", "passed"),
    [(None, {"top_k": 5}), (("odd",), {"odd": 1}), (("*",), {"top_k": 5, "odd": 1}), ((), {})],
)
def test_extra_fields_are_passed_by_a_list(allowed, passed) -> None:
    options = {} if allowed is None else {"extra_fields": allowed}
    request = CompletionRequest(prompts=("p",), extra={"top_k": 5, "odd": 1})
    (ask,) = asks_for(request, "m", server(**options))
    assert {k: v for k, v in ask.body.items() if k in ("top_k", "odd")} == passed


def test_extra_fields_cannot_replace_the_apis_own() -> None:
    extra = {"model": "x", "stream": False, "prompt": "y"}
    request = CompletionRequest(prompts=("p",), extra=extra)
    (ask,) = asks_for(request, "m", server(extra_fields=("*",)))
    assert (ask.body["model"], ask.body["prompt"], ask.body["stream"]) == ("m", "p", True)


def test_the_newer_name_of_the_limit() -> None:
    request = ChatRequest(messages=(user("x"),), sampling=Sampling(max_tokens=9))
    (ask,) = asks_for(request, "m", server(max_tokens_field="max_completion_tokens"))
    assert ask.body["max_completion_tokens"] == 9
    assert "max_tokens" not in ask.body


def test_a_system_prompt_of_the_metadata_is_a_message() -> None:
    parameters = ResearchParameters(auto=True, system_prompt="be brief")
    (ask,) = asks_for(ChatRequest(messages=(user("x"),), parameters=parameters), "m", server())
    assert ask.body["messages"][0] == {"role": "system", "content": "be brief"}
    told = Message(role="system", parts=(Part(text="be brief"),))
    request = ChatRequest(messages=(told, user("x")), parameters=parameters)
    (ask,) = asks_for(request, "m", server())
    assert len(ask.body["messages"]) == 2


def test_a_question_is_a_chat() -> None:
    (ask,) = asks_for(ResearchRequest(query="why?"), "m", server())
    assert ask.body["messages"] == [{"role": "user", "content": "why?"}]


@pytest.mark.parametrize(
    ("parameters", "metadata"),
    [
        (ResearchParameters(auto=True), {}),
        (
            ResearchParameters(auto=True, system_prompt="s", excluded_domains=("a.b",)),
            {"auto": True, "system_prompt": "s", "excluded_domains": ["a.b"]},
        ),
        (
            ResearchParameters(reasoning_loops=4, source_timeout_s=30),
            {
                "reasoning_loops": 4,
                "source_timeout": 30,
                "reasoning_mode": False,
                "allow_early_exit": False,
                "exclude_social": False,
            },
        ),
    ],
)
def test_research_parameters_go_to_caesar(parameters, metadata) -> None:
    assert metadata_of(parameters) == metadata
    request = CompletionRequest(prompts=("p",), parameters=parameters)
    (ask,) = asks_for(request, "m", server(kind="caesar"))
    assert ask.path == "compat/completions"
    assert ask.body.get("metadata", {}) == metadata
    (ask,) = asks_for(request, "m", server())
    assert "metadata" not in ask.body


class TestCompletionsByChat:
    def test_each_prompt_is_a_chat(self, raw, opened, wire, told) -> None:
        def reply(peer) -> None:
            said = peer.asked.body["messages"][-1]["content"]
            bodies = [wire.delta({"content": f"{said}{k}"}, k, "stop") for k in range(2)]
            usage = {"prompt_tokens": 1, "completion_tokens": 4}
            peer.send(wire.stream(*bodies, {"choices": [], "usage": usage}))

        server = raw(reply)
        ask = opened(server, per_server={"endpoint": "chat"})
        answer = told(ask.complete("a", "b", n=2, echo=True))
        assert [answer.text(k) for k in range(4)] == ["aa0", "aa1", "bb0", "bb1"]
        assert answer.reasons == dict.fromkeys(range(4), "stop")
        assert answer.usage == (2, 8)
        assert [asked.path for asked in server.asked] == ["/v1/chat/completions"] * 2

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"suffix": "x"}, "suffix"),
            ({"prompts": ((1,),)}, "prompt"),
            ({"sampling": Sampling(best_of=2)}, "best_of"),
            ({"echo": True, "sampling": Sampling(logprobs=1)}, "echo"),
        ],
    )
    def test_what_a_chat_cannot_do_is_refused(self, fields, param) -> None:
        request = CompletionRequest(**{"prompts": ("p",), **fields})
        with pytest.raises(InvalidRequestError) as caught:
            asks_for(request, "m", server(endpoint="chat"))
        assert caught.value.param == param

    def test_a_system_prompt_goes_along(self) -> None:
        parameters = ResearchParameters(auto=True, system_prompt="be brief")
        request = CompletionRequest(prompts=("p",), parameters=parameters)
        (ask,) = asks_for(request, "m", server(endpoint="chat"))
        assert [message["role"] for message in ask.body["messages"]] == ["system", "user"]


class TestChatsByCompletion:
    def test_a_chat_is_a_transcript(self) -> None:
        messages = (
            Message(role="developer", parts=(Part(text="be brief"),)),
            user("hi"),
            Message(role="assistant", parts=(Part(text="hello"),)),
            user("who?"),
        )
        request = ChatRequest(messages=messages, sampling=Sampling(stop=("x",), logprobs=2))
        (ask,) = asks_for(request, "m", server(endpoint="completions"))
        assert ask.path == "completions"
        assert ask.body["prompt"] == (
            "System: be brief\n\nUser: hi\n\nAssistant: hello\n\nUser: who?\n\nAssistant:"
        )
        assert ask.body["stop"] == ["x", "\n\nUser:"]
        assert ask.body["logprobs"] == 2

    def test_the_answer_ends_where_the_user_would_speak(self, raw, opened, wire, told) -> None:
        pieces = [wire.text(piece) for piece in (" hel", "lo\n", "\nUs", "er: and you?", " more")]
        server = raw(wire.stream(*pieces, wire.text("", reason="length")))
        answer = told(opened(server, per_server={"endpoint": "completions"}).chat("hi"))
        assert (answer.text(), answer.reasons) == (" hello", {0: "stop"})


class TestStops:
    def test_a_server_that_ignores_them_is_cut_and_left(self, raw, opened, wire, told) -> None:
        def endless(peer) -> None:
            peer.send(wire.head())
            for piece in ("one ", "tw", "o thr"):
                peer.send(wire.frame(wire.text(piece)))
            peer.send(wire.frame(wire.text("ee four")))
            peer.hang()

        server = raw(endless)
        answer = told(opened(server).complete("x", stop=("three",)))
        assert (answer.text(), answer.reasons) == ("one two ", {0: "stop"})
        assert answer.details["usage_estimated"] is True
        server.wait_for(lambda server: server.open == 0)

    def test_text_that_only_begins_like_one_is_not_lost(self, raw, opened, wire, told) -> None:
        server = raw(wire.stream(wire.text("one th"), wire.text("", reason="length")))
        answer = told(opened(server).complete("x", stop=("three",)))
        assert (answer.text(), answer.reasons) == ("one th", {0: "length"})

    def test_one_choice_that_stops_does_not_end_the_others(self, raw, opened, wire, told) -> None:
        bodies = [wire.text("a END b", 0), wire.text("c", 1), wire.text("d", 1, "length")]
        server = raw(wire.stream(*bodies, wire.text("", 0, "stop")))
        answer = told(opened(server).complete("x", n=2, stop=("END",)))
        assert [answer.text(0), answer.text(1)] == ["a ", "cd"]
        assert answer.reasons == {0: "stop", 1: "length"}


class TestReading:
    def test_usage_is_the_last_that_was_said(self, raw, opened, wire, told) -> None:
        first = wire.text("a", usage={"prompt_tokens": 4, "completion_tokens": 1})
        last = wire.text("b", reason="stop", usage={"prompt_tokens": 4, "completion_tokens": 2})
        answer = told(opened(raw(wire.stream(first, last))).complete())
        assert answer.usage == (4, 2)
        assert answer.details["usage"]["completion_tokens"] == 2

    @pytest.mark.parametrize(
        ("usage", "counted"),
        [(None, (2, 3)), ({"prompt_tokens": 9}, (9, 3)), ({"completion_tokens": "7"}, (2, 3))],
    )
    def test_usage_is_estimated_only_where_it_is_missing(
        self, raw, opened, wire, told, usage, counted
    ) -> None:
        body = wire.text("one two three", reason="stop", usage=usage)
        answer = told(opened(raw(wire.stream(body))).complete("two words"))
        assert answer.usage == counted
        assert answer.details["usage_estimated"] is True

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            *(("stop", "stop"), ("length", "length"), ("content_filter", "content_filter")),
            *(("tool_calls", "stop"), ("max_tokens", "length"), ("eos", "stop")),
        ],
    )
    def test_finish_reasons(self, raw, opened, wire, told, said, reason) -> None:
        answer = told(opened(raw(wire.stream(wire.text("a", reason=said)))).complete())
        assert answer.reasons == {0: reason}

    @pytest.mark.parametrize("nothing", [None, "", 0])
    def test_no_finish_reason_is_none(self, raw, opened, wire, told, nothing) -> None:
        reply = wire.stream(wire.text("a", reason=nothing), wire.text("b", reason="length"))
        answer = told(opened(raw(reply)).complete())
        assert (answer.text(), answer.reasons) == ("ab", {0: "length"})

    @pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
    def test_thinking_has_its_own_channel(self, raw, opened, wire, told, name) -> None:
        bodies = [wire.delta({"role": "assistant", name: "hm"}), wire.delta({"content": "42"})]
        reply = wire.stream(*bodies, wire.delta({}, reason="stop"))
        answer = told(opened(raw(reply)).chat())
        assert (answer.text(), answer.text(channel="reasoning")) == ("42", "hm")

    @pytest.mark.parametrize("thought", ["hm", [{"type": "text", "text": "hm"}]])
    def test_thinking_may_be_a_part_of_the_content(self, raw, opened, wire, told, thought) -> None:
        parts = [{"type": "thinking", "thinking": thought}, {"type": "text", "text": "4"}]
        bodies = [wire.delta({"content": parts}), wire.delta({"content": "2"}, reason="stop")]
        answer = told(opened(raw(wire.stream(*bodies))).chat())
        assert (answer.text(), answer.text(channel="reasoning")) == ("42", "hm")

    def test_refusals_and_parts_are_text(self, raw, opened, wire, told) -> None:
        parts = [{"type": "text", "text": "I "}, {"type": "text", "text": "must "}]
        bodies = [wire.delta({"content": parts}), wire.delta({"refusal": "not"}, reason="stop")]
        assert told(opened(raw(wire.stream(*bodies))).chat()).text() == "I must not"

    def test_tool_calls_are_kept_in_the_details(self, raw, opened, wire, told) -> None:
        calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
        reply = wire.stream(wire.delta({"tool_calls": calls}), wire.delta({}, reason="tool_calls"))
        answer = told(opened(raw(reply)).chat())
        assert answer.details["tool_calls"] == [{"choice": 0, "tool_calls": calls}]

    def test_completion_logprobs_are_kept(self, raw, opened, wire, told) -> None:
        logprobs = {
            "tokens": ["He", "llo"],
            "token_logprobs": [None, -0.25],
            "top_logprobs": [None, {"llo": -0.25, "y": -1.5}],
            "text_offset": [0, 2],
        }
        body = wire.text("Hello", reason="stop")
        body["choices"][0]["logprobs"] = logprobs
        events = opened(raw(wire.stream(body))).complete(logprobs=2)
        tops = (TopLogprob("llo", -0.25), TopLogprob("y", -1.5))
        tokens = (LogprobToken("He", None), LogprobToken("llo", -0.25, tops))
        assert ContentDelta("Hello", logprobs=tokens) in events

    def test_chat_logprobs_are_kept(self, raw, opened, wire, told) -> None:
        top = {"token": "yo", "logprob": -1.5, "bytes": None}
        token = {"token": "hi", "logprob": -0.5, "bytes": [104, 105], "top_logprobs": [top]}
        body = wire.delta({"content": "hi"}, reason="stop")
        body["choices"][0]["logprobs"] = {"content": [token]}
        events = opened(raw(wire.stream(body))).chat(logprobs=1)
        tokens = (LogprobToken("hi", -0.5, (TopLogprob("yo", -1.5),)),)
        assert ContentDelta("hi", logprobs=tokens) in events

    @pytest.mark.parametrize(
        "logprobs", [7, {"tokens": [1], "token_logprobs": [0]}, {"tokens": ["a"]}, {"content": [1]}]
    )
    def test_logprobs_that_are_none_are_named(self, raw, opened, wire, told, logprobs) -> None:
        body = wire.text("hi", reason="stop")
        body["choices"][0]["logprobs"] = logprobs
        answer = told(opened(raw(wire.stream(body))).complete(logprobs=1))
        assert answer.error.status == 502
        assert "logprobs" in answer.error.message

    def test_caesars_progress_is_progress(self, raw, opened, wire, told) -> None:
        def news(status: str, message: str) -> dict:
            extension = {"id": "j", "status": status, "message": message}
            return wire.delta({"reasoning_content": message}, caesar=extension)

        bodies = [news("searching", ""), news("searching", "Reading"), news("summarizing", "Now")]
        reply = wire.stream(*bodies, wire.delta({"content": "done [1]"}, reason="stop"))
        server = raw(reply)
        events = opened(server, per_server={"kind": "caesar"}).chat(model="")
        assert [e for e in events if e.type in ("status_changed", "progress_noted")] == [
            StatusChanged("searching"),
            ProgressNoted("Reading"),
            StatusChanged("summarizing", "Now"),
        ]
        assert told(events).text() == "done [1]"
        assert told(events).text(channel="reasoning") == ""
        assert server.asked[0].path == "/v1/compat/chat/completions"
        assert server.asked[0].body["model"] == "caesar-research"


def deltas(*texts: str, key: str = "content", stop: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Return channel and text of what a stream of a chat says in these pieces."""
    request = ChatRequest(messages=(user("p"),), sampling=Sampling(stop=stop))
    reader = AnswerReader(asks_for(request, "m", server())[0], 1)
    events = [
        event
        for text in texts
        for event in reader.chunk({"choices": [{"index": 0, "delta": {key: text}}]})
    ]
    end = reader.chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [(e.channel, e.text) for e in [*events, *end] if isinstance(e, ContentDelta)]


def test_halves_of_a_character_are_put_together() -> None:
    said = deltas("a\ud83d", "\ude00b", "\ud83d")
    assert said == [("content", "a"), ("content", "\U0001f600b"), ("content", "\ufffd")]
    thought = deltas("\ud83d", "\ude00", "\ud83d", key="reasoning_content")
    assert thought == [("reasoning", "\U0001f600"), ("reasoning", "\ufffd")]
    # behind a stop there is nothing
    assert deltas("a.\ud83d", stop=(".",)) == [("content", "a")]
