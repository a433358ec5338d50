"""The scripted backend does what it is told and counts what happens."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from caesar_server.contract import (
    Cancelled,
    Capabilities,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    Health,
    Model,
    ProgressNoted,
    RateLimitedError,
)
from caesar_server.jobs.context import RunContext
from caesar_server.testing import Gate, ScriptedBackend, scripted_backend

HELLO = (ContentDelta("hello"), ChoiceFinished(), Completed())
REQUEST = CompletionRequest(prompts=("hi",))


@pytest.fixture
def context() -> RunContext:
    return RunContext("x")


def play(cls: type[ScriptedBackend], context: Context) -> list[Event]:
    return list(cls().run(REQUEST, context))


def test_events_come_as_written_in_every_run(context: RunContext) -> None:
    cls = scripted_backend(HELLO)
    assert play(cls, context) == list(HELLO)
    assert play(cls, context) == list(HELLO)
    assert cls.script.requests == [REQUEST, REQUEST]
    assert (cls.script.runs, cls.script.yielded, cls.script.ended) == (2, 6, 2)
    assert (cls.script.closed, cls.script.cancels) == (0, 0)


def test_two_classes_do_not_share_a_script(context: RunContext) -> None:
    first, second = scripted_backend(HELLO), scripted_backend(HELLO)
    play(first, context)
    assert (first.script.runs, second.script.runs) == (1, 0)


def test_an_exception_is_raised_where_it_stands(context: RunContext) -> None:
    cls = scripted_backend([ContentDelta("a"), RateLimitedError("slow down")])
    events = cls().run(REQUEST, context)
    assert next(events) == ContentDelta("a")
    with pytest.raises(RateLimitedError, match="slow down"):
        next(events)
    assert cls.script.ended == 1


def test_a_function_gets_the_context_and_gives_no_one_or_many_events(context: RunContext) -> None:
    cls = scripted_backend(
        [
            lambda run: None,
            lambda run: ProgressNoted(run.job_id),
            lambda run: [ContentDelta("a"), ContentDelta("b")],
        ]
    )
    assert play(cls, context) == [ProgressNoted("x"), ContentDelta("a"), ContentDelta("b")]


def test_steps_can_follow_from_the_request_and_be_endless(context: RunContext) -> None:
    cls = scripted_backend(
        lambda request: (ContentDelta(f"{request.model}{n}") for n in itertools.count())
    )
    events = cls().run(REQUEST, context)
    assert [next(events) for _ in range(3)] == [ContentDelta(str(n)) for n in range(3)]
    context.cancel()
    with pytest.raises(Cancelled):
        next(events)
    assert (cls.script.yielded, cls.script.cancels, cls.script.closed) == (3, 1, 0)


def test_a_closed_iterator_is_counted(context: RunContext) -> None:
    cls = scripted_backend(HELLO)
    events = cls().run(REQUEST, context)
    next(events)
    assert isinstance(events, Iterator)
    events.close()  # type: ignore[attr-defined]
    assert (cls.script.closed, cls.script.ended, cls.script.yielded) == (1, 1, 0)


def test_it_can_be_told_to_ignore_a_cancel(context: RunContext) -> None:
    cls = scripted_backend(HELLO, heeds_cancel=False)
    context.cancel()
    assert play(cls, context) == list(HELLO)


def test_a_gate_holds_a_run_until_it_is_opened(context: RunContext) -> None:
    gate = Gate()
    cls = scripted_backend([ContentDelta("a"), gate, *HELLO])
    found: list[Event] = []
    thread = threading.Thread(target=lambda: found.extend(cls().run(REQUEST, context)))
    thread.start()
    gate.wait_until_reached()
    cls.script.wait_for(lambda script: script.yielded == 1)
    assert cls.script.ended == 0
    gate.open()
    thread.join(60)
    assert found == [ContentDelta("a"), *HELLO]
    assert play(cls, context) == found


def test_a_gate_lets_go_of_a_run_that_is_cancelled(context: RunContext) -> None:
    gate = Gate()
    cls = scripted_backend([gate, *HELLO])
    raised: list[str] = []

    def run() -> None:
        try:
            play(cls, context)
        except Cancelled as cancelled:
            raised.append(cancelled.reason)

    thread = threading.Thread(target=run)
    thread.start()
    gate.wait_until_reached()
    context.cancel("deadline")
    thread.join(60)
    assert raised == ["deadline"]
    assert cls.script.cancels == 1


def test_each_wait_is_for_one_arrival_more(context: RunContext) -> None:
    gate = Gate()
    gate.open()
    play(scripted_backend([gate, *HELLO]), context)
    gate.wait_until_reached(timeout_s=0)
    with pytest.raises(TimeoutError, match="no run reached the gate"):
        gate.wait_until_reached(timeout_s=0.01)


def test_waiting_for_a_count_gives_up_and_shows_the_counts() -> None:
    cls = scripted_backend(HELLO)
    with pytest.raises(TimeoutError, match="runs=0"):
        cls.script.wait_for(lambda script: script.runs == 1, timeout_s=0.01)


def test_opening_and_closing_is_counted() -> None:
    cls = scripted_backend(HELLO)
    backend = cls()
    backend.open()
    backend.close()
    backend.open()
    assert (cls.script.opens, cls.script.closes) == (2, 1)


def test_what_it_can_do_is_the_tests_to_say() -> None:
    cls = scripted_backend(
        HELLO,
        accepts=frozenset({"chat"}),
        n=False,
        models=[Model("a")],
        health=Health("down", "asleep"),
    )
    assert cls.capabilities.accepts == {"chat"}
    assert not cls.capabilities.n
    assert cls.capabilities.echo
    assert [model.id for model in cls().models()] == ["a"]
    assert cls().health().message == "asleep"
    assert isinstance(cls.capabilities, Capabilities)
    with pytest.raises(TypeError):
        scripted_backend(HELLO, telepathy=True)
