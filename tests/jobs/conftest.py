"""What the tests of running jobs share."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from caesar_server.contract import Backend, CompletionRequest, Request
from caesar_server.jobs.clock import SchedulingClock
from caesar_server.jobs.context import Observer
from caesar_server.jobs.detached import JobLimits
from caesar_server.jobs.following.follower import Following
from caesar_server.jobs.runner import Runner, new_job
from caesar_server.registry import Registry
from caesar_server.settings import Settings
from caesar_server.store.base import Job, Record, Store
from caesar_server.store.memory import MemoryStore
from caesar_server.store.sql.revisions import upgrade
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore
from caesar_server.testing import FakeClock, scripted_backend

#: Seconds within which everything here happens, unless it never does.
WITHIN_S = 60.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(monotonic=clock.monotonic)


def sqlite_store(path: Path) -> Store:
    """Return a store over a database file that is there."""
    return SqlStore(SqliteDatabase(path))


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a SQLite database with the store's tables, to be copied: making it is slow."""
    path = tmp_path_factory.mktemp("database") / "empty.sqlite3"
    upgrade(SqliteDatabase(path))
    return path


@pytest.fixture
def database(empty_database: Path, tmp_path: Path) -> Path:
    """The file of a SQLite database of this test alone."""
    return Path(shutil.copy(empty_database, tmp_path / "jobs.sqlite3"))


@pytest.fixture(params=["memory", "sqlite"])
def any_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each kind of store in turn."""
    if request.param == "memory":
        store: Store = MemoryStore()
    else:
        store = sqlite_store(request.getfixturevalue("database"))
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest) -> Iterator[tuple[Store, Store]]:
    """The same jobs as two processes see them."""
    if request.param == "memory":
        pair: tuple[Store, Store] = (MemoryStore(),) * 2
    else:
        path = request.getfixturevalue("database")
        pair = sqlite_store(path), sqlite_store(path)
    yield pair
    for store in pair:
        store.close()


@pytest.fixture
def in_thread() -> Iterator[Callable[..., Future[Any]]]:
    """Call a function in a thread of its own; at the end of the test all of them are waited for."""
    with ThreadPoolExecutor(64, thread_name_prefix="test") as pool:
        yield pool.submit


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Wait until a condition holds."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, "it does not come to hold"
            time.sleep(0.001)

    return wait


@pytest.fixture
def make_registry() -> Iterator[Callable[..., Registry]]:
    """Make a registry of the backends given by name, the first of which is the default."""
    made: list[Registry] = []

    def make(backends: Mapping[str, type[Backend]], **settings: Any) -> Registry:
        values = Settings(**{"default_backend": next(iter(backends)), **settings})
        made.append(Registry.of(backends, values))
        return made[-1]

    yield make
    for registry in made:
        registry.close()


@dataclass(frozen=True)
class Parts:
    """A runner and what it works with."""

    runner: Runner
    registry: Registry
    store: Store
    clock: SchedulingClock

    def new(
        self, request: Request | None = None, model: str = "m", timeout_s: float | None = None
    ) -> Job:
        """Return a new job as a surface would make it."""
        asked = request or CompletionRequest(prompts=("p",))
        resolved, fitted = self.runner.prepare(model, asked)
        return new_job(
            fitted,
            model=model,
            resolved=resolved,
            created_at=self.clock.time(),
            timeout_s=timeout_s,
        )

    def follow(self, job: Job | None = None, **options: Any) -> Following:
        """Run a job in a pool, by the road that it takes."""
        job = job or self.new()
        return self.runner.submit(job) if job.detached else self.runner.follow(job, **options)

    def inline(self, job: Job | None = None) -> list[Record]:
        """Run a job in this thread, to its end."""
        return list(self.runner.run_inline(job or self.new()))


@pytest.fixture
def make_parts(
    make_registry: Callable[..., Registry], clock: FakeClock, store: MemoryStore
) -> Iterator[Callable[..., Parts]]:
    """Make a runner for a script, a backend class or several classes by name.

    At the end of the test its runs must have ended, and their places been given back.
    """
    made: list[Parts] = []

    def make(
        backends: Mapping[str, type[Backend]] | type[Backend] | Iterable[Any],
        *,
        limit: int = 4,
        feed_events: int = 256,
        store: Store = store,
        clock: SchedulingClock = clock,
        settings: Mapping[str, Any] | None = None,
        observer: Observer | None = None,
        job_limits: Mapping[str, Any] | None = None,
        **capabilities: Any,
    ) -> Parts:
        if not isinstance(backends, Mapping):
            if not isinstance(backends, type):
                backends = scripted_backend(backends, **capabilities)
            backends = {"scripted": backends}
        registry = make_registry(backends, **(settings or {}))
        runner = Runner(
            store=store,
            registry=registry,
            clock=clock,
            limit=limit,
            feed_events=feed_events,
            job_limits=JobLimits(**{"threads": limit, **(job_limits or {})}),
            observer=observer,
        )
        made.append(Parts(runner, registry, store, clock))
        return made[-1]

    yield make
    for parts in made:
        parts.runner.close()
    assert [parts.runner.running for parts in made] == [0] * len(made)


@pytest.fixture
def drain() -> Callable[[Following], list[Record]]:
    """Take all records of a followed job until its end."""

    def take_all(followed: Following) -> list[Record]:
        records: list[Record] = []
        while not followed.drained:
            taken = followed.take(WITHIN_S)
            assert taken or followed.drained, "no record and no end"
            records += taken
        return records

    return take_all
