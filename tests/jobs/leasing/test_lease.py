"""The name of a process, and that it is kept alive."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from caesar_server.contract import CompletionRequest
from caesar_server.jobs.leasing import lease as lease_module
from caesar_server.jobs.leasing.lease import Lease
from caesar_server.store.base import Job, Store, StoreError
from caesar_server.store.memory import MemoryStore
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore
from caesar_server.testing import FakeClock

WITHIN_S = 60.0


class TroubledStore(MemoryStore):
    """Counts renewals, and fails as often as it is told."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(monotonic=clock.monotonic)
        self.renewals = 0
        self.backends: Collection[str] | None = None
        self.troubles = 0

    def renew(self, owner: str, lease_s: float, backends: Collection[str] | None = None) -> None:
        if self.troubles:
            self.troubles -= 1
            raise StoreError("no connection")
        super().renew(owner, lease_s, backends)
        self.backends = backends
        self.renewals += 1


@pytest.fixture
def store(clock: FakeClock) -> TroubledStore:
    return TroubledStore(clock)


@pytest.fixture
def make_lease(store: TroubledStore) -> Iterator[Callable[..., Lease]]:
    made: list[Lease] = []

    def nothing() -> None:
        return

    def make(
        lease_s: float = 0.3,
        beat: Callable[[], None] = nothing,
        lapsed: Callable[[], None] = nothing,
        backends: Callable[[], Collection[str]] = tuple,
    ) -> Lease:
        made.append(Lease(store, lease_s, backends=backends, beat=beat, lapsed=lapsed))
        return made[-1]

    yield make
    for lease in made:
        lease.close()


def lost(store: Store) -> list[str]:
    return [job.id for job in store.lost()]


def owned_job(owner: str) -> Job:
    request = CompletionRequest(prompts=("p",))
    return Job(
        id="job", created_at=1.0, model="m", backend="b", request=request, owner=owner, attempt=1
    )


def test_each_process_has_a_name_of_its_own(make_lease):
    first, second = make_lease(), make_lease()
    assert first.owner == first.owner
    assert first.owner != second.owner
    assert f"-{os.getpid()}-" in first.owner


def test_what_is_held_is_nobody_elses_until_it_is_closed(make_lease, store):
    lease = make_lease()
    store.create(owned_job(lease.owner))
    assert lost(store) == ["job"]
    lease.hold()
    lease.hold()
    assert lost(store) == []
    lease.close()
    lease.close()
    assert lost(store) == ["job"]


def test_it_is_renewed_before_it_runs_out(make_lease, store, clock, eventually):
    lease = make_lease()
    store.create(owned_job(lease.owner))
    lease.hold()
    for _ in range(3):
        before = store.renewals
        clock.advance(0.2)  # the store's time; less than the lease
        eventually(lambda before=before: store.renewals > before)
        assert lost(store) == []


def test_each_renewal_tells_what_the_process_has_by_then(make_lease, store, eventually):
    has = ["a"]
    lease = make_lease(backends=lambda: tuple(has))
    lease.hold()
    assert store.backends == ("a",)
    has.append("b")
    eventually(lambda: store.backends == ("a", "b"))


def test_a_lease_that_nobody_renews_runs_out(make_lease, store, clock):
    lease = make_lease(lease_s=3600)
    store.create(owned_job(lease.owner))
    lease.hold()
    clock.advance(3599)
    assert lost(store) == []
    clock.advance(1)
    assert lost(store) == ["job"]


def test_holding_fails_with_the_store_and_starts_no_thread(make_lease, store, new_threads):
    store.troubles = 1
    lease = make_lease()
    with pytest.raises(StoreError, match="no connection"):
        lease.hold()
    assert new_threads("caesar-lease") == []
    lease.hold()
    assert store.renewals >= 1


def test_a_started_lease_waits_for_the_store(make_lease, store, caplog, eventually):
    store.troubles = 3
    beats: list[int] = []
    make_lease(beat=lambda: beats.append(1)).start()
    eventually(lambda: beats)
    assert store.renewals >= 1
    assert caplog.text.count("jobs cannot be looked after for now: no connection") == 1


def test_the_thread_looks_at_once_when_it_is_woken(make_lease, eventually):
    beats: list[int] = []
    lease = make_lease(lease_s=3600, beat=lambda: beats.append(1))
    lease.start()
    eventually(lambda: len(beats) == 1)
    lease.wake()
    eventually(lambda: len(beats) == 2)


def test_the_thread_lives_on_whatever_there_is_to_do(make_lease, caplog, eventually):
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        raise ValueError("broken")

    lease = make_lease(beat=beat)
    lease.start()
    eventually(lambda: len(beats) >= 2)
    assert "broken" in caplog.text


