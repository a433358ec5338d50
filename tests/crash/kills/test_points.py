"""Processes are killed at every point of a job's life: nothing is lost, stuck, doubled or missing.

By default each point is reached once a database, in one run of a hundred jobs.  With
``CAESAR_TEST_CRASHES=all`` there is also a run of a hundred jobs for each point, with several kills
each; that takes a quarter of an hour.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOBS = 100
CLIENTS = 8
LEASE_S = 1.0
#: A job goes on within the lease and 5 s; a busy machine may take longer, but not for ever.
PATIENCE_S = 60.0
#: Two jobs at once in each process, so that some wait in the database for whoever is free.
SERVING = ("--job-threads", "2")
KINDS = (
    "started",
    "progress_noted",
    "request_logged",
    "result_found",
    "source_stored",
    "loop_finished",
    "status_changed",
    "content_delta",
    "choice_finished",
    "usage_counted",
)
POINTS = (
    "before-creation",
    "after-creation",
    "before-the-claim",
    "after-the-claim",
    *(f"after-{kind}" for kind in KINDS),
    "inside-a-batch",
    "before-announcement",
    "after-the-checkpoint",
    "before-the-end",
    "before-the-end-is-told",
)
RUNS = {"each": POINTS}
if os.environ.get("CAESAR_TEST_CRASHES") == "all":
    RUNS |= {point: (point,) * 10 for point in POINTS}


def delays_s(fired: Iterable[Any], jobs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield each point of a job, and how long after its kill the job came on."""
    until = {job.id: job.finished_at for job in jobs.values()}
    for kill in sorted(fired, reverse=True):
        if kill.job_id in until:
            yield kill.point, until[kill.job_id] - kill.at
            until[kill.job_id] = kill.at


def check(farm: Any, answers: Sequence[Any]) -> None:
    """Check everything, and tell how long it took to go on."""
    jobs = {job.id: job for job in farm.wait_until_ended()}
    assert len(answers) >= JOBS
    for job in jobs.values():
        farm.check_whole(job)
    asked = Counter(str(job.request.prompts) for job in jobs.values())
    assert set(asked.values()) == {1}, "a repeat was not answered from the job that was there"
    assert {answer.job_id for answer in answers} == set(jobs)
    for answer in answers:
        assert answer.text == jobs[answer.job_id].checkpoint["text"]
    delays = dict(delays_s(farm.fired(), jobs))
    print(f"{len(jobs)} jobs, {len(farm.fired())} kills; from a kill to the job's end,")
    print("or to its next kill, in seconds:")
    for point, delay_s in sorted(delays.items(), key=lambda item: item[1]):
        print(f"  {delay_s:6.2f}  {point}")
    attempts = Counter(job.attempt for job in jobs.values())
    print(f"attempts: {dict(sorted(attempts.items()))}; tries: {sum(a.tries for a in answers)}")
    assert max(delays.values(), default=0.0) < PATIENCE_S


@pytest.mark.parametrize("points", RUNS.values(), ids=RUNS.keys())
def test_kills_lose_nothing(farm: Any, kills: Any, points: tuple[str, ...]) -> None:
    farm.serve(*SERVING)
    for _ in range(2):
        farm.work("--concurrency", "2")
    answers = kills.run(
        points,
        lambda number: farm.ask("finding", f"job {number}"),
        times=JOBS,
        clients=CLIENTS,
    )
    assert [fired.point for fired in farm.fired()] == list(points)
    check(farm, answers)
