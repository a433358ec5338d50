"""Jobs at a time: their limit, their two roads, their followers and their common end."""

from __future__ import annotations

import logging
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from caesar_server.contract import (
    Backend,
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    Failed,
    InvalidRequestError,
    Message,
    Part,
    Request,
    Sampling,
    StatusChanged,
)
from caesar_server.contract.context import Forwarded
from caesar_server.errors import (
    CANCELLED,
    DEADLINE,
    SHUTDOWN,
    STORE_AWAY,
    UNEXPECTED,
    BackendLoadError,
    ModelNotFoundError,
    OverloadedError,
    ShuttingDownError,
)
from caesar_server.jobs.clock import SystemClock
from caesar_server.jobs.context import NoMetrics
from caesar_server.jobs.runner import new_id, new_job
from caesar_server.registry import ResolvedBackend
from caesar_server.store.base import Job, Record, StoreError, UnknownJobError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.memory import MemoryStore
from caesar_server.store.quotas import Quota
from caesar_server.testing import Gate, scripted_backend

WITHIN_S = 60.0
QUEUED = StatusChanged("queued")
ANSWER = [ContentDelta("a"), ChoiceFinished(), Completed()]


def events_of(records: Sequence[Record]) -> list[Event]:
    return [record.event for record in records]


def is_last(event: Event) -> bool:
    return isinstance(event, (Completed, Failed))


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as they can, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class CannotOpen(Backend):
    """Fails to load once it is asked for by a job."""

    def open(self) -> None:
        raise ValueError("no weights")

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        raise NotImplementedError


# The two roads


def test_inline_runs_in_this_thread_and_starts_none(make_parts, new_threads):
    threads: list[int] = []

    def note(context: Context) -> None:
        threads.append(threading.get_ident())

    parts = make_parts([note, *ANSWER])
    assert events_of(parts.inline()) == [QUEUED, *ANSWER]
    assert threads == [threading.get_ident()]
    assert new_threads("caesar-") == []


def test_a_followed_job_runs_in_the_pool(make_parts, drain):
    threads: list[str] = []

    def note(context: Context) -> None:
        threads.append(threading.current_thread().name)

    parts = make_parts([note, *ANSWER])
    assert events_of(drain(parts.follow())) == [QUEUED, *ANSWER]
    assert threads[0].startswith("caesar-run")


def test_no_thread_starts_before_the_first_pooled_job(make_parts, new_threads):
    parts = make_parts(ANSWER)
    parts.new()
    assert new_threads("caesar-") == []


@pytest.mark.parametrize("durable", [False, True])
def test_all_roads_tell_and_store_the_same(make_parts, drain, store, durable):
    told = make_parts(ANSWER).inline()
    parts = make_parts(ANSWER, durable=durable)
    followed = parts.new()
    assert drain(parts.follow(followed)) == told
    assert list(store.records(followed.id)) == told
    assert store.job(followed.id).status == "completed"


def test_the_follower_knows_the_job(make_parts, drain):
    parts = make_parts(ANSWER)
    job = parts.new()
    followed = parts.follow(job)
    drain(followed)
    assert followed.job == replace(job, attempt=1, owner=followed.job.owner)


def test_a_new_job_has_an_id_of_its_own_and_what_it_was_made_of():
    request = CompletionRequest(prompts=("p",))
    resolved = ResolvedBackend("echo", "small", scripted_backend([])())
    made = [
        new_job(request, model="echo/small", resolved=resolved, created_at=5.0, timeout_s=9.0)
        for _ in range(2)
    ]
    assert made[0].id != made[1].id
    assert len(made[0].id) == 36
    assert replace(made[0], id="") == Job(
        id="",
        created_at=5.0,
        model="echo/small",
        backend="echo",
        backend_model="small",
        request=request,
        timeout_s=9.0,
    )


# Before a job


def test_prepare_finds_the_backend_and_makes_the_request_fit(make_parts):
    parts = make_parts(
        {
            "first": scripted_backend([]),
            "second": scripted_backend([], accepts=frozenset({"completion"})),
        }
    )
    chat = ChatRequest(messages=(Message(role="user", parts=(Part(text="hello"),)),), model="x")
    resolved, fitted = parts.runner.prepare("second/small", chat)
    assert (resolved.name, resolved.model) == ("second", "small")
    assert fitted == CompletionRequest(prompts=("hello",), model="small")


