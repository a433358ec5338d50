"""The database file: who may read it, and what is said when it cannot be used."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from caesar_server.contract import Completed, CompletionRequest, ContentDelta
from caesar_server.store.base import Job, Record, StoreError, UnknownJobError
from caesar_server.store.sql.leasing.boot import boot_id, boot_time_s
from caesar_server.store.sql.revisions import check_revision, revision_of, upgrade
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore
from caesar_server.testing import FakeClock

NewJob = Callable[..., Job]
Text = Callable[[int, int], list[Record]]
OpenStore = Callable[..., SqlStore]

WITHIN_S = 60.0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def large(seq: int) -> list[Record]:
    return [Record(seq, 1.0, ContentDelta(f"{seq}" * 20_000))]


# its modes


def test_file_and_new_folders_are_for_their_owner_alone(
    tmp_path: Path, open_store: OpenStore, new_job: NewJob
) -> None:
    before = os.umask(0o022)
    try:
        database = SqliteDatabase(tmp_path / "new" / "deep" / "jobs.sqlite3")
        upgrade(database)
        open_store(database).create(new_job())
    finally:
        os.umask(before)
    folder = database.path.parent
    assert mode(folder) == 0o700
    assert {path.name: mode(path) for path in folder.iterdir()} == {
        "jobs.sqlite3": 0o600,
        "jobs.sqlite3-wal": 0o600,
        "jobs.sqlite3-shm": 0o600,
    }


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    upgrade(SqliteDatabase(tmp_path / "jobs.sqlite3"))
    assert mode(tmp_path) == 0o750


@pytest.mark.parametrize(("synchronous", "number"), [("normal", 1), ("full", 2)])
def test_how_far_a_commit_waits_for_the_disk_is_chosen(
    sqlite: SqliteDatabase, synchronous: Any, number: int
) -> None:
    connection = SqliteDatabase(sqlite.path, synchronous).connect()
    try:
        assert connection.execute("PRAGMA synchronous").fetchone() == (number,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        connection.close()


@pytest.mark.parametrize("name", ["with space", "per%20cent", "qu?stion", "ha#sh", "é"])
def test_odd_names_are_names(
    tmp_path: Path, name: str, open_store: OpenStore, new_job: NewJob
) -> None:
    database = SqliteDatabase(tmp_path / name)
    upgrade(database)
    open_store(database).create(new_job())
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}-wal", f"{name}-shm"}


def test_a_file_that_is_gone_is_not_made_anew(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob
) -> None:
    sqlite.path.unlink()
    assert revision_of(sqlite) is None
    with pytest.raises(StoreError, match="caesar-server store upgrade"):
        check_revision(sqlite)
    store = open_store(sqlite, retry_s=0)
    for call in (store.jobs, store.check, lambda: store.create(new_job())):
        with pytest.raises(StoreError, match="is not there or cannot be opened"):
            call()
    assert not sqlite.path.exists()


# a full disk


class SmallDatabase(SqliteDatabase):
    """May not grow beyond so many pages."""

    pages = 200

    def connect(self) -> sqlite3.Connection:
        connection = super().connect()
        connection.execute(f"PRAGMA max_page_count = {self.pages}")
        return connection


def test_nothing_acknowledged_is_lost_when_the_disk_is_full(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob
) -> None:
    small = SmallDatabase(sqlite.path)
    store = open_store(small)
    store.create(new_job(owner="me", attempt=1))
    stored = 0
    with pytest.raises(StoreError, match="the disk is full"):
        for seq in range(1, 1000):
            store.append("job", 1, large(seq))
            stored = seq
    assert stored > 0
    assert store.job("job").last_seq == stored
    assert len(store.records("job")) == stored
    with pytest.raises(StoreError, match="the disk is full"):
        store.append("job", 1, large(stored + 1))
    small.pages = 100_000
    store.append("job", 1, large(stored + 1))
    assert len(store.records("job")) == stored + 1
    store.check()


def test_small_steps_go_on_beside_one_that_there_is_no_room_for(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = open_store(SmallDatabase(sqlite.path))
    for id in ("a", "b"):
        store.create(new_job(id, owner="me", attempt=1))
    huge = [Record(1, 1.0, ContentDelta("x" * 5_000_000))]
    begun = [store.append_soon("b", 1, text(1, 1)), store.append_soon("a", 1, huge)]
    begun.append(store.append_soon("b", 1, text(2, 1)))
    failed = [one.exception(WITHIN_S) for one in begun]
    assert failed[0] is failed[2] is None
    assert isinstance(failed[1], StoreError)
    assert (store.job("a").last_seq, store.job("b").last_seq) == (0, 2)


def test_a_job_that_nobody_saw_fail_was_not_deleted(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob, text: Text
) -> None:
    store = open_store(SmallDatabase(sqlite.path))
    store.check()
    for id in ("a", "b"):
        huge = CompletionRequest(prompts=(id * 5_000_000,))
        store.create(new_job(id, owner="me", attempt=1, request=huge), wait=False)
        begun = [store.append_soon(id, 1, text(1, 1)), store.append_soon(id, 1, text(1, 1))]
        with pytest.raises(StoreError, match="the disk is full"):
            begun[0].result(WITHIN_S)
        # told once: nobody can store its end when there is room again
        with pytest.raises(UnknownJobError):
            begun[1].result(WITHIN_S)


PROLOGUE = """
import os, resource, sys
from pathlib import Path
from caesar_server.contract import CompletionRequest, ContentDelta
from caesar_server.store.base import Job, Record, StoreError
from caesar_server.store.sql.revisions import check_revision, upgrade
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore
import sqlalchemy.dialects.sqlite.pysqlite, alembic.command

