"""What every store promises, once for all of them, and what each adds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from caesar_server.contract import (
    ChatRequest,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    ErrorInfo,
    Event,
    Failed,
    Message,
    Part,
    ProgressNoted,
    ResearchParameters,
    ResearchRequest,
    ResultFound,
    Sampling,
    Started,
    StatusChanged,
)
from caesar_server.store.base import FencedError, Job, Record, Store, UnknownJobError
from caesar_server.store.memory import MemoryStore

WITHIN_S = 20.0
FAILED = Failed(ErrorInfo("no", "c", "t", "p", 429, 1.5, True))


def job(id: str = "job", **fields: Any) -> Job:
    values: dict[str, Any] = {
        "created_at": 1_700_000_000.25,
        "model": "m",
        "backend": "b",
        "request": CompletionRequest(prompts=("p",)),
    }
    return Job(id=id, **{**values, **fields})


def records(first: int, *events: Event) -> list[Record]:
    return [Record(seq, 1_700_000_000.5 + seq, event) for seq, event in enumerate(events, first)]


def text(first: int, count: int) -> list[Record]:
    return records(first, *[ContentDelta("a")] * count)


@pytest.fixture
def in_thread() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(16, thread_name_prefix="test") as pool:
        yield pool.submit


class StoreSuite:
    """Inherit this for a store and give it a fixture ``store``: a new, empty one for each test."""

    # create and job

    @pytest.mark.parametrize(
        "created",
        [
            job(),
            job(
                account="a",
                backend_model="small",
                timeout_s=9.5,
                request=CompletionRequest(
                    prompts=("p", (1, 2)),
                    sampling=Sampling(seed=7, stop=("x",), logit_bias={5: 1.5}),
                    extra={"deep": [{"er": None}]},
                ),
            ),
            job(
                request=ChatRequest(messages=(Message(role="user", parts=(Part(text="é\u2028"),)),))
            ),
            job(
                request=ResearchRequest(
                    query="q", parameters=ResearchParameters(excluded_domains=("x.org",))
                )
            ),
        ],
    )
    def test_a_job_is_returned_as_it_was_created(self, store, created):
        store.create(created)
        assert store.job("job") == created
        assert list(store.records("job")) == []

    def test_an_id_exists_only_once(self, store):
        store.create(job(model="first"))
        with pytest.raises(ValueError, match="job"):
            store.create(job(model="second"))
        assert store.job("job").model == "first"

    def test_an_id_that_exists_is_refused_once_events_are_stored_too(self, store):
        store.create(job())
        store.append("job", store.claim("job").attempt, text(1, 2))
        with pytest.raises(ValueError, match="job"):
            store.create(job())
        assert len(store.records("job")) == 2

    def test_what_does_not_exist_is_unknown(self, store):
        for call in (
            lambda: store.job("nothing"),
            lambda: store.claim("nothing"),
            lambda: store.records("nothing"),
            lambda: store.records("nothing", 5),
            lambda: store.append("nothing", 1, text(1, 1)),
            lambda: store.append("nothing", 1, [], checkpoint={}),
        ):
            with pytest.raises(UnknownJobError, match="nothing"):
                call()

    # claim

    def test_claims_are_counted(self, store):
        store.create(job())
        assert store.job("job").attempt == 0
        for attempt in (1, 2, 3):
            assert store.claim("job") == job(attempt=attempt)
            assert store.job("job").attempt == attempt

    def test_a_claim_returns_what_earlier_attempts_stored(self, store):
        store.create(job())
        store.append("job", store.claim("job").attempt, text(1, 3), checkpoint={"a": 1})
        assert store.claim("job") == job(attempt=2, last_seq=3, checkpoint={"a": 1})
        assert len(store.records("job")) == 3

    def test_of_many_claims_at_once_each_is_another_attempt(self, store, in_thread):
        store.create(job())
        claims = [in_thread(store.claim, "job") for _ in range(32)]
        attempts = sorted(claim.result(WITHIN_S).attempt for claim in claims)
        assert attempts == list(range(1, 33))

    # append and records

    def test_records_are_returned_as_they_were_appended(self, store):
        store.create(job())
        attempt = store.claim("job").attempt
        events = (
            StatusChanged("queued"),
            Started({"upstream": "gpu-1"}),
            ResultFound("r", "t \u2028", "u", 0.5, 1),
            ContentDelta("é", 0, "reasoning"),
            ContentDelta(""),
            ChoiceFinished(0, "length"),
            Completed({"loops": 2, "deep": {"er": [1, None]}}),
        )
        store.append("job", attempt, records(1, *events))
        assert list(store.records("job")) == records(1, *events)
        assert store.job("job").last_seq == 7

    def test_appends_add_up(self, store):
        store.create(job())
        attempt = store.claim("job").attempt
        store.append("job", attempt, text(1, 2))
        store.append("job", attempt, text(3, 1))
        store.append("job", attempt, [])
        store.append("job", attempt, text(4, 2))
        assert list(store.records("job")) == text(1, 5)
        assert store.job("job").last_seq == 5

    @pytest.mark.parametrize(
        ("after_seq", "seqs"),
        [
            (0, [1, 2, 3, 4]),
            (1, [2, 3, 4]),
            (3, [4]),
            (4, []),
            (99, []),
            (-1, [1, 2, 3, 4]),
            (-99, [1, 2, 3, 4]),
        ],
    )
    def test_records_after_a_number(self, store, after_seq, seqs):
        store.create(job())
        store.append("job", store.claim("job").attempt, text(1, 4))
        assert [record.seq for record in store.records("job", after_seq)] == seqs

    def test_what_was_returned_does_not_change_with_later_appends(self, store):
        store.create(job())
        attempt = store.claim("job").attempt
        store.append("job", attempt, text(1, 1))
        before = store.records("job")
        store.append("job", attempt, text(2, 1))
        assert list(before) == text(1, 1)

    def test_what_was_appended_may_change_afterwards(self, store):
        store.create(job())
        appended = text(1, 2)
        store.append("job", store.claim("job").attempt, appended)
        appended.clear()
        assert list(store.records("job")) == text(1, 2)

    def test_jobs_do_not_mix(self, store):
        for id in ("a", "b"):
            store.create(job(id))
        store.append("a", store.claim("a").attempt, text(1, 3))
        assert list(store.records("b")) == []
        assert store.job("b") == job("b")

    # fence

    def nothing_changes(self, store: Store, append: Callable[[], None]) -> None:
        before = store.job("job"), list(store.records("job"))
        with pytest.raises(FencedError):
            append()
        assert (store.job("job"), list(store.records("job"))) == before

    def test_an_earlier_attempt_is_fenced(self, store):
        store.create(job())
        store.claim("job")
        store.append("job", 1, text(1, 2))
        store.claim("job")
        self.nothing_changes(store, lambda: store.append("job", 1, text(3, 1)))
        self.nothing_changes(store, lambda: store.append("job", 1, records(3, Completed())))
        self.nothing_changes(store, lambda: store.append("job", 1, [], checkpoint={"a": 1}))
        self.nothing_changes(store, lambda: store.append("job", 1, []))
        store.append("job", 2, text(3, 1))
        assert list(store.records("job")) == text(1, 3)

    @pytest.mark.parametrize("attempt", [0, 2, -1])
    def test_an_attempt_that_was_never_claimed_is_fenced(self, store, attempt):
        store.create(job())
        store.claim("job")
        self.nothing_changes(store, lambda: store.append("job", attempt, text(1, 1)))

    @pytest.mark.parametrize(
        "appended",
        [
            text(1, 1),  # is there
            text(2, 2),  # one is there
            text(4, 1),  # one is left out
            [*text(3, 1), *text(5, 1)],
            [*text(3, 1), *text(3, 1)],
            [*text(4, 1), *text(3, 1)],
        ],
    )
    def test_numbers_that_do_not_follow_are_fenced(self, store, appended):
        store.create(job())
        store.claim("job")
        store.append("job", 1, text(1, 2))
        self.nothing_changes(store, lambda: store.append("job", 1, appended, checkpoint={"a": 1}))

    # what follows from the records

    @pytest.mark.parametrize(
        ("events", "status"),
        [
            ([], "queued"),
            ([StatusChanged("queued")], "queued"),
            ([StatusChanged("searching")], "searching"),
            ([StatusChanged("searching"), ContentDelta("a")], "searching"),
            ([StatusChanged("searching"), StatusChanged("analyzing")], "analyzing"),
            ([StatusChanged("analyzing"), StatusChanged("searching")], "searching"),
            ([ContentDelta("a"), ProgressNoted("x")], "queued"),
            ([StatusChanged("summarizing"), Completed()], "completed"),
            ([StatusChanged("summarizing"), FAILED], "failed"),
        ],
    )
    @pytest.mark.parametrize("at_once", [True, False])
    def test_status_and_end_follow_from_the_records(self, store, events, status, at_once):
        store.create(job())
        attempt = store.claim("job").attempt
        appended = records(1, *events)
        for part in [appended] if at_once else [[record] for record in appended]:
            store.append("job", attempt, part)
        stored = store.job("job")
        assert stored.status == status
        assert stored.last_seq == len(events)
        ended = status in ("completed", "failed")
        assert stored.finished_at == (appended[-1].created_at if ended else None)

    # checkpoint

    def test_a_checkpoint_replaces_the_one_before_and_stays_without_another(self, store):
        store.create(job())
        store.claim("job")
        store.append("job", 1, text(1, 1), checkpoint={"a": 1, "deep": {"er": [1, None, "é"]}})
        assert store.job("job").checkpoint == {"a": 1, "deep": {"er": [1, None, "é"]}}
        store.append("job", 1, text(2, 1))
        assert store.job("job").checkpoint == {"a": 1, "deep": {"er": [1, None, "é"]}}
        store.append("job", 1, [], checkpoint={"b": 2})
        assert store.job("job").checkpoint == {"b": 2}
        store.append("job", 1, [], checkpoint={})
        assert store.job("job").checkpoint == {}
        assert store.job("job").last_seq == 2

    def test_a_checkpoint_is_kept_as_it_was_when_it_was_given(self, store):
        store.create(job())
        store.claim("job")
        state = {"texts": ["a"]}
        store.append("job", 1, [], checkpoint=state)
        state["texts"].append("b")
        assert store.job("job").checkpoint == {"texts": ["a"]}
        assert store.claim("job").checkpoint == {"texts": ["a"]}

    def test_a_checkpoint_is_json_and_nothing_is_written_if_it_is_not(self, store):
        store.create(job())
        store.claim("job")
        store.append("job", 1, text(1, 1), checkpoint={"pair": (1, 2)})
        assert store.job("job").checkpoint == {"pair": [1, 2]}
        with pytest.raises((TypeError, ValueError)):
            store.append("job", 1, text(2, 1), checkpoint={"a": object()})
        assert list(store.records("job")) == text(1, 1)
        assert store.job("job").checkpoint == {"pair": [1, 2]}

    # delete and close

    @pytest.mark.parametrize("finished", [False, True])
    def test_a_deleted_job_is_gone_with_its_records(self, store, finished):
        store.create(job())
        store.claim("job")
        store.append("job", 1, records(1, Completed()) if finished else text(1, 1))
        store.delete("job")
        for call in (store.job, store.records, store.claim):
            with pytest.raises(UnknownJobError):
                call("job")
        with pytest.raises(UnknownJobError):
            store.append("job", 1, text(2, 1))

    def test_deleting_what_does_not_exist_is_no_error(self, store):
        store.delete("nothing")
        store.create(job())
        store.delete("job")
        store.delete("job")

    def test_deleting_one_job_leaves_the_others(self, store):
        for id in ("a", "b"):
            store.create(job(id))
            store.claim(id)
            store.append(id, 1, records(1, Completed()))
        store.delete("a")
        assert store.job("b").status == "completed"
        assert len(store.records("b")) == 1

    def test_the_id_of_a_deleted_job_begins_anew(self, store):
        store.create(job())
        store.claim("job")
        store.append("job", 1, records(1, Completed()))
        store.delete("job")
        store.create(job(model="second"))
        assert store.job("job") == job(model="second")
        assert list(store.records("job")) == []

    def test_it_may_be_closed_twice(self, store):
        store.close()
        store.close()

    # threads

    def test_threads_that_append_to_jobs_of_their_own_lose_nothing(self, store, in_thread):
        def write(id: str) -> None:
            store.create(job(id))
            store.claim(id)
            for seq in range(1, 101):
                store.append(id, 1, text(seq, 1))
            store.append(id, 1, records(101, Completed()))

        for writing in [in_thread(write, f"job{n}") for n in range(8)]:
            writing.result(WITHIN_S)
        for n in range(8):
            stored = store.records(f"job{n}")
            assert [record.seq for record in stored] == list(range(1, 102))
            assert store.job(f"job{n}").status == "completed"

    def test_of_two_threads_that_write_the_same_number_one_is_fenced(self, store, in_thread):
        store.create(job())
        store.claim("job")
        together = threading.Barrier(4)

        def write(name: str) -> int:
            written = 0
            for seq in range(1, 51):
                together.wait(WITHIN_S)
                try:
                    store.append("job", 1, records(seq, ProgressNoted(name)))
                    written += 1
                except FencedError:
                    pass
            return written

        writers = [in_thread(write, f"writer{n}") for n in range(4)]
        assert sum(writer.result(WITHIN_S) for writer in writers) == 50
        assert [record.seq for record in store.records("job")] == list(range(1, 51))

    def test_a_takeover_in_the_midst_of_appends_leaves_no_gap(self, store, in_thread):
        store.create(job())
        store.claim("job")
        begun = threading.Event()

        def write_until_fenced() -> int:
            seq = 0
            while True:
                try:
                    store.append("job", 1, records(seq + 1, ProgressNoted("old")))
                except FencedError:
                    return seq
                seq += 1
                if seq == 5:
                    begun.set()

        writing = in_thread(write_until_fenced)
        assert begun.wait(WITHIN_S)
        taken = store.claim("job")
        store.append("job", taken.attempt, records(taken.last_seq + 1, ProgressNoted("new")))
        assert writing.result(WITHIN_S) == taken.last_seq
        stored = store.records("job")
        assert [record.seq for record in stored] == list(range(1, taken.last_seq + 2))
        assert [record.event.message for record in stored].index("new") == taken.last_seq

    def test_a_reader_never_sees_half_an_append(self, store, in_thread):
        store.create(job())
        store.claim("job")

        def write() -> None:
            for number in range(100):
                store.append("job", 1, text(3 * number + 1, 3), checkpoint={"n": number + 1})

        writing = in_thread(write)
        seen = 0
        while seen < 300:
            now = store.job("job")
            assert now.last_seq == 3 * (now.checkpoint or {"n": 0})["n"]
            seen = len(store.records("job"))
            assert seen % 3 == 0
            assert seen >= now.last_seq
        writing.result(WITHIN_S)


class TestMemoryStore(StoreSuite):
    """The store in the memory of one process."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = MemoryStore()
        yield store
        store.close()

    def finish(self, store: Store, id: str) -> None:
        store.append(id, store.job(id).attempt, records(store.job(id).last_seq + 1, Completed()))

    def begin(self, store: Store, id: str) -> None:
        store.create(job(id))
        store.claim(id)

    def exists(self, store: Store, id: str) -> bool:
        try:
            store.job(id)
        except UnknownJobError:
            return False
        return True

    def test_only_the_last_finished_jobs_are_kept(self):
        store = MemoryStore(stored_jobs=3)
        for n in range(10):
            self.begin(store, f"job{n}")
            self.finish(store, f"job{n}")
        kept = [n for n in range(10) if self.exists(store, f"job{n}")]
        assert kept == [7, 8, 9]

    def test_the_job_that_finished_first_goes_first_whenever_it_was_created(self):
        store = MemoryStore(stored_jobs=2)
        for id in ("a", "b", "c"):
            self.begin(store, id)
        for id in ("c", "a", "b"):
            self.finish(store, id)
        assert [id for id in ("a", "b", "c") if self.exists(store, id)] == ["a", "b"]

    def test_running_jobs_are_never_dropped(self):
        store = MemoryStore(stored_jobs=1)
        for n in range(20):
            self.begin(store, f"running{n}")
            store.append(f"running{n}", 1, text(1, 2))
        for n in range(20):
            self.begin(store, f"finished{n}")
            self.finish(store, f"finished{n}")
        assert all(self.exists(store, f"running{n}") for n in range(20))
        assert sum(self.exists(store, f"finished{n}") for n in range(20)) == 1

    def test_large_jobs_leave_less_room_for_others(self):
        store = MemoryStore(stored_jobs=100, stored_bytes=100_000)
        for n in range(10):
            self.begin(store, f"job{n}")
            store.append(f"job{n}", 1, text(1, 100))
            self.finish(store, f"job{n}")
        kept = [n for n in range(10) if self.exists(store, f"job{n}")]
        assert kept in ([7, 8, 9], [8, 9])

    @pytest.mark.parametrize(
        "request_",
        [
            CompletionRequest(prompts=("a" * 100_000,)),
            CompletionRequest(prompts=((1,) * 100_000,)),
            CompletionRequest(prompts=("p",), extra={"x": ["y"] * 100_000}),
        ],
        ids=["text", "tokens", "extra"],
    )
    def test_what_is_too_large_by_itself_is_not_kept_and_makes_room_again(self, request_):
        store = MemoryStore(stored_jobs=100, stored_bytes=50_000)
        store.create(job("large", request=request_))
        store.claim("large")
        self.finish(store, "large")
        assert not self.exists(store, "large")
        self.begin(store, "small")
        self.finish(store, "small")
        assert self.exists(store, "small")

    def test_a_request_that_is_nested_deeply_can_be_kept(self):
        store = MemoryStore()
        nested: list[Any] = []
        for _ in range(100_000):
            nested = [nested]
        store.create(job(request=CompletionRequest(prompts=("p",), extra={"x": nested})))
        store.claim("job")
        self.finish(store, "job")
        assert self.exists(store, "job")
        while nested:  # Python takes a deep list apart by recursion
            nested = nested.pop()

    def test_none_may_be_kept(self):
        store = MemoryStore(stored_jobs=0)
        self.begin(store, "job")
        store.append("job", 1, text(1, 2))
        assert len(store.records("job")) == 2
        self.finish(store, "job")
        assert not self.exists(store, "job")

    def test_a_deleted_job_makes_room(self):
        store = MemoryStore(stored_jobs=2)
        for id in ("a", "b"):
            self.begin(store, id)
            self.finish(store, id)
        store.delete("a")
        self.begin(store, "c")
        self.finish(store, "c")
        assert [id for id in ("a", "b", "c") if self.exists(store, id)] == ["b", "c"]

    def test_a_write_to_a_job_that_was_dropped_is_refused(self):
        store = MemoryStore(stored_jobs=0)
        self.begin(store, "job")
        self.finish(store, "job")
        with pytest.raises(UnknownJobError):
            store.append("job", 1, text(2, 1))

    def test_a_finished_job_counts_once(self):
        store = MemoryStore(stored_jobs=2)
        self.begin(store, "a")
        self.finish(store, "a")
        for n in range(5):
            store.append("a", 1, [], checkpoint={"n": n})
        self.begin(store, "b")
        self.finish(store, "b")
        assert self.exists(store, "a")

    def test_close_forgets_everything(self):
        store = MemoryStore()
        self.begin(store, "a")
        store.close()
        assert not self.exists(store, "a")

    def test_two_stores_share_nothing(self):
        first, second = MemoryStore(), MemoryStore()
        first.create(job())
        assert not self.exists(second, "job")