def test_prepare_starts_and_stores_nothing(make_parts):
    class NoStore(MemoryStore):
        def create(
            self, job: Job, *, wait: bool = True, held: bool = False, quota: Quota | None = None
        ) -> None:
            raise AssertionError

    backend = scripted_backend(ANSWER)
    parts = make_parts(backend, store=NoStore())
    parts.runner.prepare("m", CompletionRequest(prompts=("p",)))
    assert backend.script.runs == 0
    assert parts.runner.running == 0


def test_prepare_refuses_what_the_backend_cannot_take(make_parts):
    parts = make_parts([], n=False)
    with pytest.raises(InvalidRequestError, match="n: the backend 'scripted'"):
        parts.runner.prepare("m", CompletionRequest(prompts=("p",), sampling=Sampling(n=2)))


def test_prepare_refuses_what_nothing_answers_to(make_parts):
    parts = make_parts(
        {"first": scripted_backend([]), "broken": CannotOpen},
        settings={"unknown_model": "reject"},
    )
    request = CompletionRequest(prompts=("p",))
    with pytest.raises(ModelNotFoundError):
        parts.runner.prepare("m", request)
    with pytest.raises(BackendLoadError):
        parts.runner.prepare("broken", request)


# The limit and the places


def test_more_than_the_limit_is_refused_at_once(make_parts, drain):
    gate = Gate()
    parts = make_parts([gate, *ANSWER], limit=2)
    running = [parts.follow(), parts.follow()]
    for _ in running:
        gate.wait_until_reached()
    assert parts.runner.running == 2
    extra = parts.new()
    for ask in (parts.follow, parts.inline):
        with pytest.raises(OverloadedError, match="limit of 2 answers") as refused:
            ask(extra)
        assert refused.value.info().status == 503
        assert refused.value.info().retry_after_s == 1
        assert refused.value.info().transient
    with pytest.raises(UnknownJobError):
        parts.store.job(extra.id)
    assert parts.runner.running == 2
    gate.open()
    for followed in running:
        assert events_of(drain(followed)) == [QUEUED, *ANSWER]
    assert events_of(drain(parts.follow(extra))) == [QUEUED, *ANSWER]


def test_inline_and_pooled_runs_share_the_limit(make_parts):
    gate = Gate()
    parts = make_parts([gate, *ANSWER], limit=1)
    inline = parts.runner.run_inline(parts.new())
    next(inline)
    with pytest.raises(OverloadedError):
        parts.follow()
    inline.close()
    followed = parts.follow()
    with pytest.raises(OverloadedError):
        parts.inline()
    followed.leave()


class Bad(Backend):
    """Raises what no backend may raise, where it hurts."""

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        raise SystemExit


@pytest.mark.parametrize(
    "steps",
    [
        ANSWER,
        [ValueError("broken")],
        [],
        ["junk"],
        [Failed(UNEXPECTED)],
        [lambda context: context.cancel(), *ANSWER],
        Bad,
    ],
)
@pytest.mark.parametrize("road", ["inline", "pooled"])
@pytest.mark.usefixtures("hasty_threads")
def test_the_place_is_given_back_before_the_end_is_told(make_parts, steps, road):
    parts = make_parts(steps, limit=1)

    def ask() -> Iterator[Event]:
        if road == "inline":
            yield from (record.event for record in parts.runner.run_inline(parts.new()))
        else:
            followed = parts.follow()
            while not followed.drained:
                yield from (record.event for record in followed.take(WITHIN_S))

    for _ in range(50):
        ends = 0
        for event in ask():
            if is_last(event):
                ends += 1
                assert parts.runner.running == 0
        assert ends == 1


def test_an_inline_run_that_was_never_begun_takes_no_place_and_leaves_no_job(make_parts):
    parts = make_parts(ANSWER, limit=1)
    job = parts.new()
    for _ in range(3):
        dropped = parts.runner.run_inline(job)
        del dropped
    parts.runner.run_inline(job).close()
    assert parts.runner.running == 0
    with pytest.raises(UnknownJobError):
        parts.store.job(job.id)


def test_an_inline_run_that_is_left_gives_its_place_back_and_is_stored_as_cancelled(
    make_parts, store
):
    backend = scripted_backend(ANSWER)
    parts = make_parts(backend, limit=1)
    for _ in range(3):
        job = parts.new()
        records = parts.runner.run_inline(job)
        next(records), next(records)
        assert parts.runner.running == 1
        records.close()
        assert parts.runner.running == 0
        assert store.records(job.id)[-1].event == Failed(CANCELLED)
    assert backend.script.closed == 3


