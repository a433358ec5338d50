"""What an account may have: jobs in progress, and loops a month."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from caesar_server.contract import (
    BackendError,
    ChoiceFinished,
    Completed,
    ContentDelta,
    LoopFinished,
)
from caesar_server.testing import FakeClock, Gate
from caesar_server.web.access.keys import KeyLimits

FULL = {"error": "Too many requests - rate limit exceeded."}
TWO_LOOPS = (
    LoopFinished(1),
    LoopFinished(2),
    ContentDelta("x"),
    ChoiceFinished(),
    Completed(),
)


@pytest.fixture
def serve_keyed(serve, tmp_path):
    return lambda *args, **settings: serve(*args, keys_file=str(tmp_path / "keys.json"), **settings)


def test_five_jobs_in_progress_and_not_one_more(serve_keyed, make_key) -> None:
    headers, other, gate = make_key(), make_key("other"), Gate()
    served = serve_keyed([gate, ChoiceFinished(), Completed()])
    ids = [served.create(headers) for _ in range(5)]
    refused = served.client.post("/research", json={"query": "q"}, headers=headers)
    assert (refused.status_code, refused.json) == (429, FULL)
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["x-ratelimit-limit-jobs"] == "5"
    assert refused.headers["x-ratelimit-remaining-jobs"] == "0"
    compat = served.client.post(
        "/compat/completions", json={"model": "m", "prompt": "p"}, headers=headers
    )
    assert compat.status_code == 429
    assert compat.json["error"]["code"] == "too_many_jobs"
    # another account has its own
    another = served.create(other)
    gate.open()
    for job_id in ids:
        served.ended(job_id, headers)
    served.ended(another, other)
    served.ended(served.create(headers), headers)
    assert len(served.get("/research", headers)["data"]) == 6


def test_a_running_compat_answer_counts_and_is_counted_no_more(serve_keyed, make_key) -> None:
    headers, gate = make_key(limits=KeyLimits(jobs_in_progress=1)), Gate()
    served = serve_keyed([gate, ContentDelta("x"), ChoiceFinished(), Completed()])
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            served.app.test_client().post,
            "/compat/completions",
            json={"model": "m", "prompt": "p"},
            headers=headers,
        )
        gate.wait_until_reached()
        refused = served.client.post("/research", json={"query": "q"}, headers=headers)
        assert refused.status_code == 429
        gate.open()
        assert running.result().status_code == 200
    served.ended(served.create(headers), headers)


def test_a_key_may_have_more_than_the_settings_say(serve_keyed, make_key) -> None:
    headers, gate = make_key(limits=KeyLimits(jobs_in_progress=2)), Gate()
    served = serve_keyed([gate, ChoiceFinished(), Completed()], account_jobs_in_progress=1)
    ids = [served.create(headers) for _ in range(2)]
    assert served.client.post("/research", json={"query": "q"}, headers=headers).status_code == 429
    gate.open()
    for job_id in ids:
        served.ended(job_id, headers)


def test_loops_of_completed_jobs_count_until_the_month_is_over(serve_keyed, make_key) -> None:
    headers = make_key(limits=KeyLimits(loops_per_month=3))
    # two hours before the end of November
    clock = FakeClock(time_s=1_764_547_200 - 7200)
    served = serve_keyed(TWO_LOOPS, clock=clock)
    first = served.client.post("/research", json={"query": "q"}, headers=headers)
    # the job may have been quicker than the answer
    assert first.headers["x-ratelimit-remaining-loops"] in ("3", "1")
    served.ended(first.json["id"], headers)
    # one is left: the next job may begin, and take what it takes
    served.ended(served.create(headers), headers)
    refused = served.client.post("/research", json={"query": "q"}, headers=headers)
    assert (refused.status_code, refused.json) == (429, FULL)
    assert refused.headers["Retry-After"] == "7200"
    assert refused.headers["x-should-retry"] == "false"
    assert refused.headers["x-ratelimit-reset-loops"] == "7200s"
    # what was deleted was consumed all the same
    for job in served.get("/research", headers)["data"]:
        served.client.delete(f"/research/{job['id']}", headers=headers)
    assert served.client.post("/research", json={"query": "q"}, headers=headers).status_code == 429
    clock.advance(7201)
    served.ended(served.create(headers), headers)


def test_failed_jobs_are_free(serve_keyed, make_key) -> None:
    headers = make_key(limits=KeyLimits(loops_per_month=1))
    served = serve_keyed([LoopFinished(1), BackendError("No luck")])
    for _ in range(3):
        served.ended(served.create(headers), headers)


def test_what_the_backend_says_it_consumed_counts(serve_keyed, make_key) -> None:
    headers = make_key(limits=KeyLimits(loops_per_month=5))
    served = serve_keyed([ChoiceFinished(), Completed({"loops_consumed": 5})])
    job_id = served.create(headers)
    assert served.ended(job_id, headers)["reasoning_loops_consumed"] == 5
    assert served.client.post("/research", json={"query": "q"}, headers=headers).status_code == 429


def test_without_keys_there_are_no_limits(serve) -> None:
    gate = Gate()
    served = serve([gate, ChoiceFinished(), Completed()], account_jobs_in_progress=1)
    ids = [served.create() for _ in range(8)]
    response = served.client.post("/research", json={"query": "q"})
    assert "x-ratelimit-limit-jobs" not in response.headers
    gate.open()
    for job_id in [*ids, response.json["id"]]:
        served.ended(job_id)


def test_zero_is_no_limit(serve_keyed, make_key) -> None:
    headers, gate = make_key(), Gate()
    served = serve_keyed(
        [gate, ChoiceFinished(), Completed()],
        account_jobs_in_progress=0,
        account_loops_per_month=0,
    )
    ids = [served.create(headers) for _ in range(8)]
    gate.open()
    for job_id in ids:
        served.ended(job_id, headers)


def test_parallel_creations_get_exactly_what_there_is(serve_keyed, make_key) -> None:
    headers, gate = make_key(), Gate()
    served = serve_keyed([gate, ChoiceFinished(), Completed()])

    def create(_: int) -> int:
        client = served.app.test_client()
        return client.post("/research", json={"query": "q"}, headers=headers).status_code

    with ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(create, range(50)))
    assert (statuses.count(200), statuses.count(429)) == (5, 45)
    gate.open()
    for job in served.get("/research", headers)["data"]:
        served.ended(job["id"], headers)
