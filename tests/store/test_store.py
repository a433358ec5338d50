"""What every store promises, once for all of them, and what each adds."""

from __future__ import annotations

import contextlib
import threading
import time
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
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.leases import Unclaimable
from caesar_server.store.memory import MemoryStore
from caesar_server.store.sql.postgres import PostgresDatabase
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore
from caesar_server.testing import FakeClock

WITHIN_S = 60.0
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


def ended(
    store: Store, id: str, event: Event | None = None, *, at: float = 1_700_000_001.5, **fields: Any
) -> None:
    """Create a job and bring it to its end."""
    store.create(job(id, **fields))
    store.claim(id, "me")
    store.append(id, 1, [Record(1, at, event or Completed())])


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come to hold"


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
        store.append("job", store.claim("job", "me").attempt, text(1, 2))
        with pytest.raises(ValueError, match="job"):
            store.create(job())
        assert len(store.records("job")) == 2

    def test_what_does_not_exist_is_unknown(self, store):
        for call in (
            lambda: store.job("nothing"),
            lambda: store.claim("nothing", "me"),
            lambda: store.records("nothing"),
            lambda: store.records("nothing", 5),
            lambda: store.append("nothing", 1, text(1, 1)),
            lambda: store.append("nothing", 1, [], checkpoint=Checkpoint({})),
            lambda: store.release("nothing", 1),
            lambda: store.request_cancel("nothing"),
        ):
            with pytest.raises(UnknownJobError, match="nothing"):
                call()

    # claim

    def test_claims_are_counted(self, store):
        store.create(job())
        assert store.job("job").attempt == 0
        for attempt in (1, 2, 3):
            assert store.claim("job", "me") == job(attempt=attempt, owner="me")
            assert store.job("job").attempt == attempt

    def test_a_claim_returns_what_earlier_attempts_stored(self, store):
        store.create(job())
        store.append(
            "job", store.claim("job", "me").attempt, text(1, 3), checkpoint=Checkpoint({"a": 1})
        )
        assert store.claim("job", "me") == job(
            attempt=2, owner="me", last_seq=3, checkpoint={"a": 1}, checkpoint_seq=3
        )
        assert len(store.records("job")) == 3

    def test_of_many_claims_at_once_each_is_another_attempt(self, store, in_thread):
        store.create(job())
        claims = [in_thread(store.claim, "job", "me") for _ in range(32)]
        attempts = sorted(claim.result(WITHIN_S).attempt for claim in claims)
        assert attempts == list(range(1, 33))

    def test_a_job_that_ended_is_claimed_by_nobody(self, store):
        ended(store, "job")
        with pytest.raises(FencedError, match="job"):
            store.claim("job", "me")
        assert store.job("job").attempt == 1

    def test_a_claim_may_insist_on_the_attempt_that_was_seen(self, store):
        store.create(job())
        assert store.claim("job", "a", attempt=0).attempt == 1
        for stale in (0, 2):
            with pytest.raises(FencedError, match="job"):
                store.claim("job", "b", attempt=stale)
        assert store.job("job").owner == "a"
        assert store.claim("job", "b", attempt=1).owner == "b"

    def test_of_many_that_insist_on_one_attempt_one_claims(self, store, in_thread):
        store.create(job())
        claims = [in_thread(store.claim, "job", f"o{n}", attempt=0) for n in range(16)]
        claimed = [claim for claim in claims if claim.exception(WITHIN_S) is None]
        assert len(claimed) == 1
        assert store.job("job").owner == claimed[0].result().owner

    def test_a_job_may_be_created_as_its_owners_own(self, store):
        store.create(job(owner="me", attempt=1), wait=False)
        store.append("job", 1, [*text(1, 2), *records(3, Completed())])
        assert store.job("job") == job(
            attempt=1, status="completed", last_seq=3, finished_at=1_700_000_003.5
        )

    def test_a_job_that_need_not_be_waited_for_is_there_for_the_next_step(self, store):
        for n in range(20):
            store.create(job(f"job{n}"), wait=False)
            assert store.claim(f"job{n}", "me").attempt == 1

    def test_an_id_that_exists_is_refused_though_nobody_waits(self, store):
        store.create(job(model="first"))
        with contextlib.suppress(ValueError):
            store.create(job(model="second"), wait=False)
        assert store.claim("job", "me").model == "first"

    # claim_next

    def test_the_oldest_waiting_job_of_a_backend_is_claimed(self, store):
        for number, (id, backend) in enumerate([("c", "x"), ("b", "y"), ("a", "x")]):
            store.create(job(id, backend=backend, detached=True, created_at=10.0 + number))
        assert store.claim_next("me", ["z"]) is None
        assert store.claim_next("me", []) is None
        claimed = store.claim_next("me", ["x", "z"])
        assert claimed == store.job("c")
        assert (claimed.attempt, claimed.owner) == (1, "me")
        store.renew("me", 60)
        assert store.claim_next("me", ["x", "y"]).id == "b"
        assert store.claim_next("me", ["x", "y"]).id == "a"
        assert store.claim_next("me", ["x", "y"]) is None

    def test_jobs_that_have_cost_too_much_are_passed_over(self, store):
        store.create(job("a", detached=True, attempt=3))
        store.create(job("b", detached=True, attempt=4, released=2))
        assert store.claim_next("me", ["b"], below=2) is None
        assert store.claim_next("me", ["b"], below=3).id == "b"
        assert store.claim_next("me", ["b"], below=4).id == "a"

    def test_of_equal_moments_the_smaller_id_is_older(self, store):
        for id in ("b", "a", "c"):
            store.create(job(id, detached=True))
        store.renew("me", 60)
        assert [store.claim_next("me", ["b"]).id for _ in range(3)] == ["a", "b", "c"]

    def test_attached_and_ended_jobs_are_not_for_others(self, store):
        store.create(job("attached"))
        ended(store, "ended", detached=True)
        assert store.claim_next("me", ["b"]) is None

    def test_jobs_of_an_owner_with_a_lease_stay_its_own(self, store):
        store.create(job(detached=True))
        store.renew("a", 60)
        store.claim("job", "a")
        assert store.claim_next("b", ["b"]) is None
        store.retire("a")
        taken = store.claim_next("b", ["b"])
        assert (taken.attempt, taken.owner) == (2, "b")

    def test_a_claimed_job_brings_what_was_stored(self, store):
        store.create(job(detached=True, durable=True, fingerprint="f", timeout_s=1.5))
        store.claim("job", "a")
        store.append("job", 1, text(1, 2), checkpoint=Checkpoint({"a": 1}))
        assert store.claim_next("b", ["b"]) == job(
            detached=True,
            durable=True,
            fingerprint="f",
            timeout_s=1.5,
            attempt=2,
            owner="b",
            last_seq=2,
            checkpoint={"a": 1},
            checkpoint_seq=2,
        )

    def test_no_two_claim_the_same(self, store, in_thread):
        for n in range(40):
            store.create(job(f"job{n:02}", detached=True))
        owners = [f"o{n}" for n in range(8)]
        for owner in owners:
            store.renew(owner, 60)

        def claim_all(owner: str) -> list[str]:
            taken = []
            while (job := store.claim_next(owner, ["b"])) is not None:
                taken.append(job.id)
            return taken

        claims = [in_thread(claim_all, owner) for owner in owners]
        taken = [id for claim in claims for id in claim.result(WITHIN_S)]
        assert sorted(taken) == [f"job{n:02}" for n in range(40)]
        assert all(store.job(id).attempt == 1 for id in taken)

    # leases

    def test_a_lease_runs_out(self, store):
        store.create(job(detached=True))
        store.claim("job", "a")
        store.renew("a", 60)
        assert list(store.lost()) == []
        store.renew("a", 0.01)
        eventually(lambda: [lost.id for lost in store.lost()] == ["job"])
        assert store.claim_next("b", ["b"]).owner == "b"

    def test_a_lease_that_is_renewed_goes_on(self, store):
        store.create(job(detached=True))
        store.claim("job", "a")
        store.renew("a", 0.01)
        store.renew("a", 60)
        store.renew("b", 0.01)
        store.create(job("other"))
        store.claim("other", "b")
        eventually(lambda: [lost.id for lost in store.lost()] == ["other"])

    def test_running_jobs_without_a_lease_are_lost_attached_ones_too(self, store):
        store.create(job("attached", owner="gone"))
        store.create(job("detached", detached=True))
        store.claim("detached", "gone")
        store.create(job("waiting", detached=True))
        ended(store, "ended")
        assert sorted(lost.id for lost in store.lost()) == ["attached", "detached"]
        assert len(store.lost(limit=1)) == 1
        store.renew("gone", 60)
        assert list(store.lost()) == []

    def test_retiring_twice_or_without_a_lease_is_no_error(self, store):
        store.retire("nobody")
        store.renew("me", 60)
        store.retire("me")
        store.retire("me")

    # unclaimable

    def unclaimable(self, store: Store) -> list[str]:
        return [one.id for one in store.unclaimable()]

    def test_what_waits_for_a_backend_that_nobody_has_is_unclaimable(self, store):
        for number, backend in enumerate(["b", "b 2", "B", "%", "é"]):
            store.create(job(f"of {backend}", backend=backend, detached=True, created_at=-number))
        store.claim("of B", "gone")
        store.renew("me", 60, ["b", "é"])
        store.renew("me too", 60, [])
        assert list(store.unclaimable()) == [
            Unclaimable("of %", "%", 0),
            Unclaimable("of B", "B", 1),
            Unclaimable("of b 2", "b 2", 0),
        ]
        assert list(store.unclaimable(limit=1)) == [Unclaimable("of %", "%", 0)]
        store.renew("me too", 60, ["b 2", "%"])
        assert self.unclaimable(store) == ["of B"]

    def test_attached_ended_and_running_jobs_are_not_unclaimable(self, store):
        store.create(job("attached"))
        ended(store, "ended", detached=True)
        store.create(job("runs", detached=True))
        store.renew("me", 60, [])
        store.claim("runs", "me")
        assert self.unclaimable(store) == []
        store.retire("me")
        assert self.unclaimable(store) == ["runs"]

    def test_a_backend_is_there_as_long_as_a_lease(self, store):
        store.create(job(detached=True))
        assert self.unclaimable(store) == ["job"]
        store.renew("me", 60, ["b"])
        assert self.unclaimable(store) == []
        store.renew("me", 60, ["c"])
        assert self.unclaimable(store) == ["job"]
        store.renew("me", 60, ["b"])
        store.retire("me")
        assert self.unclaimable(store) == ["job"]
        store.renew("me", 0.01, ["b"])
        eventually(lambda: self.unclaimable(store) == ["job"])

    def test_whoever_does_not_tell_its_backends_may_have_any(self, store):
        store.create(job(detached=True))
        store.renew("me", 60, ["c"])
        store.renew("silent", 60)
        assert self.unclaimable(store) == []
        store.retire("silent")
        assert self.unclaimable(store) == ["job"]

    # release

    def test_a_released_job_is_free_at_once_and_its_attempt_is_fenced(self, store):
        store.create(job(detached=True))
        store.renew("a", 60)
        store.claim("job", "a")
        store.append(
            "job", 1, records(1, StatusChanged("searching")), checkpoint=Checkpoint({"a": 1})
        )
        store.release("job", 1)
        assert store.waiting(limit=10) == 1
        assert store.job("job") == job(
            detached=True,
            attempt=1,
            released=1,
            status="searching",
            last_seq=1,
            checkpoint={"a": 1},
            checkpoint_seq=1,
        )
        self.nothing_changes(store, lambda: store.append("job", 1, text(2, 1)))
        self.nothing_changes(store, lambda: store.release("job", 1))
        assert store.claim_next("b", ["b"]).attempt == 2
        self.nothing_changes(store, lambda: store.release("job", 1))

    def test_only_a_forgiven_release_is_counted(self, store):
        store.create(job(detached=True))
        for number, forgiven in enumerate((True, False, True), 1):
            store.claim("job", "a")
            store.release("job", number, forgiven=forgiven)
        assert (store.job("job").attempt, store.job("job").released) == (3, 2)

    def test_an_ended_job_is_not_released(self, store):
        ended(store, "job")
        self.nothing_changes(store, lambda: store.release("job", 1))

    # cancel

    def test_a_cancel_reaches_the_owner(self, store):
        for id in ("a", "b", "c"):
            store.create(job(id))
            store.claim(id, "me" if id != "c" else "other")
        assert list(store.cancel_requests("me")) == []
        assert store.request_cancel("a") == store.job("a")
        assert store.job("a").cancel_requested
        store.request_cancel("c")
        assert list(store.cancel_requests("me")) == ["a"]
        store.append("a", 1, records(1, Completed()))
        assert list(store.cancel_requests("me")) == []

    def test_a_cancel_outlives_another_claim(self, store):
        store.create(job(detached=True))
        store.request_cancel("job")
        assert list(store.cancel_requests("me")) == []
        assert store.claim_next("me", ["b"]).cancel_requested
        assert list(store.cancel_requests("me")) == ["job"]

    def test_an_ended_job_is_not_cancelled(self, store):
        ended(store, "job")
        before = store.job("job")
        assert store.request_cancel("job") == before
        assert store.job("job") == before

    # lists

    def test_jobs_are_listed_newest_first_page_by_page(self, store):
        moments = [5.0, 1.0, 3.0, 3.0, 2.0, 4.0]
        for id, moment in zip("abcdef", moments, strict=True):
            store.create(job(id, created_at=moment))
        assert [one.id for one in store.jobs()] == ["a", "f", "d", "c", "e", "b"]
        seen: list[str] = []
        before = None
        while page := store.jobs(before=before, limit=2):
            seen += [one.id for one in page]
            before = (page[-1].created_at, page[-1].id)
        assert seen == ["a", "f", "d", "c", "e", "b"]

    def test_a_page_stays_where_it_was_though_jobs_come(self, store):
        for id, moment in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
            store.create(job(id, created_at=moment))
        (first,) = store.jobs(limit=1)
        store.create(job("d", created_at=4.0))
        store.delete("c")
        rest = store.jobs(before=(first.created_at, first.id))
        assert [one.id for one in rest] == ["b", "a"]

    def test_jobs_are_listed_by_account_status_and_backend(self, store):
        store.create(job("a", account="x"))
        store.create(job("b", account="x", backend="other", detached=True))
        ended(store, "c", account="x")
        ended(store, "d", FAILED, account="y")
        for asked, ids in (
            ({"account": "x"}, "cba"),
            ({"account": "y"}, "d"),
            ({"account": ""}, ""),
            ({"statuses": ["queued"]}, "ba"),
            ({"statuses": ["failed", "completed"]}, "dc"),
            ({"statuses": ["failed", "completed", "queued"], "account": "x"}, "cba"),
            ({"statuses": []}, ""),
            ({"statuses": ["queued", "completed"], "limit": 2}, "cb"),
            ({"backend": "other"}, "b"),
            ({"backend": "b", "account": "x", "statuses": ["completed"]}, "c"),
            ({"statuses": ["queued", "failed"], "before": (1_700_000_000.25, "d")}, "ba"),
        ):
            assert "".join(one.id for one in store.jobs(**asked)) == ids, asked

    def test_what_is_listed_is_whole(self, store):
        store.create(job(fingerprint="f", account="x", timeout_s=2.0))
        store.claim("job", "me")
        store.append("job", 1, text(1, 1), checkpoint=Checkpoint({"a": 1}))
        whole = store.job("job")
        assert list(store.jobs()) == [whole]
        assert store.find("x", "f") == whole
        assert list(store.lost()) == [whole]

    def test_the_newest_job_of_a_fingerprint_is_found(self, store):
        store.create(job("a", account="x", fingerprint="f", created_at=2.0))
        store.create(job("b", account="x", fingerprint="f", created_at=1.0))
        store.create(job("c", account="y", fingerprint="f", created_at=3.0))
        store.create(job("d", account="x", created_at=4.0))
        assert store.find("x", "f").id == "a"
        assert store.find("x", "g") is None
        assert store.find("z", "f") is None
        store.delete("a")
        assert store.find("x", "f").id == "b"
        store.delete("b")
        assert store.find("x", "f") is None

    def test_positions_are_told_of_those_that_exist(self, store):
        for id in ("a", "b"):
            store.create(job(id))
        store.claim("a", "me")
        store.append("a", 1, text(1, 3))
        assert store.positions(["a", "b", "nothing"]) == {"a": 3, "b": 0}
        assert store.positions([]) == {}
        assert store.positions(["a", *(f"no{n}" for n in range(2000))]) == {"a": 3}

    def test_waiting_jobs_are_counted_up_to_a_limit(self, store):
        assert store.waiting(limit=5) == 0
        for n in range(4):
            store.create(job(f"job{n}", detached=True))
        store.create(job("attached"))
        ended(store, "ended", detached=True)
        store.claim("job0", "me")
        assert store.waiting(limit=5) == 3
        assert store.waiting(limit=2) == 2
        assert store.waiting(limit=0) == 0

    def test_records_are_read_in_portions(self, store):
        store.create(job())
        store.claim("job", "me")
        for first in range(1, 100, 7):
            store.append("job", 1, text(first, 7))
        assert [record.seq for record in store.records("job", 10, limit=5)] == [*range(11, 16)]
        assert list(store.records("job", 10, limit=0)) == []
        assert len(store.records("job", 100, limit=50)) == 5
        assert [record.seq for record in store.records("job", 3, limit=90)] == [*range(4, 94)]

    def test_many_records_at_once_are_read_from_anywhere(self, store):
        store.create(job())
        store.claim("job", "me")
        store.append("job", 1, text(1, 2000))
        for after in (0, 1, 255, 256, 257, 1999, 2000):
            found = store.records("job", after)
            assert [record.seq for record in found] == list(range(after + 1, 2001))
        assert [record.seq for record in store.records("job", 600, limit=3)] == [601, 602, 603]

    # the end

    def test_why_it_failed_is_kept_and_nobody_owns_it(self, store):
        ended(store, "job", FAILED)
        assert (store.job("job").error_code, store.job("job").owner) == (FAILED.error.code, None)

    def test_nothing_follows_the_end(self, store):
        ended(store, "job")
        self.nothing_changes(store, lambda: store.append("job", 1, text(2, 1)))
        self.nothing_changes(
            store, lambda: store.append("job", 1, [], checkpoint=Checkpoint({"a": 1}))
        )

    # prune

    def finished(self, store: Store, count: int) -> None:
        """Make jobs 0, 1, ... that ended in this order, and two that run."""
        for n in range(count):
            ended(store, str(n), at=100.0 + n, created_at=50.0 - n)
        store.create(job("waiting", created_at=1.0))
        store.create(job("running", created_at=1.0))
        store.claim("running", "me")

    def left(self, store: Store) -> list[str]:
        return sorted(one.id for one in store.jobs(statuses=["completed", "failed"]))

    def test_old_jobs_are_removed(self, store):
        self.finished(store, 6)
        assert store.prune(finished_before=102.0) == 2
        assert self.left(store) == ["2", "3", "4", "5"]
        with pytest.raises(UnknownJobError):
            store.records("0")
        assert store.prune(finished_before=102.0) == 0
        assert len(store.jobs()) == 6

    def test_only_the_newest_are_kept(self, store):
        self.finished(store, 6)
        assert store.prune(keep=10) == 0
        assert store.prune(keep=4) == 2
        assert self.left(store) == ["2", "3", "4", "5"]
        assert store.prune(keep=4) == 0
        assert store.prune(keep=0) == 4
        assert sorted(one.id for one in store.jobs()) == ["running", "waiting"]

    def test_both_bounds_of_pruning_count(self, store):
        self.finished(store, 6)
        assert store.prune(finished_before=101.0, keep=3) == 3
        assert self.left(store) == ["3", "4", "5"]
        assert store.prune(finished_before=105.0, keep=3) == 2
        assert self.left(store) == ["5"]

    def test_pruning_goes_in_portions_the_oldest_first(self, store):
        self.finished(store, 6)
        assert store.prune(keep=0, limit=4) == 4
        assert self.left(store) == ["4", "5"]
        assert store.prune(finished_before=1000.0, limit=1) == 1
        assert self.left(store) == ["5"]

    def test_detached_jobs_that_just_ended_are_left_to_their_followers(self, store):
        ended(store, "attached", at=time.time())
        ended(store, "detached", at=time.time(), detached=True)
        assert store.prune(keep=0) == 1
        assert self.left(store) == ["detached"]
        assert store.prune(finished_before=time.time() + 1) == 1

    def test_without_a_bound_nothing_is_pruned(self, store):
        self.finished(store, 2)
        assert store.prune() == 0

    # changes

    def test_every_change_is_told(self, store):
        store.create(job("waiting", detached=True))
        store.renew("me", 60)
        changes = store.changes()
        try:
            for change in (
                lambda: store.create(job()),
                lambda: store.claim("job", "me"),
                lambda: store.append("job", 1, text(1, 1)),
                lambda: store.request_cancel("job"),
                lambda: store.claim_next("me", ["b"]),
                lambda: store.release("job", 1),
                lambda: store.delete("job"),
                lambda: store.retire("me"),
            ):
                while changes.wait(0):
                    pass
                change()
                assert changes.wait(WITHIN_S)
        finally:
            changes.close()

    def test_nothing_is_told_for_long_while_nothing_happens(self, store):
        changes = store.changes()
        eventually(lambda: not changes.wait(0.2))
        changes.close()

    def test_a_change_is_told_to_each_that_watches_and_waits(self, store, in_thread):
        watching = [store.changes() for _ in range(3)]
        for changes in watching:
            while changes.wait(0):
                pass
        waits = [in_thread(changes.wait, WITHIN_S) for changes in watching]
        store.create(job())
        assert all(wait.result(WITHIN_S) for wait in waits)
        for changes in watching:
            changes.close()
            changes.close()

    @pytest.mark.parametrize("end", ["wake", "close"])
    def test_a_wait_can_be_ended(self, store, in_thread, end):
        changes = store.changes()
        while changes.wait(0):
            pass
        wait = in_thread(changes.wait, WITHIN_S)
        getattr(changes, end)()
        wait.result(WITHIN_S / 2)
        changes.close()

    # check

    def test_it_can_be_checked_and_keeps_nothing_of_it(self, store):
        store.create(job())
        store.check()
        store.check()
        assert len(store.jobs()) == 1

    # append and records

    def test_records_are_returned_as_they_were_appended(self, store):
        store.create(job())
        attempt = store.claim("job", "me").attempt
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
        attempt = store.claim("job", "me").attempt
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
        store.append("job", store.claim("job", "me").attempt, text(1, 4))
        assert [record.seq for record in store.records("job", after_seq)] == seqs

    def test_what_was_returned_does_not_change_with_later_appends(self, store):
        store.create(job())
        attempt = store.claim("job", "me").attempt
        store.append("job", attempt, text(1, 1))
        before = store.records("job")
        store.append("job", attempt, text(2, 1))
        assert list(before) == text(1, 1)

    def test_what_was_appended_may_change_afterwards(self, store):
        store.create(job())
        appended = text(1, 2)
        store.append("job", store.claim("job", "me").attempt, appended)
        appended.clear()
        assert list(store.records("job")) == text(1, 2)

    def test_jobs_do_not_mix(self, store):
        for id in ("a", "b"):
            store.create(job(id))
        store.append("a", store.claim("a", "me").attempt, text(1, 3))
        assert list(store.records("b")) == []
        assert store.job("b") == job("b")

    def test_appends_may_be_begun_one_after_the_other(self, store):
        store.create(job(), wait=False)
        store.claim("job", "me")
        begun = [store.append_soon("job", 1, text(seq, 1)) for seq in range(1, 51)]
        begun.append(store.append_soon("job", 2, text(51, 1)))
        begun.append(
            store.append_soon("job", 1, records(51, Completed()), checkpoint=Checkpoint({"a": 1}))
        )
        assert [one.result(WITHIN_S) for one in begun[:50]] == [None] * 50
        assert isinstance(begun[50].exception(WITHIN_S), FencedError)
        assert begun[51].result(WITHIN_S) is None
        assert len(store.records("job")) == 51
        assert store.job("job").status == "completed"

    def test_what_is_begun_is_stored_before_it_is_told(self, store):
        store.create(job())
        store.claim("job", "me")
        seen: Future[int] = Future()
        done = store.append_soon("job", 1, text(1, 3))
        done.add_done_callback(lambda _: seen.set_result(1))
        assert seen.result(WITHIN_S)
        assert store.job("job").last_seq == 3

    # fence

    def nothing_changes(self, store: Store, append: Callable[[], None]) -> None:
        before = store.job("job"), list(store.records("job"))
        with pytest.raises(FencedError):
            append()
        assert (store.job("job"), list(store.records("job"))) == before

    def test_an_earlier_attempt_is_fenced(self, store):
        store.create(job())
        store.claim("job", "me")
        store.append("job", 1, text(1, 2))
        store.claim("job", "me")
        self.nothing_changes(store, lambda: store.append("job", 1, text(3, 1)))
        self.nothing_changes(store, lambda: store.append("job", 1, records(3, Completed())))
        self.nothing_changes(
            store, lambda: store.append("job", 1, [], checkpoint=Checkpoint({"a": 1}))
        )
        self.nothing_changes(store, lambda: store.append("job", 1, []))
        store.append("job", 2, text(3, 1))
        assert list(store.records("job")) == text(1, 3)

    @pytest.mark.parametrize("attempt", [0, 2, -1])
    def test_an_attempt_that_was_never_claimed_is_fenced(self, store, attempt):
        store.create(job())
        store.claim("job", "me")
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
        store.claim("job", "me")
        store.append("job", 1, text(1, 2))
        self.nothing_changes(
            store, lambda: store.append("job", 1, appended, checkpoint=Checkpoint({"a": 1}))
        )

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
        attempt = store.claim("job", "me").attempt
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
        store.claim("job", "me")
        store.append(
            "job", 1, text(1, 1), checkpoint=Checkpoint({"a": 1, "deep": {"er": [1, None, "é"]}})
        )
        assert store.job("job").checkpoint == {"a": 1, "deep": {"er": [1, None, "é"]}}
        store.append("job", 1, text(2, 1))
        assert store.job("job").checkpoint == {"a": 1, "deep": {"er": [1, None, "é"]}}
        store.append("job", 1, [], checkpoint=Checkpoint({"b": 2}))
        assert store.job("job").checkpoint == {"b": 2}
        store.append("job", 1, [], checkpoint=Checkpoint({}))
        assert store.job("job").checkpoint == {}
        assert store.job("job").last_seq == 2

    def test_a_checkpoint_tells_what_was_stored_with_it(self, store):
        store.create(job())
        store.claim("job", "me")
        store.append("job", 1, text(1, 2))
        assert store.job("job").checkpoint_seq == 0
        store.append("job", 1, [], checkpoint=Checkpoint({"a": 1}))
        assert store.job("job").checkpoint_seq == 2
        store.append("job", 1, text(3, 2), checkpoint=Checkpoint({"a": 2}))
        store.append("job", 1, text(5, 1))
        assert store.claim("job", "me").checkpoint_seq == 4

    def test_a_checkpoint_tells_what_was_not_repeated_until_the_next_one(self, store):
        store.create(job())
        store.claim("job", "me")
        store.append("job", 1, text(1, 9), checkpoint=Checkpoint({"a": 1}, unrepeated=(3, 7)))
        assert store.job("job").unrepeated == (3, 7)
        store.append("job", 1, text(10, 1))
        claimed = store.claim("job", "another")
        assert (claimed.checkpoint, claimed.unrepeated) == ({"a": 1}, (3, 7))
        store.append("job", 2, [], checkpoint=Checkpoint({"a": 1}, unrepeated=(7,)))
        assert store.job("job").unrepeated == (7,)
        store.append("job", 2, [], checkpoint=Checkpoint({"a": 1}))
        job_now = store.job("job")
        assert (job_now.checkpoint, job_now.unrepeated) == ({"a": 1}, ())

    def test_a_checkpoint_is_kept_as_it_was_when_it_was_given(self, store):
        store.create(job())
        store.claim("job", "me")
        state = {"texts": ["a"]}
        store.append("job", 1, [], checkpoint=Checkpoint(state))
        state["texts"].append("b")
        assert store.job("job").checkpoint == {"texts": ["a"]}
        assert store.claim("job", "me").checkpoint == {"texts": ["a"]}

    def test_a_checkpoint_is_json_and_nothing_is_written_if_it_is_not(self, store):
        store.create(job())
        store.claim("job", "me")
        store.append("job", 1, text(1, 1), checkpoint=Checkpoint({"pair": (1, 2)}))
        assert store.job("job").checkpoint == {"pair": [1, 2]}
        with pytest.raises((TypeError, ValueError)):
            store.append("job", 1, text(2, 1), checkpoint=Checkpoint({"a": object()}))
        assert list(store.records("job")) == text(1, 1)
        assert store.job("job").checkpoint == {"pair": [1, 2]}

    # delete and close

    @pytest.mark.parametrize("finished", [False, True])
    def test_a_deleted_job_is_gone_with_its_records(self, store, finished):
        store.create(job())
        store.claim("job", "me")
        store.append("job", 1, records(1, Completed()) if finished else text(1, 1))
        store.delete("job")
        for call in (store.job, store.records, lambda id: store.claim(id, "me")):
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
            store.claim(id, "me")
            store.append(id, 1, records(1, Completed()))
        store.delete("a")
        assert store.job("b").status == "completed"
        assert len(store.records("b")) == 1

    def test_the_id_of_a_deleted_job_begins_anew(self, store):
        store.create(job())
        store.claim("job", "me")
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
            store.claim(id, "me")
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
        store.claim("job", "me")
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
        store.claim("job", "me")
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
        taken = store.claim("job", "me")
        store.append("job", taken.attempt, records(taken.last_seq + 1, ProgressNoted("new")))
        assert writing.result(WITHIN_S) == taken.last_seq
        stored = store.records("job")
        assert [record.seq for record in stored] == list(range(1, taken.last_seq + 2))
        assert [record.event.message for record in stored].index("new") == taken.last_seq

    def test_a_reader_never_sees_half_an_append(self, store, in_thread):
        store.create(job())
        store.claim("job", "me")

        def write() -> None:
            for number in range(100):
                store.append(
                    "job", 1, text(3 * number + 1, 3), checkpoint=Checkpoint({"n": number + 1})
                )

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
        store.claim(id, "me")

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
            CompletionRequest(prompts=("p",), sampling=Sampling(stop=("a" * 100_000,))),
            ChatRequest(messages=(Message(role="user", parts=(Part(text="a" * 100_000),)),)),
            ChatRequest(messages=(Message(role="user", extra={"x": ["y"] * 100_000}),)),
            ResearchRequest(query="a" * 100_000),
        ],
        ids=["text", "tokens", "extra", "stop", "message", "message extra", "query"],
    )
    def test_what_is_too_large_by_itself_is_not_kept_and_makes_room_again(self, request_):
        store = MemoryStore(stored_jobs=100, stored_bytes=50_000)
        store.create(job("large", request=request_))
        store.claim("large", "me")
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
        store.claim("job", "me")
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

    def test_detached_jobs_stay_for_a_minute_however_little_room_there_is(self):
        clock = FakeClock()
        store = MemoryStore(stored_jobs=0, monotonic=clock.monotonic)
        ended(store, "first", detached=True)
        ended(store, "attached")
        clock.advance(59)
        ended(store, "second", detached=True)
        assert [self.exists(store, id) for id in ("first", "attached", "second")] == [
            True,
            False,
            True,
        ]
        assert store.prune(keep=0) == 0
        clock.advance(1)
        assert store.prune(keep=0) == 1
        clock.advance(59)
        ended(store, "third")
        assert not self.exists(store, "second")

    def test_leases_follow_the_given_clock(self):
        clock = FakeClock()
        store = MemoryStore(monotonic=clock.monotonic)
        store.create(job(detached=True))
        store.renew("a", 30)
        store.claim("job", "a")
        clock.advance(29)
        assert store.claim_next("b", ["b"]) is None
        clock.advance(1)
        assert store.claim_next("b", ["b"]).owner == "b"

    def test_close_forgets_everything(self):
        store = MemoryStore()
        self.begin(store, "a")
        store.close()
        assert not self.exists(store, "a")

    def test_two_stores_share_nothing(self):
        first, second = MemoryStore(), MemoryStore()
        first.create(job())
        assert not self.exists(second, "job")


class TestSqliteStore(StoreSuite):
    """The store in a file."""

    @pytest.fixture
    def store(self, sqlite: SqliteDatabase) -> Iterator[Store]:
        store = SqlStore(sqlite)
        yield store
        store.close()


class TestPostgresStore(StoreSuite):
    """The store in a database of PostgreSQL."""

    @pytest.fixture
    def store(self, postgres: PostgresDatabase) -> Iterator[Store]:
        store = SqlStore(postgres)
        yield store
        store.close()
