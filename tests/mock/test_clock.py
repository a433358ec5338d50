"""A scope's clock: with the machine, or by hand."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from caesar_server.mock.clock import MockClock

#: Real seconds that any wait here may take before something is wrong.
PATIENCE_S = 60.0


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def test_it_runs_with_the_machine() -> None:
    clock = MockClock()
    before = time.time(), time.monotonic()
    now = clock.time(), clock.monotonic()
    after = time.time(), time.monotonic()
    assert before[0] <= now[0] <= after[0]
    assert before[1] <= now[1] <= after[1]


def test_stopped_it_moves_by_hand_alone_and_goes_on_from_there() -> None:
    clock = MockClock()
    clock.stop()
    start = clock.time(), clock.monotonic()
    assert (clock.time(), clock.monotonic()) == start
    clock.advance(7.5)
    clock.advance(0)
    assert (clock.time() - start[0], clock.monotonic() - start[1]) == pytest.approx((7.5, 7.5))
    stood = clock.monotonic()
    clock.go()
    assert not clock.stopped
    assert stood <= clock.monotonic() < stood + PATIENCE_S
    assert clock.turned_s == 7.5


def test_to_turn_it_stops_it() -> None:
    clock = MockClock()
    clock.advance(1)
    assert clock.stopped
    clock.advance(3600)
    turned = clock.monotonic()
    clock.reset()
    assert (clock.stopped, clock.turned_s) == (False, 0)
    assert clock.time() == pytest.approx(time.time(), abs=600)
    assert clock.monotonic() >= turned


def test_a_reset_ends_waits_of_calls_that_were_before(pool: ThreadPoolExecutor) -> None:
    clock = MockClock()
    clock.stop()
    before = clock.epoch
    with pool:
        waiting = pool.submit(clock.pause(3600).wait)
        clock.wait_for_waiters(1)
        clock.reset()
        assert waiting.result(PATIENCE_S) is True
    assert clock.pause(3600, before).wait() is True
    assert not clock.pause(3600).is_over


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_it_does_not_go_back(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds: expected a number from 0 to"):
        MockClock().advance(seconds)


def test_it_is_not_turned_beyond_the_last_date() -> None:
    clock = MockClock()
    clock.advance(100e9)
    clock.advance(100e9)
    assert datetime.fromtimestamp(clock.time(), UTC).year > 8000
    for seconds in (1, 1e12):
        with pytest.raises(ValueError, match="from 0 to 200000000000 in all, got"):
            clock.advance(seconds)
    clock.reset()
    clock.advance(1)


def test_who_waits_goes_on_when_it_is_turned_far_enough(pool: ThreadPoolExecutor) -> None:
    clock = MockClock()
    clock.stop()
    with pool:
        short, long = clock.pause(1), clock.pause(3)
        first, second = pool.submit(short.wait), pool.submit(long.wait)
        clock.wait_for_waiters(2)
        clock.advance(2)
        assert first.result(PATIENCE_S) is True
        assert not second.done()
        clock.advance(1)
        assert second.result(PATIENCE_S) is True


def test_a_wait_can_be_cut_short_before_and_while_it_lasts() -> None:
    clock = MockClock()
    for stopped in (True, False):
        if not stopped:
            clock.go()
        else:
            clock.stop()
        with ThreadPoolExecutor(1) as pool:
            pause = clock.pause(3600)
            waiting = pool.submit(pause.wait)
            clock.wait_for_waiters(1)
            pause.end()
            assert waiting.result(PATIENCE_S) is False
        ended = clock.pause(3600)
        ended.end()
        assert ended.wait() is False


def test_a_moment_that_is_over_does_not_wait() -> None:
    clock = MockClock()
    assert clock.pause(0).wait() is True
    assert clock.pause_until(clock.monotonic() - 1).wait() is True


def test_running_it_wakes_by_itself() -> None:
    assert MockClock().pause(0.001).wait() is True


def test_who_waits_follows_a_clock_that_is_stopped_or_let_go(pool: ThreadPoolExecutor) -> None:
    clock = MockClock()
    with pool:
        waiting = pool.submit(clock.pause(3600).wait)
        clock.wait_for_waiters(1)
        clock.stop()
        clock.advance(3600)
        assert waiting.result(PATIENCE_S) is True
        clock.advance(0)
        other = clock.pause(0.001)
        waiting = pool.submit(other.wait)
        clock.wait_for_waiters(1)
        clock.go()
        assert waiting.result(PATIENCE_S) is True


def test_it_waits_for_events_too(pool: ThreadPoolExecutor) -> None:
    clock, event = MockClock(), threading.Event()
    assert clock.wait(event, 0.001) is False
    clock.stop()
    with pool:
        waiting = pool.submit(clock.wait, event, 5)
        late = pool.submit(clock.wait, threading.Event(), 5)
        event.set()
        assert waiting.result(PATIENCE_S) is True
        deadline = time.monotonic() + PATIENCE_S
        while not late.done() and time.monotonic() < deadline:
            clock.advance(5)  # more than once: it may not wait yet
        assert late.result(0) is False


def test_nobody_waiting_is_told() -> None:
    with pytest.raises(TimeoutError, match="0 calls wait for the clock, not 1"):
        MockClock().wait_for_waiters(1, timeout_s=0.001)
