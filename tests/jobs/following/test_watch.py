"""The thread that looks for what other processes have stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from caesar_server.contract import Completed, CompletionRequest
from caesar_server.jobs.following.watch import Watch
from caesar_server.store.base import Job, Record, StoreError
from caesar_server.store.memory import MemoryStore

WITHIN_S = 60.0

JOB = Job(
    id="job",
    created_at=1.0,
    model="m",
    backend="b",
    request=CompletionRequest(prompts=("p",)),
    detached=True,
    owner="me",
    attempt=1,
)


class TroubledStore(MemoryStore):
    """Cannot be watched, or asked for positions, as often as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.troubles: dict[str, int] = {}

    def changes(self) -> Any:
        self._trouble("changes")
        return super().changes()

    def positions(self, job_ids: Any) -> Any:
        self._trouble("positions")
        return super().positions(job_ids)

    def _trouble(self, method: str) -> None:
        left = self.troubles.get(method, 0)
        if left:
            self.troubles[method] = left - 1
            raise StoreError("no connection")


@pytest.fixture
def store() -> TroubledStore:
    return TroubledStore()


@pytest.fixture
def changed() -> threading.Semaphore:
    return threading.Semaphore(0)


@pytest.fixture
def watch(store: TroubledStore, changed: threading.Semaphore) -> Iterator[Watch]:
    watch = Watch(store, on_change=changed.release, time=lambda: 5.0)
    yield watch
    watch.close()


def test_no_thread_starts_before_there_is_a_follower(watch, new_threads):
    watch.announce("job")
    watch.begin_own("job")
    watch.end_own("job")
    assert new_threads("caesar-watch") == []


def test_changes_are_told_to_others_too(watch, store, changed):
    watch.start()
    watch.start()
    assert changed.acquire(timeout=WITHIN_S)
    store.create(JOB)
    assert changed.acquire(timeout=WITHIN_S)


def test_what_others_do_about_changes_may_fail(store, caplog, eventually):
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise ValueError("broken")

    watch = Watch(store, on_change=fail, time=lambda: 5.0)
    watch.start()
    try:
        eventually(lambda: len(calls) == 1)
        store.create(JOB)
        eventually(lambda: len(calls) == 2)
        assert "broken" in caplog.text
    finally:
        watch.close()


@pytest.mark.parametrize("method", ["changes", "positions"])
def test_a_store_that_cannot_be_watched_is_asked_again(watch, store, method):
    store.create(JOB)
    store.troubles = {method: 1}
    follower = watch.follow(JOB)
    assert follower.take(0) == []
    store.append("job", 1, [Record(1, 1.0, Completed())])
    assert len(follower.take(WITHIN_S)) == 1


def test_a_closed_watch_begins_no_more(watch, new_threads):
    watch.close()
    watch.start()
    watch.close()
    assert new_threads("caesar-watch") == []
