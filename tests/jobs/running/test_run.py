"""One run: well-formed events, whatever the backend does."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from caesar_server.contract import (
    Backend,
    BackendError,
    BackendTimeoutError,
    BackendUnavailableError,
    BadUpstreamError,
    Cancelled,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    ErrorInfo,
    Event,
    Failed,
    InvalidRequestError,
    ProgressNoted,
    RateLimitedError,
    Request,
    RequestRejectedError,
    Started,
    StatusChanged,
    UsageCounted,
)
from caesar_server.errors import CANCELLED, DEADLINE, SHUTDOWN, UNEXPECTED
from caesar_server.jobs.context import RunContext
from caesar_server.jobs.running.run import AT_ONCE, run_batches, run_events
from caesar_server.testing import FakeClock, Gate, scripted_backend

WITHIN_S = 60.0
REQUEST = CompletionRequest(prompts=("p",))
ANSWER = [ContentDelta("a"), ChoiceFinished(), Completed()]


def run(steps: Any, context: RunContext | None = None, **options: Any) -> list[Event]:
    backend = scripted_backend(steps, **options)()
    return list(run_events(backend, REQUEST, context or RunContext("id")))


def test_a_good_run_passes_unchanged():
    assert run(ANSWER) == ANSWER


def test_a_yielded_failure_passes_unchanged():
    failed = Failed(ErrorInfo("no", "own_code", status=418))
    assert run([ContentDelta("a"), failed]) == [ContentDelta("a"), failed]


class OwnError(BackendError):
    status = 451
    code = "own"


@pytest.mark.parametrize(
    ("error", "info"),
    [
        (BackendError("m"), ErrorInfo("m", "backend_error")),
        (BackendError("m", code="c"), ErrorInfo("m", "c")),
        (OwnError("m"), ErrorInfo("m", "own", status=451)),
        (
            InvalidRequestError("m", param="suffix"),
            ErrorInfo("m", "invalid_value", "invalid_request_error", "suffix", 400),
        ),
        (
            RequestRejectedError("m", status=422, code="c", type="t", param="p"),
            ErrorInfo("m", "c", "t", "p", 422),
        ),
        (
            RateLimitedError("m", retry_after_s=3),
            ErrorInfo("m", "rate_limit_exceeded", "rate_limit_error", None, 429, 3, True),
        ),
        (
            BackendUnavailableError("m"),
            ErrorInfo("m", "backend_unavailable", status=503, transient=True),
        ),
        (BadUpstreamError("m"), ErrorInfo("m", "bad_upstream", status=502, transient=True)),
        (BackendTimeoutError("m"), ErrorInfo("m", "backend_timeout", status=504, transient=True)),
    ],
)
@pytest.mark.parametrize("before", [[], [ContentDelta("a")]])
def test_what_the_caller_may_be_told_is_told(before, error, info, caplog):
    assert run([*before, error]) == [*before, Failed(info)]
    assert caplog.records == []


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        ConnectionError("secret"),
        StopIteration("secret"),
        SystemExit("secret"),
        asyncio.CancelledError("secret"),
        MemoryError("secret"),
    ],
)
@pytest.mark.parametrize("before", [[], [ContentDelta("a")]])
def test_anything_else_is_an_internal_error_whose_details_stay_in_the_log(before, error, caplog):
    events = run([*before, error])
    assert events == [*before, Failed(UNEXPECTED)]
    assert "secret" not in events[-1].error.message
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.job_id == "id"
    assert "ScriptedBackend raised" in record.getMessage()
    assert "secret" in caplog.text
    assert "Traceback" in caplog.text


class ForgetfulError(BackendError):
    def __init__(self, message: str) -> None:
        self.text = message  # and no call of the base class


def test_an_error_that_cannot_tell_what_it_is_is_an_internal_error(caplog):
    assert run([ForgetfulError("m")]) == [Failed(UNEXPECTED)]
    assert "info() raised" in caplog.text


class TeapotError(BackendError):
    status = 200


def test_an_error_that_would_pass_for_an_answer_is_an_internal_error(caplog):
    assert run([TeapotError("m")]) == [Failed(UNEXPECTED)]
    assert "ScriptedBackend broke the contract: an error has the status 200" in caplog.text


class LeavingBackend(Backend):
    """Raises what ends a thread, while it runs or before that."""

    def __init__(self, error: BaseException, *, at_once: bool) -> None:
        super().__init__()
        self.error = error
        self.at_once = at_once

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if self.at_once:
            raise self.error
        return self.events()

    def events(self) -> Iterator[Event]:
        yield ContentDelta("a")
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_backend_ends_no_thread_of_the_server(error, at_once, caplog):
    backend = LeavingBackend(error, at_once=at_once)
    with ThreadPoolExecutor(1) as pool:
        events = pool.submit(lambda: list(run_events(backend, REQUEST, RunContext("id")))).result(
            WITHIN_S
        )
    assert events[-1] == Failed(UNEXPECTED)
    assert f"run() raised {type(error).__name__}" in caplog.text


def test_ctrl_c_is_not_the_backends(caplog):
    with pytest.raises(KeyboardInterrupt):
        run([KeyboardInterrupt()])


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([ContentDelta("a", 5)], "ContentDelta names choice 5"),
        ([lambda context: ["text"]], "'text', which is no event"),
        ([Completed()], "Completed came before choice 0"),
        ([StatusChanged("completed")], "StatusChanged('completed')"),
        ([ContentDelta("a"), ChoiceFinished()], "run() ended without a terminal event; yield Comp"),
        ([], "run() ended without a terminal event"),
    ],
)
def test_a_breach_of_the_contract_is_an_internal_error_and_logged(steps, told, caplog):
    events = run(steps)
    assert events[-1] == Failed(UNEXPECTED)
    assert sum(isinstance(event, (Completed, Failed)) for event in events) == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("ScriptedBackend broke the contract: ")
    assert told in record.getMessage()


class Returns(Backend):
    """A backend whose ``run`` returns what it was made with."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def test_any_iterable_of_events_is_a_run():
    assert list(run_events(Returns(ANSWER), REQUEST, RunContext("id"))) == ANSWER


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (None, "Returns broke the contract: run() returned None and no events"),
        (5, "Returns broke the contract: run() returned 5 and no events"),
        (ValueError("at once"), "Returns raised"),
    ],
)
def test_a_run_that_gives_no_events_is_an_internal_error(result, told, caplog):
    assert list(run_events(Returns(result), REQUEST, RunContext("id"))) == [Failed(UNEXPECTED)]
    assert told in caplog.text


