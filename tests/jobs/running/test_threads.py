"""Pools of threads where the system allows fewer than were asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from caesar_server.errors import OverloadedError
from caesar_server.jobs.running.threads import PatientPool, Pauses

WITHIN_S = 60.0


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return the function that says how many more threads may be started."""
    left = [0]
    start = threading.Thread.start

    def start_if_allowed(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_allowed)
    return lambda number: left.__setitem__(0, number)


@pytest.fixture
def pool() -> Iterator[PatientPool]:
    with PatientPool(4) as pool:
        yield pool


def test_what_has_no_thread_waits_for_one(pool, allow, caplog) -> None:
    allow(1)
    gate = threading.Event()
    first = pool.submit(gate.wait, WITHIN_S)
    others = [pool.submit(str, number) for number in range(5)]
    assert not any(other.done() for other in others)
    gate.set()
    assert first.result(WITHIN_S)
    assert [other.result(WITHIN_S) for other in others] == ["0", "1", "2", "3", "4"]
    assert [record.getMessage() for record in caplog.records] == [
        "the system allows no further thread, so work waits for one of 1; "
        "allow more (a container's limit of pids), or set threads lower"
    ]


def test_without_any_thread_nothing_is_begun_now_or_later(pool, allow) -> None:
    done: list[str] = []
    with pytest.raises(OverloadedError) as refused:
        pool.submit(done.append, "refused")
    assert (refused.value.status, refused.value.transient) == (503, True)
    allow(1)
    pool.submit(done.append, "taken").result(WITHIN_S)
    assert done == ["taken"]


def test_pauses_grow_until_something_goes_well(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    pauses = Pauses()
    lengths = []

    def fail() -> None:
        assert pauses.is_over
        pauses.failed()
        began = now[0]
        while not pauses.is_over:
            now[0] += 0.5
        lengths.append(now[0] - began)

    for _ in range(7):
        fail()
    assert lengths == [1, 2, 4, 8, 16, 30, 30]
    pauses.went_well()
    fail()
    assert lengths[-1] == 1
