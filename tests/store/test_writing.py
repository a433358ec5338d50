"""The thread that writes: many steps in one transaction, each with its own fate."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from caesar_server.contract import (
    ChatRequest,
    Completed,
    CompletionRequest,
    ContentDelta,
    Message,
    Part,
    ProgressNoted,
)
from caesar_server.store.base import FencedError, Job, Record, StoreError, UnknownJobError
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.sql.connecting.writer import Step, Writer
from caesar_server.store.sql.postgres import PostgresDatabase
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore
from caesar_server.store.unreadable import StoreAwayError

WITHIN_S = 60.0

NewJob = Callable[..., Job]
Text = Callable[[int, int], list[Record]]
OpenStore = Callable[..., SqlStore]


class HeldDatabase(SqliteDatabase):
    """Counts transactions, and holds the next one up until it may go on."""

    transactions = 0

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.reached = threading.Event()
        self.may_go_on = threading.Event()

    def announce(self, connection: Any, token: str) -> None:
        self.transactions += 1
        self.reached.set()
        assert self.may_go_on.wait(WITHIN_S)


@pytest.fixture
def held(sqlite: SqliteDatabase) -> HeldDatabase:
    return HeldDatabase(sqlite.path)


def begin_behind(held: HeldDatabase, store: SqlStore, job: Job) -> Any:
    """Begin a step that holds the thread up, so that what comes next waits together."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="test")
    first = pool.submit(store.create, job)
    assert held.reached.wait(WITHIN_S)
    pool.shutdown(wait=False)
    return first


