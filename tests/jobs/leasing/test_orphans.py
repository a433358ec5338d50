"""What becomes of jobs that wait for a backend that no living process has."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from caesar_server.contract import CompletionRequest
from caesar_server.contract.errors import ErrorInfo
from caesar_server.errors import BACKEND_GONE
from caesar_server.jobs.leasing.orphans import Orphans
from caesar_server.store.base import Job, StoreError
from caesar_server.store.memory import MemoryStore
from caesar_server.store.unreadable import UnreadableRecordError
from caesar_server.testing import FakeClock

HOUR_S = 3600.0


@pytest.fixture
def ended() -> list[tuple[str, int, ErrorInfo]]:
    return []


@pytest.fixture
def look_for(
    store: MemoryStore, clock: FakeClock, ended: list[Any]
) -> Callable[..., Callable[[float], None]]:
    """Make what looks every ten seconds for as long as it is told, after a first look."""

    def note_and_end(*job: Any) -> None:
        ended.append(job)
        store.delete(job[0])

    def make(timeout_s: float = HOUR_S, end: Callable[..., None] | None = None) -> Any:
        orphans = Orphans(store, timeout_s, end=end or note_and_end, monotonic=clock.monotonic)
        orphans.look()

        def look(for_s: float) -> None:
            for _ in range(int(for_s / 10)):
                clock.advance(10)
                orphans.look()

        look.once = orphans.look  # type: ignore[attr-defined]
        return look

    return make


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    store = MemoryStore(monotonic=clock.monotonic)
    add(store, "job")
    return store


def add(store: MemoryStore, id: str, **fields: Any) -> None:
    request = CompletionRequest(prompts=("p",))
    values = {"detached": True, "backend": "gone", "request": request, **fields}
    store.create(Job(id=id, created_at=1.0, model="m", **values))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_it_is_told_once_with_the_cure(look_for, caplog) -> None:
    look = look_for()
    look(20)
    assert warnings(caplog) == []  # a process that is started anew is back by then
    look(3000)
    (line,) = warnings(caplog)
    assert "job job waits for the backend gone" in line
    assert "it fails after 3600 s" in line
    assert "`caesar-server jobs cancel job`" in line


def test_it_fails_when_it_has_waited_for_long(look_for, ended, store) -> None:
    store.claim("job", "lost")
    look = look_for()
    look(HOUR_S - 10)
    assert ended == []
    look(10)
    assert ended == [("job", 1, BACKEND_GONE)]


def test_with_0_it_waits_for_ever(look_for, ended, caplog) -> None:
    look_for(0.0)(100 * HOUR_S)
    assert ended == []
    assert "fails" not in warnings(caplog)[0]


def test_each_job_has_its_own_time(look_for, ended, store) -> None:
    look = look_for()
    look(HOUR_S / 2)
    add(store, "late")
    look(HOUR_S - 10)
    assert {id for id, *_ in ended} == {"job"}
    look(20)
    assert {id for id, *_ in ended} == {"job", "late"}


@pytest.mark.parametrize("backends", [["gone"], None], ids=["has it", "may have it"])
def test_the_time_begins_anew_once_somebody_had_the_backend(
    look_for, ended, store, backends
) -> None:
    look = look_for()
    look(HOUR_S - 10)
    store.renew("new", 15, backends)
    look(10)
    look(HOUR_S)
    assert ended == []
    look(10)
    assert len(ended) == 1


def test_time_in_which_it_could_not_look_does_not_count(
    look_for, ended, store, clock, monkeypatch
) -> None:
    look = look_for()
    clock.advance(100 * HOUR_S)  # it was stopped
    look(HOUR_S / 2)

    def fail(**options: Any) -> Any:
        raise StoreError("no connection")

    with monkeypatch.context() as patched:
        patched.setattr(store, "unclaimable", fail)
        for _ in range(100):
            clock.advance(HOUR_S)
            with pytest.raises(StoreError):
                look.once()
    look(HOUR_S / 2 - 60)
    assert ended == []
    look(60)
    assert len(ended) == 1


def test_one_that_cannot_be_read_keeps_no_other_from_its_end(look_for, store, caplog) -> None:
    add(store, "other")
    tried = []

    def end(job_id: str, *_: Any) -> None:
        tried.append(job_id)
        if job_id == "job":
            raise UnreadableRecordError("job", "its request is damaged")
        store.delete(job_id)

    look = look_for(end=end)
    look(2 * HOUR_S - 10)
    assert sorted(tried) == ["job", "other"]
    assert "its request is damaged" in caplog.text


def test_the_store_is_asked_now_and_then(look_for, store, clock, monkeypatch) -> None:
    asked = []
    unclaimable = store.unclaimable
    monkeypatch.setattr(store, "unclaimable", lambda: asked.append(1) or unclaimable())
    look = look_for()
    for _ in range(95):
        clock.advance(1)
        look.once()
    assert len(asked) == 1 + 9
