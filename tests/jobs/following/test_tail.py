"""What several followers of a job want is read once, and nothing that was stored is overlooked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from caesar_server.contract import Completed, CompletionRequest, ContentDelta
from caesar_server.jobs.following import tail as tail_module
from caesar_server.jobs.following.tail import PAGE, Tail
from caesar_server.jobs.following.watch import Watch
from caesar_server.store.base import Job, Record, Store, StoreError, UnknownJobError
from caesar_server.store.memory import MemoryStore

WITHIN_S = 60.0


class CountingStore(MemoryStore):
    """Counts the reads of records, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.failure: Exception | None = None
        self.during: Callable[[], None] | None = None

    def records(self, job_id: str, after_seq: int = 0, *, limit: int | None = None) -> Any:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        found = super().records(job_id, after_seq, limit=limit)
        if self.during is not None:
            during, self.during = self.during, None
            during()
        return found


@pytest.fixture
def store() -> Iterator[CountingStore]:
    store = CountingStore()
    request = CompletionRequest(prompts=("p",))
    fields = {"created_at": 1.0, "model": "m", "backend": "b", "detached": True}
    store.create(Job(id="job", request=request, owner="me", attempt=1, **fields))
    yield store
    store.close()


def add(store: Store, first: int, last: int, *, ends: bool = False) -> None:
    records = [Record(seq, 1.0, ContentDelta(f"{seq} ")) for seq in range(first, last + 1)]
    if ends:
        records[-1] = Record(last, 1.0, Completed())
    store.append("job", 1, records)


def seqs(records: Sequence[Record]) -> list[int]:
    return [record.seq for record in records]


def test_many_readers_cost_one_read(store: CountingStore) -> None:
    tail = Tail(store, "job", readers=10)
    add(store, 1, 3)
    assert [seqs(tail.after(0)) for _ in range(10)] == [[1, 2, 3]] * 10
    assert [seqs(tail.after(seq)) for seq in (1, 2, 3)] == [[2, 3], [3], []]
    assert store.reads == 1


def test_news_are_read_and_again_once(store: CountingStore) -> None:
    tail = Tail(store, "job", readers=10)
    assert tail.after(0) == []
    add(store, 1, 3)
    assert tail.after(0) == [], "nobody has said that there are any"
    tail.note_news()
    assert seqs(tail.after(0)) == [1, 2, 3]
    add(store, 4, 5)
    tail.note_news()
    assert seqs(tail.after(3)) == [4, 5]
    assert seqs(tail.after(3)) == [4, 5]
    assert store.reads == 3
    assert seqs(tail.after(0)) == [1, 2, 3, 4, 5], "a late one begins at the beginning"
    assert seqs(tail.after(2)) == [3, 4, 5]
    assert store.reads == 4


def test_one_reader_alone_reads_nothing_twice_and_keeps_nothing(store: CountingStore) -> None:
    tail = Tail(store, "job")
    add(store, 1, 3)
    assert seqs(tail.after(0)) == [1, 2, 3]
    assert tail.after(3) == []
    assert store.reads == 1
    assert seqs(tail.after(0)) == [1, 2, 3]
    assert store.reads == 2


def test_what_is_stored_during_a_read_is_read_next(store: CountingStore) -> None:
    tail = Tail(store, "job", readers=2)
    add(store, 1, 1)

    def meanwhile() -> None:
        add(store, 2, 2)
        tail.note_news()

    store.during = meanwhile
    assert seqs(tail.after(0)) == [1]
    assert seqs(tail.after(1)) == [2]


def test_long_jobs_come_page_by_page(store: CountingStore) -> None:
    tail = Tail(store, "job", readers=2)
    add(store, 1, 2 * PAGE + 10)
    assert seqs(tail.after(0)) == list(range(1, PAGE + 1))
    assert seqs(tail.after(PAGE)) == list(range(PAGE + 1, 2 * PAGE + 1))
    assert len(tail.after(2 * PAGE)) == 10
    assert seqs(tail.after(0)) == list(range(1, PAGE + 1))
    assert tail.after(2 * PAGE + 10) == []
    assert store.reads == 4


def test_a_store_that_fails_is_not_asked_by_each(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = Tail(store, "job", readers=3)
    # however slow the machine is
    monkeypatch.setattr(tail_module, "_ASK_AGAIN_S", 3600.0)
    store.failure = StoreError("store: gone")
    for _ in range(3):
        with pytest.raises(StoreError, match="store: gone"):
            tail.after(0)
    assert store.reads == 1
    store.failure = None
    add(store, 1, 1)
    monkeypatch.setattr(tail_module, "_ASK_AGAIN_S", 0.0)
    assert seqs(tail.after(0)) == [1]


def test_a_job_that_is_gone_is_unknown(store: CountingStore) -> None:
    tail = Tail(store, "job", readers=3)
    store.delete("job")
    with pytest.raises(UnknownJobError):
        tail.after(0)


def test_followers_share_what_is_read(
    store: CountingStore, in_thread: Callable[..., Future[Any]]
) -> None:
    watch = Watch(store, on_change=lambda: None, time=lambda: 5.0)
    watch.begin_own("job")
    followers = [watch.follow(store.job("job")) for _ in range(20)]

    def follow(follower: Any) -> list[int]:
        taken: list[int] = []
        while not follower.drained:
            taken += seqs(follower.take(WITHIN_S))
        return taken

    following = [in_thread(follow, follower) for follower in followers]
    for seq in range(1, 51):
        add(store, seq, seq, ends=seq == 50)
        watch.announce("job")
        until = time.monotonic() + WITHIN_S
        while any(follower.after_seq < seq for follower in followers):
            assert time.monotonic() < until
    assert [one.result(WITHIN_S) for one in following] == [list(range(1, 51))] * 20
    # one for each piece of news, and at most one more that came before the next
    assert store.reads <= 2 * 50 + 20
    assert watch.followed == 0
    watch.close()
