"""One attempt at a job: claimed, run, numbered, stored."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from caesar_server.contract import (
    Cancelled,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    ErrorInfo,
    Event,
    Failed,
    Sampling,
    Started,
    StatusChanged,
)
from caesar_server.contract.context import Forwarded
from caesar_server.errors import CANCELLED, DEADLINE, SHUTDOWN, UNEXPECTED, BackendLoadError
from caesar_server.jobs.context import NoTally
from caesar_server.jobs.running.attempt import Attempt, HandedBackError
from caesar_server.registry import Registry
from caesar_server.store.base import (
    FencedError,
    Job,
    Record,
    Store,
    StoreError,
    UnknownJobError,
)
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.memory import MemoryStore
from caesar_server.store.unreadable import StoreAwayError
from caesar_server.testing import FakeClock, Gate, scripted_backend

WITHIN_S = 60.0
QUEUED = StatusChanged("queued")
REQUEST = CompletionRequest(prompts=("p",))
ANSWER = [Started(), ContentDelta("a"), ContentDelta("b"), ChoiceFinished(), Completed()]


def records_of(attempt: Attempt) -> Iterator[Record]:
    """Yield what an attempt announces, one by one; closing it closes the attempt's iterator."""
    with closing(attempt.batches()) as batches:
        for batch in batches:
            yield from batch


class Tally(NoTally):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, records: Sequence[Record]) -> None:
        self.records += records


@dataclass(frozen=True)
class Append:
    """One call of ``append``."""

    events: list[Event]
    checkpoint: Mapping[str, Any] | None


