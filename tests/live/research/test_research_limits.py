"""Limits of accounts hold exactly, over both workers, for native and compat requests alike."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

ASKED, ALLOWED = 50, 5
MODEL = "caesar-research"
COMPLETION = {"model": MODEL, "prompt": "{}"}
TEXT = "Too many requests - rate limit exceeded."


def all_at_once(count: int, ask: Any) -> list[Any]:
    """Call a function with 0, 1, ... in so many threads at the same moment."""
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait()
        return ask(number)

    with ThreadPoolExecutor(count, thread_name_prefix="test-client") as pool:
        return list(pool.map(one, range(count)))


def check_refused(answer: Any) -> None:
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["x-ratelimit-limit-jobs"] == str(ALLOWED)
    assert answer.headers["x-ratelimit-remaining-jobs"] == "0"
    assert answer.headers["x-ratelimit-remaining"] == "0"


def test_of_50_creations_at_once_exactly_5_are_accepted(pair, account) -> None:
    hold = f"go-{account}"
    body = {"query": json.dumps({"hold": hold})}
    answers = all_at_once(ASKED, lambda _: pair.send(account, "POST", "/research", body))
    assert Counter(answer.status for answer in answers) == {200: ALLOWED, 429: ASKED - ALLOWED}
    accepted = [answer for answer in answers if answer.status == 200]
    for answer in answers:
        if answer.status == 429:
            check_refused(answer)
            assert answer.body == {"error": TEXT}
        else:
            assert int(answer.headers["x-ratelimit-remaining"]) < ALLOWED
    listed = pair.send(account, "GET", "/research").body
    assert listed["pagination"]["total"] == ALLOWED
    assert {job["id"] for job in listed["data"]} == {answer.body["id"] for answer in accepted}
    # what is in progress of another account is nothing to this one
    assert pair.send(pair.account(), "POST", "/research", {"query": "{}"}).status == 200
    pair.release(hold)
    for answer in accepted:
        assert pair.ended(account, answer.body["id"])["status"] == "completed"
    assert pair.ended(account, pair.create(account))["status"] == "completed"


def test_native_jobs_and_completions_are_counted_together(pair, account) -> None:
    hold = f"go-{account}"
    plan = json.dumps({"hold": hold})

    def ask(number: int) -> Any:
        if number % 3 == 0:
            return pair.open(account, "POST", "/research", {"query": plan})
        if number % 3 == 1:
            body: dict[str, Any] = {"model": MODEL, "prompt": plan, "stream": True}
            return pair.open(account, "POST", "/compat/completions", body)
        messages = [{"role": "user", "content": plan}]
        body = {"model": MODEL, "messages": messages, "stream": True}
        return pair.open(account, "POST", "/compat/chat/completions", body)

    with ExitStack() as stack:
        streams = [stack.enter_context(one) for one in all_at_once(ASKED, ask)]
        assert Counter(one.status for one in streams) == {200: ALLOWED, 429: ASKED - ALLOWED}
        for one in streams:
            if one.status == 429:
                check_refused(one)
                one.rest()
                assert TEXT in one.raw.decode()
        listed = pair.send(account, "GET", "/research").body["data"]
        assert len(listed) == ALLOWED
        pair.release(hold)
        for one in streams:
            if one.status == 200 and "text/event-stream" in one.headers["content-type"]:
                assert one.rest()[-1] == "[DONE]"
    for job in listed:
        assert pair.ended(account, job["id"])["status"] == "completed"


def test_a_refused_completion_has_the_error_of_its_surface(pair, account) -> None:
    hold = f"go-{account}"
    jobs = [pair.create(account, hold=hold) for _ in range(ALLOWED)]
    refused = pair.send(account, "POST", "/compat/completions", COMPLETION)
    check_refused(refused)
    assert refused.body["error"]["message"] == TEXT
    assert refused.body["error"]["type"] == "rate_limit_error"
    # a cancel by the other worker makes room for one
    worker = pair.noted(jobs[0], "began")
    path = f"/research/{jobs[0]}/cancel"
    assert pair.send(account, "POST", path, worker=pair.other(worker)).status == 200
    pair.ended(account, jobs[0])
    assert pair.send(account, "POST", "/compat/completions", COMPLETION).status == 200
    pair.release(hold)
    for job in jobs:
        pair.ended(account, job)


def test_loops_of_a_month_are_those_of_completed_jobs(pair) -> None:
    account = "frugal"
    failed = pair.ended(account, pair.create(account, loops=4, fail=True))
    assert (failed["status"], failed["reasoning_loops_consumed"]) == ("failed", 4)
    first = pair.ended(account, pair.create(account, loops=4))
    assert first["reasoning_loops_consumed"] == 4
    # 4 of 5: whoever is let in may finish, whatever it needs
    plan = {"loops": 3, "hold": "go-frugal"}
    allowed = pair.send(account, "POST", "/research", {"query": json.dumps(plan)})
    assert allowed.headers["x-ratelimit-remaining-loops"] == "1"
    pair.release("go-frugal")
    second = pair.ended(account, allowed.body["id"])
    assert (second["status"], second["reasoning_loops_consumed"]) == ("completed", 3)
    for worker in pair.workers:
        for path, body in (("/research", {"query": "{}"}), ("/compat/completions", COMPLETION)):
            refused = pair.send(account, "POST", path, body, worker=worker)
            assert refused.status == 429
            assert TEXT in refused.text
            assert refused.headers["x-ratelimit-remaining-loops"] == "0"
            assert refused.headers["x-ratelimit-limit-loops"] == "5"
            # the next month is not near enough to be waited for
            assert refused.headers["x-should-retry"] == "false"
            seconds = int(refused.headers["x-ratelimit-reset-loops"].removesuffix("s"))
            assert 0 < seconds <= 31 * 86400
            # clients keep the milliseconds in 32 bits, and a month may have more
            waits = min(seconds, (2**31 - 1) // 1000)
            assert abs(int(refused.headers["retry-after"]) - waits) <= 1
    # a deleted job stays counted
    assert pair.send(account, "DELETE", f"/research/{first['id']}").status == 200
    assert pair.send(account, "POST", "/research", {"query": "{}"}).status == 429


@pytest.mark.parametrize("path", ["/research", "/compat/completions", "/compat/chat/completions"])
def test_a_request_that_makes_no_sense_takes_no_room(pair, path) -> None:
    account = pair.account()
    for _ in range(2 * ALLOWED):
        assert pair.send(account, "POST", path, {}).status == 400
    assert pair.create(account)