def new_job(id):
    return Job(id=id, created_at=1.0, model="m", backend="b", owner="me", attempt=1,
               request=CompletionRequest(prompts=("p",)))

def become_nobody():
    if os.geteuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)

def said(call):
    try:
        call()
    except StoreError as error:
        print(str(error).replace(str(database.path), "FILE"))
    else:
        print("done")

database = SqliteDatabase(Path(sys.argv[1]))
"""


def in_a_child(code: str, path: Path) -> list[str]:
    """Run code in another process, since it changes limits or the user; return what it prints."""
    script = PROLOGUE + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_nothing_acknowledged_is_lost_at_the_largest_file_size(
    sqlite: SqliteDatabase, open_store: OpenStore
) -> None:
    lines = in_a_child(
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        store = SqlStore(database)
        store.create(new_job("job"))
        stored = 0
        try:
            for seq in range(1, 1000):
                store.append("job", 1, [Record(seq, 1.0, ContentDelta("x" * 20_000))])
                stored = seq
        except StoreError as error:
            print(stored, error, sep="\\n")
        print(store.job("job").last_seq == len(store.records("job")) == stored)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000_000, resource.RLIM_INFINITY))
        store.append("job", 1, [Record(stored + 1, 1.0, ContentDelta("x"))])
        store.close()
        """,
        sqlite.path,
    )
    stored = int(lines[0])
    assert stored > 0
    assert "the disk failed or has no room" in lines[1]
    assert lines[2] == "True"
    assert len(open_store(sqlite).records("job")) == stored + 1


# rights


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may look into."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


def given_to_nobody(path: Path, mode: int) -> None:
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    path.chmod(mode)


def test_a_file_that_may_only_be_read_is_refused_with_a_sentence(open_folder: Path) -> None:
    path = open_folder / "jobs.sqlite3"
    upgrade(SqliteDatabase(path))
    given_to_nobody(path, 0o400)
    lines = in_a_child(
        """
        become_nobody()
        store = SqlStore(database)
        said(lambda: store.create(new_job("job")))
        said(store.check)
        said(lambda: upgrade(database))
        store.close()
        """,
        path,
    )
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("store: the file FILE")
        assert "right to write" in line


def test_another_users_file_and_folder_are_refused_with_a_sentence(open_folder: Path) -> None:
    path = open_folder / "jobs.sqlite3"
    upgrade(SqliteDatabase(path))
    path.chmod(0o600)
    if os.geteuid() != 0:
        path.chmod(0)
    lines = in_a_child(
        """
        become_nobody()
        said(lambda: check_revision(database))
        said(lambda: upgrade(database))
        said(lambda: upgrade(SqliteDatabase(database.path.parent / "new" / "jobs.sqlite3")))
        store = SqlStore(database, retry_s=0)
        said(store.jobs)
        said(lambda: store.create(new_job("job")))
        store.close()
        """,
        path,
    )
    assert len(lines) == 5
    for line in lines:
        assert line.startswith("store: the file ")
        assert "right to write" in line


# damage


