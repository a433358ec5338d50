"""Jobs of durable backends go on when their process ends, is killed, or only lies still."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from caesar_server.contract import ContentDelta
from caesar_server.settings import Settings
from caesar_server.store.base import Job, Store
from caesar_server.store.opening import open_store, prepare_store

pytestmark = pytest.mark.slow

WITHIN_S = 60.0
HASTE = ("--graceful-timeout-s", "2", "--lease-s", "1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The servers' jobs, as the test sees them."""
    settings = Settings(store=f"sqlite:///{tmp_path / 'jobs.sqlite3'}")
    prepare_store(settings)
    store = open_store(settings)
    yield store
    store.close()


@pytest.fixture
def start_shared(start: Callable[..., Any], store: Store, tmp_path: Path) -> Callable[..., Any]:
    """Start servers that share the jobs."""
    return lambda *flags: start(*HASTE, "--store", f"sqlite:///{tmp_path / 'jobs.sqlite3'}", *flags)


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come to hold"
        time.sleep(0.01)


def let_words_through(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / f"word-{number}").touch()


def only_job(store: Store) -> Job:
    (job,) = store.jobs()
    return job


def owner_pid(job: Job) -> int:
    """Return the process that runs a job, which its owner's name tells."""
    assert job.owner is not None
    return int(job.owner.split("-")[-2])


def check_whole(store: Store, pid: int) -> None:
    """Check that the job has each event once and the text of the process that found it."""
    records = store.records(only_job(store).id)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    texts = [record.event.text for record in records if isinstance(record.event, ContentDelta)]
    assert texts == ["found ", "by ", f"{pid} "]
    assert [record.event.type for record in records].count("completed") == 1


def test_sigterm_hands_a_durable_job_to_the_next_server(start_shared, store, read, tmp_path):
    server = start_shared()
    stream = server.send("lasting", "x", stream=True)
    let_words_through(tmp_path, 0)
    wait(lambda: store.jobs() and only_job(store).last_seq >= 2)
    finder = owner_pid(only_job(store))
    server.signal(signal.SIGTERM)
    raw = read(stream)
    assert b'"code":"shutting_down"' in raw
    assert raw.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert server.exit_code() == 0
    assert "Traceback" not in server.log
    job = only_job(store)
    assert (job.owner, job.finished_at) == (None, None)
    assert job.released == job.attempt >= 1
    let_words_through(tmp_path, 1, 2)
    start_shared()
    wait(lambda: only_job(store).status == "completed")
    check_whole(store, finder)


def test_a_killed_workers_job_is_taken_over_and_its_stream_can_be_had_again(
    start_shared, store, tmp_path
):
    server = start_shared("--workers", "2")
    server.send("lasting", "x", stream=True).close()
    let_words_through(tmp_path, 0)
    wait(lambda: store.jobs() and only_job(store).last_seq >= 2)
    finder = owner_pid(only_job(store))
    os.kill(finder, signal.SIGKILL)
    wait(lambda: only_job(store).attempt >= 2)
    let_words_through(tmp_path, 1, 2)
    wait(lambda: only_job(store).status == "completed")
    check_whole(store, finder)
    assert [line.split()[1] for line in server.journal].count("found") == 1


def test_a_worker_that_lay_still_too_long_writes_nothing_any_more(start_shared, store, tmp_path):
    server = start_shared("--workers", "2")
    server.send("lasting", "x", stream=True).close()
    let_words_through(tmp_path, 0)
    wait(lambda: store.jobs() and only_job(store).last_seq >= 2)
    zombie = owner_pid(only_job(store))
    os.kill(zombie, signal.SIGSTOP)
    try:
        wait(lambda: only_job(store).attempt >= 2)
    finally:
        os.kill(zombie, signal.SIGCONT)
    let_words_through(tmp_path, 1, 2)
    wait(lambda: only_job(store).status == "completed")
    wait(lambda: "no longer its" in server.log)
    check_whole(store, zombie)


def test_a_cancel_by_another_process_is_noticed(start_shared, store):
    server = start_shared()
    server.send("lasting", "x", stream=True).close()
    wait(lambda: store.jobs() and only_job(store).last_seq >= 1)
    store.request_cancel(only_job(store).id)
    wait(lambda: only_job(store).finished_at)
    assert only_job(store).error_code == "cancelled"


def test_a_stream_of_one_worker_is_followed_in_the_other(start_shared, store, read, tmp_path):
    """Whichever worker a repeat reaches, it tells the whole text of the one job."""
    server = start_shared("--workers", "2")
    server.send("lasting", "x", stream=True).close()
    wait(lambda: store.jobs() and only_job(store).last_seq >= 1)
    body = json.dumps({"model": "lasting", "prompt": "x", "stream": True}).encode()
    repeats = [server.send_raw(body, "x-stainless-retry-count: 1") for _ in range(8)]
    let_words_through(tmp_path, 0, 1, 2)
    answers = [read(repeat) for repeat in repeats]
    job = only_job(store)
    for raw in answers:
        assert raw.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert raw.count(f'"id":"{job.id}"'.encode()) == 4  # three words and the end