class SpyStore(MemoryStore):
    """Notes what is written, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[Append] = []
        self.failures: list[Exception | None] = []

    def append(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        super().append(job_id, attempt, records, checkpoint=checkpoint)
        state = None if checkpoint is None else checkpoint.state
        self.appends.append(Append([record.event for record in records], state))


@pytest.fixture
def store() -> SpyStore:
    return SpyStore()


class Begin:
    """Creates a job for a script and begins an attempt at it."""

    def __init__(
        self, make_registry: Callable[..., Registry], store: Store, clock: FakeClock
    ) -> None:
        self._make_registry = make_registry
        self._store = store
        self._clock = clock

    def __call__(
        self,
        steps: Any,
        *,
        request: Any = None,
        timeout_s: float | None = None,
        detached: bool = False,
        **options: Any,
    ) -> Attempt:
        backend = steps if isinstance(steps, type) else scripted_backend(steps)
        self._registry = self._make_registry({"scripted": backend})
        self._store.create(
            Job(
                id="job",
                created_at=self._clock.time(),
                model="m",
                backend="scripted",
                request=request or CompletionRequest(prompts=("p",)),
                timeout_s=timeout_s,
                detached=detached,
                durable=detached,
            )
        )
        return self.again(**options)

    def again(self, **options: Any) -> Attempt:
        """Begin another attempt at the same job, as another process would."""
        job = self._store.claim("job", "somebody")
        return Attempt(
            job, store=self._store, registry=self._registry, clock=self._clock, **options
        )


@pytest.fixture
def begin(make_registry: Callable[..., Registry], store: Store, clock: FakeClock) -> Begin:
    return Begin(make_registry, store, clock)


def events_of(records: Sequence[Record]) -> list[Event]:
    return [record.event for record in records]


both_ways = pytest.mark.parametrize("detached", [True, False])


@both_ways
def test_records_are_queued_first_and_numbered_without_gaps(begin, store, detached):
    records = list(records_of(begin(ANSWER, detached=detached)))
    assert events_of(records) == [QUEUED, *ANSWER]
    assert [record.seq for record in records] == [1, 2, 3, 4, 5, 6]
    assert list(store.records("job")) == records
    job = store.job("job")
    assert (job.status, job.last_seq, job.attempt) == ("completed", 6, 1)


def test_records_carry_the_time_of_the_clock(begin, clock, store):
    attempt = begin([lambda context: clock.advance(2.5), *ANSWER])
    records = list(records_of(attempt))
    assert records[0].created_at == 1_700_000_000
    assert {record.created_at for record in records[1:]} == {1_700_000_002.5}
    assert store.job("job").finished_at == 1_700_000_002.5


def test_what_is_announced_was_stored_before(begin, store):
    told: list[tuple[int, bool]] = []

    def note(last: bool) -> None:
        told.append((store.job("job").last_seq, last))

    list(records_of(begin(ANSWER, detached=True, on_stored=note)))
    # the text goes with what comes after it
    assert told == [(1, False), (2, False), (5, False), (6, True)]
    assert [len(append.events) for append in store.appends] == [1, 1, 3, 1]


def test_a_job_that_dies_with_its_client_is_stored_once_before_its_end_is_announced(begin, store):
    records = records_of(begin(ANSWER))
    for record in records:
        if isinstance(record.event, Completed):
            assert store.appends == [Append([QUEUED, *ANSWER], None)]
        else:
            assert store.appends == []
    assert len(store.appends) == 1


@pytest.mark.parametrize("last", [Failed(ErrorInfo("no", "c")), ValueError("broken")])
@both_ways
def test_a_failure_is_stored_as_the_end(begin, store, detached, last):
    records = list(records_of(begin([ContentDelta("a"), last], detached=detached)))
    assert isinstance(records[-1].event, Failed)
    assert list(store.records("job")) == records
    assert store.job("job").status == "failed"


def test_the_context_is_the_jobs(begin, store, clock):
    seen: list[Context] = []
    request = CompletionRequest(prompts=("p",), sampling=Sampling(seed=7))
    forwarded = Forwarded(api_key="key")
    attempt = begin([seen.append, *ANSWER], request=request, timeout_s=9, forwarded=forwarded)
    records = records_of(attempt)
    next(records), next(records)
    (context,) = seen
    assert (context.job_id, context.attempt, context.restored) == ("job", 1, None)
    assert context.clock is clock
    assert context.deadline == clock.monotonic() + 9
    assert context.forwarded == forwarded
    list(records_of(begin.again()))
    assert seen[1].attempt == 2
    assert seen[1].random.random() == context.random.random()


# Deadline


def test_of_a_run_that_heeds_no_cancel_the_client_hears_all_the_same(
    begin, store, clock, in_thread, caplog
):
    free, told = threading.Event(), []
    begun = threading.Event()

    def deaf(context: Context) -> None:
        begun.set()
        assert free.wait(WITHIN_S)

    attempt = begin([deaf, *ANSWER], timeout_s=9)
    attempt.tally = Tally()
    running = in_thread(
        lambda: [record for batch in attempt.batches(None, told.append) for record in batch]
    )
    assert begun.wait(WITHIN_S)
    clock.advance(10.9)
    assert attempt.context.cancelled
    assert told == []
    clock.advance(0.1)
    assert told == [Record(2, clock.time(), Failed(DEADLINE))]
    assert [(line.levelname, line.job_id) for line in caplog.records] == [("ERROR", "job")]
    assert "ScriptedBackend does not end: its deadline has passed" in caplog.text
    assert store.job("job").finished_at is None
    free.set()
    assert events_of(running.result(WITHIN_S)) == [QUEUED, Failed(DEADLINE)]
    assert store.job("job").status == "failed"
    assert events_of(attempt.tally.records) == [QUEUED, Failed(DEADLINE)]


@pytest.mark.parametrize("steps", [ANSWER, [ValueError("broken")]])
def test_a_run_whose_end_takes_long_to_store_is_not_deaf(begin, store, clock, steps, caplog):
    told: list[Record] = []
    attempt = begin(steps, timeout_s=9)
    append = store.append

    def slow(*args: Any, **options: Any) -> None:
        clock.advance(60)
        append(*args, **options)

    store.append = slow
    records = [one for batch in attempt.batches(None, told.append) for one in batch]
    assert records[-1].event == (Completed() if steps is ANSWER else Failed(UNEXPECTED))
    assert told == []
    assert "does not end" not in caplog.text


def test_of_a_run_that_ends_soon_after_its_deadline_nobody_complains(begin, clock, caplog):
    told: list[Record] = []
    attempt = begin([lambda context: clock.advance(9.5), *ANSWER], timeout_s=9)
    assert len(list(attempt.batches(None, told.append))) == 2
    clock.advance(60)
    assert (told, caplog.records, clock.alarms) == ([], [], ())


def test_the_deadline_is_called_off_at_the_end(begin, clock):
    attempt = begin(ANSWER, timeout_s=9)
    records = records_of(attempt)
    next(records)
    assert clock.alarms == (clock.monotonic() + 9,)
    list(records)
    assert clock.alarms == ()
    clock.advance(10)
    assert attempt.context.cancellation.reason is None


def test_the_deadline_is_called_off_when_the_run_is_left(begin, clock):
    records = records_of(begin(ANSWER, timeout_s=9))
    next(records)
    records.close()
    assert clock.alarms == ()


@both_ways
def test_the_deadline_ends_a_run_that_blocks(begin, clock, store, in_thread, detached):
    gate = Gate()
    attempt = begin([ContentDelta("a"), gate, *ANSWER], timeout_s=9, detached=detached)
    running = in_thread(lambda: list(records_of(attempt)))
    gate.wait_until_reached()
    clock.advance(9)
    records = running.result(WITHIN_S)
    assert events_of(records) == [QUEUED, ContentDelta("a"), Failed(DEADLINE)]
    assert list(store.records("job")) == records


def test_a_deadline_that_cannot_be_armed_does_not_leave_the_job_unfinished(
    begin, clock, store, monkeypatch
):
    def closed(moment: float, callback: Callable[[], None]) -> Callable[[], None]:
        raise RuntimeError("the clock is closed")

    monkeypatch.setattr(clock, "call_at", closed)
    with pytest.raises(RuntimeError, match="clock is closed"):
        list(records_of(begin(ANSWER, timeout_s=9)))
    assert store.records("job")[-1].event == Failed(UNEXPECTED)


# Leaving early


@both_ways
@pytest.mark.parametrize("taken", [1, 2, 5])
def test_leaving_early_cancels_the_run_and_stores_it_as_cancelled(begin, store, taken, detached):
    attempt = begin(ANSWER, detached=detached)
    records = records_of(attempt)
    seen = [next(records) for _ in range(taken)]
    records.close()
    assert attempt.context.cancelled
    stored = store.records("job")
    assert list(stored[:-1]) == seen
    assert (stored[-1].seq, stored[-1].event) == (taken + 1, Failed(CANCELLED))
    assert store.job("job").status == "failed"
    assert list(records) == []


@pytest.mark.parametrize(("reason", "info"), [("shutdown", SHUTDOWN), ("deadline", DEADLINE)])
def test_leaving_a_run_that_was_cancelled_stores_why(begin, store, reason, info):
    attempt = begin(ANSWER)
    records = records_of(attempt)
    next(records)
    attempt.context.cancel(reason)
    records.close()
    assert store.records("job")[-1].event == Failed(info)


@both_ways
def test_leaving_after_the_end_changes_nothing(begin, store, detached):
    attempt = begin(ANSWER, detached=detached)
    records = records_of(attempt)
    while not isinstance(next(records).event, Completed):
        pass
    records.close()
    assert not attempt.context.cancelled
    assert events_of(store.records("job")) == [QUEUED, *ANSWER]


def test_leaving_early_closes_the_backends_iterator(begin, store):
    backend = scripted_backend(ANSWER)
    records = records_of(begin(backend))
    next(records)
    next(records)
    records.close()
    assert backend.script.closed == 1


# Checkpoints


@both_ways
def test_a_checkpoint_is_stored_with_all_events_before_it_in_one_step(begin, store, detached):
    def checkpoint(context: Context) -> None:
        context.checkpoint({"text": "ab"})

    steps = [Started(), ContentDelta("a"), checkpoint, *ANSWER[2:]]
    list(records_of(begin(steps, detached=detached)))
    if detached:  # what came before is stored already, but for the text
        assert Append([ContentDelta("a")], {"text": "ab"}) in store.appends
        assert store.job("job").checkpoint_seq == 3
    else:
        assert store.appends == [
            Append([QUEUED, Started(), ContentDelta("a")], {"text": "ab"}),
            Append(ANSWER[2:], None),
        ]
    assert events_of(store.records("job")) == [QUEUED, *ANSWER]
    assert store.job("job").checkpoint == {"text": "ab"}


@both_ways
def test_a_checkpoint_after_the_end_is_refused(begin, store, detached):
    contexts: list[Context] = []
    list(records_of(begin([contexts.append, *ANSWER], detached=detached)))
    with pytest.raises(RuntimeError, match="after the end of run"):
        contexts[0].checkpoint({})
    assert store.job("job").checkpoint is None
    assert list(contexts[0].updates()) == []


@both_ways
def test_a_run_that_is_over_leaves_nothing_to_the_garbage_collector(begin, detached):
    attempt = begin(ANSWER, detached=detached)
    list(records_of(attempt))
    gone = weakref.ref(attempt)
    gc.disable()
    try:
        del attempt
        assert gone() is None
    finally:
        gc.enable()


def test_a_checkpoint_stays_as_it_was_when_the_backend_goes_on(begin, store):
    state = {"loops": [1]}

    def checkpoint(context: Context) -> None:
        context.checkpoint(state)
        state["loops"].append(2)

    list(records_of(begin([checkpoint, *ANSWER])))
    assert store.job("job").checkpoint == {"loops": [1]}


def test_a_checkpoint_that_is_no_json_fails_the_run_and_stores_nothing_of_it(begin, store, caplog):
    records = list(
        records_of(begin([lambda context: context.checkpoint({"a": object()}), *ANSWER]))
    )
    assert records[-1].event == Failed(UNEXPECTED)
    assert store.job("job").checkpoint is None
    assert "not JSON serializable" in caplog.text


def test_the_next_attempt_gets_the_checkpoint_and_goes_on_numbering(begin, store, clock):
    seen: list[Any] = []

    def step(context: Context) -> None:
        seen.append((context.attempt, context.restored))
        context.checkpoint({"attempt": context.attempt})

    records = records_of(begin([step, *ANSWER], detached=True))
    next(records), next(records)
    second = begin.again()
    assert [(r.seq, r.event) for r in records_of(second)] == list(enumerate(ANSWER[1:], start=3))
    assert seen == [(1, None), (2, {"attempt": 1})]
    with pytest.raises(FencedError):
        list(records)
    assert [r.seq for r in store.records("job")] == list(range(1, 7))


# Another attempt has begun


@both_ways
def test_a_fenced_attempt_stops_and_writes_nothing_more(begin, store, caplog, detached):
    backend = scripted_backend(ANSWER)
    attempt = begin(backend, detached=detached)
    records = records_of(attempt)
    first = next(records)
    store.claim("job", "another")
    with pytest.raises(FencedError):
        list(records)
    assert list(store.records("job")) == ([first] if detached else [])
    assert store.job("job").status == "queued"
    assert attempt.context.cancellation.reason == "fenced"
    assert backend.script.ended == 1
    assert "no longer its" in caplog.text


def test_a_checkpoint_of_a_fenced_attempt_stops_the_backend(begin, store):
    raised: list[BaseException] = []

    def checkpoint(context: Context) -> None:
        store.claim("job", "another")
        try:
            context.checkpoint({"a": 1})
        except BaseException as error:
            raised.append(error)
            raise

    attempt = begin([checkpoint, *ANSWER], detached=True)
    with pytest.raises(FencedError):
        list(records_of(attempt))
    (error,) = raised
    assert isinstance(error, Cancelled)
    assert store.job("job").checkpoint is None
    assert len(store.records("job")) == 1


def test_a_fenced_attempt_that_was_cancelled_before_writes_nothing_either(begin, store):
    attempt = begin(ANSWER, detached=True)
    records = records_of(attempt)
    next(records)
    attempt.context.cancel()
    store.claim("job", "another")
    with pytest.raises(FencedError):
        list(records)
    assert len(store.records("job")) == 1


def test_leaving_a_fenced_attempt_is_quiet(begin, store):
    records = records_of(begin(ANSWER, detached=True))
    next(records)
    store.claim("job", "another")
    records.close()
    assert len(store.records("job")) == 1
    assert store.job("job").status == "queued"


@both_ways
def test_an_attempt_at_a_deleted_job_stops(begin, store, detached):
    backend = scripted_backend(ANSWER)
    attempt = begin(backend, detached=detached)
    records = records_of(attempt)
    next(records)
    store.delete("job")
    with pytest.raises(UnknownJobError):
        list(records)
    assert attempt.context.cancelled
    assert backend.script.ended == 1


# The store fails


FULL = StoreError("the disk is full")


def test_an_end_that_could_not_be_stored_is_not_announced_but_owed(begin, store):
    store.failures = [FULL]
    seen: list[Event] = []
    attempt = begin(ANSWER)
    with pytest.raises(StoreError, match="disk is full"):
        seen.extend(record.event for record in records_of(attempt))
    assert seen == [QUEUED, *ANSWER[:-1]]
    assert store.job("job").finished_at is None
    assert attempt.unsettled
    store.failures = [FULL]
    with pytest.raises(StoreError):
        attempt.settle()
    assert attempt.unsettled
    attempt.settle()
    assert not attempt.unsettled
    assert events_of(store.records("job")) == [QUEUED, *ANSWER]


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3])
def test_a_detached_job_that_cannot_be_stored_stops_and_is_given_back(
    begin, store, caplog, fails_at
):
    backend = scripted_backend(ANSWER)
    store.failures = [None] * fails_at + [FULL]
    attempt = begin(backend, detached=True)
    with pytest.raises(StoreError, match="disk is full"):
        list(records_of(attempt))
    assert "cannot be stored" in caplog.text
    assert attempt.context.cancellation.event.wait(WITHIN_S)
    assert len(store.appends) == fails_at
    assert store.job("job").owner == "somebody"
    assert attempt.unsettled
    attempt.settle()
    assert not attempt.unsettled
    job = store.job("job")
    assert (job.owner, job.released, job.status) == (None, 0, "queued")
    # whoever takes it over tells nothing twice
    assert events_of(list(records_of(begin.again()))) == [QUEUED, *ANSWER][job.last_seq :]
    assert events_of(store.records("job")) == [QUEUED, *ANSWER]


def test_what_was_owed_for_a_job_that_is_anothers_by_now_is_forgotten(begin, store):
    store.failures = [FULL]
    attempt = begin(ANSWER)
    with pytest.raises(StoreError):
        list(records_of(attempt))
    store.claim("job", "another")
    attempt.settle()
    assert not attempt.unsettled
    assert len(store.records("job")) == 0


# Handing back


def test_a_run_that_is_handed_over_stores_what_it_told_and_gives_the_job_back(begin, store):
    steps = [Started(), ContentDelta("a"), lambda context: context.cancel("handover"), *ANSWER[2:]]
    attempt = begin(steps, detached=True)
    with pytest.raises(HandedBackError):
        list(records_of(attempt))
    assert events_of(store.records("job")) == [QUEUED, *ANSWER[:2]]
    job = store.job("job")
    assert (job.owner, job.released, job.finished_at) == (None, 1, None)
    assert not attempt.unsettled


def test_a_run_that_told_nothing_before_the_shutdown_is_begun_anew_elsewhere(begin, store):
    def shut_down(context: Any) -> None:
        if context.attempt == 1:
            context.cancel("shutdown")

    with pytest.raises(HandedBackError):
        list(records_of(begin([shut_down, *ANSWER], detached=True)))
    job = store.job("job")
    assert (job.owner, job.released, job.finished_at, job.last_seq) == (None, 1, None, 1)
    assert events_of(list(records_of(begin.again()))) == ANSWER


@both_ways
def test_a_run_that_told_something_or_is_its_clients_ends_with_the_server(begin, store, detached):
    told = [Started()] if detached else []
    steps = [*told, lambda context: context.cancel("shutdown"), *ANSWER]
    records = list(records_of(begin(steps, detached=detached)))
    assert records[-1].event == Failed(SHUTDOWN)
    assert store.job("job").error_code == "shutting_down"


@pytest.mark.parametrize(("failure", "forgiven"), [(FULL, 0), (StoreAwayError("no route"), 1)])
def test_only_that_the_store_was_away_is_forgiven(begin, store, failure, forgiven):
    store.failures = [None, failure]
    attempt = begin(scripted_backend(ANSWER, durable=True), detached=True)
    with pytest.raises(StoreError):
        list(records_of(attempt))
    attempt.settle()
    assert store.job("job").released == forgiven


@pytest.mark.parametrize(("failure", "forgiven"), [(FULL, 0), (StoreAwayError("no route"), 1)])
def test_what_a_run_cannot_read_of_the_store_does_not_end_its_job(
    begin, store, monkeypatch, failure, forgiven
):
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(store, "updates", fail)
    steps = [Started(), lambda context: context.updates(), *ANSWER[1:]]
    attempt = begin(scripted_backend(steps, durable=True), detached=True)
    with pytest.raises(StoreError):
        list(records_of(attempt))
    assert attempt.unsettled
    attempt.settle()
    job = store.job("job")
    assert (job.finished_at, job.owner, job.released) == (None, None, forgiven)


def test_a_run_that_ends_by_itself_is_not_handed_over(begin, store):
    steps = [*ANSWER[:-1], lambda context: context.cancel("handover"), Completed()]
    attempt = begin(scripted_backend(steps, heeds_cancel=False), detached=True)
    with pytest.raises(HandedBackError):
        list(records_of(attempt))
    cancelled = begin.again()
    cancelled.context.cancel()
    assert list(records_of(cancelled))[-1].event == Failed(CANCELLED)


def test_a_job_that_could_not_be_handed_over_is_given_back_later(begin, store):
    steps = [Started(), lambda context: context.cancel("handover"), *ANSWER[1:]]
    attempt = begin(steps, detached=True)
    fail = store.release

    def failing(*args: Any, **kwargs: Any) -> None:
        raise FULL

    store.release = failing
    with pytest.raises(StoreError):
        list(records_of(attempt))
    store.release = fail
    assert events_of(store.records("job")) == [QUEUED, Started()]
    assert attempt.unsettled
    attempt.settle()
    assert store.job("job").owner is None


# Beginning


def test_an_attempt_at_no_job_is_refused(make_registry, store, clock):
    registry = make_registry({"scripted": scripted_backend(ANSWER)})
    job = Job(id="nothing", created_at=1.0, model="m", backend="scripted", request=REQUEST)
    attempt = Attempt(job, store=store, registry=registry, clock=clock)
    with pytest.raises(UnknownJobError):
        list(records_of(attempt))


def test_an_attempt_whose_backend_cannot_be_loaded_is_refused(begin):
    def broken(*_: object) -> None:
        raise ValueError("no weights")

    backend = scripted_backend(ANSWER)
    backend.open = broken  # type: ignore[method-assign]
    with pytest.raises(BackendLoadError):
        begin(backend)


@pytest.mark.parametrize("unknown_model", ["default", "reject"])
def test_a_job_is_run_by_its_own_backend_whatever_its_model_means_here(
    make_registry, store, clock, unknown_model
):
    own = scripted_backend(ANSWER)
    registry = make_registry(
        {"first": scripted_backend([]), "own": own}, unknown_model=unknown_model
    )
    store.create(Job(id="job", created_at=1.0, model="m", backend="own", request=REQUEST))
    attempt = Attempt(store.claim("job", "me"), store=store, registry=registry, clock=clock)
    assert events_of(list(records_of(attempt))) == [QUEUED, *ANSWER]
    assert own.script.runs == 1


def test_a_backend_that_never_ends_is_read_as_it_comes(begin):
    def forever(request: Any) -> Iterator[Any]:
        while True:
            yield ContentDelta("a")

    records = records_of(begin(forever))
    assert [next(records).seq for _ in range(1000)] == list(range(1, 1001))
    records.close()
