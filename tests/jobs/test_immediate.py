"""Streams of backends that wait for nothing until they say so: no thread of their own is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    ErrorInfo,
    Event,
    Failed,
    Request,
    StatusChanged,
    Told,
)
from caesar_server.errors import (
    CANCELLED,
    DEADLINE,
    SHUTDOWN,
    UNEXPECTED,
)
from caesar_server.jobs.following.follower import Following
from caesar_server.jobs.leasing.claims import Debts
from caesar_server.jobs.running.run import AT_ONCE
from caesar_server.store.base import Record, Store, StoreError

WITHIN_S = 60.0
QUEUED = StatusChanged("queued")
ENDING = [ChoiceFinished(), Completed()]


def immediate(*items: Told | Callable[[Context], object], says_so: bool = True) -> type[Backend]:
    """Return a backend that tells these items, and calls those that can be called."""

    class Immediate(Backend):
        capabilities = Capabilities(immediate=says_so)

        def run(self, request: Request, context: Context) -> Iterator[Told]:
            for item in items:
                if callable(item):
                    item(context)
                else:
                    yield item

    return Immediate


def deltas(*texts: str) -> list[Event]:
    return [ContentDelta(text) for text in texts]


def events_of(records: Sequence[Record]) -> list[Event]:
    return [record.event for record in records]


def failure_of(store: Store, followed: Following) -> ErrorInfo:
    (*_, last) = store.records(followed.job.id)
    assert isinstance(last.event, Failed)
    return last.event.error


class Threads(list[str]):
    """Notes the names of the threads in which it is called."""

    def __call__(self, context: Context) -> None:
        self.append(threading.current_thread().name)


def test_all_that_is_there_is_told_without_another_thread(make_parts, store, new_threads):
    told = Threads()
    parts = make_parts(immediate(deltas("a", "b"), told, deltas("c"), ENDING))
    followed = parts.follow()
    records = followed.take(None)
    assert events_of(records) == [QUEUED, *deltas("a", "b", "c"), *ENDING]
    assert followed.drained
    assert [record.seq for record in records] == [1, 2, 3, 4, 5, 6]
    assert list(store.records(followed.job.id)) == records
    assert store.job(followed.job.id).status == "completed"
    assert told == [threading.current_thread().name]
    assert parts.runner.running == 0
    assert new_threads("caesar-") == []


def test_from_the_empty_list_on_it_runs_in_the_pool(make_parts, drain):
    before, after, gate = Threads(), Threads(), threading.Event()
    parts = make_parts(
        immediate(
            before, deltas("a"), [], after, lambda _: gate.wait(WITHIN_S), deltas("b"), [], ENDING
        )
    )
    followed = parts.follow()
    assert events_of(followed.take(WITHIN_S)) == [QUEUED, ContentDelta("a")]
    assert parts.runner.running == 1
    gate.set()
    assert events_of(drain(followed)) == [ContentDelta("b"), *ENDING]
    assert before == [threading.current_thread().name]
    assert after[0].startswith("caesar-run")


def test_queued_alone_waits_for_the_first_event(make_parts, drain):
    gate = threading.Event()
    parts = make_parts(immediate([], lambda _: gate.wait(WITHIN_S), deltas("a"), ENDING))
    followed = parts.follow()
    assert followed.take(0) == []
    gate.set()
    assert events_of(drain(followed)) == [QUEUED, ContentDelta("a"), *ENDING]


@pytest.mark.parametrize("feed_events", [1, 3, 4, 5, 6])
def test_what_its_client_has_no_room_for_goes_on_in_the_pool(
    make_parts, drain, new_threads, feed_events
):
    texts = deltas("a", "b", "c")
    parts = make_parts(immediate(texts, ENDING), feed_events=feed_events)
    followed = parts.follow()
    # there always is room for the last one
    assert bool(new_threads("caesar-run")) is (feed_events < len([QUEUED, *texts, *ENDING]) - 1)
    assert events_of(drain(followed)) == [QUEUED, *texts, *ENDING]


def test_one_that_does_not_say_so_runs_in_the_pool(make_parts, drain):
    thread = Threads()
    parts = make_parts(immediate(thread, [], deltas("a"), [], ENDING, says_so=False))
    assert events_of(drain(parts.follow())) == [QUEUED, ContentDelta("a"), *ENDING]
    assert thread[0].startswith("caesar-run")


@pytest.mark.parametrize("says_so", [True, False])
def test_an_empty_list_is_nothing_in_an_answer_as_a_whole(make_parts, says_so):
    parts = make_parts(immediate([], deltas("a"), [], ENDING, says_so=says_so))
    assert events_of(parts.inline()) == [QUEUED, ContentDelta("a"), *ENDING]


def test_an_empty_list_is_nothing_in_a_job_that_others_follow(make_parts, drain, any_store):
    class Durable(immediate([], deltas("a"), [], ENDING)):  # type: ignore[misc]
        capabilities = Capabilities(immediate=True, durable=True)

    parts = make_parts(Durable, store=any_store)
    followed = parts.follow()
    assert events_of(drain(followed)) == [QUEUED, ContentDelta("a"), *ENDING]
    assert len(list(any_store.records(followed.job.id))) == 4


def raise_it(error: BaseException) -> Callable[[Context], None]:
    def throw(context: Context) -> None:
        raise error

    return throw


def cancel(context: Context) -> None:
    context.cancel()  # type: ignore[attr-defined]


@pytest.mark.parametrize("before", [[], deltas("a")])
@pytest.mark.parametrize(
    ("step", "info"),
    [(raise_it(ValueError("oh")), UNEXPECTED), (cancel, CANCELLED), ([QUEUED, []], UNEXPECTED)],
)
def test_it_fails_as_others_do(make_parts, store, new_threads, before, step, info):
    parts = make_parts(immediate(*([before] if before else []), step, deltas("b"), ENDING))
    followed = parts.follow()
    assert events_of(followed.take(None))[:-1] == [QUEUED, *before]
    assert followed.drained
    assert failure_of(store, followed) == info
    assert new_threads("caesar-") == []


def test_its_deadline_is_looked_at_between_its_items(make_parts, store, clock):
    parts = make_parts(immediate(deltas("a"), lambda _: clock.advance(5), deltas("b"), ENDING))
    followed = parts.follow(parts.new(timeout_s=5))
    assert events_of(followed.take(None)) == [QUEUED, ContentDelta("a"), Failed(DEADLINE)]


def test_a_client_that_leaves_cancels_what_is_in_the_pool(make_parts, store, eventually):
    parts = make_parts(immediate(deltas("a"), [], lambda context: context.sleep(1e9), ENDING))
    followed = parts.follow()
    followed.take(WITHIN_S)
    followed.leave()
    eventually(lambda: parts.runner.running == 0)
    assert failure_of(store, followed) == CANCELLED


def test_without_a_thread_for_the_rest_it_goes_on_in_this_one(make_parts, store, monkeypatch):
    """It has begun, so a refusal would not be true: a mock's rule has been used."""
    threads = Threads()
    texts = deltas(*"abcdefg")

    def no_thread(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    parts = make_parts(immediate(deltas("0"), [], threads, texts, ENDING), feed_events=2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        followed = parts.follow()
    assert events_of(followed.take(None)) == [QUEUED, ContentDelta("0"), *texts, *ENDING]
    assert followed.drained
    assert threads == [threading.current_thread().name]
    assert store.job(followed.job.id).status == "completed"
    assert parts.runner.running == 0


def test_only_so_much_is_told_before_anything_is_sent(make_parts, drain):
    threads = Threads()
    items = [item for text in map(str, range(AT_ONCE + 5)) for item in (threads, deltas(text))]
    parts = make_parts(immediate(*items, ENDING), feed_events=100 * AT_ONCE)
    assert len(drain(parts.follow())) == AT_ONCE + 8
    assert threads[0] == threading.current_thread().name
    assert threads[-1].startswith("caesar-run")


def test_what_was_told_before_it_went_deaf_is_not_lost(make_parts, clock):
    def is_deaf(context: Context) -> None:
        clock.advance(5)
        clock.advance(5)

    parts = make_parts(immediate(deltas("a"), is_deaf, deltas("b"), ENDING))
    followed = parts.follow(parts.new(timeout_s=5))
    assert events_of(followed.take(None)) == [QUEUED, ContentDelta("a"), Failed(DEADLINE)]


@pytest.mark.parametrize("inline", [False, True])
def test_an_end_that_is_owed_to_the_store_is_known_before_the_place_is_free(
    make_parts, store, monkeypatch, inline
):
    """Else a close that comes between would not wait for it."""
    owed: list[bool] = []

    def away(*args: Any, **kwargs: Any) -> None:
        raise StoreError("away")

    parts = make_parts(immediate(deltas("a"), ENDING))
    job = parts.new()
    with monkeypatch.context() as patch:
        patch.setattr(store, "append", away)
        patch.setattr(Debts, "add", lambda debts, debt: owed.append(parts.runner.running == 1))
        list(parts.runner.run_inline(job)) if inline else parts.follow(job)
    assert owed == [True]
    assert parts.runner.running == 0


def test_a_stop_ends_it_before_it_waits(make_parts, clock, new_threads):
    def stop(context: Context) -> None:
        parts.runner.drain(0)
        clock.advance(0)

    parts = make_parts(immediate(deltas("a"), stop, [], ENDING))
    followed = parts.follow()
    assert events_of(followed.take(None)) == [QUEUED, ContentDelta("a"), Failed(SHUTDOWN)]
    assert new_threads("caesar-run") == []
