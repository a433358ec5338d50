"""``caesar-server worker`` as a process of its own."""

from __future__ import annotations

import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from caesar_server.cli import main
from caesar_server.contract import CompletionRequest, ContentDelta
from caesar_server.store.base import Job, Store
from caesar_server.store.sql.revisions import upgrade
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore

pytestmark = pytest.mark.slow

WITHIN_S = 60.0
GRACE_S = 120.0
#: ``slow:SlowBackend`` says its words when the files ``say-NUMBER`` are there.
SLOW = """
from pathlib import Path
from caesar_server.contract import *

class SlowBackend(Backend):
    capabilities = Capabilities(durable=True)

    def run(self, request, context):
        for number in range(2):
            while not Path(f"say-{number}").exists():
                context.sleep(0.01)
            yield ContentDelta(f"{number} ")
        yield ChoiceFinished()
        yield Completed()
"""

Start = Callable[..., Any]


@pytest.fixture(autouse=True)
def slow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "slow.py").write_text(SLOW)
    monkeypatch.setenv("CAESAR_SERVER_EXTRA_BACKENDS", "slow=slow:SlowBackend")
    monkeypatch.setenv("CAESAR_SERVER_DEFAULT_BACKEND", "slow")
    monkeypatch.setenv("CAESAR_SERVER_GRACEFUL_TIMEOUT_S", str(GRACE_S))
    monkeypatch.setenv("CAESAR_SERVER_STORE", f"sqlite:///{folder / 'jobs.sqlite3'}")


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    """The jobs, as the test sees them."""
    database = SqliteDatabase(folder / "jobs.sqlite3")
    upgrade(database)
    store = SqlStore(database)
    yield store
    store.close()


@pytest.fixture
def work(start: Start) -> Start:
    """Start a worker and wait until it says that it works."""

    def begin(*flags: str, **variables: str) -> Any:
        program = start("caesar_server", "worker", *flags, **variables)
        program.wait_for("Working on jobs")
        return program

    return begin


def add(store: Store, count: int = 1) -> list[str]:
    """Store jobs that wait, and return their ids."""
    jobs = [
        Job(
            id=str(uuid.uuid4()),
            created_at=time.time(),
            model="slow",
            backend="slow",
            request=CompletionRequest(prompts=("p",)),
            detached=True,
            durable=True,
        )
        for _ in range(count)
    ]
    for job in jobs:
        store.create(job)
    return [job.id for job in jobs]


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while not (seen := condition()):
        assert time.monotonic() < deadline, "it does not come to hold"
        time.sleep(0.01)
    return seen


def say(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / f"say-{number}").touch()


def text_of(store: Store, job_id: str) -> str:
    events = [record.event for record in store.records(job_id)]
    return "".join(event.text for event in events if isinstance(event, ContentDelta))


def test_it_runs_what_waits(work: Start, store: Store, folder: Path) -> None:
    say(folder, 0, 1)
    ids = add(store, 5)
    worker = work()
    wait_for(lambda: all(store.job(id).status == "completed" for id in ids))
    assert {text_of(store, id) for id in ids} == {"0 1 "}
    assert worker.stop() == 0
    assert "Traceback" not in worker.log


def test_it_runs_so_many_at_once(work: Start, store: Store, folder: Path) -> None:
    ids = add(store, 5)
    worker = work("--concurrency", "2")
    assert "2 at once" in worker.log
    say(folder, 0)

    def told() -> list[str]:
        return [id for id in ids if text_of(store, id)]

    wait_for(lambda: len(told()) == 2)
    assert sum(store.job(id).owner is not None for id in ids) == 2
    assert sorted(told()) == sorted(ids[:2])
    say(folder, 1)
    wait_for(lambda: all(store.job(id).status == "completed" for id in ids))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_may_end_when_it_is_told_to(
    work: Start, store: Store, folder: Path, number: signal.Signals
) -> None:
    running, waiting = add(store, 2)
    worker = work("--concurrency", "1")
    say(folder, 0)
    wait_for(lambda: text_of(store, running))
    worker.process.send_signal(number)
    worker.wait_for("claiming no more jobs; 1 run")
    say(folder, 1)
    assert worker.wait() == 0
    assert store.job(running).status == "completed"
    assert (store.job(waiting).attempt, store.job(waiting).owner) == (0, None)


