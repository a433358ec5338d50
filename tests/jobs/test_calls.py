"""One backend writes with another, inside the same job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from caesar_server.contract import (
    Backend,
    BackendError,
    Cancelled,
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    ErrorInfo,
    Event,
    Failed,
    InvalidRequestError,
    Message,
    Part,
    RateLimitedError,
    Request,
    Sampling,
    Started,
    UsageCounted,
)
from caesar_server.errors import CANCELLED, DEADLINE, UNEXPECTED
from caesar_server.jobs.calls import RegistryCaller
from caesar_server.jobs.context import RunContext
from caesar_server.jobs.running.run import run_events
from caesar_server.settings import ModelRoute
from caesar_server.testing import FakeClock, Gate, scripted_backend

WITHIN_S = 60.0
REQUEST = CompletionRequest(prompts=("p",))
INNER = [Started(), ContentDelta("x"), UsageCounted(1, 10), ChoiceFinished(), Completed()]


def calling(model: str, log: list[Any] | None = None, request: Request = REQUEST) -> Any:
    """Return the script of a backend that passes on what another one says."""

    def call(context: Context) -> Iterator[Event]:
        for event in context.call(model, request):
            if log is not None:
                log.append(event)
            if isinstance(event, ContentDelta):
                yield event

    return scripted_backend([call, UsageCounted(100, 1000), ChoiceFinished(), Completed()])


@pytest.fixture
def run(make_registry) -> Callable[..., list[Event]]:
    """Run the first of some backends to its end."""

    def run_first(backends: dict[str, type[Backend]], **options: Any) -> list[Event]:
        registry = make_registry(backends, **options.pop("settings", {}))
        name = next(iter(backends))
        context = RunContext("id", caller=RegistryCaller(registry), chain=(name,), **options)
        return list(run_events(registry.load(name), REQUEST, context))

    return run_first


def test_the_caller_sees_every_event_but_usage(run):
    seen: list[Event] = []
    run({"outer": calling("inner", seen), "inner": scripted_backend(INNER)})
    assert seen == [event for event in INNER if not isinstance(event, UsageCounted)]


def test_usage_is_added_once(run):
    events = run({"outer": calling("inner"), "inner": scripted_backend(INNER)})
    assert [event for event in events if isinstance(event, UsageCounted)] == [
        UsageCounted(100, 1000),
        UsageCounted(1, 10),
    ]
    assert isinstance(events[-1], Completed)


def test_usage_of_three_levels_is_added_once(run):
    events = run(
        {
            "a": calling("b"),
            "b": calling("c"),
            "c": calling("d"),
            "d": scripted_backend(INNER),
        }
    )
    assert ContentDelta("x") in events
    used = [event for event in events if isinstance(event, UsageCounted)]
    assert used == [UsageCounted(100, 1000), UsageCounted(201, 2010)]


def test_usage_of_several_calls_is_added_up(run):
    def twice(context: Context) -> Iterator[Event]:
        for _ in range(2):
            for _ in context.call("inner", REQUEST):
                pass
        return iter(())

    outer = scripted_backend([twice, ChoiceFinished(), Completed()])
    events = run({"outer": outer, "inner": scripted_backend(INNER)})
    assert events == [ChoiceFinished(), UsageCounted(2, 20), Completed()]


def test_what_a_called_backend_says_has_the_same_bound(run):
    inner = scripted_backend([ContentDelta("abc")] * 100)

    def collect(context: Context) -> Iterator[Event]:
        list(context.call("inner", REQUEST))
        yield ContentDelta("short")

    events = run({"outer": scripted_backend([collect]), "inner": inner}, max_answer_chars=7)
    assert [event.error.code for event in events] == ["answer_too_long"]
    assert (inner.script.yielded, inner.script.closed) == (2, 1)


def test_events_pass_through_as_they_come(make_registry):
    order: list[str] = []

    def said(number: int) -> Any:
        return lambda context: order.append(f"made {number}") or ContentDelta(str(number))

    registry = make_registry(
        {
            "a": calling("b"),
            "b": calling("c"),
            "c": scripted_backend([said(1), said(2), said(3), ChoiceFinished(), Completed()]),
        }
    )
    context = RunContext("id", caller=RegistryCaller(registry), chain=("a",))
    for event in run_events(registry.load("a"), REQUEST, context):
        if isinstance(event, ContentDelta):
            order.append(f"came {event.text}")
    assert order == ["made 1", "came 1", "made 2", "came 2", "made 3", "came 3"]


@pytest.mark.parametrize(
    ("backends", "path"),
    [
        ({"a": "a"}, "a -> a"),
        ({"a": "b", "b": "a"}, "a -> b -> a"),
        ({"a": "b", "b": "c", "c": "b"}, "a -> b -> c -> b"),
        ({"a": "b/some-model", "b": "a/other-model"}, "a -> b -> a"),
    ],
)
def test_a_circle_is_refused(run, backends, path):
    events = run({name: calling(called) for name, called in backends.items()})
    assert len(events) == 1
    error = events[0].error
    assert (error.status, error.param) == (400, "model")
    assert path in error.message


def test_the_same_backend_may_be_called_again_once_a_call_is_over(run):
    def twice(context: Context) -> Iterator[Event]:
        for _ in range(2):
            yield from (e for e in context.call("b", REQUEST) if isinstance(e, ContentDelta))

    events = run(
        {
            "a": scripted_backend([twice, ChoiceFinished(), Completed()]),
            "b": calling("c"),
            "c": scripted_backend(INNER),
        }
    )
    assert events.count(ContentDelta("x")) == 2


FAILURE = ErrorInfo("slow down", "own_code", "rate_limit_error", "p", 429, 7.5, True)


@pytest.mark.parametrize(
    ("steps", "info"),
    [
        ([Failed(FAILURE)], FAILURE),
        ([RateLimitedError("m", retry_after_s=3)], RateLimitedError("m", retry_after_s=3).info()),
        ([ValueError("secret")], UNEXPECTED),
        ([Completed()], UNEXPECTED),
    ],
)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_failure_of_the_called_is_the_callers_with_all_it_says(run, steps, info, depth):
    between = {f"between{n}": calling(f"between{n + 1}") for n in range(1, depth)}
    backends = {"outer": calling("between1"), **between}
    events = run({**backends, f"between{depth}": scripted_backend(steps)})
    assert events == [Failed(info)]


def test_what_is_no_request_is_told_in_plain_words(run, caplog):
    steps = [lambda context: list(context.call("inner", "a prompt")), Completed()]
    events = run({"outer": scripted_backend(steps), "inner": scripted_backend([Completed()])})
    assert events == [Failed(UNEXPECTED)]
    assert "context.call: expected a request of the contract, got 'a prompt'" in caplog.text


def test_what_is_no_model_is_told_in_plain_words(run, caplog):
    steps = [lambda context: list(context.call(None, REQUEST)), Completed()]
    events = run({"outer": scripted_backend(steps), "inner": scripted_backend([Completed()])})
    assert events == [Failed(UNEXPECTED)]
    assert "context.call: expected the name of a model, got None" in caplog.text


def test_the_caller_may_go_on_after_a_failed_call(run):
    def second_try(context: Context) -> Event:
        try:
            list(context.call("inner", REQUEST))
        except BackendError as error:
            return ContentDelta(error.info().code)
        raise AssertionError

    outer = scripted_backend([second_try, ChoiceFinished(), Completed()])
    events = run({"outer": outer, "inner": scripted_backend([UsageCounted(5), Failed(FAILURE)])})
    assert events == [
        ContentDelta("own_code"),
        ChoiceFinished(),
        UsageCounted(5),  # what a failed call used was used
        Completed(),
    ]


class CannotOpen(Backend):
    def open(self) -> None:
        raise ValueError("no weights")

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("model", "code", "status"),
    [("broken", "backend_failed_to_load", 503), ("unknown", "model_not_found", 404)],
)
def test_a_backend_that_is_not_there_is_an_error_of_the_backends_kind(run, model, code, status):
    caught: list[BackendError] = []

    def call(context: Context) -> None:
        try:
            list(context.call(model, REQUEST))
        except BackendError as error:
            caught.append(error)
            raise

    events = run(
        {"outer": scripted_backend([call]), "broken": CannotOpen},
        settings={"unknown_model": "reject"},
    )
    assert len(caught) == 1
    assert (events[0].error.code, events[0].error.status) == (code, status)


def test_the_called_gets_its_own_name_for_the_model(run):
    inner, other = scripted_backend(INNER), scripted_backend(INNER)

    def call(context: Context) -> None:
        list(context.call("inner/small", REQUEST))
        list(context.call("inner", CompletionRequest(prompts=("p",), model="left over")))
        list(context.call("writer", REQUEST))

    run(
        {
            "outer": scripted_backend([call, ChoiceFinished(), Completed()]),
            "inner": inner,
            "other": other,
        },
        settings={"models": {"writer": ModelRoute(backend="other", model="large")}},
    )
    assert [request.model for request in inner.script.requests] == ["small", ""]
    assert [request.model for request in other.script.requests] == ["large"]


def test_the_request_is_made_to_fit_the_called(run):
    inner = scripted_backend(INNER, accepts=frozenset({"completion"}))
    chat = ChatRequest(messages=(Message(role="user", parts=(Part(text="hello"),)),))
    run({"outer": calling("inner", request=chat), "inner": inner})
    assert inner.script.requests == [CompletionRequest(prompts=("hello",))]


def test_a_request_that_cannot_be_made_to_fit_is_refused(run):
    inner = scripted_backend(INNER, n=False)
    many = CompletionRequest(prompts=("p",), sampling=Sampling(n=2))
    caught: list[BaseException] = []

    def call(context: Context) -> None:
        try:
            list(context.call("inner", many))
        except InvalidRequestError as error:
            caught.append(error)
            raise

    events = run({"outer": scripted_backend([call]), "inner": inner})
    assert (events[0].error.status, events[0].error.param) == (400, "n")
    assert len(caught) == 1
    assert inner.script.runs == 0


def test_the_called_has_the_seed_of_its_own_request(run):
    numbers: list[float] = []
    inner = scripted_backend([lambda context: numbers.append(context.random.random()), *INNER])
    seeded = CompletionRequest(prompts=("p",), sampling=Sampling(seed=7))
    for _ in range(2):
        run({"outer": calling("inner", request=seeded), "inner": inner})
    assert numbers[0] == numbers[1] == RunContext("x", seed=7).random.random()


def test_a_cancel_ends_a_call_that_blocks_three_levels_down(make_registry, in_thread):
    gate = Gate()
    registry = make_registry(
        {
            "a": calling("b"),
            "b": calling("c"),
            "c": scripted_backend([ContentDelta("x"), gate, *INNER]),
        }
    )
    context = RunContext("id", caller=RegistryCaller(registry), chain=("a",))
    running = in_thread(lambda: list(run_events(registry.load("a"), REQUEST, context)))
    gate.wait_until_reached()
    context.cancel()
    assert running.result(WITHIN_S) == [ContentDelta("x"), Failed(CANCELLED)]


def test_a_cancelled_call_raises_cancelled_in_the_caller_and_no_backend_error(make_registry):
    caught: list[BaseException] = []

    def call(context: Context) -> None:
        try:
            list(context.call("inner", REQUEST))
        except BaseException as error:
            caught.append(error)
            raise

    registry = make_registry(
        {
            "outer": scripted_backend([call]),
            "inner": scripted_backend([lambda context: context.cancel("shutdown"), *INNER]),
        }
    )
    context = RunContext("id", caller=RegistryCaller(registry), chain=("outer",))
    list(run_events(registry.load("outer"), REQUEST, context))
    (error,) = caught
    assert isinstance(error, Cancelled)
    assert error.reason == "shutdown"


def test_the_deadline_is_the_callers(run, in_thread):
    clock, seen = FakeClock(), []

    def sleep(context: Context) -> None:
        seen.append(context.deadline)
        context.sleep(60)

    running = in_thread(
        run,
        {"outer": calling("inner"), "inner": scripted_backend([sleep, *INNER])},
        clock=clock,
        timeout_s=5,
    )
    clock.wait_for_waiters()
    clock.advance(5)
    assert running.result(WITHIN_S) == [Failed(DEADLINE)]
    assert seen == [1005.0]


def test_a_call_that_is_left_early_closes_the_called(run):
    inner = scripted_backend(INNER)

    def call(context: Context) -> Event:
        events = context.call("inner", REQUEST)
        next(events)
        events.close()
        return ContentDelta("enough")

    run({"outer": scripted_backend([call, ChoiceFinished(), Completed()]), "inner": inner})
    assert inner.script.closed == 1
    assert inner.script.ended == 1


def test_leaving_the_outer_run_closes_every_level(make_registry):
    inner = scripted_backend([ContentDelta("x"), ContentDelta("y")])
    registry = make_registry({"a": calling("b"), "b": calling("c"), "c": inner})
    context = RunContext("id", caller=RegistryCaller(registry), chain=("a",))
    events = run_events(registry.load("a"), REQUEST, context)
    next(events)
    events.close()
    assert inner.script.ended == 1
