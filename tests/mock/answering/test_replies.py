"""Replies of rules as events: limits, channels, log probabilities, usage, functions, time."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from caesar_server.contract import (
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Event,
    Failed,
    LogprobToken,
    Message,
    Part,
    RateLimitedError,
    Request,
    ResearchParameters,
    ResearchRequest,
    Sampling,
    TopLogprob,
    UsageCounted,
)
from caesar_server.contract.context import Forwarded
from caesar_server.jobs.context import RunContext
from caesar_server.mock.backend import mock_backend
from caesar_server.mock.calls import CALL_HEADER, call_from_http
from caesar_server.mock.matching import conditions
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockChoice, MockToken, MockUsage, Reply
from caesar_server.mock.model.rule import ReplyFunction, Rule
from caesar_server.mock.scope import Scope
from caesar_server.mock.scopes import Held, Scopes
from caesar_server.testing import FakeClock, collect_events, make_context

PATIENCE_S = 60.0


@pytest.fixture
def scopes() -> Scopes:
    return Scopes()


@pytest.fixture
def scope(scopes: Scopes) -> Scope:
    return scopes.get()


Ask = Callable[..., list[Event]]


@pytest.fixture
def ask(scopes: Scopes) -> Ask:
    """Return the events of a request, by the rules of the default scope."""

    def ask(request: Request, context: RunContext | None = None) -> list[Event]:
        return collect_events(mock_backend(scopes)(), request, context)

    return ask


def reply(scope: Scope, *replies: Reply | ReplyFunction, **wanted: Any) -> None:
    scope.add(Rule(conditions=conditions(**wanted), replies=replies))


def complete(prompt: str = "hi", *, system: str | None = None, **sampling: Any) -> Request:
    echo = sampling.pop("echo", False)
    return CompletionRequest(
        prompts=(prompt,),
        echo=echo,
        sampling=Sampling(**sampling),
        parameters=ResearchParameters(system_prompt=system),
    )


def deltas(events: list[Event]) -> list[ContentDelta]:
    return [event for event in events if isinstance(event, ContentDelta)]


def told(events: list[Event]) -> list[str]:
    return [delta.text for delta in deltas(events)]


def tokens(events: list[Event]) -> list[LogprobToken]:
    return [token for delta in deltas(events) for token in delta.logprobs or ()]


def usage(events: list[Event]) -> tuple[int, int]:
    counted = [event for event in events if isinstance(event, UsageCounted)]
    prompt = sum(event.prompt_tokens for event in counted)
    return prompt, sum(event.completion_tokens for event in counted)


def reasons(events: list[Event]) -> list[str]:
    return [event.reason for event in events if isinstance(event, ChoiceFinished)]


def test_choices_say_more_than_texts(scope: Scope, ask: Ask) -> None:
    filtered = MockChoice(text="two", finish_reason="content_filter")
    reply(scope, Reply(choices=(MockChoice(text="one"), filtered)))
    events = ask(complete(n=3))
    assert [(delta.choice, delta.text) for delta in deltas(events)] == [
        (0, "one"),
        (1, "two"),
        (2, "one"),
    ]
    assert reasons(events) == ["stop", "content_filter", "stop"]


def test_a_length_is_given_as_reason_unless_the_rule_has_its_own(scope: Scope, ask: Ask) -> None:
    reply(
        scope,
        Reply(choices=(MockChoice(text="a b c"), MockChoice(text="a b", finish_reason="stop"))),
    )
    assert reasons(ask(complete(n=2, max_tokens=1))) == ["length", "stop"]


def test_pieces_are_cut_as_the_pacing_says(scope: Scope, ask: Ask) -> None:
    scope.pacing = Pacing(unit="character", size=4)
    reply(scope, Reply(text="To be, or not"), prompt="plain")
    reply(scope, Reply(text="To be, or not", pacing=Pacing(size=2)), prompt="own")
    reply(scope, Reply(text="To be, or not", chunks=2), prompt="chunks")
    assert told(ask(complete("plain"))) == ["To b", "e, o", "r no", "t"]
    assert told(ask(complete("own"))) == ["To be,", " or not"]
    assert told(ask(complete("chunks"))) == ["To be,", " or not"]


def test_made_up_log_probabilities_are_plausible_and_always_the_same(ask: Ask) -> None:
    events = ask(complete("To be, or not to be", logprobs=5))
    found = tokens(events)
    assert "".join(token.token for token in found) == "To be, or not to be"
    for token in found:
        assert token.logprob is not None
        assert token.logprob < 0
        assert token.top[0].token == token.token
        assert [top.logprob for top in token.top] == sorted(
            (top.logprob for top in token.top), reverse=True
        )
        assert len({top.token for top in token.top}) == 5
        assert sum(2.718281828**top.logprob for top in token.top) < 1
    assert tokens(ask(complete("To be, or not to be", logprobs=5, seed=3))) == found
    assert all(len(token.top) == 0 for token in tokens(ask(complete("a b", logprobs=0))))


def test_a_probability_does_not_depend_on_how_many_others_are_shown(ask: Ask) -> None:
    most = tokens(ask(complete("a b the end", logprobs=20)))
    assert len({token.logprob for token in most}) == 4
    for token in most:
        assert token.top[0] == TopLogprob(token.token, token.logprob)
        assert len({top.token for top in token.top}) == 20
        assert sum(math.exp(top.logprob) for top in token.top) < 1
    for count in range(20):
        fewer = tokens(ask(complete("a b the end", logprobs=count)))
        assert fewer == [replace(token, top=token.top[:count]) for token in most]
    assert tokens(ask(complete("a b"))) == []


def test_given_log_probabilities_are_told_as_they_are(scope: Scope, ask: Ask) -> None:
    given = (
        MockToken(token="Er", logprob=-0.5, top={"Er": -0.5, "A": -2.0, "B": -1.0}),
        MockToken(token="ror", logprob=-1.5),
        MockToken(token="!"),
    )
    reply(scope, Reply(choices=(MockChoice(text="Error!", logprobs=given),)))
    events = ask(complete(logprobs=2))
    assert [(token.token, token.logprob) for token in tokens(events)] == [
        ("Er", -0.5),
        ("ror", -1.5),
        ("!", 0.0),
    ]
    assert [top.token for top in tokens(events)[0].top] == ["Er", "B"]
    assert usage(events) == (1, 3)
    limited = ask(complete(logprobs=2, max_tokens=2))
    assert (told(limited), reasons(limited), usage(limited)) == (["Er", "ror"], ["length"], (1, 2))
    assert told(ask(complete())) == ["Error!"]


def test_a_stop_cuts_the_last_token(ask: Ask) -> None:
    events = ask(complete("one twothree four", logprobs=1, stop=("three",)))
    assert [token.token for token in tokens(events)] == ["one", " two"]
    assert all(
        "".join(token.token for token in delta.logprobs or ()) == delta.text
        for delta in deltas(events)
    )


def test_with_log_probabilities_chunks_hold_whole_tokens(scope: Scope, ask: Ask) -> None:
    reply(scope, Reply(text="a b c d e", chunks=2))
    assert told(ask(complete(logprobs=1))) == ["a b", " c d e"]
    scope.pacing = Pacing(unit="character", size=3)
    assert told(ask(complete("x y", logprobs=1, echo=False))) == ["a b", " c d e"]


def test_of_an_echoed_prompt_nothing_is_known_of_the_first_token(ask: Ask) -> None:
    first, second, *rest = tokens(ask(complete("one two", logprobs=1, echo=True)))
    assert (first.token, first.logprob, first.top) == ("one", None, ())
    assert second.logprob is not None
    assert [token.token for token in rest] == ["one", " two"]


def test_usage_is_as_the_rule_wants_it(scope: Scope, ask: Ask) -> None:
    reply(scope, Reply(text="a b", usage=MockUsage(prompt_tokens=25, completion_tokens=120)))
    assert usage(ask(complete(n=3))) == (25, 120)
    scope.clear()
    reply(scope, Reply(text="a b", usage=MockUsage(prompt_tokens=0)))
    assert usage(ask(complete(n=3))) == (0, 6)
    scope.clear()
    reply(scope, Reply(text="a b", usage=MockUsage(completion_tokens=0)))
    assert usage(ask(complete(n=3))) == (1, 0)


def channels(events: list[Event]) -> dict[str, str]:
    found: dict[str, str] = {}
    for delta in deltas(events):
        found[delta.channel] = found.get(delta.channel, "") + delta.text
    return found


def test_with_a_system_prompt_the_answer_is_the_transformed_text(scope: Scope, ask: Ask) -> None:
    reply(scope, Reply(text="Plain.", transformed="Shaped."), prompt="both")
    reply(scope, Reply(text="Plain."), prompt="one")
    shaped = "Be brief."
    assert channels(ask(complete("both", system=shaped))) == {
        "content": "Plain.",
        "transformed": "Shaped.",
    }
    assert channels(ask(complete("one", system=shaped))) == {"transformed": "Plain."}
    assert channels(ask(complete("both"))) == {"content": "Plain."}
    parameters = ResearchParameters(system_prompt=shaped)
    assert channels(ask(ResearchRequest(query="one", parameters=parameters))) == {
        "content": "Plain.",
        "transformed": "Plain.",
    }


def test_a_function_makes_the_reply_from_the_call_and_the_request(scope: Scope, ask: Ask) -> None:
    seen: list[Call] = []

    def answer(call: Call) -> Reply | str:
        seen.append(call)
        return f"{call.prompt}!" if call.prompt == "a" else Reply(template="{{ call.prompt }}?")

    reply(scope, answer)
    request = CompletionRequest(prompts=("a", "b"))
    assert told(ask(request)) == ["a!", "b?"]
    assert [call.prompt for call in seen] == ["a", "b"]
    assert all(call.request is request for call in seen)


def raising(error: Exception) -> ReplyFunction:
    def answer(call: Call) -> str:
        raise error

    return answer


def test_a_function_may_raise_what_a_backend_may(scope: Scope, ask: Ask) -> None:
    reply(scope, raising(RateLimitedError("Slow down", retry_after_s=2)))
    (failed,) = ask(complete())
    assert isinstance(failed, Failed)
    assert (failed.error.status, failed.error.retry_after_s) == (429, 2)


@pytest.mark.parametrize(
    ("function", "logged"),
    [
        (raising(AssertionError("wrong prompt")), "wrong prompt"),
        (lambda call: 3, "a reply function returned 3, neither a Reply nor a text"),
        (lambda call: Reply(text="a", template="b"), "a reply with a wrong template"),
    ],
)
def test_what_else_goes_wrong_in_a_function_is_logged(
    scope: Scope, ask: Ask, caplog: pytest.LogCaptureFixture, function: Any, logged: str
) -> None:
    reply(scope, function)
    (failed,) = ask(complete())
    assert isinstance(failed, Failed)
    assert (failed.error.status, failed.error.code) == (500, "internal_error")
    assert logged in caplog.text
    caplog.clear()


def test_a_template_that_fails_says_why(scope: Scope, ask: Ask) -> None:
    reply(scope, Reply(template="{{ call.nope }}"))
    (failed,) = ask(complete())
    assert isinstance(failed, Failed)
    assert (failed.error.status, failed.error.code) == (500, "template_failed")
    assert failed.error.message.startswith("The template of the rule 'r1' failed: 'dict object'")


def test_strict_names_the_nearest_rules_and_why(scope: Scope, ask: Ask) -> None:
    scope.strict = True
    (failed,) = ask(complete("Hello"))
    assert isinstance(failed, Failed)
    assert failed.error.message.endswith("matches this call, since it has no reply rules")
    scope.add(
        Rule(
            name="quantum",
            source="rules.yaml:7",
            conditions=conditions(prompt="quantum"),
            replies=(Reply(),),
        )
    )
    (failed,) = ask(complete("Hello"))
    assert isinstance(failed, Failed)
    assert (failed.error.status, failed.error.code) == (404, "no_fixture_match")
    assert failed.error.message == (
        "No rule of the default scope matches this call; nearest: 'quantum' (rules.yaml:7): "
        "prompt: wanted 'quantum', got 'Hello'"
    )


def held_context(scopes: Scopes, scope: Scope, prompt: str) -> RunContext:
    call = call_from_http(
        method="POST",
        path="/compat/completions",
        headers={},
        body=b'{"prompt": "%s"}' % prompt.encode(),
        scope=scope.name,
        call_id="c-1",
    )
    scopes.hold(Held(call, scope.decide(call), scope))
    return RunContext("j", forwarded=Forwarded({CALL_HEADER: "c-1"}))


def test_what_was_decided_on_the_call_is_answered(scopes: Scopes, ask: Ask) -> None:
    scope = scopes.get("other")
    reply(scope, Reply(text="1"), Reply(text="2"))
    context = held_context(scopes, scope, "hi")
    assert told(ask(complete("hi"), context)) == ["1"]
    assert scope.uses("r1") == 1
    assert told(ask(complete("hi"))) == ["hi"]


def test_a_call_of_another_backend_is_a_call_of_its_own(scopes: Scopes, ask: Ask) -> None:
    reply(scopes.get(), Reply(text="inner"), prompt="another prompt")
    context = held_context(scopes, scopes.get("outer"), "hi")
    assert told(ask(complete("another prompt"), context)) == ["inner"]


def test_an_answer_that_is_no_stream_is_told_at_once(scopes: Scopes, ask: Ask) -> None:
    scope = scopes.get()
    assert told(ask(complete("one two"), held_context(scopes, scope, "one two"))) == ["one two"]
    assert told(ask(complete("one two"))) == ["one", " two"]
    assert deltas(ask(complete(""), held_context(scopes, scope, ""))) == []


def test_an_answer_that_is_no_stream_comes_when_its_last_chunk_is_due(scopes: Scopes) -> None:
    scope = scopes.get()
    scope.pacing = SLOW
    scope.clock.stop()
    context = held_context(scopes, scope, "one two three")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            collect_events, mock_backend(scopes)(), complete("one two three"), context
        )
        for seconds in (60, 10, 19):
            scope.clock.wait_for_waiters(1)
            scope.clock.advance(seconds)
            assert not running.done()
        scope.clock.advance(1)
        assert told(running.result(PATIENCE_S)) == ["one two three"]


SLOW = Pacing(first_chunk_s=60, tokens_per_s=0.1)


def test_chunks_come_as_the_scopes_clock_is_turned(scopes: Scopes, scope: Scope) -> None:
    scope.pacing = SLOW
    scope.clock.stop()
    events: list[Event] = []
    backend = mock_backend(scopes)()

    def run() -> None:
        for event in backend.run(complete("one two three"), make_context()):
            events.append(event)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        for seconds, texts in ((59, 0), (1, 1), (9, 1), (1, 2), (20, 3)):
            scope.clock.wait_for_waiters(1)
            scope.clock.advance(seconds)
            if texts < 3:
                scope.clock.wait_for_waiters(1)
                assert len(told(events)) == texts
        running.result(PATIENCE_S)
    assert told(events) == ["one", " two", " three"]
    assert events[-1] == Completed()


def test_a_cancel_ends_the_wait_for_a_clock_that_stands(scopes: Scopes, scope: Scope) -> None:
    scope.pacing = SLOW
    scope.clock.stop()
    context = make_context()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(collect_events, mock_backend(scopes)(), complete("a b"), context)
        scope.clock.wait_for_waiters(1)
        context.cancel()
        (failed,) = running.result(PATIENCE_S)
    assert isinstance(failed, Failed)
    assert failed.error.code == "cancelled"


def test_outside_of_mock_mode_the_runs_own_clock_is_waited_for() -> None:
    clock = FakeClock()
    backend = mock_backend(Scopes())
    backend.scopes = None
    made = backend()
    made._scope.pacing = Pacing(first_chunk_s=5)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(collect_events, made, complete("a b"), make_context(clock=clock))
        clock.wait_for_waiters()
        clock.advance(5)
        assert told(running.result(PATIENCE_S)) == ["a", " b"]


def test_a_turn_of_a_chat_has_its_own_reply(scope: Scope, ask: Ask) -> None:
    reply(scope, Reply(text="first"), turn=1)
    reply(scope, Reply(text="second"), turn=2)
    first = (Message(role="user", parts=(Part(text="a"),)),)
    second = (*first, Message(role="assistant"), *first)
    assert told(ask(ChatRequest(messages=first))) == ["first"]
    assert told(ask(ChatRequest(messages=second))) == ["second"]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
