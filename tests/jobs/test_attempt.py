"""One attempt at a job: claimed, run, numbered, stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from caesar_server.jobs.attempt import Attempt
from caesar_server.registry import Registry
from caesar_server.store.base import FencedError, Job, Record, Store, UnknownJobError
from caesar_server.store.memory import MemoryStore
from caesar_server.testing import FakeClock, Gate, scripted_backend

WITHIN_S = 20.0
QUEUED = StatusChanged("queued")
ANSWER = [Started(), ContentDelta("a"), ContentDelta("b"), ChoiceFinished(), Completed()]


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
        checkpoint: Mapping[str, Any] | None = None,
    ) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        super().append(job_id, attempt, records, checkpoint=checkpoint)
        self.appends.append(Append([record.event for record in records], checkpoint))


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
        self, steps: Any, *, request: Any = None, timeout_s: float | None = None, **options: Any
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
            )
        )
        return self.again(**options)

    def again(self, **options: Any) -> Attempt:
        """Begin another attempt at the same job, as another process would."""
        return Attempt(
            "job", store=self._store, registry=self._registry, clock=self._clock, **options
        )


@pytest.fixture
def begin(make_registry: Callable[..., Registry], store: Store, clock: FakeClock) -> Begin:
    return Begin(make_registry, store, clock)


def events_of(records: Sequence[Record]) -> list[Event]:
    return [record.event for record in records]


both_ways = pytest.mark.parametrize("keep_until_end", [False, True])


@both_ways
def test_records_are_queued_first_and_numbered_without_gaps(begin, store, keep_until_end):
    records = list(begin(ANSWER, keep_until_end=keep_until_end).records())
    assert events_of(records) == [QUEUED, *ANSWER]
    assert [record.seq for record in records] == [1, 2, 3, 4, 5, 6]
    assert list(store.records("job")) == records
    job = store.job("job")
    assert (job.status, job.last_seq, job.attempt) == ("completed", 6, 1)


def test_records_carry_the_time_of_the_clock(begin, clock, store):
    attempt = begin([lambda context: clock.advance(2.5), *ANSWER])
    records = list(attempt.records())
    assert records[0].created_at == 1_700_000_000
    assert {record.created_at for record in records[1:]} == {1_700_000_002.5}
    assert store.job("job").finished_at == 1_700_000_002.5


def test_what_is_announced_was_stored_before(begin, store):
    for record in begin(ANSWER).records():
        assert store.records("job")[-1] == record
    assert len(store.appends) == 6


def test_a_job_that_dies_with_its_client_is_stored_once_before_its_end_is_announced(begin, store):
    records = begin(ANSWER, keep_until_end=True).records()
    for record in records:
        if isinstance(record.event, Completed):
            assert store.appends == [Append([QUEUED, *ANSWER], None)]
        else:
            assert store.appends == []
    assert len(store.appends) == 1


@pytest.mark.parametrize("last", [Failed(ErrorInfo("no", "c")), ValueError("broken")])
@both_ways
def test_a_failure_is_stored_as_the_end(begin, store, keep_until_end, last):
    records = list(begin([ContentDelta("a"), last], keep_until_end=keep_until_end).records())
    assert isinstance(records[-1].event, Failed)
    assert list(store.records("job")) == records
    assert store.job("job").status == "failed"


def test_the_context_is_the_jobs(begin, store, clock):
    seen: list[Context] = []
    request = CompletionRequest(prompts=("p",), sampling=Sampling(seed=7))
    forwarded = Forwarded(api_key="key")
    attempt = begin([seen.append, *ANSWER], request=request, timeout_s=9, forwarded=forwarded)
    list(attempt.records())
    (context,) = seen
    assert (context.job_id, context.attempt, context.restored) == ("job", 1, None)
    assert context.clock is clock
    assert context.deadline == clock.monotonic() + 9
    assert context.forwarded == forwarded
    list(begin.again().records())
    assert seen[1].attempt == 2
    assert seen[1].random.random() == context.random.random()


# Deadline


def test_the_deadline_is_called_off_at_the_end(begin, clock):
    attempt = begin(ANSWER, timeout_s=9)
    records = attempt.records()
    next(records)
    assert clock.alarms == (clock.monotonic() + 9,)
    list(records)
    assert clock.alarms == ()
    clock.advance(10)
    assert attempt.context.cancellation.reason is None


def test_the_deadline_is_called_off_when_the_run_is_left(begin, clock):
    records = begin(ANSWER, timeout_s=9).records()
    next(records)
    records.close()
    assert clock.alarms == ()


@both_ways
def test_the_deadline_ends_a_run_that_blocks(begin, clock, store, in_thread, keep_until_end):
    gate = Gate()
    attempt = begin([ContentDelta("a"), gate, *ANSWER], timeout_s=9, keep_until_end=keep_until_end)
    running = in_thread(lambda: list(attempt.records()))
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
        list(begin(ANSWER, timeout_s=9).records())
    assert store.records("job")[-1].event == Failed(UNEXPECTED)


# Leaving early


@both_ways
@pytest.mark.parametrize("taken", [1, 2, 5])
def test_leaving_early_cancels_the_run_and_stores_it_as_cancelled(
    begin, store, taken, keep_until_end
):
    attempt = begin(ANSWER, keep_until_end=keep_until_end)
    records = attempt.records()
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
    records = attempt.records()
    next(records)
    attempt.context.cancel(reason)
    records.close()
    assert store.records("job")[-1].event == Failed(info)


@both_ways
def test_leaving_after_the_end_changes_nothing(begin, store, keep_until_end):
    attempt = begin(ANSWER, keep_until_end=keep_until_end)
    records = attempt.records()
    while not isinstance(next(records).event, Completed):
        pass
    records.close()
    assert not attempt.context.cancelled
    assert events_of(store.records("job")) == [QUEUED, *ANSWER]


def test_leaving_early_closes_the_backends_iterator(begin, store):
    backend = scripted_backend(ANSWER)
    records = begin(backend).records()
    next(records)
    next(records)
    records.close()
    assert backend.script.closed == 1


# Checkpoints


@both_ways
def test_a_checkpoint_is_stored_with_all_events_before_it_in_one_step(begin, store, keep_until_end):
    def checkpoint(context: Context) -> None:
        context.checkpoint({"text": "ab"})

    steps = [Started(), ContentDelta("a"), checkpoint, *ANSWER[2:]]
    list(begin(steps, keep_until_end=keep_until_end).records())
    if keep_until_end:
        assert store.appends == [
            Append([QUEUED, Started(), ContentDelta("a")], {"text": "ab"}),
            Append(ANSWER[2:], None),
        ]
    else:  # what came before is stored already
        assert Append([], {"text": "ab"}) in store.appends
    assert events_of(store.records("job")) == [QUEUED, *ANSWER]
    assert store.job("job").checkpoint == {"text": "ab"}


def test_a_checkpoint_stays_as_it_was_when_the_backend_goes_on(begin, store):
    state = {"loops": [1]}

    def checkpoint(context: Context) -> None:
        context.checkpoint(state)
        state["loops"].append(2)

    list(begin([checkpoint, *ANSWER]).records())
    assert store.job("job").checkpoint == {"loops": [1]}


def test_a_checkpoint_that_is_no_json_fails_the_run_and_stores_nothing_of_it(begin, store, caplog):
    records = list(begin([lambda context: context.checkpoint({"a": object()}), *ANSWER]).records())
    assert records[-1].event == Failed(UNEXPECTED)
    assert store.job("job").checkpoint is None
    assert "not JSON serializable" in caplog.text


def test_the_next_attempt_gets_the_checkpoint_and_goes_on_numbering(begin, store, clock):
    seen: list[Any] = []

    def step(context: Context) -> None:
        seen.append((context.attempt, context.restored))
        context.checkpoint({"attempt": context.attempt})

    records = begin([step, *ANSWER]).records()
    next(records), next(records)
    second = begin.again()
    assert [(r.seq, r.event) for r in second.records()] == list(enumerate(ANSWER, start=3))
    assert seen == [(1, None), (2, {"attempt": 1})]
    with pytest.raises(FencedError):
        list(records)
    assert [r.seq for r in store.records("job")] == list(range(1, 8))


# Another attempt has begun


@both_ways
def test_a_fenced_attempt_stops_and_writes_nothing_more(begin, store, caplog, keep_until_end):
    backend = scripted_backend(ANSWER)
    attempt = begin(backend, keep_until_end=keep_until_end)
    records = attempt.records()
    first = next(records)
    store.claim("job")
    with pytest.raises(FencedError):
        list(records)
    assert list(store.records("job")) == ([] if keep_until_end else [first])
    assert store.job("job").status == "queued"
    assert attempt.context.cancellation.reason == "fenced"
    assert backend.script.ended == 1
    assert "no longer its" in caplog.text


def test_a_checkpoint_of_a_fenced_attempt_stops_the_backend(begin, store):
    raised: list[BaseException] = []

    def checkpoint(context: Context) -> None:
        store.claim("job")
        try:
            context.checkpoint({"a": 1})
        except BaseException as error:
            raised.append(error)
            raise

    attempt = begin([checkpoint, *ANSWER])
    with pytest.raises(FencedError):
        list(attempt.records())
    (error,) = raised
    assert isinstance(error, Cancelled)
    assert store.job("job").checkpoint is None
    assert len(store.records("job")) == 1


def test_a_fenced_attempt_that_was_cancelled_before_writes_nothing_either(begin, store):
    attempt = begin(ANSWER)
    records = attempt.records()
    next(records)
    attempt.context.cancel()
    store.claim("job")
    with pytest.raises(FencedError):
        list(records)
    assert len(store.records("job")) == 1


def test_leaving_a_fenced_attempt_is_quiet(begin, store):
    records = begin(ANSWER).records()
    next(records)
    store.claim("job")
    records.close()
    assert len(store.records("job")) == 1
    assert store.job("job").status == "queued"


@both_ways
def test_an_attempt_at_a_deleted_job_stops(begin, store, keep_until_end):
    backend = scripted_backend(ANSWER)
    attempt = begin(backend, keep_until_end=keep_until_end)
    records = attempt.records()
    next(records)
    store.delete("job")
    with pytest.raises(UnknownJobError):
        list(records)
    assert attempt.context.cancelled
    assert backend.script.ended == 1


# The store fails


def test_a_store_that_fails_once_does_not_leave_the_job_unfinished(begin, store):
    records = begin(ANSWER).records()
    next(records), next(records)
    store.failures = [OSError("disk full")]
    with pytest.raises(OSError, match="disk full"):
        next(records)
    stored = store.records("job")
    assert events_of(stored) == [QUEUED, Started(), ContentDelta("a"), Failed(UNEXPECTED)]
    assert [record.seq for record in stored] == [1, 2, 3, 4]


def test_a_store_that_goes_on_failing_is_logged(begin, store, caplog):
    records = begin(ANSWER).records()
    next(records)
    store.failures = [OSError("disk full"), OSError("disk still full")]
    with pytest.raises(OSError, match="disk full"):
        next(records)
    assert "could not be stored" in caplog.text
    assert "disk still full" in caplog.text


@both_ways
def test_an_end_that_could_not_be_stored_is_not_announced(begin, store, keep_until_end):
    appends = 1 if keep_until_end else 6
    store.failures = [None] * (appends - 1) + [OSError("disk full")]
    seen: list[Event] = []
    records = begin(ANSWER, keep_until_end=keep_until_end).records()
    with pytest.raises(OSError, match="disk full"):
        seen.extend(record.event for record in records)
    assert seen == [QUEUED, *ANSWER[:-1]]
    assert store.job("job").finished_at is None


# Beginning


def test_an_attempt_at_no_job_is_refused(make_registry, store, clock):
    registry = make_registry({"scripted": scripted_backend(ANSWER)})
    with pytest.raises(UnknownJobError):
        Attempt("nothing", store=store, registry=registry, clock=clock)


def test_an_attempt_whose_backend_cannot_be_loaded_is_refused(begin):
    def broken(*_: object) -> None:
        raise ValueError("no weights")

    backend = scripted_backend(ANSWER)
    backend.open = broken  # type: ignore[method-assign]
    with pytest.raises(BackendLoadError):
        begin(backend)


def test_a_backend_that_never_ends_is_read_as_it_comes(begin):
    def forever(request: Any) -> Iterator[Any]:
        while True:
            yield ContentDelta("a")

    records = begin(forever, keep_until_end=True).records()
    assert [next(records).seq for _ in range(1000)] == list(range(1, 1001))
    records.close()