def test_a_second_signal_hands_back_at_once(work: Start, store: Store, folder: Path) -> None:
    (job_id,) = add(store)
    worker = work()
    say(folder, 0)
    wait_for(lambda: text_of(store, job_id))
    worker.process.send_signal(signal.SIGINT)
    worker.wait_for("claiming no more jobs; 1 run")
    began = time.monotonic()
    assert worker.stop(signal.SIGINT) == 0
    assert time.monotonic() - began < GRACE_S / 2
    job = store.job(job_id)
    assert (job.owner, job.attempt, job.released, job.finished_at) == (None, 1, 1, None)
    heir = work()
    say(folder, 1)
    wait_for(lambda: store.job(job_id).status == "completed")
    assert text_of(store, job_id) == "0 1 "
    assert heir.stop() == 0


def test_without_time_to_end_it_hands_back(work: Start, store: Store, folder: Path) -> None:
    (job_id,) = add(store)
    worker = work(CAESAR_SERVER_GRACEFUL_TIMEOUT_S="1")
    say(folder, 0)
    wait_for(lambda: text_of(store, job_id))
    assert worker.stop() == 0
    job = store.job(job_id)
    assert (job.owner, job.attempt, job.released, job.finished_at) == (None, 1, 1, None)


def test_a_hang_up_changes_nothing_and_says_so(work: Start, store: Store, folder: Path) -> None:
    (job_id,) = add(store)
    worker = work()
    worker.process.send_signal(signal.SIGHUP)
    worker.wait_for("a worker reads its settings once")
    say(folder, 0, 1)
    wait_for(lambda: store.job(job_id).status == "completed")
    assert worker.stop() == 0


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=WITHIN_S) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_its_health_is_told_and_nothing_else(work: Start, store: Store) -> None:
    worker = work("--health-port", "0")
    assert [status_of(f"{worker.url}/{path}") for path in ("healthz", "health")] == [200, 200]
    # a busy machine may take longer for the first look at the database than a look may take
    wait_for(lambda: status_of(f"{worker.url}/readyz") == 200)
    with urllib.request.urlopen(f"{worker.url}/metrics", timeout=WITHIN_S) as response:
        assert b"caesar" in response.read()
    for path in ("", "compat/models", "v1/models", "openapi.json", "healthz/x"):
        assert status_of(f"{worker.url}/{path}") == 404
    assert worker.stop() == 0


def test_its_health_is_told_to_other_machines_if_that_is_wanted(
    work: Start, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAESAR_SERVER_ALLOWED_HOSTS", "api.example")
    worker = work("--health-port", "0", "--health-host", "0.0.0.0")
    assert worker.url.startswith("http://0.0.0.0:")
    port = urllib.parse.urlsplit(worker.url).port
    # 127.0.0.2 is no name that a server on loopback answers to by itself; probes go by addresses
    for host in ("127.0.0.1", "127.0.0.2"):
        wait_for(lambda host=host: status_of(f"http://{host}:{port}/readyz") == 200)
        assert status_of(f"http://{host}:{port}/healthz") == 200
        assert status_of(f"http://{host}:{port}/metrics") == 401
    assert worker.stop() == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--health-host", "0.0.0.0"], "--health-host needs --health-port"),
        (["--health-port", "0", "--health-host", "0.0.0.0:80"], "'0.0.0.0:80' is no address"),
    ],
)
def test_an_address_of_its_health_that_is_none_is_refused(
    flags: list[str], words: str, store: Store
) -> None:
    done = CliRunner().invoke(main, ["worker", *flags])
    assert done.exit_code == 2
    assert words in done.output


def test_a_port_that_is_taken_is_refused(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(main, ["worker", "--health-port", str(port)])
    assert done.exit_code == 1
    assert f"--health-port: cannot listen on port {port} of 127.0.0.1" in done.output


def test_jobs_in_memory_are_nobody_elses() -> None:
    done = CliRunner().invoke(main, ["worker", "--store", "memory"])
    assert done.exit_code == 2
    assert "store: jobs are kept in the memory of the server's own processes" in done.output


@pytest.mark.parametrize("count", ["0", "-1", "many", "4097"])
def test_a_count_that_makes_no_sense_is_refused(count: str) -> None:
    done = CliRunner().invoke(main, ["worker", "--concurrency", count])
    assert done.exit_code == 2
    assert "--concurrency" in done.output


def test_a_backend_that_cannot_be_loaded_is_refused_where_plugins_are_strict(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAESAR_SERVER_STRICT_PLUGINS", "true")
    (folder / "slow.py").write_text("import a_module_that_is_not_there")
    done = CliRunner().invoke(main, ["worker"])
    assert done.exit_code == 2
    assert "a_module_that_is_not_there" in done.output
