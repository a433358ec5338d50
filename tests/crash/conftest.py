"""Servers and workers as processes of their own, which can be killed at named points."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from caesar_server.contract import ContentDelta
from caesar_server.contract.events import event_to_json
from caesar_server.settings import Settings
from caesar_server.store.base import Job, Store
from caesar_server.store.opening import open_store, prepare_store
from caesar_server.testing import SseClient

#: Seconds within which everything here happens, unless it never does.
WITHIN_S = 60.0
LEASE_S = 1.0
PATH = "/compat/completions"
#: What is called ``Finding`` in the module of backends is the model ``finding``.
_MODELS = ("finding", "poison", "waiting", "attached", "late", "counting")
_CHILD = Path(__file__).with_name("child")
_BEGUN = re.compile(r"Serving on (http://\S+:\d+)")


def wait_for(condition: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    """Return what a condition returns once it is true."""
    deadline = time.monotonic() + within_s
    while not (seen := condition()):
        assert time.monotonic() < deadline, "it does not come to hold"
        time.sleep(0.01)
    return seen


class Fired(NamedTuple):
    """A signal that was sent at a point."""

    at: float
    pid: int
    point: str
    signal: str
    job_id: str


@dataclass(frozen=True)
class Answer:
    """What a client got for a prompt, after asking ``tries`` times."""

    prompt: str
    job_id: str
    text: str
    tries: int


class Farm:
    """A server and workers on one database.

    :param folder: where they run, and where points are armed.
    :param url: of the database, which this migrates.
    :param prefix: what their command lines begin with, such as a command that changes the user.
    """

    def __init__(self, folder: Path, url: str, *, prefix: Sequence[str] = ()) -> None:
        self.folder = folder
        self.url = url
        self._prefix = prefix
        self._lock = threading.Lock()
        self._ending = False
        self._processes: list[subprocess.Popen[bytes]] = []
        self._keepers: list[threading.Thread] = []
        self._store: Store | None = None
        self.server: subprocess.Popen[bytes] | None = None
        self.server_url = ""
        #: Settings of all its processes.
        self.settings = {"lease_s": str(LEASE_S), "max_attempts": "20"}

    @property
    def store(self) -> Store:
        """The jobs, as the test sees them."""
        if self._store is None:
            settings = Settings(store=self.url)
            prepare_store(settings)
            self._store = open_store(settings)
        return self._store

    @property
    def log(self) -> str:
        """What all of them have logged."""
        return (self.folder / "log").read_text()

    @property
    def client(self) -> SseClient:
        """A client of the server."""
        return SseClient(self.server_url, timeout_s=WITHIN_S)

    # Processes

    def serve(self, *flags: str, workers: int = 2) -> None:
        """Start the server and wait until it answers."""
        begun = len(_BEGUN.findall(self.log)) if (self.folder / "log").exists() else 0
        shared = ("serve", "--port", "0", "--workers", str(workers), "--graceful-timeout-s", "2")
        self.server = self._spawn(*shared, *flags)

        def urls() -> list[str]:
            assert self.server is not None
            assert self.server.poll() is None, self.log[-3000:]
            return _BEGUN.findall(self.log)[begun:]

        self.server_url = wait_for(urls)[0]
        self.wait_for(self._answers)

    def work(self, *flags: str) -> None:
        """Start a worker, and a new one whenever it was killed, as systemd would."""
        keeper = threading.Thread(target=self._keep, args=flags, name="test-keeper")
        self._keepers.append(keeper)
        keeper.start()

    def server_pids(self) -> list[int]:
        """Return the server's processes, its master first."""
        assert self.server is not None
        return [self.server.pid, *sorted(children(self.server.pid))]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self._command(*arguments),
            env=self._environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )

    def follower(self) -> subprocess.Popen[str]:
        """Start a process that follows jobs; it ends with its input."""
        return subprocess.Popen(
            [sys.executable, str(_CHILD / "crash_follower.py"), self.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        """End all of them, by force if need be."""
        with self._lock:
            self._ending = True
            left = [process for process in self._processes if process.poll() is None]
        for process in left:
            process.send_signal(signal.SIGTERM)
            for pid in children(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            process.send_signal(signal.SIGCONT)
        for process in left:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                for pid in (*children(process.pid), process.pid):
                    os.kill(pid, signal.SIGKILL)
                process.wait()
        for keeper in self._keepers:
            keeper.join()
        if self._store is not None:
            self._store.close()

    def _keep(self, *flags: str) -> None:
        with contextlib.suppress(InterruptedError):
            while self._spawn("worker", *flags).wait() == -signal.SIGKILL:
                pass

    def _spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self._lock, (self.folder / "log").open("ab") as log:
            if self._ending:
                raise InterruptedError
            process = subprocess.Popen(
                self._command(*arguments),
                env=self._environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            self._processes.append(process)
            return process

    def _command(self, *arguments: str) -> list[str]:
        return [*self._prefix, sys.executable, str(_CHILD / "crash_server.py"), *arguments]

    def _environment(self) -> dict[str, str]:
        backends = (f"{name}=crash_backends:{name.capitalize()}Backend" for name in _MODELS)
        return {
            **os.environ,
            "CRASH_FOLDER": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CAESAR_SERVER_STORE": self.url,
            **{f"CAESAR_SERVER_{name.upper()}": text for name, text in self.settings.items()},
            "CAESAR_SERVER_EXTRA_BACKENDS": ",".join(backends),
        }

    def _answers(self) -> bool:
        try:
            with self.client.get("/healthz") as response:
                return response.status == 200
        except OSError:
            return False

    # Points

    def arm(self, point: str, number: str = "SIGKILL") -> None:
        """Let the next process that reaches the point get a signal there."""
        whole = self.folder / f"{point}.new"
        whole.write_text(number)
        whole.rename(self.folder / point)

    def is_armed(self, point: str) -> bool:
        """Return whether nobody has reached it yet."""
        return (self.folder / point).exists()

    def fired(self) -> list[Fired]:
        """Return the signals that were sent so far."""
        path = self.folder / "fired"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Fired(float(at), int(pid), *rest) for at, pid, *rest in map(str.split, lines)]

    # Requests

    def ask(self, model: str, prompt: str) -> Answer:
        """Ask for a stream until a whole one comes, as the clients of OpenAI do it.

        A job that was begun too often is answered with an empty text.
        """
        deadline = time.monotonic() + WITHIN_S
        tries = 0
        while True:
            answer = self._ask_once(model, prompt, tries)
            if answer is not None:
                return answer
            assert time.monotonic() < deadline, f"no answer to {prompt}"
            tries += 1
            threading.Event().wait(0.05)

    def _ask_once(self, model: str, prompt: str, tries: int) -> Answer | None:
        headers = {"x-stainless-retry-count": str(tries)}
        body = {"model": model, "prompt": prompt, "stream": True}
        try:
            with self.client.post(PATH, body, headers=headers) as response:
                if response.status == 503:
                    return None
                assert response.status == 200, response.read()
                frames = response.frames()
        except (OSError, http.client.HTTPException, ValueError):
            return None  # cut off
        if "error" in frames[-1]:
            code = frames[-1]["error"]["code"]
            assert code in ("shutting_down", "attempts"), frames[-1]
            return None if code == "shutting_down" else Answer(prompt, "", "", tries + 1)
        text = "".join(frame["choices"][0]["text"] for frame in frames)
        (job_id,) = {frame["id"] for frame in frames}
        return Answer(prompt, job_id, text, tries + 1)

    def jobs(self) -> list[Job]:
        """Return all jobs, the oldest first."""
        return list(self.store.jobs(limit=10_000))[::-1]

    def wait_until_ended(self) -> list[Job]:
        """Return all jobs once each has ended."""
        self.wait_for(lambda: all(job.finished_at is not None for job in self.jobs()))
        return self.jobs()

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        """Return what a condition returns once it is true."""
        try:
            return wait_for(condition)
        except AssertionError as error:
            raise AssertionError(
                f"{error}; fired: {self.fired()}; log:\n{self.log[-3000:]}"
            ) from None

    # What must hold

    def check_whole(self, job: Job) -> None:
        """Check that a job that found something has each event once, and the text that it found."""
        records = self.store.records(job.id)
        assert [record.seq for record in records] == list(range(1, len(records) + 1)), job
        told = [record.event for record in records if not isinstance(record.event, ContentDelta)]
        assert [_name(event_to_json(event)) for event in told] == _WHOLE, job
        texts = [record.event.text for record in records if isinstance(record.event, ContentDelta)]
        assert job.checkpoint is not None
        assert "".join(texts) == job.checkpoint["text"], job
        assert len(texts) == 10, job
        assert (job.status, job.owner, job.last_seq) == ("completed", None, len(records))


def children(pid: int) -> set[int]:
    """Return the processes that a process has started."""
    try:
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except FileNotFoundError:
        return set()


def _name(event: dict[str, Any]) -> str:
    own = (event.get(name) for name in ("status", "message", "id", "result_id"))
    return " ".join([event["type"], *filter(None, own)])


_WHOLE = [
    "status_changed queued",
    "started",
    "progress_noted looking around",
    "request_logged r1",
    *(f"{kind} r{number}" for number in (1, 2, 3) for kind in ("result_found", "source_stored")),
    "loop_finished",
    *(f"status_changed researching {stage}" for stage in ("reading", "weighing", "doubting")),
    "choice_finished",
    "usage_counted",
    "completed",
]


@contextlib.contextmanager
def new_database(kind: str, folder: Path) -> Iterator[str]:
    """Make a database for a ``with`` block; gives its URL."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'jobs.sqlite3'}"
        return
    given = os.environ.get("CAESAR_TEST_DATABASE_URL")
    if not given:
        pytest.skip("CAESAR_TEST_DATABASE_URL names no PostgreSQL server")
    name = f"caesar_test_{uuid.uuid4().hex}"
    with psycopg.connect(given, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield urllib.parse.urlsplit(given)._replace(path=f"/{name}").geturl()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.contextmanager
def new_farm(kind: str, folder: Path) -> Iterator[Farm]:
    """Make a farm on a database of its own for a ``with`` block."""
    with new_database(kind, folder) as url:
        farm = Farm(folder, url)
        try:
            yield farm
        finally:
            farm.end()


@pytest.fixture(params=["sqlite", "postgres"])
def farm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Farm]:
    """A farm of this test alone, on each kind of database in turn; nothing runs yet."""
    with new_farm(request.param, tmp_path) as one:
        yield one


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def busy_farm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Farm]:
    """A farm of all tests of a module, likewise: a server of two processes, and two workers."""
    with new_farm(request.param, tmp_path_factory.mktemp("farm")) as one:
        one.serve("--job-threads", "2")
        for _ in range(2):
            one.work("--concurrency", "4")
        # its thread begins here, not within a test
        one.store.check()
        yield one


@pytest.fixture
def make_farm(tmp_path: Path) -> Iterator[Callable[..., Farm]]:
    """Make farms on given databases, which end with the test."""
    farms: list[Farm] = []

    def make(url: str, **options: Any) -> Farm:
        folder = tmp_path / f"farm{len(farms)}"
        folder.mkdir()
        farms.append(Farm(folder, url, **options))
        return farms[-1]

    yield make
    for one in farms:
        one.end()