def test_an_inline_run_whose_reader_raises_gives_its_place_back(make_parts):
    parts = make_parts(ANSWER, limit=1)

    def read() -> None:
        for _ in parts.runner.run_inline(parts.new()):
            raise KeyError

    for _ in range(3):
        with pytest.raises(KeyError):
            read()
    assert parts.runner.running == 0


@pytest.mark.parametrize("road", ["inline", "follow", "submit"])
def test_a_backend_that_cannot_be_loaded_gives_the_place_back_and_leaves_no_job(
    make_parts, store, road
):
    parts = make_parts({"first": scripted_backend([]), "broken": CannotOpen}, limit=1)
    job = replace(parts.new(), model="broken", backend="broken", detached=road == "submit")
    for _ in range(3):
        with pytest.raises(BackendLoadError):
            if road == "inline":
                parts.inline(job)
            else:
                getattr(parts.runner, road)(job)
    assert parts.runner.running == 0
    with pytest.raises(UnknownJobError):
        store.job(job.id)


@pytest.mark.parametrize("road", ["follow", "submit"])
def test_where_there_is_no_thread_the_place_is_given_back(
    make_parts, store, monkeypatch, drain, road
):
    parts = make_parts(ANSWER, limit=1)
    start = threading.Thread.start

    def start_of_others(thread):
        if thread.name.startswith(("caesar-run", "caesar-job")):
            raise RuntimeError("can't start new thread")
        start(thread)

    job = replace(parts.new(), detached=road == "submit")
    with monkeypatch.context() as few:
        few.setattr(threading.Thread, "start", start_of_others)
        for _ in range(3):
            with pytest.raises(OverloadedError, match="no thread"):
                getattr(parts.runner, road)(job)
            assert parts.runner.running == 0
    with pytest.raises(UnknownJobError):
        store.job(job.id)
    assert events_of(drain(getattr(parts.runner, road)(job))) == [QUEUED, *ANSWER]


@pytest.mark.parametrize("road", ["inline", "follow"])
def test_a_second_job_with_the_same_id_is_refused_and_does_not_harm_the_first(
    make_parts, drain, store, road
):
    gate = Gate()
    parts = make_parts([gate, *ANSWER])
    job = parts.new()
    followed = parts.follow(job)
    gate.wait_until_reached()
    with pytest.raises(ValueError, match="exists"):
        getattr(parts, road)(job)
    assert parts.runner.running == 1
    assert store.job(job.id).status == "queued"
    gate.open()
    assert events_of(drain(followed)) == [QUEUED, *ANSWER]
    assert store.job(job.id).status == "completed"


