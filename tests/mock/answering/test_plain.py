"""Replies that are a text alone take a shorter way, and are told as by the longer one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from caesar_server.contract import (
    Cancelled,
    ChatRequest,
    CompletionRequest,
    Event,
    Message,
    Part,
    Request,
    ResearchParameters,
    ResearchRequest,
    Sampling,
)
from caesar_server.contract.context import Forwarded
from caesar_server.jobs.context import RunContext
from caesar_server.mock.answering.plain import plain_reply
from caesar_server.mock.backend import mock_backend
from caesar_server.mock.calls import CALL_HEADER, call_from_http
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockUsage, Reply
from caesar_server.mock.model.rule import Decision, Rule
from caesar_server.mock.scopes import Held, Scopes
from caesar_server.testing import collect_events, make_context

ASKED = ResearchParameters(system_prompt="In short")
PLAIN_REQUESTS: tuple[Request, ...] = (
    CompletionRequest(prompts=("to be or not",)),
    CompletionRequest(prompts=("to be",), sampling=Sampling(temperature=0.5, seed=7, best_of=3)),
    CompletionRequest(prompts=((1, 2, 3),)),
    ChatRequest(
        messages=(Message(role="system"), Message(role="user", parts=(Part(text="to be"),)))
    ),
)
OTHER_REQUESTS: tuple[Request, ...] = (
    CompletionRequest(prompts=("to be",), echo=True),
    CompletionRequest(prompts=("to be", "or not")),
    CompletionRequest(prompts=("to be",), parameters=ASKED),
    *(
        CompletionRequest(prompts=("to be",), sampling=sampling)
        for sampling in (
            Sampling(n=2),
            Sampling(max_tokens=2),
            Sampling(stop=("c",)),
            Sampling(logprobs=0),
        )
    ),
    ResearchRequest(query="to be"),
)
REPLIES = (
    Reply(text="a b c d"),
    Reply(),
    Reply(text=("a b c", "d")),
    Reply(text="a b c d", chunks=2),
    Reply(text="a b c d", pacing=Pacing(unit="character", size=3)),
)


def events_of(reply: Reply, request: Request, stream: bool | None) -> list[Event]:
    """Return what is told of a reply.

    :param stream: whether it answers a call that asks for a stream; None: one without HTTP.
    """
    scopes = Scopes(rules=[Rule(id="r", replies=(reply,))])
    scope = scopes.get()
    if stream is None:
        return collect_events(mock_backend(scopes)(), request)
    body: dict[str, Any] = {"stream": stream}
    if isinstance(request, CompletionRequest):
        body["prompt"] = request.prompts
    elif isinstance(request, ChatRequest):
        said = [{"role": one.role, "content": one.text} for one in request.messages]
        body["messages"] = said
    else:
        assert isinstance(request, ResearchRequest)
        body["query"] = request.query
    call = call_from_http(
        method="POST",
        path="/compat/completions",
        headers={},
        body=json.dumps(body).encode(),
        call_id="1",
    )
    held = Held(call, scope.decide(call), scope)
    scopes.hold(held)
    context = RunContext("j", forwarded=Forwarded({CALL_HEADER: "1"}))
    events = collect_events(mock_backend(scopes)(), request, context)
    assert held.begun
    return events


@pytest.mark.parametrize("stream", [None, False, True])
@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("request_", [*PLAIN_REQUESTS, *OTHER_REQUESTS])
def test_both_ways_tell_the_same(request_: Request, reply: Reply, stream: bool | None) -> None:
    # to count nothing else asks for nothing, and yet for more than a text
    longer = Reply(text=reply.text, chunks=reply.chunks, pacing=reply.pacing, usage=MockUsage())
    assert events_of(reply, request_, stream) == events_of(longer, request_, stream)


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("request_", PLAIN_REQUESTS)
def test_a_text_alone_takes_the_short_way(request_: Request, reply: Reply) -> None:
    assert plain_reply(request_, Decision(reply=reply)) is reply


@pytest.mark.parametrize("request_", OTHER_REQUESTS)
def test_a_request_for_more_does_not(request_: Request) -> None:
    assert plain_reply(request_, Decision(reply=REPLIES[0])) is None


@pytest.mark.parametrize(
    "decision",
    [
        Decision(),
        Decision(reply=lambda call: "a b"),
        Decision(reply=Reply(template="a {{ call.prompt }}")),
        Decision(reply=Reply(text="a", progress=("Reading",))),
        Decision(reply=Reply(text="a", queued_polls=1)),
        Decision(reply=Reply(text="a", pacing=Pacing(first_chunk_s=1))),
        Decision(reply=Reply(text="a"), pacing=Pacing(tokens_per_s=10)),
    ],
)
def test_a_reply_with_more_to_it_does_not(decision: Decision) -> None:
    assert plain_reply(PLAIN_REQUESTS[0], decision) is None


def test_it_too_is_told_to_nobody_who_has_cancelled() -> None:
    context = make_context()
    context.cancel()
    with pytest.raises(Cancelled):
        next(iter(mock_backend(Scopes())().run(PLAIN_REQUESTS[0], context)))
