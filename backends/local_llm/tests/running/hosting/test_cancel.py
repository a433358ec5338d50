"""A run ends soon after it is cancelled, wherever it is, and leaves nothing."""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest

from caesar_server.contract import Cancelled, CompletionRequest, ContentDelta, Sampling
from caesar_server.testing import make_context
from caesar_server.testing.conformance.resources import Resources

ENDLESS = {"ignore_eos": True}


def words(count: int) -> tuple[int, ...]:
    return tuple((7 * number) % 250 + 3 for number in range(count))


@pytest.fixture
def deep(opened, tiny_model):
    """A model that takes seconds for a long prompt, in one batch."""
    model = tiny_model("random", layers=40, context=8192)
    return opened(model.path, n_ctx=8192, batch_tokens=8192)


def test_in_the_middle_of_a_batch_of_a_prompt(deep) -> None:
    deep.complete("x", max_tokens=1)  # loaded
    context = make_context()
    cancelled: list[float] = []

    def cancel() -> None:
        cancelled.append(time.monotonic())
        context.cancel()

    timer = threading.Timer(0.2, cancel)
    timer.start()
    answer = deep.complete(words(8000), max_tokens=1, context=context)
    ended = time.monotonic()
    timer.join()
    assert answer.error.code == "cancelled"
    assert [type(event).__name__ for event in answer.events] == ["Started", "Failed"]
    assert ended - cancelled[0] < 5  # some milliseconds; the prompt takes several seconds
    assert deep.complete("x", max_tokens=3, seed=1).usage[1] == 3


def test_a_deadline_is_one_too(deep, opened) -> None:
    from caesar_server.jobs.clock import SystemClock

    deep.complete("x", max_tokens=1)
    clock = SystemClock()
    context = make_context(clock=clock, timeout_s=0.2)
    clock.call_at(context.deadline, lambda: context.cancel("deadline"))
    answer = deep.complete(words(8000), max_tokens=1, context=context)
    clock.close()
    assert answer.error.status == 504


def test_before_the_start(echo) -> None:
    context = make_context()
    context.cancel()
    assert [type(event) for event in echo.complete("Once", context=context).events[:-1]] == []
    assert echo.complete("Once upon", max_tokens=1).text == " a"


def test_between_tokens(chance) -> None:
    context = make_context()
    request = CompletionRequest(
        prompts=("Once",), sampling=Sampling(seed=1, max_tokens=500), extra=ENDLESS
    )
    with closing(chance.backend.run(request, context)) as events:
        while not isinstance(next(events), ContentDelta):
            pass
        context.cancel()
        with pytest.raises(Cancelled):
            next(events)
    assert chance.complete("Once", seed=1, max_tokens=5).usage[1] == 5


@pytest.mark.slow
def test_a_thousand_cancelled_requests_leave_nothing(opened, tiny_model) -> None:
    ask = opened(tiny_model("random").path, instances=2)
    first = ask.complete("Once upon", seed=1, max_tokens=30)
    grammar = {"grammar": "root ::= [a-z]*", **ENDLESS}
    before = Resources.now()
    size = resident_bytes()
    for number in range(1000):
        context = make_context()
        request = CompletionRequest(
            prompts=("Once upon a time " * (number % 7 + 1),),
            sampling=Sampling(seed=number, best_of=1 + (number % 20 == 0), max_tokens=60),
            extra=grammar if number % 10 == 0 else ENDLESS,
        )
        with closing(ask.backend.run(request, context)) as events:
            for position, _ in enumerate(events):
                if position == number % 9:
                    break  # the client has left
            if number % 3 == 0:
                context.cancel()
                with suppress(Cancelled):  # unless nothing but the end was to come
                    assert len(list(events)) < 5
    assert ask.complete("Once upon", seed=1, max_tokens=30).text == first.text
    assert "0 of 2 instances at work, 0 waiting" in ask.backend.health().message
    assert Resources.now() == before
    assert resident_bytes() - size < 30e6


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - no path of this machine's disk
        return int(file.read().split()[1]) * 4096


def test_the_flag_ends_an_evaluation_and_can_be_cleared(
    raw_models: SimpleNamespace, tiny_model
) -> None:
    from caesar_backend_local_llm.engine.failures import AbortedError

    weights = raw_models.Weights(str(tiny_model("random").path))
    instance = raw_models.Instance(weights, context_tokens=64, batch_tokens=16, threads=1)
    instance.flag.set()
    with pytest.raises(AbortedError):
        instance.read(words(20))
    assert instance.size == 0
    instance.flag.clear()
    logits, _ = instance.read(words(20))
    assert logits.shape == (weights.vocabulary.size,)
    instance.close()
    weights.close()
