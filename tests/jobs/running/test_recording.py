"""When a run's records are stored, and that nothing is written once it is too late."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from caesar_server.contract import (
    Completed,
    CompletionRequest,
    ContentDelta,
    Event,
    Started,
    StatusChanged,
)
from caesar_server.jobs.running.recording import BatchRecorder, KeptRecorder
from caesar_server.store.base import FencedError, Job, Record, StoreError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.memory import MemoryStore
from caesar_server.testing import FakeClock

WITHIN_S = 60.0


class SlowStore(MemoryStore):
    """Stores a step when the test says so, in the test's thread."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self.steps: list[tuple[Future[None], Any]] = []
        self.sizes: list[int] = []
        self.began = threading.Semaphore(0)

    def append_soon(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> Future[None]:
        self.sizes.append(len(records))
        self.began.release()
        if not self.held:
            return super().append_soon(job_id, attempt, records, checkpoint=checkpoint)
        step: Future[None] = Future()
        write = super().append_soon
        self.steps.append((step, lambda: write(job_id, attempt, records, checkpoint=checkpoint)))
        return step

    def finish(self, error: Exception | None = None) -> None:
        """Finish the oldest step, with what it comes to or with ``error``."""
        step, write = self.steps.pop(0)
        error = error or write().exception()
        if error is None:
            step.set_result(None)
        else:
            step.set_exception(error)


class Recording:
    """A recorder of a job, and what it told."""

    def __init__(self, store: MemoryStore, clock: FakeClock) -> None:
        self.store = store
        job = Job(
            id="job",
            created_at=1.0,
            model="m",
            backend="b",
            request=CompletionRequest(prompts=("p",)),
            detached=True,
            owner="me",
            attempt=1,
        )
        store.create(job)
        self.stored: list[bool] = []
        self.failures: list[BaseException] = []
        self.seq = 0
        self.batched = BatchRecorder(
            store, job, clock, on_stored=self.stored.append, on_failed=self.failures.append
        )
        self.kept = KeptRecorder(store, job, self.failures.append)

    def record(self, event: Event) -> Record:
        self.seq += 1
        return Record(self.seq, 1.0, event)

    def add(self, *events: Event) -> None:
        for event in events:
            if isinstance(event, Completed):
                self.batched.end(self.record(event))
            else:
                self.batched.add([self.record(event)])

    @property
    def position(self) -> int:
        return self.store.job("job").last_seq


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def recording(store: SlowStore, clock: FakeClock) -> Recording:
    return Recording(store, clock)


A = ContentDelta("a")


def test_text_is_stored_at_once_after_a_silence_and_then_in_batches(recording, clock, store):
    recording.add(A)
    assert recording.position == 1
    recording.add(A, A, A)
    assert recording.position == 1
    clock.advance(0.04)
    recording.add(A)
    assert recording.position == 1
    clock.advance(0.01)
    assert recording.position == 5
    assert store.sizes == [1, 4]
    clock.advance(0.05)
    assert clock.alarms == ()
    recording.add(A)
    assert recording.position == 6


def test_sixty_four_events_do_not_wait(recording, store):
    recording.add(*[A] * 65)
    assert store.sizes == [1, 64]
    assert recording.position == 65


def test_what_is_no_text_does_not_wait_and_takes_the_text_with_it(recording, store, clock):
    recording.add(A, A, A, StatusChanged("analyzing"), A, Completed())
    assert store.sizes == [1, 3, 2]
    assert recording.stored == [False, False, True]
    assert clock.alarms == ()


def test_a_checkpoint_is_stored_with_what_waits(recording, store):
    recording.add(A, A)
    recording.batched.save(Checkpoint({"text": "aa"}))
    job = store.job("job")
    assert (job.last_seq, job.checkpoint, job.checkpoint_seq) == (2, {"text": "aa"}, 2)


def test_one_step_is_under_way_at_a_time_and_the_next_takes_all_that_came(recording, store, clock):
    store.held = True
    recording.add(Started(), StatusChanged("analyzing"), A, A)
    clock.advance(1)
    assert store.sizes == [1]
    assert recording.stored == []
    store.finish()
    assert store.sizes == [1, 3]
    assert recording.stored == [False]
    store.finish()
    assert recording.stored == [False, False]
    assert recording.position == 4


def test_a_run_is_not_further_ahead_of_the_store_than_some_hundred_events(
    recording, store, in_thread
):
    store.held = True
    adding = in_thread(recording.add, *[A] * 1000, Completed())
    while recording.position < 1001:
        assert store.began.acquire(timeout=WITHIN_S)
        assert max(store.sizes) <= 257
        store.finish()
    adding.result(WITHIN_S)
    assert recording.position == 1001
    assert recording.stored[-1] is True
    assert recording.stored.count(True) == 1


def test_the_end_is_announced_once_it_is_stored(recording, store, in_thread):
    store.held = True
    ending = in_thread(recording.add, A, Completed())
    assert store.began.acquire(timeout=WITHIN_S)
    store.finish()
    assert store.began.acquire(timeout=WITHIN_S)
    assert not ending.done()
    assert True not in recording.stored
    store.finish()
    ending.result(WITHIN_S)
    assert recording.stored[-1] is True


def test_after_a_step_that_failed_nothing_is_written(recording, store, clock):
    store.held = True
    recording.add(A, A, A)
    store.finish(StoreError("the disk is full"))
    for call in (lambda: recording.add(A), lambda: recording.batched.save(Checkpoint({"a": 1}))):
        with pytest.raises(StoreError, match="disk is full"):
            call()
    clock.advance(1)
    assert store.sizes == [1]
    assert [str(failure) for failure in recording.failures] == ["the disk is full"]
    assert recording.batched.lost is None


def test_a_zombie_writes_nothing(recording, store, clock):
    recording.add(A, A)
    store.claim("job", "another")
    clock.advance(0.05)
    for _ in range(3):
        with pytest.raises(FencedError):
            recording.add(A)
    assert isinstance(recording.batched.lost, FencedError)
    assert recording.position == 1
    assert len(recording.failures) == 1


def test_an_attached_job_is_stored_at_its_end_or_when_it_is_large(recording, store):
    for _ in range(2500):
        recording.kept.add([recording.record(A)])
    assert recording.position == 2048
    recording.kept.end(recording.record(Completed()))
    assert recording.position == 2501
