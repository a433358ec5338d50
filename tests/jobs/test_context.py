"""What a run may use of the server."""

from __future__ import annotations

import math
import threading

import pytest

from caesar_server.contract import (
    BackendError,
    Cancelled,
    CompletionRequest,
    Context,
    Update,
    UsageCounted,
)
from caesar_server.contract.context import Forwarded
from caesar_server.jobs.clock import SystemClock
from caesar_server.jobs.context import RunContext

WITHIN_S = 60.0


def as_backends_see_it(context: RunContext) -> Context:
    return context


def test_a_bare_context_has_something_for_everything():
    context = as_backends_see_it(RunContext("id"))
    assert context.job_id == "id"
    assert context.attempt == 1
    assert not context.cancelled
    assert context.deadline is None
    assert context.remaining_s is None
    assert list(context.updates()) == []
    assert dict(context.files) == {}
    assert dict(context.collections) == {}
    assert context.forwarded == Forwarded()
    assert context.restored is None
    context.metrics.count("a", 2, label="b")
    context.metrics.observe("a", 0.5)
    context.checkpoint({"text": ""})
    context.raise_if_cancelled()
    with pytest.raises(BackendError, match="cannot call other backends"):
        context.call("m", CompletionRequest(prompts=("p",)))


def test_updates_come_from_the_job():
    update = Update("u", "more on prices")
    assert RunContext("id", updates=lambda: [update]).updates() == [update]


def test_the_logger_adds_the_job(caplog):
    RunContext("the-job").logger.warning("hello", extra={"more": 1})
    (record,) = caplog.records
    assert record.job_id == "the-job"
    assert record.more == 1


def test_the_deadline_passes_by_the_clock_alone(clock):
    context = RunContext("id", clock=clock, timeout_s=5)
    assert context.deadline == clock.monotonic() + 5
    clock.advance(4)
    assert context.remaining_s == 1
    assert not context.cancelled
    context.raise_if_cancelled()
    clock.advance(1)
    assert context.remaining_s == 0
    assert context.cancelled
    with pytest.raises(Cancelled) as raised:
        context.raise_if_cancelled()
    assert raised.value.reason == "deadline"
    clock.advance(1)
    assert context.remaining_s == 0


def test_a_passed_deadline_calls_the_callbacks(clock):
    context, calls = RunContext("id", clock=clock, timeout_s=5), []
    with context.on_cancel(lambda: calls.append(1)):
        clock.advance(5)
        assert context.cancelled
        assert context.cancelled
    assert calls == [1]


def test_an_earlier_cancel_wins_over_the_deadline(clock):
    context = RunContext("id", clock=clock, timeout_s=5)
    context.cancel("shutdown")
    clock.advance(10)
    assert context.cancelled
    assert context.cancellation.reason == "shutdown"


def test_sleep_ends_with_its_time(clock, in_thread):
    context = RunContext("id", clock=clock)
    sleeping = in_thread(context.sleep, 30)
    clock.wait_for_waiters()
    clock.advance(29)
    assert not sleeping.done()
    clock.advance(1)
    sleeping.result(WITHIN_S)


def test_sleep_ends_with_a_cancel(clock, in_thread):
    context = RunContext("id", clock=clock)
    sleeping = in_thread(context.sleep, 30)
    clock.wait_for_waiters()
    context.cancel()
    with pytest.raises(Cancelled):
        sleeping.result(WITHIN_S)
    with pytest.raises(Cancelled):
        context.sleep(30)


def test_sleep_ends_with_the_deadline(clock, in_thread):
    context = RunContext("id", clock=clock, timeout_s=5)
    sleeping = in_thread(context.sleep, math.inf)
    clock.wait_for_waiters()
    clock.advance(5)
    with pytest.raises(Cancelled) as raised:
        sleeping.result(WITHIN_S)
    assert raised.value.reason == "deadline"


def test_sleep_until_the_deadline_ends_the_run(clock, in_thread):
    context = RunContext("id", clock=clock, timeout_s=5)
    sleeping = in_thread(context.sleep, 5)
    clock.wait_for_waiters()
    clock.advance(5)
    with pytest.raises(Cancelled):
        sleeping.result(WITHIN_S)