def test_what_waits_is_committed_together(
    held: HeldDatabase, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = open_store(held)
    first = begin_behind(held, store, new_job("first"))
    for number in range(20):
        store.create(new_job(str(number), owner="me", attempt=1), wait=False)
    appends = [
        store.append_soon(str(number), 1, text(first_seq, 3))
        for first_seq in (1, 4)
        for number in range(20)
    ]
    held.may_go_on.set()
    first.result(WITHIN_S)
    for append in appends:
        append.result(WITHIN_S)
    assert held.transactions == 2
    assert all(store.job(str(number)).last_seq == 6 for number in range(20))


def test_a_step_that_is_fenced_fails_alone(
    held: HeldDatabase, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = open_store(held)
    first = begin_behind(held, store, new_job("mine", owner="me", attempt=1))
    store.create(new_job("other", owner="me", attempt=1), wait=False)
    store.create(new_job("mine", model="another"), wait=False)
    before = store.append_soon("mine", 1, text(1, 2))
    zombie = store.append_soon("other", 2, text(1, 9), checkpoint=Checkpoint({"a": 1}))
    nobody = store.append_soon("nothing", 1, text(1, 9))
    after = store.append_soon("other", 1, text(1, 3))
    held.may_go_on.set()
    first.result(WITHIN_S)
    assert before.result(WITHIN_S) is after.result(WITHIN_S) is None
    assert isinstance(zombie.exception(WITHIN_S), FencedError)
    assert isinstance(nobody.exception(WITHIN_S), UnknownJobError)
    assert held.transactions == 2
    assert store.job("other").checkpoint is None
    assert (len(store.records("mine")), len(store.records("other"))) == (2, 3)


def test_what_the_database_refuses_harms_no_other_step(
    postgres: PostgresDatabase, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = open_store(postgres)
    store.create(new_job(owner="me", attempt=1))
    with psycopg.connect(postgres_dsn(postgres)) as other:
        # what is handed in while the first step waits for this row is committed together
        other.execute("SELECT 1 FROM caesar_jobs FOR UPDATE")
        steps = [store.append_soon("job", 1, text(1, 1))]
        with ThreadPoolExecutor(1, thread_name_prefix="test") as pool:
            refused = pool.submit(store.create, new_job("refused", account="a\0b"))
            steps += [store.append_soon("job", 1, text(seq, 1)) for seq in range(2, 20)]
            other.rollback()
            for step in steps:
                step.result(WITHIN_S)
            with pytest.raises(StoreError, match="NUL") as raised:
                refused.result(WITHIN_S)
    assert "INSERT" not in str(raised.value)
    assert store.job("job").last_seq == 19


def postgres_dsn(database: PostgresDatabase) -> str:
    return database.writing_engine().url.set(drivername="postgresql").render_as_string(False)


# what a client may send and a database does not take for text


@pytest.mark.parametrize("odd", ["a\0b", "half \ud83d of a pair", "\udc00", "'; --", "é\u2028"])
def test_odd_text_is_kept(database: Any, open_store: OpenStore, new_job: NewJob, odd: str) -> None:
    store = open_store(database)
    chat = ChatRequest(messages=(Message(role="user", parts=(Part(text=odd),)),))
    job = new_job(model=odd, backend_model=odd, request=chat, owner="me", attempt=1)
    store.create(job)
    records = [
        Record(1, 1.5, ContentDelta(odd)),
        Record(2, 2.5, ProgressNoted(odd)),
        Record(3, 3.5, Completed({odd: odd})),
    ]
    store.append("job", 1, records, checkpoint=Checkpoint({odd: [odd]}))
    assert store.job("job").request == chat
    assert (store.job("job").model, store.job("job").backend_model) == (odd, odd)
    assert store.job("job").checkpoint == {odd: [odd]}
    assert list(store.records("job")) == records


@pytest.mark.parametrize("id", ["", "\0", "a\0", "\ud800", "é", "%", "x" * 10_000])
def test_what_can_be_no_id_is_unknown(database: Any, open_store: OpenStore, id: str) -> None:
    store = open_store(database)
    for call in (store.job, store.records, store.request_cancel, lambda id: store.claim(id, "me")):
        with pytest.raises(UnknownJobError):
            call(id)
    assert isinstance(store.append_soon(id, 1, []).exception(WITHIN_S), UnknownJobError)
    assert store.positions([id]) == {}
    store.delete(id)


def test_large_jobs_are_kept_whole(database: Any, open_store: OpenStore, new_job: NewJob) -> None:
    store = open_store(database)
    request = CompletionRequest(prompts=("p" * 5_000_000,))
    store.create(new_job(request=request, owner="me", attempt=1))
    records = [Record(seq, 1.0, ContentDelta("x" * 2000)) for seq in range(1, 1001)]
    store.append("job", 1, records, checkpoint=Checkpoint({"text": "y" * 3_000_000}))
    assert store.job("job").request == request
    assert store.records("job", 990) == records[990:]
    assert len(store.job("job").checkpoint["text"]) == 3_000_000


# threads, the end, forks


def test_the_thread_starts_with_the_first_write_and_ends_with_the_store(
    sqlite: SqliteDatabase, new_job: NewJob, new_threads: Callable[[str], list[threading.Thread]]
) -> None:
    store = SqlStore(sqlite)
    assert store.jobs() == []
    changes = store.changes()
    assert new_threads("caesar-store") == []
    store.create(new_job())
    assert len(new_threads("caesar-store")) == 1
    store.close()
    assert new_threads("caesar-store") == []
    assert changes.wait(0)


def test_what_was_begun_is_stored_before_the_end(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = SqlStore(sqlite)
    store.create(new_job(owner="me", attempt=1), wait=False)
    begun = [store.append_soon("job", 1, text(seq, 1)) for seq in range(1, 301)]
    store.close()
    assert all(one.done() for one in begun)
    assert open_store(sqlite).job("job").last_seq == 300


def test_a_closed_store_says_so(sqlite: SqliteDatabase, new_job: NewJob) -> None:
    store = SqlStore(sqlite)
    store.create(new_job(owner="me", attempt=1))
    store.close()
    for call in (
        lambda: store.create(new_job("b")),
        lambda: store.job("job"),
        lambda: store.changes(),
        lambda: store.check(),
        lambda: store.append("job", 1, []),
        lambda: store.append_soon("job", 1, []).result(WITHIN_S),
    ):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_a_callback_may_begin_the_next_step(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = open_store(sqlite)
    store.create(new_job(owner="me", attempt=1))
    last = threading.Event()

    def go_on(seq: int) -> None:
        if seq > 50:
            last.set()
            return
        step = store.append_soon("job", 1, text(seq, 1))
        step.add_done_callback(lambda _: go_on(seq + 1))

    go_on(1)
    assert last.wait(WITHIN_S)
    assert store.job("job").last_seq == 50


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_has_connections_of_its_own(
    database: Any, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = open_store(database)
    store.create(new_job(owner="me", attempt=1))
    store.append("job", 1, text(1, 1))
    changes = store.changes()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.append("job", 1, text(2, 1))
            code = 0 if len(store.records("job")) == 2 else 2
            store.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.append("job", 1, text(3, 1))
    assert len(store.records("job")) == 3
    assert changes.wait(WITHIN_S)


# a commit whose answer is lost


def test_each_step_is_done_once_though_its_commit_was_not_heard_of(
    losing: Any, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = open_store(losing)
    store.renew("me", 60)

    def lossy(call: Callable[[], Any]) -> Any:
        losing.losses = 1
        result = call()
        assert losing.losses == 0
        return result

    lossy(lambda: store.create(new_job(detached=True)))
    assert lossy(lambda: store.claim("job", "me", attempt=0)).attempt == 1
    lossy(lambda: store.append("job", 1, text(1, 3), checkpoint=Checkpoint({"a": 1})))
    lossy(lambda: store.append("job", 1, [], checkpoint=Checkpoint({"a": 2})))
    lossy(lambda: store.release("job", 1))
    assert lossy(lambda: store.claim_next("me", ["b"])).attempt == 2
    assert lossy(lambda: store.claim("job", "me")).attempt == 3
    assert lossy(lambda: store.request_cancel("job")).cancel_requested
    lossy(lambda: store.append("job", 3, [Record(4, 9.0, Completed())]))
    stored = store.job("job")
    assert (stored.status, stored.attempt, stored.released) == ("completed", 3, 1)
    assert (stored.last_seq, stored.checkpoint) == (4, {"a": 2})
    assert [record.seq for record in store.records("job")] == [1, 2, 3, 4]
    lossy(lambda: store.retire("me"))
    lossy(lambda: store.delete("job"))
    with pytest.raises(UnknownJobError):
        store.job("job")


def test_a_claim_that_nobody_heard_of_is_given_back(
    losing: Any, open_store: OpenStore, new_job: NewJob
) -> None:
    store = open_store(losing, retry_s=0)
    store.renew("me", 60)
    store.create(new_job("a", detached=True))
    store.create(new_job("b", detached=True, created_at=1.0))
    for claim in (lambda: store.claim("a", "me", attempt=0), lambda: store.claim_next("me", ["b"])):
        losing.losses = 1
        with pytest.raises(StoreError, match="closed the connection"):
            claim()
    store.renew("me", 60)
    for id in ("a", "b"):
        stored = store.job(id)
        assert stored.owner is None
        assert stored.attempt == stored.released
    assert store.waiting(limit=9) == 2


def test_a_job_that_was_refused_does_not_come_to_be(
    losing: Any, open_store: OpenStore, new_job: NewJob
) -> None:
    store = open_store(losing, retry_s=0)
    store.renew("me", 60)
    losing.losses = 1
    with pytest.raises(StoreError, match="closed the connection"):
        store.create(new_job(detached=True))
    store.renew("me", 60)
    assert store.jobs() == []


class AwayDatabase(SqliteDatabase):
    """Cannot be reached."""

    def writing_engine(self) -> Any:
        raise ConnectionError("away")

    def kind_of(self, error: BaseException) -> Any:
        return "lost"


def test_who_waits_for_less_hears_of_it_however_many_stand_before(sqlite: SqliteDatabase) -> None:
    writer = Writer(AwayDatabase(sqlite.path), retry_s=10_000, announce=list, token="")
    patient = [Step(lambda connection, again: None) for _ in range(600)]
    for step in patient:
        writer.begin(step)
    # its third of the time is over already
    asked = Step(lambda connection, again: None, asked=True, begun_at=time.monotonic() - 5000)
    assert isinstance(writer.begin(asked).exception(WITHIN_S), StoreAwayError)
    assert not any(step.done.done() for step in patient)
    writer.close()
    assert all(isinstance(step.done.exception(0), StoreAwayError) for step in patient)


def test_a_step_that_is_tried_alone_keeps_its_place_and_its_transaction(
    sqlite: SqliteDatabase,
) -> None:
    """One of three is refused, so each is tried by itself; then the connection is lost."""

    class Returning(AwayDatabase):
        tries = 0

        def writing_engine(self) -> Any:
            self.tries += 1
            handed_in.wait(WITHIN_S)
            return super().writing_engine() if self.tries == 1 else sqlite.writing_engine()

        def kind_of(self, error: BaseException) -> Any:
            return "lost" if isinstance(error, ConnectionError) else "final"

    handed_in, order = threading.Event(), list[str]()
    transactions: list[Any] = []

    def note(name: str, connection: Any) -> None:
        order.append(name)
        transactions.append(connection.get_transaction())

    def refuse(connection: Any, again: bool) -> None:
        raise RuntimeError("refused")

    def lose_twice(connection: Any, again: bool) -> None:
        note("lost", connection)
        if len(order) == 1:
            writer.begin(late)
        if len(order) <= 2:
            raise ConnectionError("lost")

    def doing(name: str) -> Step:
        return Step(lambda connection, again: note(name, connection), tells=False)

    writer = Writer(Returning(sqlite.path), retry_s=10_000, announce=list, token="")
    refused, lost = Step(refuse, tells=False), Step(lose_twice, tells=False)
    last, late = doing("last"), doing("late")
    for step in (refused, lost, last):
        writer.begin(step)
    handed_in.set()
    with pytest.raises(StoreError):
        refused.done.result(WITHIN_S)
    for step in (lost, last, late):
        step.done.result(WITHIN_S)
    writer.close()
    assert order == ["lost", "lost", "lost", "last", "late"]
    assert len(set(transactions)) == 5


def test_more_steps_than_are_done_at_once_are_done_in_their_order(
    sqlite: SqliteDatabase,
) -> None:
    class Returning(AwayDatabase):
        tries = 0

        def writing_engine(self) -> Any:
            self.tries += 1
            handed_in.wait(WITHIN_S)
            return super().writing_engine() if self.tries == 1 else sqlite.writing_engine()

    handed_in, order = threading.Event(), list[int]()

    def doing(number: int) -> Step:
        return Step(lambda connection, again: order.append(number), tells=False)

    writer = Writer(Returning(sqlite.path), retry_s=10_000, announce=list, token="")
    steps = [doing(number) for number in range(600)]
    for step in steps:
        writer.begin(step)
    handed_in.set()
    for step in steps:
        step.done.result(WITHIN_S)
    assert order == list(range(600))
    writer.close()


@pytest.mark.parametrize("state", [["a", "b", "c"], ["a", []], [{"a": 1}, [5]], [], "text", 3])
@pytest.mark.parametrize("unrepeated", [(), (2, 3)])
def test_whatever_a_backend_gives_as_its_state_is_given_back(
    database: Any, open_store: OpenStore, new_job: NewJob, text: Text, state: Any, unrepeated: Any
) -> None:
    store = open_store(database)
    store.create(new_job("odd", owner="me", attempt=1))
    store.append("odd", 1, text(1, 3), checkpoint=Checkpoint(state, unrepeated))
    stored = store.job("odd")
    assert (stored.checkpoint, stored.unrepeated) == (state, unrepeated)
    assert [job.id for job in store.jobs()] == ["odd"]
