"""Callbacks at a given moment of the real time."""

from __future__ import annotations

import math
import threading
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from caesar_server.jobs.clock import SystemClock

WITHIN_S = 60.0
HOUR_S = 3600.0


@pytest.fixture
def system_clock() -> Iterator[SystemClock]:
    clock = SystemClock()
    yield clock
    clock.close()


class Busy:
    """Keeps the clock's thread busy, so that several callbacks become due meanwhile."""

    def __init__(self, clock: SystemClock) -> None:
        self._entered, self._go_on = threading.Event(), threading.Event()
        clock.call_at(clock.monotonic(), self._block)
        assert self._entered.wait(WITHIN_S)

    def _block(self) -> None:
        self._entered.set()
        assert self._go_on.wait(WITHIN_S)

    def end(self) -> None:
        self._go_on.set()


def test_it_tells_the_machines_time(system_clock):
    assert abs(system_clock.time() - time.time()) < WITHIN_S
    assert abs(system_clock.monotonic() - time.monotonic()) < WITHIN_S


def test_wait_tells_whether_the_event_was_set(system_clock):
    event = threading.Event()
    assert system_clock.wait(event, 0.0) is False
    assert system_clock.wait(event, 0.001) is False
    event.set()
    assert system_clock.wait(event, HOUR_S) is True
    assert system_clock.wait(event, math.inf) is True


def test_there_is_no_thread_before_the_first_use(new_threads):
    clock = SystemClock()
    clock.time(), clock.monotonic(), clock.wait(threading.Event(), 0)
    assert new_threads("caesar-clock") == []
    clock.close()
    assert new_threads("caesar-clock") == []


def test_all_callbacks_share_one_daemon_thread(system_clock, new_threads):
    done = threading.Semaphore(0)
    for _ in range(10):
        system_clock.call_at(system_clock.monotonic(), done.release)
    for _ in range(10):
        assert done.acquire(timeout=WITHIN_S)
    (thread,) = new_threads("caesar-clock")
    assert thread.daemon


def test_a_callback_comes_not_before_its_moment(system_clock):
    moment = system_clock.monotonic() + 0.02
    seen: list[float] = []
    done = threading.Event()

    def callback() -> None:
        seen.append(system_clock.monotonic())
        done.set()

    system_clock.call_at(moment, callback)
    assert done.wait(WITHIN_S)
    assert seen[0] >= moment


def test_callbacks_come_in_the_order_of_their_moments_then_of_their_calls(system_clock):
    order: list[str] = []
    done = threading.Event()
    busy = Busy(system_clock)
    now = system_clock.monotonic()
    system_clock.call_at(now, done.set)
    for moment, name in [(-1, "c"), (-3, "a"), (-1, "d"), (-2, "b")]:
        system_clock.call_at(now + moment, lambda name=name: order.append(name))
    busy.end()
    assert done.wait(WITHIN_S)
    assert order == ["a", "b", "c", "d"]


def test_a_nearer_moment_is_not_held_up_by_a_farther_one(system_clock):
    done = threading.Event()
    system_clock.call_at(system_clock.monotonic() + HOUR_S, lambda: None)
    system_clock.call_at(system_clock.monotonic() + 0.01, done.set)
    assert done.wait(WITHIN_S)


def test_a_moment_beyond_all_time_holds_nothing_up(system_clock):
    done = threading.Event()
    call_off = system_clock.call_at(math.inf, lambda: None)
    system_clock.call_at(system_clock.monotonic() + 0.01, done.set)
    assert done.wait(WITHIN_S)
    call_off()


def test_a_callback_may_schedule_another(system_clock):
    done = threading.Event()

    def again() -> None:
        system_clock.call_at(system_clock.monotonic(), done.set)

    system_clock.call_at(system_clock.monotonic(), again)
    assert done.wait(WITHIN_S)


def test_what_is_called_off_does_not_come(system_clock):
    calls: list[str] = []
    done = threading.Event()
    busy = Busy(system_clock)
    now = system_clock.monotonic()
    call_off = system_clock.call_at(now - 2, lambda: calls.append("called off"))
    system_clock.call_at(now - 1, lambda: calls.append("other"))
    system_clock.call_at(now, done.set)
    call_off()
    call_off()
    busy.end()
    assert done.wait(WITHIN_S)
    assert calls == ["other"]