def test_a_run_that_must_be_awaited_is_told_once(caplog, recwarn):
    async def answer() -> None:
        """Say nothing."""

    assert list(run_events(Returns(answer()), REQUEST, RunContext("id"))) == [Failed(UNEXPECTED)]
    gc.collect()
    assert "run() returned <coroutine ob" in caplog.text
    assert [str(one.message) for one in recwarn] == []


def test_an_error_raised_at_once_is_like_one_raised_later():
    events = list(run_events(Returns(BackendError("m")), REQUEST, RunContext("id")))
    assert events == [Failed(ErrorInfo("m", "backend_error"))]


@pytest.mark.parametrize("last", [Completed(), Failed(ErrorInfo("no", "c"))])
@pytest.mark.parametrize("after", [ContentDelta("b"), Completed(), ValueError("late"), "junk"])
def test_nothing_after_the_terminal_event_is_passed_on(last, after, caplog):
    backend = scripted_backend([ChoiceFinished(), last, lambda context: [after]])
    assert list(run_events(backend(), REQUEST, RunContext("id"))) == [ChoiceFinished(), last]
    assert backend.script.closed == 1
    assert caplog.records == []


# Batches


A, B = ContentDelta("a"), ContentDelta("b")


def batches(items: Any, context: RunContext | None = None) -> list[list[Event]]:
    """Return what is told together of what a backend yields."""
    return [
        list(batch) for batch in run_batches(Returns(items), REQUEST, context or RunContext("id"))
    ]


@pytest.mark.parametrize("kind", [list, tuple])
def test_what_a_backend_tells_together_goes_on_together(kind):
    items = [Started(), kind([A, B]), A, kind([B, ChoiceFinished(), Completed()])]
    assert batches(items) == [[Started()], [A, B], [A], [B, ChoiceFinished()], [Completed()]]
    assert list(run_events(Returns(items), REQUEST, RunContext("id"))) == [
        *(Started(), A, B, A, B, ChoiceFinished(), Completed())
    ]


def test_an_empty_batch_is_passed_on_for_it_says_that_the_run_waits():
    assert batches([[], (), ANSWER, []]) == [[], [], ANSWER[:-1], [Completed()]]


@pytest.mark.parametrize("junk", ["text", None, [A], ChoiceFinished(3), ContentDelta(b"")])  # type: ignore[arg-type]
def test_what_comes_before_a_breach_in_a_batch_is_told(junk, caplog):
    assert batches([[A, B, junk, A, ChoiceFinished(), Completed()]]) == [
        [A, B],
        [Failed(UNEXPECTED)],
    ]
    assert "Returns broke the contract" in caplog.text


def test_nothing_after_the_terminal_event_of_a_batch_is_looked_at(caplog):
    items = Watched([[A, ChoiceFinished(), Completed(), "junk"], "junk"])
    assert batches(items) == [[A, ChoiceFinished()], [Completed()]]
    assert items.closes == 1
    assert caplog.records == []


