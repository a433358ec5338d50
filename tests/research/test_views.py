"""What one process remembers of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from caesar_server.blueprints.research.rendering.views import Views
from caesar_server.contract import ChoiceFinished, Completed, ContentDelta, Event, ResultFound
from caesar_server.contract.request import ResearchRequest
from caesar_server.store.base import Job, Record, UnknownJobError

EVENTS = (
    ResultFound("r1", "One", "https://a.test", None, 1),
    ContentDelta("It "),
    ContentDelta("works."),
    ChoiceFinished(),
    Completed(),
)


class Log:
    """The records of one job, and what of them was read."""

    def __init__(self, *events: Event) -> None:
        self.records = [Record(seq, 1.0, event) for seq, event in enumerate(events, 1)]
        self.read: list[int] = []

    def after(self, seq: int) -> Sequence[Record]:
        self.read.append(seq)
        return self.records[seq:]

    def job(self, job_id: str = "j", **fields: object) -> Job:
        job = Job(
            id=job_id,
            created_at=1.0,
            model="m",
            backend="b",
            request=ResearchRequest(query="q"),
            last_seq=len(self.records),
        )
        return replace(job, **fields)


def test_only_what_is_new_is_read() -> None:
    log, views = Log(*EVENTS[:2]), Views()
    running = views.of(log.job(status="researching"), log.after)
    assert [result.id for result in running.results] == ["r1"]
    assert running.content is None
    log.records += Log(*EVENTS).records[2:]
    for _ in range(3):
        assert views.of(log.job(status="completed"), log.after).content == "It works."
    assert log.read == [0, 2]


def test_a_job_that_was_read_too_early_has_no_content_yet() -> None:
    log, views = Log(*EVENTS), Views()
    early = log.job(status="researching", last_seq=1)
    assert views.of(early, log.after).content is None
    assert views.of(log.job(status="completed"), log.after).content == "It works."
    assert log.read == [0]


@pytest.mark.parametrize("limits", [{"max_jobs": 2}, {"max_characters": 40}])
def test_the_least_used_are_forgotten(limits) -> None:
    views, logs = Views(**limits), {name: Log(*EVENTS) for name in "abc"}
    for name, log in logs.items():
        views.of(log.job(name, status="completed"), log.after)
    again = {
        name: views.of(log.job(name, status="completed"), log.after).content
        for name, log in reversed(logs.items())
    }
    assert set(again.values()) == {"It works."}
    assert (logs["c"].read, logs["a"].read) == ([0], [0, 0])


def test_what_reading_raises_is_passed_on_and_spoils_nothing() -> None:
    log, views = Log(*EVENTS), Views()

    def fail(seq: int) -> Sequence[Record]:
        raise UnknownJobError("j")

    with pytest.raises(UnknownJobError):
        views.of(log.job(status="completed"), fail)
    assert views.of(log.job(status="completed"), log.after).content == "It works."