def test_a_process_that_was_silent_too_long_hears_of_it(
    make_lease, store, monkeypatch, eventually, caplog
):
    now = [100.0]
    monkeypatch.setattr(lease_module, "_now_s", lambda: now[0])
    calls: list[str] = []
    lease = make_lease(
        lease_s=30, beat=lambda: calls.append("beat"), lapsed=lambda: calls.append("lapsed")
    )
    lease.start()
    eventually(lambda: calls == ["beat"])
    now[0] += 29
    lease.wake()
    eventually(lambda: calls == ["beat", "beat"])
    now[0] += 30
    lease.wake()
    eventually(lambda: calls == ["beat", "beat", "lapsed", "beat"])
    assert store.renewals == 3
    assert "silent for 30.0 s" in caplog.text


def test_a_process_that_was_stopped_within_a_renewal_hears_of_it(
    make_lease, store, monkeypatch, eventually, caplog
):
    """The lease had run out before the renewal came, though no look at the clock was late."""
    now = [100.0]
    monkeypatch.setattr(lease_module, "_now_s", lambda: now[0])
    calls: list[str] = []
    lease = make_lease(
        lease_s=30, beat=lambda: calls.append("beat"), lapsed=lambda: calls.append("lapsed")
    )
    lease.start()
    eventually(lambda: calls == ["beat"])
    renew = store.renew

    def late(*whose: Any) -> None:
        now[0] += 21
        renew(*whose)

    monkeypatch.setattr(store, "renew", late)
    now[0] += 10
    lease.wake()
    eventually(lambda: calls == ["beat", "lapsed", "beat"])
    assert store.renewals == 2
    assert "silent for 31.0 s" in caplog.text
    monkeypatch.setattr(store, "renew", renew)
    lease.wake()
    eventually(lambda: store.renewals == 3)
    eventually(lambda: calls == ["beat", "lapsed", "beat", "beat"])


def test_what_failed_after_a_silence_is_tried_again(make_lease, monkeypatch, eventually, caplog):
    now = [100.0]
    monkeypatch.setattr(lease_module, "_now_s", lambda: now[0])
    calls: list[str] = []

    def lapsed() -> None:
        calls.append("lapsed")
        if calls.count("lapsed") == 1:
            raise StoreError("gone again")

    lease = make_lease(lease_s=30, beat=lambda: calls.append("beat"), lapsed=lapsed)
    lease.start()
    eventually(lambda: calls == ["beat"])
    now[0] += 31
    lease.wake()
    eventually(lambda: calls == ["beat", "lapsed", "lapsed", "beat"])
    lease.wake()
    eventually(lambda: calls == ["beat", "lapsed", "lapsed", "beat", "beat"])
    assert caplog.text.count("the process was silent for 31.0 s") == 1


def test_a_slow_first_renewal_is_not_taken_for_the_latest(
    make_lease, store, monkeypatch, eventually, in_thread
):
    now = [100.0]
    monkeypatch.setattr(lease_module, "_now_s", lambda: now[0])
    begun, gate, renew = threading.Event(), threading.Event(), store.renew
    calls: list[str] = []

    def slow(*whose: Any) -> None:
        if not begun.is_set():
            begun.set()
            gate.wait(WITHIN_S)
        renew(*whose)

    monkeypatch.setattr(store, "renew", slow)
    lease = make_lease(
        lease_s=30, beat=lambda: calls.append("beat"), lapsed=lambda: calls.append("lapsed")
    )
    first = in_thread(lease.hold)
    assert begun.wait(WITHIN_S)
    now[0] += 25
    lease.hold()
    eventually(lambda: calls == ["beat"])
    gate.set()
    first.result(WITHIN_S)
    now[0] += 6
    lease.wake()
    eventually(lambda: calls == ["beat", "beat"])


def test_nothing_begins_after_the_close(make_lease, store, new_threads):
    lease = make_lease()
    lease.close()
    lease.start()
    lease.hold()
    assert store.renewals == 0
    assert new_threads("caesar-lease") == []


def test_a_lease_that_cannot_be_ended_runs_out_by_itself(make_lease, store, caplog):
    lease = make_lease()
    lease.hold()

    def fail(owner: str) -> Any:
        raise StoreError("no connection")

    store.retire = fail
    lease.close()
    assert "the lease could not be ended: no connection" in caplog.text


def test_a_lease_that_was_renewed_after_a_look_at_the_clock_has_not_run_out(database):
    """Between a process's look at its clock and at the leases another one may renew its own."""
    renewing = SqlStore(SqliteDatabase(database, monotonic=lambda: 200.0))
    looking = SqlStore(SqliteDatabase(database, monotonic=lambda: 199.0))
    try:
        renewing.create(owned_job("me"))
        assert lost(looking) == ["job"]
        renewing.renew("me", 30)
        assert lost(looking) == []
        looking.renew("another", 30)
        assert lost(renewing) == []
    finally:
        looking.close()
        renewing.close()