def test_a_batch_that_grows_too_long_is_told_up_to_there():
    told = batches([[ContentDelta("abc")] * 100], RunContext("id", max_answer_chars=7))
    assert told[0] == [ContentDelta("abc")] * 2
    assert told[1][0].error.code == "answer_too_long"
    assert len(told) == 2


def test_a_cancel_ends_a_long_batch_before_its_end():
    context = RunContext("id")
    long = [*[A] * (2 * AT_ONCE + 1), *ANSWER[1:]]
    assert [len(batch) for batch in batches([long])] == [AT_ONCE, AT_ONCE, 2, 1]
    told = run_batches(Returns([long]), REQUEST, context)
    assert len(next(told)) == AT_ONCE
    context.cancel()
    assert list(told) == [(Failed(CANCELLED),)]


def test_a_cancel_while_the_last_events_are_taken_is_heeded():
    context = RunContext("id")
    told = run_batches(Returns([ANSWER]), REQUEST, context)
    assert next(told) == ANSWER[:-1]
    context.cancel()
    assert list(told) == [(Failed(CANCELLED),)]


def test_of_a_batch_what_an_earlier_attempt_has_told_is_left_out():
    known = [ContentDelta("old"), ContentDelta("older")]

    def fresh(event: Event) -> Event | None:
        return None if event in known else event

    items = [[ContentDelta("older"), ContentDelta("old"), A], [ContentDelta("old")], [B, *ANSWER]]
    told = run_batches(Returns(items), REQUEST, RunContext("id"), fresh)
    assert [list(batch) for batch in told] == [[A], [B, *ANSWER[:-1]], [Completed()]]


# Cancel


def test_a_run_that_is_cancelled_before_it_begins_does_not_begin():
    backend, context = scripted_backend(ANSWER), RunContext("id")
    context.cancel()
    assert list(run_events(backend(), REQUEST, context)) == [Failed(CANCELLED)]
    assert backend.script.runs == 0


@pytest.mark.parametrize(
    ("reason", "info"),
    [
        ("cancelled", CANCELLED),
        ("deadline", DEADLINE),
        ("shutdown", SHUTDOWN),
        ("fenced", CANCELLED),
    ],
)
def test_a_cancel_ends_a_blocked_run(reason, info, in_thread):
    gate, context = Gate(), RunContext("id")
    backend = scripted_backend([ContentDelta("a"), gate, *ANSWER])
    running = in_thread(lambda: list(run_events(backend(), REQUEST, context)))
    gate.wait_until_reached()
    context.cancel(reason)
    assert running.result(WITHIN_S) == [ContentDelta("a"), Failed(info)]
    assert backend.script.cancels == 1


def test_a_run_that_does_not_look_is_ended_at_its_next_event():
    backend, context = scripted_backend([*ANSWER[:1] * 100], heeds_cancel=False), RunContext("id")
    events = run_events(backend(), REQUEST, context)
    assert next(events) == ContentDelta("a")
    context.cancel()
    assert list(events) == [Failed(CANCELLED)]
    assert backend.script.yielded == 1
    assert backend.script.closed == 1


@pytest.mark.parametrize(
    "rest",
    [
        [Completed()],
        [Failed(ErrorInfo("the socket is closed", "c"))],
        [BackendUnavailableError("the socket is closed")],
        [OSError("the socket is closed")],
        [SystemExit(1)],
        [lambda context: ["junk"]],
        [],
    ],
)
def test_whatever_a_cancelled_run_ends_with_it_is_cancelled(rest, caplog):
    context = RunContext("id")
    steps = [ContentDelta("a"), lambda context: context.cancel("shutdown"), *rest]
    events = run(steps, context, heeds_cancel=False)
    assert events == [ContentDelta("a"), Failed(SHUTDOWN)]
    assert caplog.records == []


def test_a_cancel_that_nobody_asked_for_is_a_cancel_all_the_same():
    assert run([Cancelled()]) == [Failed(CANCELLED)]
    assert run([Cancelled("deadline")]) == [Failed(DEADLINE)]


def test_the_deadline_ends_a_run_that_sleeps(in_thread):
    clock = FakeClock()
    context = RunContext("id", clock=clock, timeout_s=5)
    running = in_thread(run, [lambda context: context.sleep(60), *ANSWER], context)
    clock.wait_for_waiters()
    clock.advance(5)
    assert running.result(WITHIN_S) == [Failed(DEADLINE)]


def test_the_deadline_ends_a_run_that_goes_on_and_on():
    clock = FakeClock()
    context = RunContext("id", clock=clock, timeout_s=5)

    def forever(request: Request) -> Iterator[Any]:
        while True:
            yield lambda context: clock.advance(1)
            yield ProgressNoted("still at it")

    events = run(forever, context, heeds_cancel=False)
    assert events == [*[ProgressNoted("still at it")] * 4, Failed(DEADLINE)]


