"""What one process does and another one sees: followers, cancels, and jobs beside each other."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WITHIN_S = 60.0
JOBS = 40
#: Cancels are noticed within 1 s; a busy machine may take longer, but not for ever.
PATIENCE_S = 60.0


@contextmanager
def following(farm: Any) -> Iterator[tuple[Any, queue.SimpleQueue[Any]]]:
    """Run the follower; gives what takes the ids of jobs, and what it prints."""
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with farm.follower() as process:

        def read() -> None:
            for line in process.stdout:
                told.put(json.loads(line))

        reader = threading.Thread(target=read, name="test-reader")
        reader.start()
        try:
            yield process.stdin, told
        finally:
            process.stdin.close()
            reader.join(WITHIN_S)


def jobs_of(farm: Any, model: str) -> list[Any]:
    return [job for job in farm.jobs() if job.model == model]


def test_a_follower_that_lets_go_at_random_gets_each_event_once(busy_farm: Any) -> None:
    """While the processes that run the jobs are killed."""
    farm = busy_farm
    points = ("after-started", "inside-a-batch", "after-content_delta", "before-announcement")
    for point in points:
        farm.arm(point)
    with ThreadPoolExecutor(6, thread_name_prefix="test-client") as pool:
        asked = [pool.submit(farm.ask, "finding", f"job {number}") for number in range(JOBS)]
        ids: list[str] = []
        with following(farm) as (wanted, told):
            while not all(one.done() for one in asked) or len(ids) < JOBS:
                new = [job.id for job in jobs_of(farm, "finding") if job.id not in ids]
                wanted.writelines(f"{id}\n" for id in new)
                wanted.flush()
                ids += new
                threading.Event().wait(0.02)
            for one in asked:
                one.result()
            followed = [told.get(timeout=WITHIN_S) for _ in ids]
    jobs = {job.id: job for job in farm.wait_until_ended()}
    assert sorted(one["id"] for one in followed) == sorted(ids)
    for one in followed:
        assert one["seqs"] == list(range(1, jobs[one["id"]].last_seq + 1))
        farm.check_whole(jobs[one["id"]])
    # how many let go depends on how often they looked; that none did is as good as impossible
    assert sum(one["begins"] for one in followed) > JOBS
    assert {fired.point for fired in farm.fired()} == set(points)


@pytest.mark.parametrize("way", ["store", "command"])
def test_a_cancel_reaches_a_job_in_another_process(busy_farm: Any, way: str) -> None:
    farm = busy_farm
    body = {"model": "waiting", "prompt": way, "stream": True}
    with farm.client.post("/compat/completions", body) as response:
        assert b"word" in next(response.chunks())
        job_id = jobs_of(farm, "waiting")[-1].id
        if way == "store":
            assert farm.store.request_cancel(job_id).finished_at is None
        else:
            done = farm.run("jobs", "cancel", job_id)
            assert done.returncode == 0, done.stderr
        # not from when the command began: Python itself takes seconds where cores are busy
        asked = time.time()
        farm.wait_until_ended()
        assert b'"code":"cancelled"' in response.read()
    job = farm.store.job(job_id)
    assert (job.status, job.error_code) == ("failed", "cancelled")
    print(f"{job.finished_at - asked:.3f} s from the cancel to the job's end ({way})")
    assert job.finished_at - asked < PATIENCE_S


def test_jobs_beside_each_other_tell_the_same_as_one_by_one(busy_farm: Any) -> None:
    farm = busy_farm
    prompts = [f"number {number}" for number in range(20)]

    def answer(prompt: str) -> tuple[str, list[Any]]:
        got = farm.ask("counting", prompt)
        return got.text, [record.event for record in farm.store.records(got.job_id)]

    one_by_one = [answer(prompt) for prompt in prompts]
    with ThreadPoolExecutor(20, thread_name_prefix="test-client") as pool:
        side_by_side = list(pool.map(answer, prompts))
    assert side_by_side == one_by_one
    assert len({text for text, _ in one_by_one}) == 20
    assert len(jobs_of(farm, "counting")) == 40