def test_calling_off_what_has_come_is_harmless(system_clock):
    done = threading.Event()
    call_off = system_clock.call_at(system_clock.monotonic(), done.set)
    assert done.wait(WITHIN_S)
    call_off()
    call_off()


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1)])
def test_what_a_callback_raises_is_logged_and_the_next_one_comes(system_clock, error, caplog):
    def raising() -> None:
        raise error

    done = threading.Event()
    now = system_clock.monotonic()
    system_clock.call_at(now, raising)
    system_clock.call_at(now, done.set)
    assert done.wait(WITHIN_S)
    (record,) = caplog.records
    assert record.exc_info[1] is error


def test_a_busy_server_holds_only_the_deadlines_of_what_runs(system_clock):
    running = [system_clock.call_at(system_clock.monotonic() + HOUR_S, int) for _ in range(50)]
    tracemalloc.start()
    try:
        for _ in range(100_000):
            system_clock.call_at(system_clock.monotonic() + HOUR_S, int)()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000
    for call_off in running:
        call_off()


def test_tidying_up_loses_and_reorders_nothing(system_clock):
    busy = Busy(system_clock)
    now, order, done = system_clock.monotonic(), [], threading.Event()
    system_clock.call_at(now, done.set)
    for number in range(1000, 0, -1):
        system_clock.call_at(now - number, lambda number=number: order.append(number))
        for _ in range(5):
            system_clock.call_at(now - number, lambda: order.append("called off"))()
    busy.end()
    assert done.wait(WITHIN_S)
    assert order == list(range(1000, 0, -1))


def test_close_ends_a_waiting_thread_and_drops_what_is_scheduled(new_threads):
    clock, calls = SystemClock(), []
    clock.call_at(clock.monotonic() + HOUR_S, lambda: calls.append(1))
    (thread,) = new_threads("caesar-clock")
    clock.close()
    assert not thread.is_alive()
    assert calls == []
    clock.close()


def test_close_waits_for_a_callback_under_way(in_thread):
    clock, ended = SystemClock(), []
    entered, go_on = threading.Event(), threading.Event()

    def callback() -> None:
        entered.set()
        assert go_on.wait(WITHIN_S)
        ended.append(1)

    clock.call_at(clock.monotonic(), callback)
    assert entered.wait(WITHIN_S)
    closing = in_thread(clock.close)
    go_on.set()
    closing.result(WITHIN_S)
    assert ended == [1]


def test_a_callback_may_close_the_clock():
    clock, done = SystemClock(), threading.Event()

    def callback() -> None:
        clock.close()
        done.set()

    clock.call_at(clock.monotonic(), callback)
    assert done.wait(WITHIN_S)


def test_a_closed_clock_takes_nothing_and_calling_off_is_still_harmless():
    clock = SystemClock()
    calls_off = [clock.call_at(clock.monotonic() + HOUR_S, int) for _ in range(200)]
    clock.close()
    for call_off in calls_off:
        call_off()
    with pytest.raises(RuntimeError, match="closed"):
        clock.call_at(clock.monotonic(), int)


def test_a_thread_that_could_not_be_started_is_tried_again(system_clock, monkeypatch):
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            system_clock.call_at(system_clock.monotonic(), int)
    done = threading.Event()
    system_clock.call_at(system_clock.monotonic(), done.set)
    assert done.wait(WITHIN_S)


def test_many_threads_may_schedule_and_call_off(system_clock, in_thread):
    calls = threading.Semaphore(0)

    def work() -> None:
        for _ in range(200):
            system_clock.call_at(system_clock.monotonic() + HOUR_S, calls.release)()
            system_clock.call_at(system_clock.monotonic(), calls.release)

    for running in [in_thread(work) for _ in range(8)]:
        running.result(WITHIN_S)
    for _ in range(8 * 200):
        assert calls.acquire(timeout=WITHIN_S)
    assert not calls.acquire(blocking=False)
