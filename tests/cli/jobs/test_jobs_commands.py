"""``caesar-server jobs``: what is in the database, and what can be done about it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from caesar_server.cli import main
from caesar_server.contract import (
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    ErrorInfo,
    Failed,
)
from caesar_server.contract.events import StatusChanged
from caesar_server.store.base import Job, Record, Store
from caesar_server.store.sql.revisions import upgrade
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore

LONG = "why " * 100


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    path = tmp_path / "jobs.sqlite3"
    monkeypatch.setenv("CAESAR_SERVER_STORE", f"sqlite:///{path}")
    monkeypatch.chdir(tmp_path)
    database = SqliteDatabase(path)
    upgrade(database)
    store = SqlStore(database)
    store.renew("elsewhere", 60)
    yield store
    store.close()


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, ["jobs", *arguments], **options)


def add(store: Store, *events: Any, age_s: float = 0, claimed: bool = True, **more: Any) -> Job:
    """Store a job with these events, which began ``age_s`` seconds ago and took one."""
    created_at = time.time() - age_s
    job = Job(
        id=str(uuid.uuid4()),
        created_at=created_at,
        model="m",
        request=CompletionRequest(prompts=(LONG,)),
        **{"backend": "slow", "detached": True, "durable": True, **more},
    )
    store.create(job)
    if claimed:
        job = store.claim(job.id, "elsewhere")
        told = (StatusChanged("queued"), *events)
        store.append(
            job.id, 1, [Record(seq, created_at + 1, event) for seq, event in enumerate(told, 1)]
        )
    return store.job(job.id)


DONE = (ContentDelta("because"), ChoiceFinished(), Completed())
BROKEN = (Failed(ErrorInfo(message="m", code="no_luck", type="server_error", status=500)),)


def test_jobs_are_listed_the_newest_first(store: Store) -> None:
    done = add(store, *DONE, age_s=30, account="anna")
    broken = add(store, *BROKEN, age_s=20)
    waits = add(store, age_s=10, claimed=False, backend="other")
    runs = add(store)
    lines = run("list").output.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", runs.id, waits.id, broken.id, done.id]
    assert "running" in lines[1]
    assert "elsewhere" in lines[1]
    assert "queued" in lines[2]
    assert "failed (no_luck)" in lines[3]
    assert "anna" in lines[4]
    assert "1.0 s" in lines[4]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--status", "completed"], ["done"]),
        (["--status", "completed", "--status", "failed"], ["broken", "done"]),
        (["--open"], ["runs", "waits"]),
        (["--backend", "other"], ["waits"]),
        (["--account", "anna"], ["done"]),
        (["--account", "nobody"], []),
        (["--limit", "1"], ["runs"]),
    ],
)
def test_jobs_are_picked(store: Store, arguments: list[str], found: list[str]) -> None:
    jobs = {
        "done": add(store, *DONE, age_s=30, account="anna"),
        "broken": add(store, *BROKEN, age_s=20),
        "waits": add(store, age_s=10, claimed=False, backend="other"),
        "runs": add(store),
    }
    listed = json.loads(run("list", "--json", *arguments).stdout)
    assert [job["id"] for job in listed] == [jobs[name].id for name in found]


def test_pages_follow_each_other(store: Store) -> None:
    jobs = [add(store, age_s=age) for age in range(5)]
    seen: list[str] = []
    more: list[str] = []
    for _ in range(3):
        result = run("list", "--limit", "2", *more)
        page = [line.split()[0] for line in result.stdout.splitlines()[1:]]
        seen += page
        more = ["--before", page[-1]]
        assert (f"(more: --before {page[-1]})" in result.stderr) == (len(page) == 2)
    assert seen == [job.id for job in jobs]


def test_a_job_is_shown_with_its_events(store: Store) -> None:
    job = add(store, *DONE, account="anna")
    output = run("show", job.id, "--events").output
    lines = output.splitlines()
    assert lines[0] == f"id:               {job.id}"
    assert any(line.startswith("request:") and line.endswith("…") for line in lines)
    assert [line.split()[3] for line in lines[-4:]] == [
        "status_changed",
        "content_delta",
        "choice_finished",
        "completed",
    ]
    told = json.loads(run("show", job.id, "--events", "--json").output)
    assert told["account"] == "anna"
    assert told["request"]["prompts"] == [LONG]
    assert [record["seq"] for record in told["records"]] == [1, 2, 3, 4]
    assert told["records"][1]["event"]["text"] == "because"


def test_it_is_told_why_a_job_waits_whose_backend_nobody_has(store: Store) -> None:
    store.renew("elsewhere", 60, ["slow"])
    done, runs = add(store, *DONE, age_s=30, backend="gone"), add(store, age_s=20, backend="gone")
    waits = add(store, age_s=10, claimed=False)
    stuck = add(store, age_s=5, claimed=False, backend="gone")
    why = "no running process has the backend gone: start one that has it, or cancel the job"
    table = run("list").output.splitlines()
    assert [line.endswith("  no process has its backend") for line in table] == [
        *(False, True, False, False, False)
    ]
    listed = json.loads(run("list", "--json").stdout)
    assert {job["id"]: job["stuck"] for job in listed} == {
        done.id: None,
        runs.id: None,
        waits.id: None,
        stuck.id: why,
    }
    assert f"stuck:            {why}" in run("show", stuck.id).output.splitlines()
    assert "stuck:" not in run("show", waits.id).output
    assert json.loads(run("show", stuck.id, "--json").output)["stuck"] == why
    store.renew("new", 60, ["gone"])
    assert "stuck:" not in run("show", stuck.id).output


def test_a_job_that_waits_is_cancelled_at_once_and_one_that_runs_is_asked(store: Store) -> None:
    waits, runs, done = add(store, claimed=False), add(store), add(store, *DONE)
    result = run("cancel", waits.id, runs.id, done.id)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        f"{waits.id}: cancelled",
        f"{runs.id}: asked elsewhere to stop",
        f"{done.id}: has ended already: completed",
    ]
    assert store.job(waits.id).error_code == "cancelled"
    assert store.job(runs.id).cancel_requested
    assert store.job(done.id) == done


def test_unknown_jobs_are_named(store: Store) -> None:
    job = add(store, claimed=False)
    result = run("cancel", "nope", job.id)
    assert result.exit_code == 1
    assert result.stderr == "nope: there is no such job\n"
    assert result.stdout == f"{job.id}: cancelled\n"
    for command in (["show", "nope"], ["list", "--before", "nope"]):
        result = run(*command)
        assert (result.exit_code, result.stderr) == (1, "Error: nope: there is no such job\n")


def test_an_id_may_be_written_in_capitals(store: Store) -> None:
    old, job = add(store, *DONE, age_s=10), add(store, claimed=False)
    assert json.loads(run("show", job.id.upper(), "--json").stdout)["id"] == job.id
    listed = json.loads(run("list", "--json", "--before", job.id.upper()).stdout)
    assert [one["id"] for one in listed] == [old.id]
    assert run("cancel", job.id.upper()).stdout == f"{job.id}: cancelled\n"


def test_old_jobs_are_removed_and_open_ones_are_not(store: Store) -> None:
    day_s = 24 * 60 * 60
    old, new = add(store, *DONE, age_s=3 * day_s), add(store, *DONE, age_s=0.5 * day_s)
    runs = add(store, age_s=90 * day_s)
    assert run("prune").output == "0 removed\n"
    assert run("prune", "--older-than", "1").output == "1 removed\n"
    left = [job["id"] for job in json.loads(run("list", "--json").stdout)]
    assert left == [new.id, runs.id]
    assert old.id not in left
    assert run("prune", "--keep", "0").output == "1 removed\n"
    assert [job["id"] for job in json.loads(run("list", "--json").stdout)] == [runs.id]


@pytest.mark.parametrize("days", ["nan", "inf", "-1", "soon"])
def test_what_is_no_number_of_days_removes_nothing_and_is_told(store: Store, days: str) -> None:
    add(store, *DONE, age_s=1)
    result = run("prune", "--older-than", days)
    assert result.exit_code == 2
    assert "--older-than" in result.stderr
    assert len(json.loads(run("list", "--json").stdout)) == 1


@pytest.mark.parametrize("command", [["list"], ["show", "x"], ["cancel", "x"], ["prune"]])
def test_memory_is_no_place_to_look(command: list[str], tmp_path: Path) -> None:
    result = run(*command, "--store", "memory")
    assert result.exit_code == 2
    assert "store: jobs are kept in the memory of the server's own processes" in result.output


def test_a_database_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "jobs.sqlite3"
    result = run("list", "--store", f"sqlite:///{path}")
    assert result.exit_code != 0
    assert str(path) in result.output
    assert "Traceback" not in result.output
    assert not path.exists()


@pytest.mark.parametrize("arguments", [["list"], ["show", "x"], ["cancel", "x"], ["prune"]])
def test_a_database_that_is_away_is_told_once(
    arguments: list[str], free_port: Callable[[], int], tmp_path: Path
) -> None:
    url = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"
    command = [sys.executable, "-m", "caesar_server", "jobs", *arguments, "--store", url]
    done = subprocess.run(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: store: the database {url}: ")


def test_open_and_ended_contradict(store: Store) -> None:
    result = run("list", "--open", "--status", "failed")
    assert result.exit_code == 2
    assert "no job is both" in result.output
