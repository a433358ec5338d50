"""What an account may have: counted in the step that adds to it, whoever adds at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from caesar_server.contract import (
    BrainstormRequest,
    ChatRequest,
    Completed,
    CompletionRequest,
    ErrorInfo,
    Event,
    Failed,
    FollowUpRequest,
    LoopFinished,
    Message,
    ResearchRequest,
    StatusChanged,
)
from caesar_server.store.base import FencedError, Job, Record, Store
from caesar_server.store.owned.base import OwnedSession, SessionUsedError, UnknownOwnedError
from caesar_server.store.quotas import (
    Quota,
    QuotaExceededError,
    Standing,
    month_end,
    month_of,
)
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore

NewJob = Callable[..., Job]
OpenStore = Callable[..., SqlStore]

WITHIN_S = 60.0
CREATOR = Path(__file__).with_name("creator.py")
#: 23:59:59 UTC of the last day of November 2025.
END_OF_NOVEMBER = 1_764_547_199.0
NOVEMBER, DECEMBER = "2025-11", "2025-12"

REQUESTS = {
    "completion": CompletionRequest(prompts=("p",)),
    "chat": ChatRequest(messages=(Message(role="user"),)),
    "research": ResearchRequest(query="q"),
    "follow_up": FollowUpRequest(content="c", query="q", answer="a"),
    "brainstorm": BrainstormRequest(query="q"),
}


def completed(loops: Any = None) -> Completed:
    return Completed({} if loops is None else {"loops_consumed": loops})


def run(store: Store, job: Job, *events: Event, at: float = END_OF_NOVEMBER) -> Job:
    """Create a job and store events, each by itself."""
    store.create(job)
    attempt = store.claim(job.id, "me").attempt
    for seq, event in enumerate(events, 1):
        store.append(job.id, attempt, [Record(seq, at, event)])
    return store.job(job.id) if events else job


# months


@pytest.mark.parametrize(
    ("moment", "month", "left_s"),
    [
        (END_OF_NOVEMBER, "2025-11", 1),
        (END_OF_NOVEMBER + 1, "2025-12", 31 * 86_400),
        (1_709_164_800.0, "2024-02", 86_400),
        (1_767_225_599.5, "2025-12", 0.5),
    ],
)
def test_a_month_is_one_of_utc(moment: float, month: str, left_s: float) -> None:
    assert month_of(moment) == month
    assert month_end(moment) - moment == left_s


# jobs in progress


def test_with_so_many_jobs_there_is_no_room_for_another(store: Store, new_job: NewJob) -> None:
    quota = Quota(month=NOVEMBER, jobs_in_progress=2)
    for id in ("a", "b"):
        store.create(new_job(id, account="x"), quota=quota)
    with pytest.raises(QuotaExceededError) as refused:
        store.create(new_job("c", account="x"), quota=quota)
    assert refused.value.limit == "jobs_in_progress"
    assert refused.value.standing == Standing(jobs_in_progress=2, loops=0)
    assert {job.id for job in store.jobs()} == {"a", "b"}
    store.create(new_job("other", account="y"), quota=quota)
    store.create(new_job("unlimited", account="x"), quota=Quota(month=NOVEMBER))
    store.create(new_job("not counted", account="x"))
    store.delete("unlimited")
    store.delete("not counted")
    store.append("a", store.claim("a", "me").attempt, [Record(1, 1.0, completed())])
    store.create(new_job("c", account="x"), quota=quota)


@pytest.mark.parametrize("how", ["complete", "fail", "delete"])
def test_a_job_is_in_progress_until_its_end(store: Store, new_job: NewJob, how: str) -> None:
    run(store, new_job(account="x"), StatusChanged("searching"))
    assert store.standing("x", NOVEMBER).jobs_in_progress == 1
    assert store.standing("y", NOVEMBER).jobs_in_progress == 0
    if how == "delete":
        store.delete("job")
    else:
        failed = Failed(ErrorInfo("no", "c"))
        event = completed() if how == "complete" else failed
        store.append("job", 1, [Record(2, END_OF_NOVEMBER, event)])
    assert store.standing("x", NOVEMBER).jobs_in_progress == 0


def test_follow_ups_and_brainstorms_do_not_count(store: Store, new_job: NewJob) -> None:
    for kind, request in REQUESTS.items():
        store.create(new_job(kind, account="x", request=request))
        assert store.job(kind).kind == kind
    assert store.standing("x", NOVEMBER).jobs_in_progress == 3


# loops


@pytest.mark.parametrize(
    ("events", "loops", "consumed"),
    [
        ([completed()], 0, 0),
        ([LoopFinished(1), LoopFinished(2), completed()], 2, 2),
        # as after a takeover: some are told again
        ([LoopFinished(1), LoopFinished(2), LoopFinished(1), LoopFinished(2), completed()], 2, 2),
        ([LoopFinished(3), completed(1)], 1, 1),
        ([LoopFinished(3), completed(0)], 0, 0),
        ([completed(4)], 4, 4),
        ([LoopFinished(3), completed(True)], 3, 3),
        ([LoopFinished(3), completed(-1)], 3, 3),
        ([LoopFinished(3), completed("7")], 3, 3),
        ([LoopFinished(3), completed(2.0)], 3, 3),
        ([completed(10**30)], 2**31 - 1, 2**31 - 1),
        ([LoopFinished(3)], 3, 0),
        ([LoopFinished(3), StatusChanged("analyzing")], 3, 0),
        ([LoopFinished(3), Failed(ErrorInfo("no", "c"))], 3, 0),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_loops_follow_from_the_records_and_count_when_it_completes(
    store: Store,
    new_job: NewJob,
    events: list[Event],
    loops: int,
    consumed: int,
    at_once: bool,
) -> None:
    job = new_job(account="x")
    if at_once:
        store.create(job)
        records = [Record(seq, END_OF_NOVEMBER, event) for seq, event in enumerate(events, 1)]
        store.append("job", store.claim("job", "me").attempt, records)
    else:
        run(store, job, *events)
    assert store.job("job").loops == loops
    assert store.standing("x", NOVEMBER).loops == consumed
    assert store.standing("x", DECEMBER).loops == store.standing("y", NOVEMBER).loops == 0


def test_loops_count_in_the_month_in_which_the_job_ends(store: Store, new_job: NewJob) -> None:
    run(store, new_job("a", account="x"), LoopFinished(2), completed())
    run(store, new_job("b", account="x"), LoopFinished(3), completed())
    run(store, new_job("c", account="x"), completed(5), at=END_OF_NOVEMBER + 1)
    assert [store.standing("x", month).loops for month in (NOVEMBER, DECEMBER)] == [5, 5]


def test_what_was_consumed_outlives_the_jobs(store: Store, new_job: NewJob) -> None:
    for id in ("a", "b"):
        run(store, new_job(id, account="x"), completed(5))
    store.delete("a")
    assert store.prune(finished_before=END_OF_NOVEMBER + 1) == 1
    assert store.standing("x", NOVEMBER) == Standing(jobs_in_progress=0, loops=10)


def test_a_fenced_end_counts_nothing(store: Store, new_job: NewJob) -> None:
    run(store, new_job(account="x"), LoopFinished(2))
    store.claim("job", "heir")
    with pytest.raises(FencedError):
        store.append("job", 1, [Record(2, END_OF_NOVEMBER, completed(9))])
    assert store.standing("x", NOVEMBER).loops == 0
    store.append("job", 2, [Record(2, END_OF_NOVEMBER, completed())])
    with pytest.raises(FencedError):
        store.append("job", 2, [Record(2, END_OF_NOVEMBER, completed())])
    assert store.standing("x", NOVEMBER).loops == 2


def test_once_the_loops_are_used_up_there_are_no_more_jobs(store: Store, new_job: NewJob) -> None:
    quota = Quota(month=NOVEMBER, loops=5, jobs_in_progress=1)
    run(store, new_job("a", account="x"), completed(4))
    run(store, new_job("b", account="x"), LoopFinished(1))
    with pytest.raises(QuotaExceededError) as refused:
        store.create(new_job("c", account="x"), quota=quota)
    assert refused.value.limit == "jobs_in_progress"
    store.append("b", 1, [Record(2, END_OF_NOVEMBER, completed())])
    store.create(new_job("c", account="x"))
    with pytest.raises(QuotaExceededError) as refused:
        store.create(new_job("d", account="x"), quota=quota)
    # both are; what lasts longer is told
    assert refused.value.limit == "loops"
    assert refused.value.standing == Standing(jobs_in_progress=1, loops=5)
    store.delete("c")
    store.create(new_job("d", account="x"), quota=Quota(month=DECEMBER, loops=5))


# sessions


def test_a_session_is_used_by_one_job(store: Store, new_job: NewJob) -> None:
    assert store.session_job("s") is None
    store.create(new_job("a", session_id="s"))
    store.create(new_job("other", session_id="t"))
    with pytest.raises(SessionUsedError):
        store.create(new_job("b", session_id="s"))
    with pytest.raises(ValueError, match="exists"):
        store.create(new_job("a", session_id="u"))
    assert {job.id for job in store.jobs()} == {"a", "other"}
    assert (store.session_job("s"), store.session_job("u")) == ("a", None)
    assert store.session_job("no\0id\ud800") is None
    store.delete("a")
    assert store.session_job("s") is None
    store.create(new_job("b", session_id="s"))
    assert store.session_job("s") == "b"


@pytest.mark.parametrize("remove", ["delete", "prune"])
def test_a_session_goes_with_a_job_that_has_begun(
    store: Store, new_job: NewJob, remove: str
) -> None:
    for id in ("begun", "other"):
        store.owned.add_session(OwnedSession(id=id, account="x", query="q", created_at=1.0))
        store.create(new_job(id, account="x", session_id=id))
    store.append("begun", store.claim("begun", "me").attempt, [Record(1, 2.0, Completed())])
    if remove == "delete":
        store.delete("begun")
    else:
        assert store.prune(finished_before=3.0) == 1
    assert store.session_job("begun") is None
    with pytest.raises(UnknownOwnedError):
        store.owned.session("x", "begun")
    assert store.owned.session("x", "other").id == "other"
    # nobody was told of it: it could not be begun
    store.delete("other")
    assert store.session_job("other") is None
    assert store.owned.session("x", "other").id == "other"


# several processes


def url_of(database: Any) -> str:
    if isinstance(database, SqliteDatabase):
        return f"sqlite:///{database.path}"
    url: str = database.writing_engine().url.render_as_string(hide_password=False)
    return url


def add_at_once(database: Any, what: str) -> list[str]:
    """Let two processes add 25 each; return what they say they added."""
    with ExitStack() as stack:
        creators = []
        for name in ("one", "two"):
            command = [sys.executable, str(CREATOR), url_of(database), name, what]
            creator = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.callback(creator.wait, WITHIN_S)
            stack.callback(creator.kill)
            creators.append(creator)
        for creator in creators:
            assert creator.stdout is not None
            assert creator.stdout.readline() == "ready\n"
        for creator in creators:
            assert creator.stdin is not None
            creator.stdin.write("go\n")
            creator.stdin.flush()
        lines = [
            line for one in creators for line in one.communicate(timeout=WITHIN_S)[0].split("\n")
        ]
    assert lines.count("end") == 2
    return [line.removeprefix("added ") for line in lines if line.startswith("added ")]


@pytest.mark.parametrize(("what", "added"), [("quota", 5), ("session", 1)])
def test_of_fifty_created_at_once_by_two_processes_no_more_come_to_be_than_may(
    database: Any, open_store: OpenStore, what: str, added: int
) -> None:
    ids = add_at_once(database, what)
    assert len(ids) == added
    assert {job.id for job in open_store(database).jobs()} == set(ids)


def test_of_fifty_files_added_at_once_by_two_processes_five_share_their_bytes(
    database: Any, open_store: OpenStore
) -> None:
    keys = add_at_once(database, "files")
    assert len(keys) == 5
    assert {file.key for file in open_store(database).owned.files("a")} == set(keys)
    assert len(set(keys)) == 1


def test_of_fifty_collections_added_at_once_by_two_processes_five_come_to_be(
    database: Any, open_store: OpenStore
) -> None:
    ids = add_at_once(database, "collections")
    assert len(ids) == 5
    assert {one.id for one in open_store(database).owned.collections("a")} == set(ids)


def test_the_lock_of_an_account_is_the_same_in_each_process(postgres: Any) -> None:
    """And of another account it is another one; so they wait for their own kind alone."""
    engine = postgres.writing_engine()
    with engine.connect() as one, engine.connect() as two:
        postgres.lock_accounts(one, {"x", "ü\ud800", ""})
        postgres.lock_accounts(two, {"y"})
        # other tests have databases of their own on the same server
        held = (
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        )
        assert one.exec_driver_sql(held).scalar() == 4
        two.exec_driver_sql("SET LOCAL lock_timeout = 50")
        with pytest.raises(Exception, match="lock timeout"):
            postgres.lock_accounts(two, {"x"})
    engine.dispose()