def test_sleep_by_the_real_clock_without_end_ends_with_a_cancel(in_thread):
    context = RunContext("id", clock=SystemClock())
    sleeping = in_thread(context.sleep, math.inf)
    context.cancel()
    with pytest.raises(Cancelled):
        sleeping.result(WITHIN_S)


class EarlyClock(SystemClock):
    """Wakes a rounding error before the moment, and tells time so that it stays before it."""

    def monotonic(self) -> float:
        return 1.0

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return False


def test_a_clock_that_wakes_a_little_early_does_not_let_a_run_outlive_its_deadline():
    context = RunContext("id", clock=EarlyClock(), timeout_s=5)
    with pytest.raises(Cancelled) as raised:
        context.sleep(30)
    assert raised.value.reason == "deadline"


def test_equal_seeds_give_equal_chance():
    def numbers(seed: int | None) -> list[float]:
        context = RunContext("id", seed=seed)
        return [context.random.random() for _ in range(5)]

    assert numbers(7) == numbers(7)
    assert numbers(-(2**63)) == numbers(-(2**63))
    assert numbers(7) != numbers(8)
    assert numbers(0) == numbers(0)
    assert numbers(None) != numbers(None)


def test_two_runs_do_not_share_their_chance():
    first, second = RunContext("a", seed=7), RunContext("b", seed=7)
    first.random.random()
    assert second.random.random() == RunContext("c", seed=7).random.random()


def test_on_cancel_is_the_cancellations():
    context, calls = RunContext("id"), []
    with context.on_cancel(lambda: calls.append("inside")):
        context.cancel()
    with context.on_cancel(lambda: calls.append("too late")):
        pass
    assert calls == ["inside", "too late"]


def test_checkpoint_stores_and_stops_a_cancelled_run():
    states: list[object] = []
    context = RunContext("id", save_checkpoint=states.append)
    context.checkpoint({"loop": 1})
    context.cancel()
    with pytest.raises(Cancelled):
        context.checkpoint({"loop": 2})
    assert states == [{"loop": 1}]


def test_a_child_shares_job_deadline_cancel_and_what_the_caller_brought(clock):
    states: list[object] = []
    forwarded = Forwarded({"x-tenant": "t"}, "key")
    parent = RunContext(
        "id",
        attempt=3,
        clock=clock,
        timeout_s=0.1,
        seed=1,
        restored={"loop": 1},
        forwarded=forwarded,
        updates=lambda: [Update("u", "c")],
        save_checkpoint=states.append,
        chain=("outer",),
    )
    clock.advance(0.03)
    child = parent.child("inner", seed=7)
    assert (child.job_id, child.attempt, child.clock) == ("id", 3, clock)
    assert child.deadline == parent.deadline
    assert child.chain == ("outer", "inner")
    assert child.forwarded == forwarded
    assert child.metrics is parent.metrics
    assert child.random.random() == RunContext("x", seed=7).random.random()
    # what is the outer backend's own
    assert child.restored is None
    assert list(child.updates()) == []
    child.checkpoint({"loop": 9})
    assert states == []
    child.called_usage.append(UsageCounted(1, 1))
    assert parent.called_usage == [UsageCounted(1, 1)]
    assert (parent.nested, child.nested) == (False, True)
    child.cancel("deadline")
    assert parent.cancelled


def test_a_cancel_of_the_parent_reaches_the_callbacks_of_a_grandchild():
    parent, calls = RunContext("id"), []
    grandchild = parent.child("a", None).child("b", None)
    with grandchild.on_cancel(lambda: calls.append(1)):
        parent.cancel()
    assert calls == [1]


def test_two_contexts_share_nothing():
    first, second = RunContext("a"), RunContext("b")
    first.cancel()
    first.called_usage.append(UsageCounted(1, 1))
    assert not second.cancelled
    assert second.called_usage == []


def test_what_cannot_be_called_is_no_callback():
    with pytest.raises(TypeError, match=r"on_cancel: .* got None; give it sock\.close"):
        RunContext("id").on_cancel(None)  # what a callback returned, not the callback


@pytest.mark.parametrize("state", [None, [1], "text"])
def test_a_checkpoint_is_a_mapping(state):
    states = []
    context = RunContext("id", save_checkpoint=states.append)
    with pytest.raises(TypeError, match=r"checkpoint: expected a mapping, such as a dict, got"):
        context.checkpoint(state)
    assert states == []
