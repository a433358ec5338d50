"""Processes that lay still past their lease and then go on write nothing of what they held."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CLIENTS = 6
SILENT = "the process was silent for"


@contextmanager
def under_load(farm: Any) -> Iterator[list[Any]]:
    """Let clients ask, one job after the other, until the block ends; gives what they have got."""
    enough = threading.Event()
    answers: list[Any] = []

    def client(number: int) -> None:
        asked = 0
        while not enough.is_set():
            answers.append(farm.ask("finding", f"client {number} job {asked}"))
            asked += 1

    with ThreadPoolExecutor(CLIENTS, thread_name_prefix="test-client") as pool:
        clients = [pool.submit(client, number) for number in range(CLIENTS)]
        try:
            yield answers
        finally:
            enough.set()
        for one in clients:
            one.result()


def owner_pid(job: Any) -> int | None:
    """Return the process that runs a job, as its owner's name has it."""
    return None if job.owner is None else int(job.owner.split("-")[-2])


def held(farm: Any, pid: int) -> dict[str, int]:
    """Return the jobs that a process runs, with the numbers of their attempts."""
    return {job.id: job.attempt for job in farm.jobs() if owner_pid(job) == pid}


def is_within_a_transaction(farm: Any) -> bool:
    """Return whether a stopped process keeps others from writing; PostgreSQL ends that itself."""
    if not farm.url.startswith("sqlite"):
        return False
    path = farm.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, timeout=0.3, isolation_level=None)) as file:
        try:
            file.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        file.execute("ROLLBACK")
        return False


def is_stopped(pid: int) -> bool:
    """Return whether all threads of a process stand: some may go on a little after the signal."""
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread has just ended
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def stop_one_that_holds_jobs(farm: Any) -> tuple[int, dict[str, int]]:
    """Stop a process that runs jobs; return its id and what it held."""
    while True:
        running = {pid for job in farm.jobs() if (pid := owner_pid(job)) is not None}
        pid = random.choice(sorted(running)) if running else None
        if pid is None:
            continue
        os.kill(pid, signal.SIGSTOP)
        farm.wait_for(lambda pid=pid: is_stopped(pid))
        if not is_within_a_transaction(farm) and (jobs := held(farm, pid)):
            return pid, jobs
        os.kill(pid, signal.SIGCONT)


def stop_one_between_fence_and_commit(farm: Any) -> tuple[Any, dict[str, int]]:
    """Stop a process while it writes for a job; return where, and what it held."""
    while True:
        fired = len(farm.fired())
        farm.arm("inside-a-batch", "SIGSTOP")
        stopped = farm.wait_for(lambda fired=fired: farm.fired()[fired:])[0]
        jobs = held(farm, stopped.pid)
        if stopped.job_id in jobs:
            return stopped, jobs
        # this transaction was to make the job too, or the lease has run out before they were read
        os.kill(stopped.pid, signal.SIGCONT)


def are_others(farm: Any, jobs: dict[str, int]) -> bool:
    """Return whether others have claimed all of these jobs, or ended them."""
    stored = [farm.store.job(id) for id in jobs]
    return all(job.attempt > jobs[job.id] or job.finished_at is not None for job in stored)


def lie_still(farm: Any) -> None:
    """Stop a process until others have claimed its jobs; return once it has noticed."""
    while True:
        silences = farm.log.count(SILENT)
        pid, jobs = stop_one_that_holds_jobs(farm)
        try:
            farm.wait_for(lambda jobs=jobs: are_others(farm, jobs))
        finally:
            os.kill(pid, signal.SIGCONT)
        # or what it had sent before it was stopped has ended them all
        if any(farm.store.job(id).attempt > attempt for id, attempt in jobs.items()):
            farm.wait_for(lambda silences=silences: farm.log.count(SILENT) > silences)
            return


def check(farm: Any, answers: list[Any]) -> None:
    jobs = {job.id: job for job in farm.wait_until_ended()}
    for job in jobs.values():
        farm.check_whole(job)
    assert {answer.job_id for answer in answers} == set(jobs)
    for answer in answers:
        assert answer.text == jobs[answer.job_id].checkpoint["text"]


def test_a_process_that_was_stopped_past_its_lease_is_fenced(farm: Any) -> None:
    farm.serve("--job-threads", "2")
    for _ in range(2):
        farm.work("--concurrency", "2")
    with under_load(farm) as answers:
        farm.wait_for(lambda: len(answers) > CLIENTS)
        for _ in range(3):
            lie_still(farm)
        before = len(answers)
        farm.wait_for(lambda: len(answers) > before + CLIENTS)
    check(farm, answers)
    assert farm.log.count(SILENT) >= 3
    assert max(job.attempt for job in farm.jobs()) > 1


@pytest.mark.parametrize("farm", ["postgres"], indirect=True)
def test_a_process_that_was_stopped_between_fence_and_commit_is_fenced(farm: Any) -> None:
    farm.serve("--job-threads", "2")
    for _ in range(2):
        farm.work("--concurrency", "2")
    with under_load(farm) as answers:
        farm.wait_for(lambda: len(answers) > CLIENTS)
        stopped, jobs = stop_one_between_fence_and_commit(farm)
        try:
            farm.wait_for(lambda: are_others(farm, jobs))
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
    check(farm, answers)
    assert farm.store.job(stopped.job_id).attempt > jobs[stopped.job_id]
    farm.wait_for(lambda: SILENT in farm.log)