@pytest.mark.parametrize("size", [100, 100_000])
def test_what_is_no_database_is_said_to_be_none(tmp_path: Path, size: int) -> None:
    path = tmp_path / "jobs.sqlite3"
    path.write_bytes(b"no database " * (size // 12))
    database = SqliteDatabase(path)
    for call in (upgrade, check_revision):
        with pytest.raises(StoreError, match="no database of SQLite, or it is damaged"):
            call(database)
    assert path.read_bytes() == b"no database " * (size // 12)


def test_damage_is_said_to_be_damage(
    sqlite: SqliteDatabase, new_job: NewJob, open_store: OpenStore, text: Text
) -> None:
    store = SqlStore(sqlite)
    for number in range(300):
        store.create(new_job(f"job{number}", owner="me", attempt=1))
        store.append(f"job{number}", 1, text(1, 20))
    store.close()
    pages = bytearray(sqlite.path.read_bytes())
    pages[8192:] = b"\xff" * (len(pages) - 8192)
    sqlite.path.write_bytes(pages)
    damaged = open_store(sqlite)
    for call in (
        lambda: damaged.records("job1"),
        lambda: damaged.create(new_job("new")),
        lambda: damaged.append("job7", 1, text(21, 1)),
    ):
        with pytest.raises(StoreError, match="it is damaged; put a copy"):
            call()


# others that write


def test_a_write_waits_for_those_of_others(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob
) -> None:
    other = sqlite.connect()
    other.execute("BEGIN IMMEDIATE")
    store = open_store(sqlite)
    store.create(new_job(owner="me", attempt=1), wait=False)
    step = store.append_soon("job", 1, [])
    assert store.jobs() == []  # reads do not wait
    assert not step.done()
    other.execute("COMMIT")
    other.close()
    step.result(WITHIN_S)


def test_a_lock_that_is_never_given_back_is_told(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob
) -> None:
    impatient = SqliteDatabase(sqlite.path, busy_timeout_s=0.01)
    other = sqlite.connect()
    other.execute("BEGIN IMMEDIATE")
    store = open_store(impatient, retry_s=0.1)
    with pytest.raises(StoreError, match="kept it locked for too long"):
        store.create(new_job())
    other.execute("ROLLBACK")
    other.close()
    store.create(new_job())


# room


def test_the_room_of_removed_jobs_is_given_back(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob
) -> None:
    store = open_store(sqlite)
    for number in range(20):
        store.create(new_job(str(number), owner="me", attempt=1))
        store.append(str(number), 1, [*large(1), Record(2, 2.0, Completed())])

    def pages() -> int:
        with contextlib.closing(sqlite.connect()) as connection:
            count: int = connection.execute("PRAGMA page_count").fetchone()[0]
            return count

    before = pages()
    while store.prune(keep=0, limit=5):
        pass
    assert pages() < before / 2


# leases


def test_leases_of_another_start_of_the_machine_have_run_out(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob
) -> None:
    earlier = SqliteDatabase(sqlite.path)
    earlier.boot_id = "another start"
    before = open_store(earlier)
    before.create(new_job(detached=True))
    before.renew("a", 3600)
    before.claim("job", "a")
    assert before.claim_next("b", ["b"]) is None
    assert open_store(sqlite).claim_next("b", ["b"]).owner == "b"


def test_leases_follow_the_machines_clock_alone(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob
) -> None:
    clock = FakeClock()
    store = open_store(SqliteDatabase(sqlite.path, monotonic=clock.monotonic))
    store.create(new_job(detached=True))
    store.renew("a", 30)
    store.claim("job", "a")
    clock.advance(29.5)
    assert list(store.lost()) == []
    clock.advance(0.5)
    assert [lost.id for lost in store.lost()] == ["job"]


def test_a_lease_from_the_future_is_none(
    sqlite: SqliteDatabase, open_store: OpenStore, new_job: NewJob
) -> None:
    """Where nothing tells starts of the machine apart, its clock has begun anew."""
    clock = FakeClock(monotonic_s=50_000.0)
    before = open_store(SqliteDatabase(sqlite.path, monotonic=clock.monotonic))
    before.create(new_job(detached=True))
    before.renew("a", 30)
    before.claim("job", "a")
    restarted = FakeClock(monotonic_s=10.0)
    after = open_store(SqliteDatabase(sqlite.path, monotonic=restarted.monotonic))
    assert after.claim_next("b", ["b"]).owner == "b"


def test_the_boot_clock_goes_on_and_its_id_stays() -> None:
    first = boot_time_s()
    assert boot_time_s() >= first > 0
    assert boot_id() == boot_id()