# The backend's iterator is closed


class Watched:
    """An iterator that is no generator."""

    def __init__(self, items: list[Any], close_raises: BaseException | None = None) -> None:
        self._items = iter(items)
        self._close_raises = close_raises
        self.closes = 0

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        item = next(self._items)
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        self.closes += 1
        if self._close_raises is not None:
            raise self._close_raises


ENDINGS = [
    pytest.param(ANSWER, ANSWER, id="completed"),
    pytest.param([Failed(UNEXPECTED)], [Failed(UNEXPECTED)], id="failed"),
    pytest.param([BackendError("m")], [Failed(BackendError("m").info())], id="raised"),
    pytest.param([ValueError()], [Failed(UNEXPECTED)], id="unexpected"),
    pytest.param(["junk"], [Failed(UNEXPECTED)], id="breach"),
    pytest.param([], [Failed(UNEXPECTED)], id="no end"),
    pytest.param([Cancelled()], [Failed(CANCELLED)], id="cancelled"),
]


@pytest.mark.parametrize(("items", "events"), ENDINGS)
def test_the_iterator_is_closed_before_the_end_is_told(items, events):
    iterator = Watched(items)
    seen = [
        (event, iterator.closes)
        for event in run_events(Returns(iterator), REQUEST, RunContext("id"))
    ]
    assert [event for event, _ in seen] == events
    assert [closes for _, closes in seen] == [0] * (len(events) - 1) + [1]
    assert iterator.closes == 1


@pytest.mark.parametrize(("items", "events"), ENDINGS)
@pytest.mark.parametrize("error", [ValueError("broken close"), SystemExit("broken close")])
def test_a_close_that_raises_does_not_change_how_the_run_ended(items, events, error, caplog):
    iterator = Watched(items, close_raises=error)
    assert list(run_events(Returns(iterator), REQUEST, RunContext("id"))) == events
    assert "closing the backend's iterator raised" in caplog.text
    assert "broken close" in caplog.text


def test_a_generator_that_goes_on_after_its_close_is_logged(caplog):
    class Stubborn(Backend):
        def run(self, request: Request, context: Context) -> Iterator[Event]:
            try:
                yield from ANSWER
            finally:
                yield ContentDelta("one more")

    assert list(run_events(Stubborn(), REQUEST, RunContext("id"))) == ANSWER
    assert "closing the backend's iterator raised" in caplog.text


def test_leaving_early_closes_the_backends_iterator_and_tells_nothing():
    backend = scripted_backend([ContentDelta("a"), ContentDelta("b")])
    events = run_events(backend(), REQUEST, RunContext("id"))
    assert next(events) == ContentDelta("a")
    events.close()
    assert backend.script.closed == 1
    assert list(events) == []


def test_leaving_early_is_not_spoiled_by_a_close_that_raises(caplog):
    iterator = Watched([ContentDelta("a"), *ANSWER], close_raises=ValueError("broken close"))
    events = run_events(Returns(iterator), REQUEST, RunContext("id"))
    next(events)
    events.close()
    assert iterator.closes == 1
    assert "broken close" in caplog.text


def test_a_run_that_was_never_begun_can_be_dropped():
    backend = scripted_backend(ANSWER)
    run_events(backend(), REQUEST, RunContext("id")).close()
    assert backend.script.runs == 0


# Usage of calls


def test_usage_of_calls_is_told_once_before_the_end():
    context = RunContext("id")
    context.called_usage += [UsageCounted(1, 2), UsageCounted(3, 4)]
    assert run(ANSWER, context) == [*ANSWER[:-1], UsageCounted(4, 6), Completed()]


def test_usage_of_calls_is_not_told_by_the_called_run_itself():
    context = RunContext("id")
    context.called_usage.append(UsageCounted(1, 2))
    assert run(ANSWER, context.child("inner", None)) == ANSWER


# Length


def test_a_run_whose_text_grows_too_long_is_ended_and_its_backend_closed(caplog):
    backend = scripted_backend([ContentDelta("abc")] * 100)
    events = list(run_events(backend(), REQUEST, RunContext("id", max_answer_chars=7)))
    assert events[:-1] == [ContentDelta("abc")] * 2
    assert (events[-1].error.code, events[-1].error.status) == ("answer_too_long", 422)
    assert "max_answer_chars" in events[-1].error.message
    assert (backend.script.yielded, backend.script.closed) == (2, 1)
    assert [(record.levelname, record.job_id) for record in caplog.records] == [("WARNING", "id")]
    assert "max_answer_chars" in caplog.text
