"""Runs outside of a server."""

from __future__ import annotations

from collections.abc import Iterator

from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Event,
    Failed,
    InvalidRequestError,
    ProgressNoted,
    Request,
    Sampling,
)
from caesar_server.errors import CANCELLED, DEADLINE
from caesar_server.jobs.context import RunContext
from caesar_server.testing import FakeClock, collect_events, make_context, scripted_backend

REQUEST = CompletionRequest(prompts=("hi",), sampling=Sampling(seed=5))
HELLO = (ContentDelta("hello"), ChoiceFinished(), Completed())


def test_the_events_of_a_run_are_collected() -> None:
    assert collect_events(scripted_backend(HELLO)(), REQUEST) == list(HELLO)


def test_an_error_becomes_the_last_event() -> None:
    error = InvalidRequestError("no", param="stop")
    events = collect_events(scripted_backend([ProgressNoted("x"), error])(), REQUEST)
    assert events == [ProgressNoted("x"), Failed(error.info())]


def test_a_cancel_and_a_deadline_are_told_apart() -> None:
    clock = FakeClock()
    late, left = make_context(clock=clock, timeout_s=5), make_context()
    left.cancel()
    clock.advance(5)
    backend = scripted_backend(HELLO)()
    assert collect_events(backend, REQUEST, left) == [Failed(CANCELLED)]
    assert collect_events(backend, REQUEST, late) == [Failed(DEADLINE)]


def test_chance_repeats_itself_with_the_seed_of_the_request() -> None:
    cls = scripted_backend([lambda run: ProgressNoted(str(run.random.random())), *HELLO])
    first, second = (collect_events(cls(), REQUEST)[0] for _ in range(2))
    assert first == second
    assert make_context(seed=5).random.random() != make_context(seed=6).random.random()


def test_every_context_is_of_another_job() -> None:
    first, second = make_context(restored={"step": 1}), make_context()
    assert first.job_id != second.job_id
    assert (first.restored, second.restored) == ({"step": 1}, None)


def test_what_another_backend_says_is_up_to_the_test() -> None:
    asked: list[tuple[str, Request]] = []

    def caller(model: str, request: Request, context: RunContext) -> Iterator[Event]:
        asked.append((model, request))
        yield from HELLO

    called = make_context(caller=caller).call("writer", REQUEST)
    assert (list(called), asked) == (list(HELLO), [("writer", REQUEST)])
