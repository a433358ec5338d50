"""The clock that tests turn by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from caesar_server.jobs.context import RunContext
from caesar_server.testing import FakeClock


@pytest.fixture
def start() -> Iterator[Callable[..., threading.Thread]]:
    """Run functions in threads, which must have ended after the test."""
    threads: list[threading.Thread] = []

    def run(function: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=function, daemon=True)
        threads.append(thread)
        thread.start()
        return thread

    yield run
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_time_stands_still_until_it_is_turned() -> None:
    clock = FakeClock(time_s=100.0, monotonic_s=5.0)
    assert (clock.time(), clock.monotonic()) == (100.0, 5.0)
    clock.advance(2.5)
    assert (clock.time(), clock.monotonic()) == (102.5, 7.5)


def test_it_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="expected 0 or more"):
        FakeClock().advance(-1)


def test_callbacks_run_in_the_order_of_their_moments_and_see_them() -> None:
    clock = FakeClock(monotonic_s=0.0)
    seen: list[tuple[str, float]] = []
    for name, moment in (("c", 3.0), ("a", 1.0), ("b1", 2.0), ("b2", 2.0), ("late", 9.0)):
        clock.call_at(moment, lambda name=name: seen.append((name, clock.monotonic())))
    clock.advance(5)
    assert seen == [("a", 1.0), ("b1", 2.0), ("b2", 2.0), ("c", 3.0)]
    assert clock.monotonic() == 5.0
    assert clock.alarms == (9.0,)


def test_a_callback_may_schedule_another_within_the_same_turn() -> None:
    clock = FakeClock(monotonic_s=0.0)
    seen: list[float] = []

    def tick() -> None:
        seen.append(clock.monotonic())
        clock.call_at(clock.monotonic() + 1, tick)

    clock.call_at(1, tick)
    clock.advance(3)
    assert seen == [1.0, 2.0, 3.0]


def test_what_was_called_off_does_not_run() -> None:
    clock = FakeClock()
    seen: list[int] = []
    call_off = clock.call_at(clock.monotonic() + 1, lambda: seen.append(1))
    call_off()
    call_off()
    clock.advance(2)
    assert seen == []


def test_a_moment_that_is_over_is_due_at_the_next_turn() -> None:
    clock = FakeClock()
    seen: list[float] = []
    clock.call_at(0, lambda: seen.append(clock.monotonic()))
    assert seen == []
    clock.advance(0)
    assert seen == [clock.monotonic()]


def test_what_a_callback_raises_comes_out_where_the_clock_is_turned() -> None:
    clock = FakeClock()
    clock.call_at(0, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        clock.advance(0)
    clock.advance(1)


def test_a_waiter_leaves_when_its_time_has_come(start: Callable[..., threading.Thread]) -> None:
    clock = FakeClock()
    results: list[bool] = []
    thread = start(lambda: results.append(clock.wait(threading.Event(), 10)))
    clock.wait_for_waiters(1)
    clock.advance(9.5)
    clock.wait_for_waiters(1)
    clock.advance(0.5)
    thread.join(60)
    assert results == [False]


def test_no_time_at_all_is_no_wait() -> None:
    event = threading.Event()
    assert FakeClock().wait(event, 0) is False
    event.set()
    assert FakeClock().wait(event, 0) is True


def test_after_a_turn_the_waiters_whose_time_is_over_have_left(
    start: Callable[..., threading.Thread],
) -> None:
    clock = FakeClock()
    threads = [start(lambda: clock.wait(threading.Event(), 5)) for _ in range(8)]
    clock.wait_for_waiters(8)
    clock.advance(5)
    with pytest.raises(TimeoutError, match="0 threads wait"):
        clock.wait_for_waiters(1, timeout_s=0)
    assert len(threads) == 8


def test_an_event_wakes_a_waiter_without_any_time(start: Callable[..., threading.Thread]) -> None:
    clock = FakeClock()
    event = threading.Event()
    results: list[bool] = []
    thread = start(lambda: results.append(clock.wait(event, 1000)))
    clock.wait_for_waiters(1)
    event.set()
    thread.join(60)
    assert results == [True]


def test_waiting_for_waiters_gives_up() -> None:
    with pytest.raises(TimeoutError, match="0 threads wait, expected 2"):
        FakeClock().wait_for_waiters(2, timeout_s=0.01)


def test_a_run_sleeps_on_it(start: Callable[..., threading.Thread]) -> None:
    clock = FakeClock()
    context = RunContext("x", clock=clock, timeout_s=30)
    thread = start(lambda: context.sleep(20))
    clock.wait_for_waiters(1)
    clock.advance(20)
    thread.join(60)
    assert context.remaining_s == 10
    assert not context.cancelled
    clock.advance(10)
    assert context.cancelled
