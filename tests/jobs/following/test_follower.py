"""Readers of stored jobs: each event once and in order, from any number on, in any process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from caesar_server.contract import Completed, CompletionRequest, ContentDelta, Failed
from caesar_server.contract.errors import ErrorInfo
from caesar_server.errors import CANCELLED, FOLLOWED_AWAY, SHUTDOWN, UNEXPECTED
from caesar_server.jobs.following import follower as follower_module
from caesar_server.jobs.following.follower import Follower
from caesar_server.jobs.following.tail import Tail
from caesar_server.jobs.following.watch import Watch
from caesar_server.store.base import Job, Record, Store, StoreError
from caesar_server.store.memory import MemoryStore
from caesar_server.store.unreadable import UnreadableRecordError

WITHIN_S = 60.0


def new_job(id: str = "job") -> Job:
    return Job(
        id=id,
        created_at=1.0,
        model="m",
        backend="b",
        request=CompletionRequest(prompts=("p",)),
        detached=True,
        owner="me",
        attempt=1,
    )


def deltas(first: int, last: int) -> list[Record]:
    return [Record(seq, 1.0, ContentDelta(f"{seq} ")) for seq in range(first, last + 1)]


def end(seq: int) -> Record:
    return Record(seq, 1.0, Completed())


def seqs(records: Sequence[Record]) -> list[int]:
    return [record.seq for record in records]


@pytest.fixture
def make_watch(any_store: Store) -> Iterator[Callable[..., Watch]]:
    """Make watches over one store, each as a process of its own would have it."""
    made: list[Watch] = []

    def make(on_change: Callable[[], None] = lambda: None) -> Watch:
        made.append(Watch(any_store, on_change=on_change, time=lambda: 5.0))
        return made[-1]

    yield make
    for watch in made:
        watch.close()


@pytest.fixture
def watch(make_watch: Callable[..., Watch]) -> Watch:
    return make_watch()


def read_to_end(follower: Follower) -> list[Record]:
    records: list[Record] = []
    while not follower.drained:
        taken = follower.take(WITHIN_S)
        assert taken or follower.drained, "no record and no end"
        records += taken
    return records


@pytest.mark.parametrize("after_seq", [0, 1, 4, 5])
def test_what_is_stored_is_read_from_any_number_on(any_store, watch, after_seq):
    any_store.create(new_job())
    any_store.append("job", 1, [*deltas(1, 5), end(6)])
    follower = watch.follow(new_job(), after_seq)
    assert seqs(read_to_end(follower)) == list(range(after_seq + 1, 7))
    assert follower.drained
    assert not follower.left
    assert follower.take(None) == []


def test_a_long_job_comes_in_pages(any_store, watch):
    any_store.create(new_job())
    any_store.append("job", 1, [*deltas(1, 1000), end(1001)])
    follower = watch.follow(new_job())
    pages = []
    while not follower.drained:
        pages.append(follower.take(0))
    assert [record.seq for page in pages for record in page] == list(range(1, 1002))
    assert max(map(len, pages)) <= 256


def test_what_another_process_stores_wakes_the_reader(any_store, watch, in_thread):
    any_store.create(new_job())
    follower = watch.follow(new_job())
    assert follower.take(0) == []
    reading = in_thread(read_to_end, follower)
    for seq in range(1, 20):
        any_store.append("job", 1, deltas(seq, seq))
    any_store.append("job", 1, [end(20)])
    assert seqs(reading.result(WITHIN_S)) == list(range(1, 21))


def test_what_this_process_stores_is_announced_at_once(any_store, watch, in_thread):
    any_store.create(new_job())
    watch.begin_own("job")
    follower = watch.follow(new_job())
    reading = in_thread(read_to_end, follower)
    any_store.append("job", 1, [*deltas(1, 3), end(4)])
    watch.announce("job")
    assert seqs(reading.result(WITHIN_S)) == [1, 2, 3, 4]


def test_a_job_that_this_process_has_lost_unawares_is_followed_all_the_same(
    any_store, watch, in_thread
):
    any_store.create(new_job())
    watch.begin_own("job")
    reading = in_thread(read_to_end, watch.follow(new_job()))
    # nothing is announced here: another process has taken it over
    any_store.claim("job", "another")
    any_store.append("job", 2, [*deltas(1, 3), end(4)])
    assert seqs(reading.result(WITHIN_S)) == [1, 2, 3, 4]


def test_many_readers_that_come_and_go_see_each_event_once(any_store, make_watch, in_thread):
    any_store.create(new_job())
    watches = [make_watch() for _ in range(2)]
    last = 300

    def read(number: int) -> list[int]:
        chance = random.Random(number)
        seen: list[int] = []
        while not seen or seen[-1] != last:
            follower = watches[number % 2].follow(new_job(), seen[-1] if seen else 0)
            for _ in range(chance.randrange(1, 6)):
                seen += seqs(follower.take(0.05))
            follower.leave()
        return seen

    reading = [in_thread(read, number) for number in range(12)]
    seq, chance = 1, random.Random(0)
    while seq < last:
        until = min(seq + chance.randrange(8), last - 1)
        any_store.append("job", 1, deltas(seq, until))
        seq = until + 1
    any_store.append("job", 1, [end(last)])
    for running in reading:
        assert running.result(WITHIN_S) == list(range(1, last + 1))


def test_five_hundred_readers_have_one_thread(any_store, watch, new_threads):
    any_store.create(new_job())
    followers = [watch.follow(new_job()) for _ in range(500)]
    assert len(new_threads("caesar-watch")) == 1
    any_store.append("job", 1, [end(1)])
    for follower in followers:
        assert seqs(read_to_end(follower)) == [1]


def test_leaving_wakes_a_take_and_forgets_the_reader(any_store, watch, in_thread):
    any_store.create(new_job())
    follower = watch.follow(new_job())
    taking = in_thread(follower.take, None)
    follower.leave()
    follower.leave()
    assert taking.result(WITHIN_S) == []
    assert follower.left
    assert follower.drained
    assert watch.followed == 0


def test_a_reader_that_came_to_the_end_is_forgotten(any_store, watch):
    any_store.create(new_job())
    any_store.append("job", 1, [end(1)])
    read_to_end(watch.follow(new_job()))
    assert watch.followed == 0


def test_the_time_for_a_take_is_kept(any_store, watch):
    any_store.create(new_job())
    follower = watch.follow(new_job())
    assert follower.take(0) == []
    assert follower.take(0.01) == []
    assert not follower.drained


def test_a_job_that_is_deleted_ends_for_its_reader(any_store, watch, in_thread):
    any_store.create(new_job())
    any_store.append("job", 1, deltas(1, 2))
    follower = watch.follow(new_job())
    reading = in_thread(read_to_end, follower)
    any_store.delete("job")
    records = reading.result(WITHIN_S)
    assert records[-1].event == Failed(CANCELLED)
    assert seqs(records) == list(range(1, len(records) + 1))


def test_at_the_end_of_the_server_readers_get_what_is_there_and_a_last_record(
    any_store, watch, in_thread
):
    any_store.create(new_job())
    follower = watch.follow(new_job())
    reading = in_thread(read_to_end, follower)
    watch.begin_own("job")  # so that nobody wakes the reader before its end
    any_store.append("job", 1, deltas(1, 300))
    watch.end_followers(SHUTDOWN)
    records = reading.result(WITHIN_S)
    assert seqs(records) == list(range(1, 302))
    assert records[-1] == Record(301, 5.0, Failed(SHUTDOWN))
    assert len(any_store.records("job")) == 300
    assert read_to_end(watch.follow(new_job(), 300))[-1].event == Failed(SHUTDOWN)


class FailingStore(MemoryStore):
    """Fails to read as long as it is told."""

    fails = False

    def records(self, *args: Any, **kwargs: Any) -> Sequence[Record]:
        if self.fails:
            raise StoreError("no connection")
        return super().records(*args, **kwargs)


@pytest.fixture
def failing() -> tuple[FailingStore, Follower]:
    store = FailingStore()
    store.create(new_job())
    follower = Follower(
        Tail(store, "job"), new_job(), after_seq=0, forget=lambda _: None, time=lambda: 5.0
    )
    return store, follower


class SpoiledStore(MemoryStore):
    """Holds records that cannot be read, after the second one."""

    def records(self, job_id: str, after_seq: int = 0, **kwargs: Any) -> Sequence[Record]:
        if after_seq >= 2:
            raise UnreadableRecordError(job_id, "a null")
        return super().records(job_id, after_seq, **kwargs)


def test_a_record_that_cannot_be_read_ends_its_reader_at_once(caplog):
    store = SpoiledStore()
    store.create(new_job())
    store.append("job", 1, deltas(1, 2))
    forgotten: list[Follower] = []
    tail = Tail(store, "job")
    follower = Follower(tail, new_job(), after_seq=0, forget=forgotten.append, time=lambda: 5.0)
    assert seqs(follower.take(0)) == [1, 2]
    assert forgotten == []
    store.append("job", 1, deltas(3, 4))  # and no end: the job goes on
    tail.note_news()
    assert follower.take(0) == [Record(3, 5.0, Failed(UNEXPECTED))]
    assert follower.drained
    assert not follower.given_up, "whoever comes back would not get further"
    assert forgotten == [follower]
    assert "job job cannot be followed any more" in caplog.text
    assert "a null" in caplog.text


def test_a_store_that_fails_for_a_while_costs_its_reader_nothing(failing, in_thread, caplog):
    store, follower = failing
    store.fails = True
    assert follower.take(0) == []
    assert "cannot be followed for now: no connection" in caplog.text
    reading = in_thread(read_to_end, follower)
    store.append("job", 1, [*deltas(1, 2), end(3)])
    store.fails = False  # though nobody tells the reader
    assert seqs(reading.result(WITHIN_S)) == [1, 2, 3]


def test_a_store_that_fails_for_long_is_given_up(failing, monkeypatch):
    store, follower = failing
    monkeypatch.setattr(follower_module, "_PATIENCE_S", 0.0)
    store.fails = True
    assert [record.event for record in read_to_end(follower)] == [Failed(FOLLOWED_AWAY)]
    assert follower.given_up


def test_a_store_that_tries_for_long_before_it_fails_is_given_up_as_soon(failing, monkeypatch):
    store, follower = failing
    now = 0.0

    def records(*args: Any, **kwargs: Any) -> Sequence[Record]:
        nonlocal now
        now += 15.0
        raise StoreError("no connection")

    monkeypatch.setattr(store, "records", records)
    monkeypatch.setattr(follower_module.time, "monotonic", lambda: now)
    assert [record.event for record in follower.take(None)] == [Failed(FOLLOWED_AWAY)]
    assert now == 15.0


def test_a_reader_of_a_store_that_fails_still_gets_its_last_record(failing):
    store, follower = failing
    store.fails = True
    follower.end(ErrorInfo("over", "over"))
    assert [record.event for record in read_to_end(follower)] == [Failed(ErrorInfo("over", "over"))]
