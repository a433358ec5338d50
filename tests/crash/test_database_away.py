"""A PostgreSQL server that is restarted while jobs run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOBS = 100
CLIENTS = 6


def test_restarts_of_the_database_lose_nothing(make_farm: Callable[..., Any], cluster: Any) -> None:
    farm = make_farm(cluster.url)
    farm.serve("--job-threads", "2")
    farm.work("--concurrency", "2")
    try:
        with ThreadPoolExecutor(CLIENTS, thread_name_prefix="test-client") as pool:
            asked = [pool.submit(farm.ask, "finding", f"job {number}") for number in range(JOBS)]
            for part, number in ((0.2, signal.SIGINT), (0.5, signal.SIGQUIT)):
                enough = part * JOBS
                farm.wait_for(lambda enough=enough: sum(one.done() for one in asked) > enough)
                cluster.stop(number)
                cluster.start()
            answers = [one.result() for one in asked]
        jobs = {job.id: job for job in farm.wait_until_ended()}
        for job in jobs.values():
            farm.check_whole(job)
        assert {answer.job_id for answer in answers} <= set(jobs)
        for answer in answers:
            assert answer.text == jobs[answer.job_id].checkpoint["text"]
        print(f"{len(jobs)} jobs, {sum(answer.tries for answer in answers)} tries")
    finally:
        # before the database is gone for good
        farm.end()