class FailingStore(MemoryStore):
    """Fails in the methods that it is told."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self.methods = methods

    def create(
        self, job: Job, *, wait: bool = True, held: bool = False, quota: Quota | None = None
    ) -> None:
        self._fail("create")
        super().create(job)

    def delete(self, job_id: str) -> None:
        self._fail("delete")
        super().delete(job_id)

    def append(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._fail("append")
        super().append(job_id, attempt, records, checkpoint=checkpoint)

    def _fail(self, method: str) -> None:
        if method in self.methods:
            raise StoreError("disk full")


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("road", ["inline", "follow"])
def test_a_store_that_fails_at_the_beginning_does_not_keep_the_place(make_parts, road, durable):
    parts = make_parts(ANSWER, limit=1, store=FailingStore("create"), durable=durable)
    for _ in range(3):
        with pytest.raises(StoreError, match="disk full"):
            getattr(parts, road)()
    assert parts.runner.running == 0


def test_a_store_that_fails_later_ends_the_job_for_its_client(make_parts, drain, caplog):
    parts = make_parts(ANSWER, limit=1, store=FailingStore("append"))
    for road in (parts.inline, lambda: drain(parts.follow())):
        records = road()
        assert records[-1].event == Failed(STORE_AWAY)
        assert sum(map(is_last, events_of(records))) == 1
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert "disk full" in caplog.text
    assert "disk full" not in records[-1].event.error.message
    assert parts.runner.running == 0


@pytest.mark.parametrize("road", ["inline", "pooled"])
def test_a_job_that_is_deleted_while_it_runs_ends_for_its_follower(make_parts, drain, store, road):
    backend = scripted_backend(
        [ContentDelta("a"), lambda context: store.delete(context.job_id), *ANSWER]
    )
    parts = make_parts(backend)
    records = parts.inline() if road == "inline" else drain(parts.follow())
    assert records[-1].event == Failed(CANCELLED)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert backend.script.ended == 1


def test_a_job_that_another_process_took_over_ends_for_its_follower(make_parts, drain, store):
    def take_over(context: Context) -> None:
        store.claim(context.job_id, "another")

    parts = make_parts([ContentDelta("a"), take_over, *ANSWER])
    job = parts.new()
    records = drain(parts.follow(job))
    assert records[-1].event == Failed(UNEXPECTED)
    assert sum(map(is_last, events_of(records))) == 1
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert list(store.records(job.id)) == []


# Following and leaving


def test_leaving_cancels_a_job_that_is_not_durable(make_parts, store, eventually):
    gate = Gate()
    backend = scripted_backend([ContentDelta("a"), gate, *ANSWER])
    parts = make_parts(backend)
    job = parts.new()
    followed = parts.follow(job)
    gate.wait_until_reached()
    assert not followed.left
    followed.leave()
    followed.leave()
    assert followed.left
    assert followed.drained
    assert followed.take(None) == []
    eventually(lambda: parts.runner.running == 0)
    assert store.records(job.id)[-1].event == Failed(CANCELLED)
    assert backend.script.cancels == 1


def test_a_durable_job_goes_on_without_its_follower_and_is_stored(make_parts, store, eventually):
    gate = Gate()
    more = [ContentDelta("b")] * 100  # far more than the feed holds
    parts = make_parts([ContentDelta("a"), gate, *more, *ANSWER], durable=True)
    job = parts.new()
    followed = parts.follow(job)
    gate.wait_until_reached()
    followed.leave()
    gate.open()
    eventually(lambda: parts.runner.running == 0)
    assert events_of(store.records(job.id)) == [QUEUED, ContentDelta("a"), *more, *ANSWER]
    assert store.job(job.id).status == "completed"


def test_leaving_wakes_a_backend_that_waits_for_its_slow_reader(make_parts, eventually):
    backend = scripted_backend([ContentDelta("a")] * 50 + ANSWER)
    parts = make_parts(backend, feed_events=4)
    followed = parts.follow()
    backend.script.wait_for(lambda script: script.yielded >= 3)
    followed.leave()
    eventually(lambda: parts.runner.running == 0)


def test_leaving_after_the_end_changes_nothing(make_parts, drain, store):
    parts = make_parts(ANSWER)
    followed = parts.follow()
    drain(followed)
    followed.leave()
    assert store.job(followed.job.id).status == "completed"


def test_leaving_wakes_a_take_in_another_thread(make_parts, in_thread):
    gate = Gate()
    parts = make_parts([gate, *ANSWER], durable=True)
    followed = parts.follow()
    assert events_of(followed.take(WITHIN_S)) == [QUEUED]
    taking = in_thread(followed.take, None)
    followed.leave()
    assert taking.result(WITHIN_S) == []
    gate.open()


def endless(request: Request) -> Iterator[Any]:
    while True:
        yield ContentDelta("a")


@pytest.mark.parametrize("feed_events", [1, 8])
def test_a_slow_reader_does_not_let_the_backend_run_ahead(make_parts, feed_events):
    backend = scripted_backend(endless)
    parts = make_parts(backend, feed_events=feed_events)
    followed = parts.follow()
    seen = 0
    for _ in range(30):
        taken = followed.take(WITHIN_S)
        assert 1 <= len(taken) <= feed_events
        seen += len(taken)
        # one that waits to be put, and one that is being made
        assert backend.script.yielded <= seen + feed_events + 1
    followed.leave()


def test_the_deadline_ends_a_run_whose_reader_is_slow(make_parts, drain, clock):
    backend = scripted_backend(endless)
    parts = make_parts(backend, feed_events=4)
    followed = parts.follow(parts.new(timeout_s=9))
    backend.script.wait_for(lambda script: script.yielded >= 3)
    clock.advance(9)
    backend.script.wait_for(lambda script: script.ended == 1)  # though nothing was taken
    records = drain(followed)
    assert records[-1].event == Failed(DEADLINE)
    assert len(records) <= 4 + 2


def test_the_end_of_a_run_does_not_wait_for_its_slow_reader(make_parts, drain, eventually):
    parts = make_parts(ANSWER, feed_events=3, limit=1)  # queued and two before the last
    followed = parts.follow()
    eventually(lambda: parts.runner.running == 0)  # though nothing was taken
    assert events_of(drain(followed)) == [QUEUED, *ANSWER]


def test_what_came_with_the_request_stays_in_this_process(make_parts, drain, store):
    seen: list[Forwarded] = []
    parts = make_parts([lambda context: seen.append(context.forwarded), *ANSWER])
    forwarded = Forwarded(api_key="key")
    drain(parts.follow(forwarded=forwarded))
    list(parts.runner.run_inline(parts.new(), forwarded=forwarded))
    assert seen == [forwarded, forwarded]


@pytest.mark.parametrize("durable", [False, True])
def test_a_run_can_be_cancelled_by_the_id_of_its_job(make_parts, drain, durable):
    gate = Gate()
    parts = make_parts([gate, *ANSWER], durable=durable)
    followed, other = parts.follow(), parts.follow()
    gate.wait_until_reached()
    gate.wait_until_reached()
    cancel = parts.runner.cancel_stored if durable else parts.runner.cancel
    cancel(followed.job.id)
    cancel(followed.job.id)
    assert events_of(drain(followed)) == [QUEUED, Failed(CANCELLED)]
    gate.open()
    assert events_of(drain(other)) == [QUEUED, *ANSWER]


def test_an_inline_run_can_be_cancelled_from_another_thread(make_parts, in_thread):
    gate = Gate()
    parts = make_parts([gate, *ANSWER])
    job = parts.new()
    running = in_thread(parts.inline, job)
    gate.wait_until_reached()
    parts.runner.cancel(job.id)
    assert events_of(running.result(WITHIN_S)) == [QUEUED, Failed(CANCELLED)]


def test_cancelling_what_does_not_run_is_harmless(make_parts, drain, store):
    parts = make_parts(ANSWER)
    parts.runner.cancel("nothing")
    followed = parts.follow()
    drain(followed)
    parts.runner.cancel(followed.job.id)
    assert store.job(followed.job.id).status == "completed"


# Who watches


class Tally:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.records: list[Record] = []
        self.ends = 0
        self.threads: list[str] = []

    def add(self, records: Sequence[Record]) -> None:
        assert self.ends == 0
        self.records += records

    def end(self) -> None:
        self.ends += 1

    @contextmanager
    def named(self) -> Iterator[None]:
        self.threads.append(threading.current_thread().name)
        yield


class Watcher:
    """An observer that keeps all it hears."""

    def __init__(self) -> None:
        self.tallies: list[Tally] = []
        self.metrics_of: dict[str, NoMetrics] = {}

    def begin(self, job: Job) -> Tally:
        self.tallies.append(Tally(job))
        return self.tallies[-1]

    def metrics(self, backend: str) -> NoMetrics:
        return self.metrics_of.setdefault(backend, NoMetrics())


@pytest.mark.parametrize("store", [MemoryStore(), FailingStore("append")])
@pytest.mark.parametrize("steps", [ANSWER, [ValueError("broken")], [ContentDelta("a")]])
@pytest.mark.parametrize("road", ["inline", "pooled"])
def test_an_observer_hears_each_record_once_and_of_the_end_once(
    make_parts, drain, road, steps, store
):
    watcher = Watcher()
    parts = make_parts(steps, store=store, observer=watcher)
    job = parts.new()
    told = parts.inline(job) if road == "inline" else drain(parts.follow(job))
    (tally,) = watcher.tallies
    assert tally.job.id == job.id
    assert tally.records == told
    assert tally.ends == 1


@pytest.mark.parametrize("steps", [ANSWER, [ValueError("broken")], [ContentDelta("a")]])
def test_an_observer_hears_of_a_detached_run_too(make_parts, drain, steps, eventually):
    watcher = Watcher()
    parts = make_parts(steps, durable=True, observer=watcher)
    told = drain(parts.follow())
    (tally,) = watcher.tallies
    eventually(lambda: tally.ends == 1)
    assert tally.records == told
    assert tally.threads[0].startswith("caesar-job")


def test_an_observer_hears_of_a_run_that_was_left(make_parts, store):
    watcher = Watcher()
    parts = make_parts(ANSWER, observer=watcher)
    job = parts.new()
    records = parts.runner.run_inline(job)
    next(records)
    records.close()
    (tally,) = watcher.tallies
    assert tally.records == list(store.records(job.id))
    assert tally.records[-1].event == Failed(CANCELLED)
    assert tally.ends == 1


def test_an_observer_hears_the_end_of_a_job_that_was_deleted(make_parts, drain, store):
    watcher = Watcher()
    steps = [ContentDelta("a"), lambda context: store.delete(context.job_id), *ANSWER]
    parts = make_parts(steps, observer=watcher)
    told = drain(parts.follow())
    (tally,) = watcher.tallies
    assert tally.records[-1] == told[-1]
    assert tally.ends == 1


def test_an_observer_hears_nothing_of_what_was_refused(make_parts, drain):
    watcher = Watcher()
    parts = make_parts({"first": scripted_backend(ANSWER), "broken": CannotOpen}, observer=watcher)
    with pytest.raises(BackendLoadError):
        parts.inline(replace(parts.new(), model="broken"))
    assert watcher.tallies == []


def test_a_pooled_run_works_in_the_name_of_its_request(make_parts, drain):
    watcher = Watcher()
    parts = make_parts(ANSWER, observer=watcher)
    drain(parts.follow())
    assert watcher.tallies[0].threads[0].startswith("caesar-run")


def test_each_backend_counts_under_its_own_name(make_parts):
    watcher, seen = Watcher(), []

    def call(context: Context) -> None:
        seen.append(context.metrics)
        list(context.call("inner", CompletionRequest(prompts=("p",))))

    inner = scripted_backend([lambda context: seen.append(context.metrics), *ANSWER])
    outer = scripted_backend([call, ChoiceFinished(), Completed()])
    make_parts({"outer": outer, "inner": inner}, observer=watcher).inline()
    assert seen == [watcher.metrics_of["outer"], watcher.metrics_of["inner"]]


def test_an_observer_that_breaks_its_word_keeps_neither_the_place_nor_the_end(
    make_parts, drain, caplog
):
    class Broken(Tally):
        def end(self) -> None:
            raise ValueError("broken observer")

    watcher = Watcher()
    watcher.begin = Broken  # type: ignore[method-assign]
    parts = make_parts(ANSWER, limit=1, observer=watcher)
    for records in (parts.inline(), drain(parts.follow())):
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert records[-1].event == Failed(UNEXPECTED)
    assert parts.runner.running == 0
    assert "broken observer" in caplog.text


# The end of the runner


def test_draining_gives_what_runs_some_time_then_cancels_it(make_parts, drain, clock):
    gate = Gate()
    parts = make_parts([gate, *ANSWER])
    followed = parts.follow()
    gate.wait_until_reached()
    parts.runner.drain(30)
    clock.advance(29)
    later = parts.follow()  # until then everything goes on
    gate.wait_until_reached()
    assert followed.take(0) == []  # what the server itself says goes with the first event
    clock.advance(1)
    assert events_of(drain(followed)) == [QUEUED, Failed(SHUTDOWN)]
    assert events_of(drain(later)) == [QUEUED, Failed(SHUTDOWN)]
    with pytest.raises(ShuttingDownError):
        parts.inline()


def test_draining_does_not_hold_up_the_close(make_parts, drain, clock):
    gate = Gate()
    parts = make_parts([gate, *ANSWER])
    followed = parts.follow()
    gate.wait_until_reached()
    parts.runner.drain(30)
    parts.runner.close()
    assert events_of(drain(followed)) == [QUEUED, Failed(SHUTDOWN)]
    clock.advance(30)


@pytest.mark.parametrize("durable", [False, True])
def test_close_cancels_all_runs_and_leaves_no_thread(
    make_parts, drain, store, durable, new_threads
):
    gate = Gate()
    parts = make_parts([gate, *ANSWER], durable=durable)
    running = [parts.follow() for _ in range(4)]
    for _ in running:
        gate.wait_until_reached()
    parts.runner.close()
    assert parts.runner.running == 0
    assert new_threads("caesar-") == []
    for followed in running:
        assert events_of(drain(followed)) == [QUEUED, Failed(SHUTDOWN)]
        stored = events_of(store.records(followed.job.id))
        # a durable job waits for another process
        assert stored == ([QUEUED] if durable else [QUEUED, Failed(SHUTDOWN)])
        assert store.job(followed.job.id).owner is None


@pytest.mark.parametrize("road", ["inline", "follow"])
def test_a_closed_runner_takes_nothing_new(make_parts, store, road):
    parts = make_parts(ANSWER)
    parts.runner.close()
    parts.runner.close()
    job = parts.new()
    with pytest.raises(ShuttingDownError):
        getattr(parts, road)(job)
    with pytest.raises(UnknownJobError):
        store.job(job.id)
    assert parts.runner.running == 0


def test_close_does_not_wait_for_slow_readers(make_parts, new_threads):
    endless_backend = scripted_backend(endless)
    parts = make_parts(
        {"endless": endless_backend, "short": scripted_backend(ANSWER)}, feed_events=3
    )
    parts.follow()
    parts.follow(parts.new(model="short"))
    endless_backend.script.wait_for(lambda script: script.yielded >= 2)
    parts.runner.close()
    assert parts.runner.running == 0
    assert new_threads("caesar-") == []


def test_close_waits_for_inline_runs(make_parts, in_thread):
    gate, order = Gate(), []

    def clean_up(request: Request) -> Iterator[Any]:
        try:
            yield gate
        finally:
            order.append("backend cleaned up")

    parts = make_parts(clean_up)
    running = in_thread(parts.inline)
    gate.wait_until_reached()
    parts.runner.close()
    order.append("closed")
    assert order == ["backend cleaned up", "closed"]
    assert events_of(running.result(WITHIN_S)) == [QUEUED, Failed(SHUTDOWN)]


def test_close_gives_up_on_a_run_that_does_not_end(make_parts, caplog, eventually, new_threads):
    release = threading.Event()
    deaf = scripted_backend([lambda context: release.wait(WITHIN_S) and None, *ANSWER])
    parts = make_parts(deaf)
    parts.follow()
    deaf.script.wait_for(lambda script: script.runs == 1)
    parts.runner.close(timeout_s=0.01)
    assert "have not ended 0.01 s after their cancel" in caplog.text
    assert parts.runner.running == 1
    release.set()
    eventually(lambda: parts.runner.running == 0)
    parts.runner.close()
    assert new_threads("caesar-") == []


def test_close_of_a_runner_that_never_ran_starts_no_thread(make_parts, new_threads):
    parts = make_parts(ANSWER)
    parts.runner.close()
    assert new_threads("caesar-") == []


def test_a_close_in_the_midst_of_new_jobs_loses_none(
    make_parts, in_thread, drain, store, new_threads
):
    for _ in range(20):
        backend = scripted_backend(endless)
        parts = make_parts(backend, limit=64)
        jobs = [parts.new() for _ in range(16)]
        together = threading.Barrier(len(jobs) + 1)

        def ask(job: Job, parts=parts, together=together) -> Any:
            together.wait(WITHIN_S)
            try:
                return parts.follow(job)
            except ShuttingDownError:
                return None

        asked = [in_thread(ask, job) for job in jobs]
        together.wait(WITHIN_S)
        parts.runner.close()
        for job, running in zip(jobs, asked, strict=True):
            followed = running.result(WITHIN_S)
            if followed is None:
                with pytest.raises(UnknownJobError):
                    store.job(job.id)
            else:
                assert drain(followed)[-1].event == Failed(SHUTDOWN)
                assert store.job(job.id).status == "failed"
        assert parts.runner.running == 0
        assert new_threads("caesar-") == []


# Many at a time


def test_a_hundred_jobs_from_many_threads_end_exactly_once(make_parts, drain, in_thread):
    kinds: list[Any] = [
        ANSWER,
        [ContentDelta("a")] * 40 + ANSWER,
        [ValueError("broken")],
        [ContentDelta("a")],
        [ContentDelta("a"), Failed(UNEXPECTED)],
    ]
    parts = make_parts(
        {f"kind{n}": scripted_backend(kind) for n, kind in enumerate(kinds)},
        limit=100,
        feed_events=4,
        clock=(clock := SystemClock()),
    )
    together = threading.Barrier(50)

    def ask(number: int) -> list[list[Record]]:
        together.wait(WITHIN_S)
        answers = []
        for turn in range(2):
            job = parts.new(model=f"kind{number % len(kinds)}", timeout_s=60)
            pooled = (number + turn) % 2
            answers.append(drain(parts.follow(job)) if pooled else parts.inline(job))
            assert list(parts.store.records(job.id)) == answers[-1]
        return answers

    try:
        asked = [in_thread(ask, number) for number in range(50)]
        for number, running in enumerate(asked):
            for records in running.result(WITHIN_S):
                events = events_of(records)
                assert [record.seq for record in records] == list(range(1, len(records) + 1))
                assert events[0] == QUEUED
                assert is_last(events[-1])
                assert sum(map(is_last, events)) == 1
                completes = number % len(kinds) < 2
                assert isinstance(events[-1], Completed if completes else Failed)
        assert parts.runner.running == 0
    finally:
        clock.close()


@pytest.mark.usefixtures("hasty_threads")
def test_clients_that_ask_again_at_once_are_never_refused_below_the_limit(
    make_parts, drain, in_thread
):
    parts = make_parts(ANSWER, limit=4)

    def ask_again_and_again() -> None:
        for _ in range(100):
            assert isinstance(drain(parts.follow())[-1].event, Completed)

    for running in [in_thread(ask_again_and_again) for _ in range(4)]:
        running.result(WITHIN_S)


def test_followers_that_leave_at_any_moment_leave_nothing_behind(make_parts, in_thread, eventually):
    parts = make_parts([ContentDelta("a")] * 20 + ANSWER, limit=64, feed_events=2)

    def follow_a_while(turns: int) -> None:
        followed = parts.follow()
        for _ in range(turns):
            followed.take(0.01)
        followed.leave()

    for running in [in_thread(follow_a_while, turn % 13) for turn in range(60)]:
        running.result(WITHIN_S)
    eventually(lambda: parts.runner.running == 0)


def test_two_runners_in_one_process_do_not_know_each_other(make_parts, drain):
    gate = Gate()
    first = make_parts([gate, *ANSWER], limit=1)
    second = make_parts(ANSWER, limit=1, store=MemoryStore())
    blocked = first.follow()
    gate.wait_until_reached()
    assert events_of(drain(second.follow())) == [QUEUED, *ANSWER]
    assert (first.runner.running, second.runner.running) == (1, 0)
    second.runner.close()
    gate.open()
    assert events_of(drain(blocked)) == [QUEUED, *ANSWER]
    assert events_of(first.inline()) == [QUEUED, *ANSWER]


def test_the_deadline_of_a_job_is_its_own(make_parts, drain, clock):
    parts = make_parts([lambda context: context.sleep(60), *ANSWER])
    soon, late = parts.follow(parts.new(timeout_s=5)), parts.follow(parts.new(timeout_s=50))
    clock.wait_for_waiters(2)
    clock.advance(5)
    assert events_of(drain(soon)) == [QUEUED, Failed(DEADLINE)]
    assert late.take(0) == []
    clock.advance(45)
    assert events_of(drain(late)) == [QUEUED, Failed(DEADLINE)]


def test_a_client_does_not_wait_for_a_run_that_heeds_no_cancel(make_parts, drain, clock, caplog):
    begun, free = threading.Event(), threading.Event()

    def deaf(context: Context) -> None:
        begun.set()
        assert free.wait(WITHIN_S)

    parts = make_parts([ContentDelta("a"), deaf, ContentDelta("b"), *ANSWER])
    followed = parts.follow(parts.new(timeout_s=5))
    assert begun.wait(WITHIN_S)
    clock.advance(7)
    assert events_of(drain(followed)) == [QUEUED, ContentDelta("a"), Failed(DEADLINE)]
    assert parts.runner.running == 1
    assert "does not end" in caplog.text
    free.set()
    parts.runner.close()
    assert parts.runner.running == 0
    assert followed.take(0) == []


def test_what_a_backend_raises_is_logged_with_the_job(make_parts, drain, caplog):
    caplog.set_level(logging.ERROR)
    parts = make_parts([ValueError("secret")])
    followed = parts.follow()
    assert events_of(drain(followed)) == [QUEUED, Failed(UNEXPECTED)]
    (record,) = caplog.records
    assert record.job_id == followed.job.id


def test_ids_are_uuids_of_chance() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    for one in ids:
        read = uuid.UUID(one)
        assert (str(read), read.version, read.variant) == (one, 4, uuid.RFC_4122)
    # each place of the variant comes up, and no other digit there
    assert {one[19] for one in ids} == set("89ab")
