"""Jobs that cannot be gone on with end with a reason, and do not hinder others."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # what differs between databases is tried elsewhere
    pytest.mark.parametrize("farm", ["sqlite"], indirect=True),
]

PATIENCE_S = 60.0


def failure(farm: Any, model: str) -> tuple[int, Any]:
    """Ask, again and again while the server's processes end, and return status and error."""

    def once() -> Any:
        body = {"model": model, "prompt": "p"}
        headers = {"x-stainless-retry-count": "1"}
        try:
            with farm.client.post("/compat/completions", body, headers=headers) as response:
                return response.status, response.json()["error"]
        except (OSError, ValueError, EOFError):
            return None

    answer: tuple[int, Any] = farm.wait_for(once)
    return answer


def test_a_job_that_takes_its_processes_along_is_given_up(farm: Any) -> None:
    farm.settings["max_attempts"] = "3"
    farm.serve("--job-threads", "4")
    farm.work()
    with ThreadPoolExecutor(5, thread_name_prefix="test-client") as pool:
        asked = [pool.submit(farm.ask, "finding", f"job {number}") for number in range(4)]
        poison = pool.submit(failure, farm, "poison")
        for one in asked:
            one.result()
        status, error = poison.result()
    assert (status, error["code"]) == (500, "attempts")
    jobs = farm.wait_until_ended()
    (poisoned,) = (job for job in jobs if job.model == "poison")
    assert (poisoned.status, poisoned.error_code) == ("failed", "attempts")
    assert len((farm.folder / "poisoned").read_text().splitlines()) == 3
    records = farm.store.records(poisoned.id)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    # others were in its processes as well, but not each time
    others = [job for job in jobs if job.model == "finding"]
    assert [job.status for job in others] == ["completed"] * 4
    for job in others:
        farm.check_whole(job)


def test_a_job_that_ends_with_its_process_is_said_to_be_lost(farm: Any) -> None:
    """One of a backend that is not durable: it is not begun again, and not left open either."""
    farm.serve()
    with farm.client.post(
        "/compat/completions", {"model": "attached", "prompt": "p", "stream": True}
    ) as response:
        assert b"word" in next(response.chunks())
        (job,) = farm.wait_for(farm.jobs)
        killed = time.time()
        os.kill(int(job.owner.split("-")[-2]), signal.SIGKILL)
        (job,) = farm.wait_until_ended()
    assert (job.status, job.error_code, job.attempt) == ("failed", "worker_lost", 2)
    print(f"{job.finished_at - killed:.3f} s from the kill to the job's end")
    assert job.finished_at - killed < PATIENCE_S
    assert [record.event.type for record in farm.store.records(job.id)][-1] == "failed"
