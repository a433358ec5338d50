"""Jobs that outlive their clients: who runs them, who takes them over, how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Context,
    Event,
    Failed,
    Started,
    StatusChanged,
)
from caesar_server.errors import (
    ATTEMPTS,
    BACKEND_GONE,
    CANCELLED,
    SHUTDOWN,
    WORKER_LOST,
    OverloadedError,
    QueueFullError,
    ShuttingDownError,
)
from caesar_server.jobs.clock import SystemClock
from caesar_server.jobs.detached import DetachedJobs
from caesar_server.jobs.leasing import orphans as orphans_module
from caesar_server.jobs.leasing.lease import Lease
from caesar_server.jobs.running import threads
from caesar_server.store.base import Job, Record, Store, StoreError, UnknownJobError
from caesar_server.store.memory import MemoryStore
from caesar_server.testing import Gate, durable_backend, scripted_backend

WITHIN_S = 60.0
QUEUED = StatusChanged("queued")
ANSWER = [Started(), ContentDelta("a"), ContentDelta("b"), ChoiceFinished(), Completed()]


def events_of(records: Sequence[Record]) -> list[Event]:
    return [record.event for record in records]


def text_of(records: Sequence[Record]) -> str:
    return "".join(r.event.text for r in records if isinstance(r.event, ContentDelta))


def check_whole(records: Sequence[Record]) -> None:
    """Check that no number is missing or doubled, and that there is one end, at the end."""
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    ends = [isinstance(record.event, (Completed, Failed)) for record in records]
    assert ends.index(True) == len(ends) - 1


@pytest.fixture
def clock() -> Iterator[SystemClock]:
    """Real time: batches of text end by it."""
    clock = SystemClock()
    yield clock
    clock.close()


@pytest.fixture
def make_process(make_parts: Callable[..., Any], stores: tuple[Store, Store]) -> Callable[..., Any]:
    """Make what stands for a process: a runner over its own view of the shared jobs."""
    made: list[Any] = []

    def make(backends: Any, **options: Any) -> Any:
        parts = make_parts(backends, store=stores[min(len(made), 1)], durable=True, **options)
        made.append(parts)
        return parts

    return make


@pytest.fixture
def store(stores: tuple[Store, Store]) -> Store:
    return stores[0]


def stored_job(store: Store, parts: Any, *, told: Sequence[Event] = (), **fields: Any) -> Job:
    """Store a job as a process would leave it that is gone: it has no lease."""
    values = {"owner": "gone", "attempt": 1, **fields}
    job = replace(parts.new(), **values)
    store.create(job)
    if told:
        store.append(job.id, job.attempt, [Record(n, 1.0, e) for n, e in enumerate(told, 1)])
    return job


# Where a job runs


def test_a_job_runs_at_once_where_there_is_room(make_process, drain, store):
    parts = make_process(ANSWER)
    followed = parts.follow()
    records = drain(followed)
    assert events_of(records) == [QUEUED, *ANSWER]
    assert list(store.records(followed.job.id)) == records
    job = store.job(followed.job.id)
    assert (job.attempt, job.released, job.owner, job.status) == (1, 0, None, "completed")


def test_it_is_stored_before_it_is_acknowledged(make_process, store):
    gate = Gate()
    parts = make_process([gate, *ANSWER])
    job = store.job(parts.follow().job.id)
    assert job.detached
    assert job.durable
    assert job.owner is not None
    gate.open()


def test_jobs_beyond_the_room_wait_and_are_run_in_their_order(make_process, drain, store):
    gate, order = Gate(), []

    def note(context: Context) -> None:
        order.append(context.job_id)

    parts = make_process([note, gate, *ANSWER], job_limits={"threads": 1})
    followed = [parts.follow(replace(parts.new(), created_at=float(n))) for n in range(5)]
    gate.wait_until_reached()
    waiting = [store.job(one.job.id) for one in followed[1:]]
    assert [(job.owner, job.attempt, job.last_seq) for job in waiting] == [(None, 0, 0)] * 4
    gate.open()
    for one in followed:
        assert events_of(drain(one)) == [QUEUED, *ANSWER]
    assert order == [one.job.id for one in followed]


def test_a_job_without_room_here_runs_in_another_process(make_process, drain):
    gate = Gate()
    first = make_process([gate, *ANSWER], job_limits={"threads": 1})
    blocked, waiting = first.follow(), first.follow()
    second = make_process(ANSWER)
    second.runner.start()
    assert events_of(drain(waiting)) == [QUEUED, *ANSWER]
    gate.open()
    assert events_of(drain(blocked)) == [QUEUED, *ANSWER]


def test_a_process_that_runs_no_jobs_leaves_them_to_others(make_process, drain, store):
    backend = scripted_backend(ANSWER, durable=True)
    first = make_process(backend, job_limits={"run_here": False})
    followed = first.follow()
    assert followed.take(0.1) == []
    assert store.job(followed.job.id).attempt == 0
    assert backend.script.runs == 0
    make_process(ANSWER).runner.start()
    assert events_of(drain(followed)) == [QUEUED, *ANSWER]


def test_more_than_may_wait_is_refused(make_process, drain, store):
    gate = Gate()
    parts = make_process([gate, *ANSWER], job_limits={"threads": 1, "queue_limit": 2})
    followed = [parts.follow() for _ in range(3)]
    refused = parts.new()
    with pytest.raises(QueueFullError, match="queue is full, at 2 jobs") as error:
        parts.follow(refused)
    assert error.value.info().status == 429
    assert error.value.info().retry_after_s == 5
    with pytest.raises(UnknownJobError):
        store.job(refused.id)
    gate.open()
    for one in followed:
        drain(one)
    assert events_of(drain(parts.follow(refused))) == [QUEUED, *ANSWER]


def test_a_process_claims_only_what_it_can_run(make_process, store, drain, eventually):
    first = make_process({"other": scripted_backend(ANSWER, durable=True)})
    job = stored_job(store, first, owner=None, attempt=0)
    second = make_process({"scripted": scripted_backend(ANSWER, durable=True)})
    second.runner.start()
    own = second.follow()
    assert events_of(drain(own)) == [QUEUED, *ANSWER]
    assert store.job(job.id).attempt == 0
    first.runner.start()
    eventually(lambda: store.job(job.id).status == "completed")


def test_a_backend_that_cannot_be_loaded_leaves_the_job_to_others(
    make_process, store, eventually, caplog
):
    broken = scripted_backend(ANSWER, durable=True)

    def fail(self: Any) -> None:
        raise ValueError("no weights")

    broken.open = fail  # type: ignore[method-assign]
    first = make_process({"scripted": broken, "other": scripted_backend(ANSWER, durable=True)})
    job = replace(first.new(model="other"), model="scripted", backend="scripted")
    store.create(job)
    first.runner.start()
    eventually(lambda: store.job(job.id).released and store.job(job.id).owner is None)
    make_process(ANSWER).runner.start()
    eventually(lambda: store.job(job.id).status == "completed")


# Jobs for which nobody is there


def test_a_job_whose_backend_nobody_has_fails_in_the_end(
    make_process, store, eventually, monkeypatch
):
    monkeypatch.setattr(orphans_module, "_LOOKS_APART_S", 0.01)
    limits = {"orphan_timeout_s": 0.05}
    parts = make_process({"other": scripted_backend(ANSWER, durable=True)}, job_limits=limits)
    job = stored_job(store, parts, owner=None, attempt=0, backend="gone")
    parts.runner.start()
    eventually(lambda: store.job(job.id).finished_at is not None)
    assert events_of(store.records(job.id)) == [QUEUED, Failed(BACKEND_GONE)]
    assert store.job(job.id).error_code == "backend_gone"


@pytest.mark.parametrize("limits", [{"run_here": False}, {}], ids=["runs none", "is leaving"])
def test_a_process_that_claims_nothing_has_no_backend_for_others(
    make_process, store, eventually, limits
):
    limits = {"lease_s": 1.0, **limits}
    parts = make_process(ANSWER, job_limits=limits)
    job = stored_job(store, parts, owner="elsewhere")
    store.renew("elsewhere", 3600, [])
    parts.runner.start()
    if "run_here" not in limits:
        eventually(lambda: store.waiting(limit=1) == 0)
        store.retire("elsewhere")
        eventually(lambda: store.job(job.id).status == "completed")
        parts.runner.drain(3600)
        job = stored_job(store, parts, owner=None, attempt=0)
    else:
        store.retire("elsewhere")
    eventually(lambda: [one.id for one in store.unclaimable()] == [job.id])


# Takeover


@pytest.mark.parametrize("told", range(6))
def test_a_job_whose_process_is_gone_is_gone_on_with(make_process, store, told, eventually):
    parts = make_process(ANSWER)
    job = stored_job(store, parts, told=[QUEUED, *ANSWER][:told])
    parts.runner.start()
    eventually(lambda: store.job(job.id).finished_at is not None)
    assert events_of(store.records(job.id)) == [QUEUED, *ANSWER]
    check_whole(store.records(job.id))
    assert store.job(job.id).attempt == 2


def test_a_durable_backend_repeats_no_work_and_no_word_is_doubled(
    make_process, stores, drain, eventually
):
    gate = Gate()
    backend = durable_backend(before_delta={3: gate})
    first = make_process({"b": backend})
    followed = first.follow()
    gate.wait_until_reached()
    # queued, started, two stages, three words
    eventually(lambda: stores[0].job(followed.job.id).last_seq == 7)
    owner = stores[0].job(followed.job.id).owner
    second = make_process({"b": backend})
    first.runner.drain(3600)  # or it might claim its own job
    stores[1].retire(owner)  # the first process is gone, as far as anybody can tell
    second.runner.start()
    gate.wait_until_reached()
    assert stores[0].job(followed.job.id).attempt == 2
    gate.open()
    records = drain(followed)
    check_whole(records)
    assert list(stores[0].records(followed.job.id)) == records
    assert [stage for _, stage in backend.journal.stages] == ["reading", "weighing"]
    text = stores[0].job(followed.job.id).checkpoint["text"]
    assert text_of(records) == text


def test_a_zombie_writes_nothing_and_stops(make_process, stores, eventually, caplog):
    gate, zombie_gate = Gate(), Gate()
    backend = scripted_backend(
        [Started(), zombie_gate, *[ContentDelta("zombie ")] * 200, ChoiceFinished(), Completed()],
        heeds_cancel=False,
        durable=True,
    )
    first = make_process(backend)
    followed = first.follow()
    zombie_gate.wait_until_reached()
    stores[1].renew("another", 3600)
    job = stores[1].claim(followed.job.id, "another", attempt=1)
    zombie_gate.open()
    eventually(lambda: first.runner.running == 0)
    assert "no longer its" in caplog.text
    assert text_of(stores[1].records(job.id)) == ""
    seq = job.last_seq
    stores[1].append(job.id, 2, [Record(seq + 1, 1.0, ContentDelta("a"))])
    stores[1].append(job.id, 2, [Record(seq + 2, 1.0, Failed(CANCELLED))])
    check_whole(stores[1].records(job.id))
    gate.open()


def test_a_process_that_was_silent_stops_what_is_not_its_any_more(make_process, stores, eventually):
    gate = Gate()
    backend = scripted_backend([gate, *ANSWER], durable=True)
    first = make_process(backend)
    followed = first.follow()
    gate.wait_until_reached()
    # it is written beside the run, and no more once the job is another's
    eventually(lambda: list(stores[1].records(followed.job.id)))
    stores[1].renew("another", 3600)
    stores[1].claim(followed.job.id, "another", attempt=1)
    first.runner._detached._stop_what_was_taken()
    eventually(lambda: first.runner.running == 0)
    assert backend.script.cancels == 1
    assert events_of(stores[1].records(followed.job.id)) == [QUEUED]


@pytest.mark.parametrize(
    "left",
    [{"owner": "gone"}, {"owner": None, "released": 1}, {"owner": None, "attempt": 0}],
    ids=["lost", "handed back", "new"],
)
def test_what_others_have_left_comes_before_what_is_new(
    make_process, store, drain, eventually, left
):
    """A process may always be full, and never so that one of its own jobs must wait."""
    gate, order = Gate(), []

    def note(context: Context) -> None:
        order.append(context.job_id)

    parts = make_process([note, gate, *ANSWER], job_limits={"threads": 1})
    first = parts.follow()
    gate.wait_until_reached()
    old = stored_job(store, parts, **left)
    eventually(lambda: parts.runner._detached._some_wait)
    gate.open()
    drain(first)
    second = parts.follow()
    drain(second)
    assert order == [first.job.id, old.id, second.job.id]


def test_a_follower_goes_on_with_the_job_in_its_new_process(make_process, stores, drain):
    gate = Gate()
    first = make_process([Started(), gate, *ANSWER[1:]])
    followed = first.follow()
    gate.wait_until_reached()
    second = make_process(ANSWER)
    first.runner.drain(3600)  # or it might claim its own job
    stores[1].retire(stores[0].job(followed.job.id).owner)
    second.runner.start()
    assert events_of(drain(followed)) == [QUEUED, *ANSWER]
    gate.open()


# Jobs that nobody can go on with


@pytest.mark.parametrize(
    ("fields", "told", "error"),
    [
        ({"detached": False, "durable": False}, [], WORKER_LOST),
        ({"detached": False, "durable": False}, [QUEUED, Started()], WORKER_LOST),
        ({"durable": False}, [QUEUED, Started()], WORKER_LOST),
        ({"attempt": 3}, [QUEUED], ATTEMPTS),
        ({"cancel_requested": True}, [QUEUED, Started()], CANCELLED),
        ({"cancel_requested": True, "owner": None, "attempt": 0}, [], CANCELLED),
    ],
)
def test_a_lost_job_that_cannot_be_gone_on_with_fails_with_the_reason(
    make_process, store, fields, told, error, eventually
):
    backend = scripted_backend(ANSWER, durable=True)
    parts = make_process(backend)
    job = stored_job(store, parts, told=told, **fields)
    parts.runner.start()
    eventually(lambda: store.job(job.id).finished_at is not None)
    assert store.records(job.id)[-1].event == Failed(error)
    assert store.job(job.id).error_code == error.code
    check_whole(store.records(job.id))
    assert events_of(store.records(job.id))[0] == QUEUED
    assert backend.script.runs == 0


def test_a_job_that_is_not_durable_begins_anew_while_nothing_was_told(
    make_process, store, eventually
):
    parts = make_process(ANSWER)
    job = stored_job(store, parts, told=[QUEUED], durable=False)
    parts.runner.start()
    eventually(lambda: store.job(job.id).finished_at is not None)
    assert events_of(store.records(job.id)) == [QUEUED, *ANSWER]


def test_attempts_that_were_given_back_do_not_count(make_process, store, eventually):
    parts = make_process(ANSWER)
    job = stored_job(store, parts, told=[QUEUED], attempt=5, released=3)
    parts.runner.start()
    eventually(lambda: store.job(job.id).finished_at is not None)
    assert store.job(job.id).status == "completed"


def test_of_those_that_may_cost_no_more_a_process_runs_one_at_a_time(
    make_process, store, eventually, caplog
):
    """Else it would not be known which of them ends processes, and all would fail with it."""
    gate = Gate()
    parts = make_process([Started(), gate, *ANSWER[1:]])
    last = [stored_job(store, parts, told=[QUEUED], attempt=2) for _ in range(3)]
    others = [stored_job(store, parts, told=[QUEUED], attempt=1) for _ in range(2)]
    parts.runner.start()
    # the oldest is claimed first, so the others were passed over
    eventually(lambda: all(store.job(job.id).last_seq == 2 for job in (last[0], *others)))
    assert [store.job(job.id).attempt for job in last] == [3, 2, 2]
    assert [record.message for record in caplog.records] == [
        f"job {last[0].id} has cost its processes; this is its last attempt"
    ]
    gate.open()
    eventually(lambda: all(store.job(job.id).status == "completed" for job in last + others))
    assert [store.job(job.id).attempt for job in last + others] == [3, 3, 3, 2, 2]


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_lost_job_for_which_there_is_no_thread_is_given_back(
    make_process, store, eventually, monkeypatch, caplog, attempt
):
    """It costs the job no attempt, not even the last one, and nothing of the pool's room."""
    start, wake = threading.Thread.start, Lease.wake
    woken_by = []

    def start_of_others(thread):
        if thread.name.startswith("caesar-job"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def noted_wake(lease):
        woken_by.append(threading.current_thread().name)
        wake(lease)

    monkeypatch.setattr(Lease, "wake", noted_wake)
    parts = make_process(ANSWER, job_limits={"threads": 1})
    job = stored_job(store, parts, told=[QUEUED], attempt=attempt)
    with monkeypatch.context() as few:
        few.setattr(threading.Thread, "start", start_of_others)
        parts.runner.start()
        # tried again and again: so the place and the turn of the last attempt were given back
        eventually(lambda: store.job(job.id).released >= 2)
        eventually(lambda: store.job(job.id).owner is None)
    # or it would try again at once, without a pause for as long as there is no thread
    assert "caesar-lease" not in woken_by
    refused = [record for record in caplog.records if record.levelname == "ERROR"]
    assert {type(record.exc_info[1]) for record in refused} == {OverloadedError}

    eventually(lambda: store.job(job.id).finished_at is not None)
    ended = store.job(job.id)
    assert ended.status == "completed"
    assert ended.attempt - ended.released == attempt + 1
    eventually(lambda: parts.runner.running == 0)


def test_without_a_thread_it_is_not_tried_again_and_again(
    make_process, store, eventually, monkeypatch
):
    """Each give-back wakes the process that has just given back, and all others."""
    start = threading.Thread.start

    def start_of_others(thread):
        if thread.name.startswith("caesar-job"):
            raise RuntimeError("can't start new thread")
        start(thread)

    look_after = DetachedJobs.look_after
    looks = []

    def noted_look(jobs):
        look_after(jobs)
        looks.append(store.job(job.id).released)

    monkeypatch.setattr(DetachedJobs, "look_after", noted_look)
    monkeypatch.setattr(threads, "_FIRST_PAUSE_S", 3600.0)
    parts = make_process(ANSWER, job_limits={"threads": 1})
    job = stored_job(store, parts, told=[QUEUED])
    with monkeypatch.context() as few:
        few.setattr(threading.Thread, "start", start_of_others)
        parts.runner.start()
        # the look that fails is none of them
        eventually(lambda: len(looks) >= 2)
    assert set(looks) == {1}


@pytest.mark.parametrize(("most", "attempt"), [(1, 0), (3, 1)])
def test_all_others_are_run_together(make_process, store, eventually, most, attempt):
    gate = Gate()
    parts = make_process([Started(), gate, *ANSWER[1:]], job_limits={"max_attempts": most})
    owner = "gone" if attempt else None
    jobs = [stored_job(store, parts, attempt=attempt, owner=owner) for _ in range(3)]
    parts.runner.start()
    eventually(lambda: all(store.job(job.id).last_seq == 2 for job in jobs))
    gate.open()
    eventually(lambda: all(store.job(job.id).status == "completed" for job in jobs))


def test_a_hundred_lost_jobs_all_end(make_process, store, eventually):
    parts = make_process(ANSWER, job_limits={"threads": 4})
    jobs = [
        stored_job(store, parts, told=[QUEUED, *ANSWER][: n % 6], detached=n % 3 > 0, durable=True)
        for n in range(100)
    ]
    parts.runner.start()
    eventually(lambda: all(store.job(job.id).finished_at for job in jobs))
    for n, job in enumerate(jobs):
        records = store.records(job.id)
        check_whole(records)
        last = Completed() if n % 3 else Failed(WORKER_LOST)
        assert records[-1].event == last


# Cancel


def test_a_run_in_another_process_is_cancelled(make_process, drain, in_thread):
    gate = Gate()
    backend = scripted_backend([gate, *ANSWER], durable=True)
    first, second = make_process(backend), make_process(ANSWER)
    followed = first.follow()
    gate.wait_until_reached()
    assert second.runner.cancel_stored(followed.job.id).cancel_requested
    assert events_of(drain(followed)) == [QUEUED, Failed(CANCELLED)]
    assert backend.script.cancels == 1


def test_a_run_whose_job_another_process_deletes_is_stopped(make_process, stores, eventually):
    """Although nothing is left that asks it to stop."""
    gate = Gate()
    backend = scripted_backend([gate, *ANSWER], durable=True)
    process = make_process(backend)
    followed = process.follow()
    gate.wait_until_reached()
    stores[1].delete(followed.job.id)
    eventually(lambda: process.runner.running == 0)
    assert backend.script.cancels == 1


def test_a_waiting_job_is_ended_by_whoever_cancels_it(make_process, drain):
    first = make_process(ANSWER, job_limits={"run_here": False})
    second = make_process(ANSWER, job_limits={"run_here": False})
    followed = first.follow()
    job = second.runner.cancel_stored(followed.job.id)
    assert (job.status, job.error_code) == ("failed", "cancelled")
    assert events_of(drain(followed)) == [QUEUED, Failed(CANCELLED)]


def test_a_cancel_after_the_end_changes_nothing(make_process, drain, store):
    parts = make_process(ANSWER)
    followed = parts.follow()
    drain(followed)
    job = parts.runner.cancel_stored(followed.job.id)
    assert (job.status, job.cancel_requested) == ("completed", False)
    with pytest.raises(UnknownJobError):
        parts.runner.cancel_stored("nothing")


def test_a_run_that_does_not_heed_its_cancel_holds_up_nobody(make_process, drain):
    """A callback that blocks must not keep other jobs from their cancel, or from being followed."""
    gate, release = Gate(), threading.Event()

    def stubborn(context: Context) -> None:
        with context.on_cancel(lambda: release.wait(WITHIN_S) and None):
            gate.pass_through(context)

    first = make_process(
        {
            "stubborn": scripted_backend([stubborn, *ANSWER], durable=True),
            "good": scripted_backend([gate, *ANSWER], durable=True),
        }
    )
    second = make_process({"good": scripted_backend(ANSWER, durable=True)})
    bad, good = first.follow(first.new(model="stubborn")), first.follow(first.new(model="good"))
    gate.wait_until_reached()
    gate.wait_until_reached()
    second.runner.cancel_stored(bad.job.id)
    second.runner.cancel_stored(good.job.id)
    assert events_of(drain(good)) == [QUEUED, Failed(CANCELLED)]
    release.set()
    assert events_of(drain(bad))[-1] == Failed(CANCELLED)


# The end of the server


def test_at_the_end_durable_jobs_are_handed_to_another_process(make_process, stores, drain):
    gate = Gate()
    first = make_process([Started(), ContentDelta("a"), gate, *ANSWER[2:]])
    followed = first.follow()
    gate.wait_until_reached()
    first.runner.close()
    assert events_of(drain(followed))[-1] == Failed(SHUTDOWN)
    job = stores[1].job(followed.job.id)
    assert (job.owner, job.finished_at) == (None, None)
    # handed back, perhaps twice: the process may have been about to claim what it could run
    assert job.released == job.attempt >= 1
    assert text_of(stores[1].records(job.id)) == "a"
    second = make_process(ANSWER)
    second.runner.start()
    records = drain(second.runner.follow_stored(job))
    assert events_of(records) == [QUEUED, *ANSWER]
    gate.open()


def test_draining_claims_nothing_but_lets_what_runs_go_on(make_process, store, drain):
    gate = Gate()
    parts = make_process([gate, *ANSWER])
    followed = parts.follow()
    gate.wait_until_reached()
    parts.runner.drain(3600)
    job = stored_job(store, parts, owner=None, attempt=0)
    gate.open()
    assert events_of(drain(followed)) == [QUEUED, *ANSWER]
    assert events_of(drain(parts.follow())) == [QUEUED, *ANSWER]
    waiting = store.job(job.id)
    # a claim that was under way is given back
    assert (waiting.last_seq, waiting.attempt) == (0, waiting.released)


def test_a_process_that_leaves_takes_new_jobs_although_others_wait(
    make_process, store, drain, eventually
):
    gate = Gate()
    parts = make_process([gate, *ANSWER], job_limits={"threads": 1})
    first = parts.follow()
    gate.wait_until_reached()
    waiting = parts.follow()  # no room: it is known that one waits
    parts.runner.drain(3600)
    gate.open()
    assert events_of(drain(first)) == [QUEUED, *ANSWER]
    eventually(lambda: parts.runner.running == 0)  # its place is free a little later
    assert events_of(drain(parts.follow())) == [QUEUED, *ANSWER]
    assert store.job(waiting.job.id).owner is None
    waiting.leave()


def test_a_closed_runner_stores_no_job(make_process, store):
    parts = make_process(ANSWER)
    parts.runner.close()
    job = parts.new()
    with pytest.raises(ShuttingDownError):
        parts.follow(job)
    with pytest.raises(UnknownJobError):
        store.job(job.id)


def test_what_a_run_that_does_not_end_still_holds_may_be_claimed(make_process, stores, eventually):
    release = threading.Event()
    deaf = scripted_backend(
        [Started(), lambda context: release.wait(WITHIN_S) and None, *ANSWER[1:]], durable=True
    )
    first = make_process(deaf)
    followed = first.follow()
    deaf.script.wait_for(lambda script: script.yielded == 1)
    first.runner.close(timeout_s=0.01)
    make_process(ANSWER).runner.start()
    eventually(lambda: stores[1].job(followed.job.id).status == "completed")
    release.set()
    eventually(lambda: first.runner.running == 0)
    first.runner.close()
    assert events_of(stores[1].records(followed.job.id)) == [QUEUED, *ANSWER]


def test_a_close_in_the_midst_of_new_jobs_leaves_none_in_progress(
    make_process, stores, in_thread, eventually
):
    first = make_process([ContentDelta("a")] * 20 + ANSWER[3:])
    jobs = [first.new() for _ in range(30)]
    together = threading.Barrier(len(jobs) + 1)

    def ask(job: Job) -> None:
        together.wait(WITHIN_S)
        try:
            first.follow(job).leave()
        except ShuttingDownError:
            return

    asked = [in_thread(ask, job) for job in jobs]
    together.wait(WITHIN_S)
    first.runner.close()
    for running in asked:
        running.result(WITHIN_S)
    second = make_process([ContentDelta("a")] * 20 + ANSWER[3:])
    second.runner.start()
    stored = stores[1].jobs(limit=100)
    eventually(lambda: all(stores[1].job(job.id).finished_at for job in stored))
    for job in stored:
        check_whole(stores[1].records(job.id))
        assert stores[1].job(job.id).status == "completed"


# The store fails


class FullStore(MemoryStore):
    """Takes no more records as long as it is told."""

    full = False

    def append(self, *args: Any, **kwargs: Any) -> None:
        if self.full:
            raise StoreError("the disk is full")
        super().append(*args, **kwargs)

    def release(self, *args: Any, **kwargs: Any) -> None:
        if self.full:
            raise StoreError("the disk is full")
        super().release(*args, **kwargs)


def test_a_job_that_cannot_be_stored_goes_on_once_it_can(make_parts, drain, eventually, caplog):
    store = FullStore()

    def fill(context: Context) -> None:
        store.full = context.attempt == 1

    parts = make_parts([Started(), fill, *ANSWER[1:]], store=store, durable=True)
    followed = parts.follow()
    eventually(lambda: parts.runner.running == 0)
    eventually(lambda: "cannot be looked after for now: the disk is full" in caplog.text)
    store.full = False
    records = drain(followed)
    assert events_of(records) == [QUEUED, *ANSWER]
    check_whole(records)
    assert store.job(followed.job.id).attempt == 2


# Retention


def test_old_jobs_and_those_beyond_the_newest_are_forgotten(make_process, store, clock, eventually):
    parts = make_process(ANSWER, job_limits={"kept_jobs": 3, "kept_s": 3600.0})
    ages = [7200, 5, 4, 3, 2, 1]
    new = replace(parts.new(), owner="me", attempt=1, detached=False)
    jobs = [replace(new, id=f"{age}", created_at=100.0 - age) for age in ages]
    running = replace(new, id="running")
    store.renew("me", 3600)
    for job, age_s in zip(jobs, ages, strict=True):
        store.create(job)
        store.append(job.id, 1, [Record(1, clock.time() - age_s, Completed())])
    store.create(running)
    parts.runner.start()
    eventually(lambda: len(store.jobs()) == 4)
    assert {job.id for job in store.jobs()} == {running.id, *(job.id for job in jobs[3:])}


# Repeated requests


def test_a_repeat_finds_the_job_that_runs_or_ended_well_a_moment_ago(make_process, drain, store):
    gate = Gate()
    parts = make_process([gate, *ANSWER])
    job = replace(parts.new(), account="acme", fingerprint="f")
    followed = parts.follow(job)
    gate.wait_until_reached()
    assert parts.runner.repeated("acme", "f").id == job.id
    assert parts.runner.repeated("other", "f") is None
    assert parts.runner.repeated("acme", "g") is None
    gate.open()
    drain(followed)
    found = parts.runner.repeated("acme", "f")
    assert found.status == "completed"
    assert events_of(drain(parts.runner.follow_stored(found))) == [QUEUED, *ANSWER]


@pytest.mark.parametrize(
    ("last", "age_s"), [(Completed(), 121.0), (Failed(CANCELLED), 1.0)], ids=["old", "failed"]
)
def test_a_repeat_does_not_find_what_failed_or_ended_long_ago(
    make_process, store, clock, last, age_s
):
    parts = make_process(ANSWER)
    job = replace(parts.new(), fingerprint="f", owner="me", attempt=1)
    store.create(job)
    store.append(job.id, 1, [Record(1, clock.time() - age_s, last)])
    assert parts.runner.repeated("", "f") is None
