"""Everything at once to the same few jobs, through both workers: nothing breaks or is left over."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

CALLERS, CALLS = 10, 50
ACCOUNT = "many"


class Caller:
    """Calls routes in an order that its seed decides, for jobs that all callers share."""

    def __init__(self, pair: Any, jobs: list[str], lock: threading.Lock, seed: int) -> None:
        self._pair = pair
        self._jobs = jobs
        self._lock = lock
        self._random = random.Random(seed)
        #: Method, kind of path and status of each answer.
        self.seen: Counter[tuple[str, str, int]] = Counter()

    def run(self) -> None:
        for _ in range(CALLS):
            kinds: tuple[Callable[[], None], ...] = (
                self._create,
                self._complete,
                self._follow,
                lambda: self._call("GET", ""),
                lambda: self._call("GET", "/events"),
                lambda: self._call("GET", "/http_requests"),
                lambda: self._call("GET", "/results/r1/content"),
                lambda: self._call("GET", "/updates"),
                lambda: self._call("POST", "/updates", {"update_content": "More"}),
                lambda: self._call("POST", "/cancel"),
                lambda: self._call("DELETE", ""),
                self._list,
            )
            self._random.choice(kinds)()

    def _create(self) -> None:
        plan = {"notes": self._random.randint(0, 5), "pause_s": 0.01}
        if self._random.random() < 0.3:
            plan["hold"] = "go-storm"
        answer = self._pair.send(ACCOUNT, "POST", "/research", {"query": json.dumps(plan)})
        self._note("POST", "", answer.status)
        with self._lock:
            self._jobs.append(answer.body["id"])

    def _complete(self) -> None:
        body = {"model": "told", "prompt": '{"notes": 1}', "stream": self._random.random() < 0.5}
        answer = self._pair.send(ACCOUNT, "POST", "/compat/completions", body)
        self._note("POST", "completions", answer.status)

    def _follow(self) -> None:
        with self._pair.events(ACCOUNT, self._any()) as stream:
            self._note("GET", "stream", stream.status)
            events = stream.events()
            # so many come of every job; who waits for more waits for those that hold
            for _ in range(self._random.randint(0, 2)):
                next(events, None)

    def _list(self) -> None:
        path = f"/research?limit=5&page={self._random.randint(1, 4)}"
        self._note("GET", "list", self._pair.send(ACCOUNT, "GET", path).status)

    def _call(self, method: str, what: str, body: Any = None) -> None:
        answer = self._pair.send(ACCOUNT, method, f"/research/{self._any()}{what}", body)
        self._note(method, what, answer.status)

    def _any(self) -> str:
        """Return one of the newest jobs, at which others are as well."""
        with self._lock:
            return self._random.choice(self._jobs[-6:])

    def _note(self, method: str, what: str, status: int) -> None:
        self.seen[method, what, status] += 1


@pytest.mark.slow
def test_a_storm_of_calls_breaks_nothing(pair) -> None:
    logged = len(pair.server.log)
    jobs = [pair.create(ACCOUNT, hold="go-storm") for _ in range(3)]
    lock = threading.Lock()
    callers = [Caller(pair, jobs, lock, seed) for seed in range(CALLERS)]
    with ThreadPoolExecutor(CALLERS, thread_name_prefix="test-client") as pool:
        for done in [pool.submit(caller.run) for caller in callers]:
            done.result()
    seen = sum((caller.seen for caller in callers), Counter())
    assert sum(seen.values()) == CALLERS * CALLS
    assert {status for _, _, status in seen} <= {200, 400, 404}, seen
    assert {call[:2] for call in seen if call[2] == 404}.isdisjoint({("GET", "list"), ("POST", "")})
    # an update of a job that has ended; everything else makes sense
    assert {call[:2] for call in seen if call[2] == 400} <= {("POST", "/updates")}
    pair.release("go-storm")
    for job_id in jobs:
        answer = pair.send(ACCOUNT, "GET", f"/research/{job_id}")
        if answer.status == 200:
            pair.ended(ACCOUNT, job_id)
    created = pair.send(ACCOUNT, "POST", "/research", {"query": '{"hold": "go-last"}'})
    # all others gave their places back
    assert created.headers["x-ratelimit-remaining-jobs"] == "999"
    pair.release("go-last")
    errors = [line for line in pair.server.log[logged:].splitlines() if '"level":"error"' in line]
    assert errors == []
