"""The bounded hand-over from the thread that makes records to the one that sends them."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesar_server.contract import ContentDelta
from caesar_server.jobs.following.feed import Feed
from caesar_server.store.base import Record

WITHIN_S = 60.0


def record(seq: int) -> Record:
    return Record(seq, 0.0, ContentDelta("x"))


def seqs(records: list[Record]) -> list[int]:
    return [record.seq for record in records]


def test_everything_that_is_ready_is_taken_at_once():
    feed = Feed(10)
    for seq in range(1, 6):
        assert feed.put([record(seq)]) is True
    assert seqs(feed.take(None)) == [1, 2, 3, 4, 5]
    assert feed.take(0) == []
    assert not feed.drained


def test_a_feed_may_be_filled_to_its_limit_without_waiting():
    feed = Feed(3)
    for seq in range(1, 4):
        feed.put([record(seq)])
    assert seqs(feed.take(0)) == [1, 2, 3]


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("together", [1, 4, 200])
def test_it_never_holds_more_than_its_limit(limit, together, in_thread):
    feed, taken = Feed(limit), []

    def produce() -> None:
        for first in range(1, 201, together):
            assert feed.put([record(seq) for seq in range(first, first + together)])
        feed.end()

    producer = in_thread(produce)
    while not feed.drained:
        records = feed.take(WITHIN_S)
        assert len(records) <= limit
        taken += seqs(records)
    producer.result(WITHIN_S)
    assert taken == list(range(1, 201))


def test_a_reader_that_waits_anew_is_told_by_a_put_that_saw_its_earlier_wait(in_thread):
    feed = Feed(4)
    changed = feed._changed
    reached, goes_on = threading.Event(), threading.Event()

    class SlowDoor:
        """Lets the first put() that wants the lock wait, as if its thread had lost its turn."""

        def __enter__(self):
            if threading.get_ident() == putter and not goes_on.is_set():
                reached.set()
                goes_on.wait(WITHIN_S)
            return changed.__enter__()

        def __exit__(self, *raised):
            return changed.__exit__(*raised)

        def __getattr__(self, name):
            return getattr(changed, name)

    def put() -> None:
        nonlocal putter
        putter = threading.get_ident()
        feed.put([record(1)])

    putter = 0
    feed._changed = SlowDoor()
    feed._hungry = True  # a reader waits
    putting = in_thread(put)
    assert reached.wait(WITHIN_S)
    assert seqs(feed.take(0)) == [1]
    taking = in_thread(feed.take, WITHIN_S)
    while not feed._hungry:
        continue
    goes_on.set()
    putting.result(WITHIN_S)
    with changed:  # the reader has looked again, and waits
        pass
    feed.put([record(2)])
    assert seqs(taking.result(WITHIN_S / 2)) == [2]


def test_the_last_record_finds_room_without_waiting():
    feed = Feed(2)
    feed.put([record(1)])
    feed.put([record(2)])
    feed.end(record(3))
    assert not feed.drained
    assert seqs(feed.take(None)) == [1, 2, 3]
    assert feed.drained
    assert feed.take(None) == []


def test_a_consumer_that_waits_is_woken_by_the_first_record(in_thread):
    feed = Feed(10)
    taking = in_thread(feed.take, None)
    feed.put([record(1)])
    assert seqs(taking.result(WITHIN_S)) == [1]


def test_a_consumer_that_waits_is_woken_by_the_end(in_thread):
    feed = Feed(10)
    taking = in_thread(feed.take, None)
    feed.end()
    assert taking.result(WITHIN_S) == []
    assert feed.drained


def test_a_consumer_that_waits_is_woken_by_the_last_record(in_thread):
    feed = Feed(10)
    taking = in_thread(feed.take, None)
    feed.end(record(1))
    assert seqs(taking.result(WITHIN_S)) == [1]


def test_a_consumer_that_waits_is_woken_by_a_close_from_elsewhere(in_thread):
    feed = Feed(10)
    taking = in_thread(feed.take, None)
    feed.close()
    assert taking.result(WITHIN_S) == []


@pytest.mark.parametrize("timeout_s", [0, 0.001, -1])
def test_taking_gives_up_when_the_time_is_over(timeout_s):
    feed = Feed(10)
    assert feed.take(timeout_s) == []
    assert not feed.drained


@pytest.mark.parametrize("wake", ["close", "lift_limit"])
@pytest.mark.parametrize("limit", [1, 3])
def test_a_producer_that_waits_for_room_is_woken(wake, limit, in_thread):
    feed = Feed(limit)
    for seq in range(1, limit + 1):
        feed.put([record(seq)])
    putting = in_thread(feed.put, [record(limit + 1)])
    getattr(feed, wake)()
    assert putting.result(WITHIN_S) is (wake == "lift_limit")


@pytest.mark.parametrize("wake", ["close", "lift_limit"])
def test_a_producer_that_waits_with_the_rest_of_a_batch_is_woken(wake, in_thread):
    feed = Feed(2)
    putting = in_thread(feed.put, [record(seq) for seq in range(1, 8)])
    assert seqs(feed.take(WITHIN_S)) == [1, 2]
    getattr(feed, wake)()
    assert putting.result(WITHIN_S) is (wake == "lift_limit")
    feed.end()
    assert seqs(feed.take(0)) == ([3, 4, 5, 6, 7] if wake == "lift_limit" else [])


def test_without_a_limit_nothing_is_lost():
    feed = Feed(1)
    feed.lift_limit()
    for seq in range(1, 4):
        assert feed.put([record(seq)]) is True
    assert seqs(feed.take(0)) == [1, 2, 3]


def test_a_closed_feed_keeps_nothing_and_holds_nobody_up():
    feed = Feed(1)
    feed.put([record(1)])
    feed.close()
    feed.close()
    assert feed.drained
    for seq in range(2, 10):
        assert feed.put([record(seq)]) is False
    assert feed.take(None) == []
    feed.end(record(10))
    assert feed.take(None) == []
    assert feed.drained


@settings(deadline=None)
@given(
    limit=st.integers(1, 4),
    schedule=st.lists(st.sampled_from(["put", "take"]), max_size=60),
    rest=st.integers(0, 3),
)
def test_no_schedule_of_puts_and_takes_loses_or_reorders_anything(limit, schedule, rest):
    feed, put, taken, waiting = Feed(limit), 0, [], 0
    for step in schedule:
        if step == "take":
            records = feed.take(0)
            assert len(records) == waiting
            taken += seqs(records)
            waiting = 0
        elif waiting < limit:  # otherwise it would wait for ever
            put, waiting = put + 1, waiting + 1
            assert feed.put([record(put)]) is True
        assert not feed.drained
    if rest:
        put += 1
        feed.end(record(put))
    else:
        feed.end()
    while not feed.drained:
        taken += seqs(feed.take(0))
    assert taken == list(range(1, put + 1))


@settings(deadline=None, max_examples=50)
@given(
    limit=st.integers(1, 5),
    bursts=st.lists(st.integers(1, 12), max_size=12),
    timeouts=st.lists(st.sampled_from([None, 0.0, 0.0005]), max_size=6),
)
def test_nothing_is_lost_or_reordered_between_two_threads(limit, bursts, timeouts):
    feed, total = Feed(limit), sum(bursts)
    turns = threading.Semaphore(0)

    def produce() -> None:
        seq = 0
        for burst in bursts:
            assert turns.acquire(timeout=WITHIN_S)
            for _ in range(burst):
                seq += 1
                assert feed.put([record(seq)])
        feed.end()

    producer = threading.Thread(target=produce, name="test-producer")
    producer.start()
    try:
        taken, turn = [], 0
        while not feed.drained:
            turns.release()
            records = feed.take([None, *timeouts][turn % (len(timeouts) + 1)])
            assert len(records) <= limit
            taken += seqs(records)
            turn += 1
    finally:
        feed.close()
        producer.join(WITHIN_S)
    assert not producer.is_alive()
    assert taken == list(range(1, total + 1))
