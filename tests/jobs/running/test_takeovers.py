"""A job whose process is lost again and again, in each kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy import make_url

from caesar_server.contract import (
    Backend,
    Capabilities,
    ChoiceFinished,
    Completed,
    CompletionRequest,
    ContentDelta,
    Context,
    Event,
    LoopFinished,
    ProgressNoted,
    Request,
    RequestLogged,
    ResultFound,
    SourceStored,
    Started,
    StatusChanged,
    UsageCounted,
)
from caesar_server.jobs.running.attempt import Attempt
from caesar_server.registry import Registry
from caesar_server.store.base import Job, Store, StoreError
from caesar_server.store.memory import MemoryStore
from caesar_server.store.sql.postgres import PostgresDatabase
from caesar_server.store.sql.revisions import upgrade
from caesar_server.store.sql.sqlite import SqliteDatabase
from caesar_server.store.sql.store import SqlStore
from caesar_server.testing import FakeClock, scripted_backend

#: What has no name of its own: a backend tells it only until the checkpoint that covers it.
UNNAMED = (StatusChanged, ProgressNoted, RequestLogged, UsageCounted)
ALL: list[Event] = [
    Started(),
    StatusChanged("researching", "reading"),
    ProgressNoted("reading"),
    RequestLogged("https://example.org"),
    ResultFound("r", "Title", "https://example.org"),
    SourceStored("r", raw="raw"),
    LoopFinished(1),
    ContentDelta("a"),
    StatusChanged("researching", "reading"),
    UsageCounted(3, 4),
    UsageCounted(3, 4),
    ChoiceFinished(),
    Completed(),
]


@dataclass(frozen=True)
class Course:
    """How one attempt goes.

    :param saves: it stores a checkpoint just before the event of this place; None: it does not.
    :param lost: its process is lost just before the event of this place.
    """

    saves: int | None
    lost: int = len(ALL)


class LostError(StoreError):
    """In place of the loss of a process: nothing more is told, and nobody ends the job."""


def telling(*courses: Course) -> type[Backend]:
    """Return a backend that tells :data:`ALL`, with a course for each attempt."""

    class Telling(Backend):
        capabilities = Capabilities(durable=True)

        def run(self, request: Request, context: Context) -> Iterator[Event]:
            done = (context.restored or {"done": 0})["done"]
            course = courses[context.attempt - 1]
            for place, event in enumerate(ALL):
                if place == course.saves:
                    context.checkpoint({"done": max(done, place)})
                if place == course.lost:
                    raise LostError
                if place >= done or not isinstance(event, UNNAMED):
                    yield event

    return Telling


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def each_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each kind of store in its turn."""
    if request.param == "memory":
        store: Store = MemoryStore()
    elif request.param == "sqlite":
        store = SqlStore(SqliteDatabase(request.getfixturevalue("database")))
    else:
        database = PostgresDatabase(make_url(request.getfixturevalue("postgres_url")))
        upgrade(database)
        store = SqlStore(database)
    yield store
    store.delete("job")
    store.close()


class Losing:
    """Runs attempts at one job until they are over or lost."""

    def __init__(self, store: Store, registry: Registry, clock: FakeClock) -> None:
        self.store = store
        self._registry = registry
        self._clock = clock
        store.create(
            Job(
                id="job",
                created_at=1.0,
                model="m",
                backend="telling",
                request=CompletionRequest(prompts=("p",)),
                detached=True,
                durable=True,
            )
        )

    def attempt(self) -> Attempt:
        job = self.store.claim("job", "somebody")
        return Attempt(job, store=self.store, registry=self._registry, clock=self._clock)

    def lose(self, eventually: Callable[[Callable[[], object]], None]) -> None:
        """Run an attempt that is lost once all that it told is stored."""
        attempt = self.attempt()
        with pytest.raises(LostError):
            list(attempt.batches())
        self._clock.advance(1)
        eventually(lambda: self.store.job("job").last_seq == attempt.told_seq)

    def events(self) -> list[Event]:
        return [record.event for record in self.store.records("job")]


@pytest.mark.parametrize("second", range(1, len(ALL)))
@pytest.mark.parametrize("saves", [None, 1, 5])
def test_a_loss_while_a_run_repeats_tells_nothing_twice(
    each_store, make_registry, clock, eventually, saves, second
):
    """The first attempt tells all but the end; the second one stores a checkpoint on its way."""
    courses = Course(saves, len(ALL) - 1), Course(second, second), Course(None)
    job = Losing(each_store, make_registry({"telling": telling(*courses)}), clock)
    job.lose(eventually)
    assert job.events() == [StatusChanged("queued"), *ALL[:-1]]
    job.lose(eventually)
    list(job.attempt().batches())
    assert job.events() == [StatusChanged("queued"), *ALL]


class CallingBackend(Backend):
    """Has another backend answer."""

    capabilities = Capabilities(durable=True)

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        yield from context.call("called", request)


def test_the_usage_of_calls_is_not_told_twice(clock, make_registry):
    class Full(MemoryStore):
        """Has no room for the end, once."""

        full = True

        def append(self, job_id, attempt, records, **options):
            if self.full and isinstance(records[-1].event, Completed):
                self.full = False
                raise LostError
            super().append(job_id, attempt, records, **options)

    called = scripted_backend(
        [ContentDelta("a"), UsageCounted(3, 4), ChoiceFinished(), Completed()]
    )
    job = Losing(Full(), make_registry({"telling": CallingBackend, "called": called}), clock)
    with pytest.raises(LostError):
        list(job.attempt().batches())
    list(job.attempt().batches())
    assert job.events()[-2:] == [UsageCounted(3, 4), Completed()]
    assert len([event for event in job.events() if isinstance(event, UsageCounted)]) == 1
