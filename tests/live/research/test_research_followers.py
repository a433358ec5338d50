"""Followers of a job's events that come, go and come back, to either worker."""

from __future__ import annotations

import json
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pytest

from caesar_server.contract.sse import SseDecoder
from caesar_server.settings import Settings
from caesar_server.store.opening import open_store

SEEDS = range(8)
#: Of the streams of one job that are open at once.
MANY = 50
NOTES = 40
#: How likely a follower hangs up after each few bytes.
DROPPING = 0.15


class Dropper:
    """A follower that loses its connection again and again, wherever in the stream it is.

    ``seen`` is what a program would have got, ``begun`` how often it connected.
    """

    def __init__(self, pair: Any, account: str, job_id: str, seed: int) -> None:
        self._pair = pair
        self._asked = (account, job_id)
        self._random = random.Random(seed)
        self.seen: list[str] = []
        self.ids: list[int] = []
        self.begun = 0

    def run(self) -> Dropper:
        """Follow to the end of the stream."""
        until = time.monotonic() + 60
        while not self.seen or self.seen[-1] != "[DONE]":
            assert time.monotonic() < until
            self._connect()
        return self

    def _connect(self) -> None:
        chance, decoder = self._random, SseDecoder()
        after = str(self.ids[-1]) if self.ids else ""
        worker = chance.choice(self._pair.workers)
        self.begun += 1
        with self._pair.events(*self._asked, after=after, worker=worker) as stream:
            assert stream.status == 200
            for chunk in stream.chunks(lambda: chance.randint(1, 150)):
                for event in decoder.feed(chunk):
                    self._take(event)
                if chance.random() < DROPPING:
                    return

    def _take(self, event: Any) -> None:
        if event.data != "[DONE]":
            self.ids.append(int(event.id))
        # who hangs up between the end and [DONE] hears of the end again
        if not self.seen or event.data != self.seen[-1] or "status" not in event.data:
            self.seen.append(event.data)


def as_told(pair: Any, account: str, job_id: str) -> list[Any]:
    """Return what a whole stream of an ended job holds: the list of events, and the end."""
    listed = pair.send(account, "GET", f"/research/{job_id}/events").body
    status = pair.job(account, job_id)["status"]
    return [*listed, {"status": status, "id": job_id}]


def test_followers_that_drop_at_random_see_each_event_exactly_once(pair, account) -> None:
    job_id = pair.create(account, notes=NOTES, pause_s=0.02)
    droppers = [Dropper(pair, account, job_id, seed) for seed in SEEDS]
    with ThreadPoolExecutor(len(SEEDS), thread_name_prefix="test-client") as pool:
        done = list(pool.map(Dropper.run, droppers))
    whole = as_told(pair, account, job_id)
    notes = [one["message"] for one in whole if one.get("message", "").startswith("note")]
    assert notes == [f"note {number}" for number in range(NOTES)]
    for dropper in done:
        *items, last = dropper.seen
        assert [json.loads(item) for item in items] == whole
        assert last == "[DONE]"
        assert dropper.ids == sorted(dropper.ids)
    assert sum(dropper.begun for dropper in done) > 3 * len(SEEDS), "hardly any dropped"


@pytest.mark.parametrize("fail", [False, True])
def test_who_comes_back_after_the_end_hears_of_it_again(pair, fail) -> None:
    account = pair.account()
    job_id = pair.create(account, notes=3, fail=fail)
    pair.ended(account, job_id)
    with pair.events(account, job_id) as stream:
        events = list(stream.events())
    *items, end, done = events
    assert json.loads(end.data) == {"status": "failed" if fail else "completed", "id": job_id}
    assert (done.data, len(items)) == ("[DONE]", 5)
    for place, event in enumerate(items):
        for worker in pair.workers:
            with pair.events(account, job_id, after=event.id, worker=worker) as stream:
                assert stream.rest() == [one.data for one in events[place + 1 :]]
    for after in (end.id, str(int(end.id) + 1), str(10**17)):
        for worker in pair.workers:
            with pair.events(account, job_id, after=after, worker=worker) as stream:
                assert stream.rest() == [end.data, "[DONE]"]
    for strange in ("x", "-1", "1.5", "9" * 400, "0"):
        with pair.events(account, job_id, after=strange) as stream:
            assert stream.rest() == [one.data for one in events]


def test_the_stream_and_the_list_tell_the_same(pair, account) -> None:
    job_id = pair.create(account, notes=5)
    with pair.events(account, job_id) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        told = [json.loads(data) for data in stream.rest()[:-1]]
    assert told == as_told(pair, account, job_id)
    assert all(set(one) == {"message", "created_at"} for one in told[:-1])


def test_many_followers_of_one_job_on_both_workers(pair, account) -> None:
    hold = f"go-{account}"
    job_id = pair.create(account, notes=3, hold=hold)
    with ExitStack() as stack:
        streams = [
            stack.enter_context(pair.events(account, job_id, worker=pair.workers[number % 2]))
            for number in range(MANY)
        ]
        assert {stream.status for stream in streams} == {200}
        assert pair.server.request("GET", "/healthz")[0] == 200
        pair.release(hold)
        with ThreadPoolExecutor(MANY, thread_name_prefix="test-client") as pool:
            told = list(pool.map(lambda stream: stream.rest(), streams))
    whole = as_told(pair, account, job_id)
    for one in told:
        assert [json.loads(data) for data in one[:-1]] == whole
        assert one[-1] == "[DONE]"


def test_a_silent_stream_has_heartbeats_and_nothing_but(pair, account) -> None:
    hold = f"go-{account}"
    job_id = pair.create(account, hold=hold)
    with pair.events(account, job_id) as stream:
        chunks = stream.chunks()
        while stream.raw.count(b"\n:") < 3:
            next(chunks)
        pair.release(hold)
        for _ in chunks:
            pass
    lines = stream.raw.decode().splitlines()
    assert {line[0] for line in lines if line} == {":", "i", "d"}
    assert [line for line in lines if line.startswith("data")][-1] == "data: [DONE]"


def test_a_follower_that_leaves_does_not_end_the_job(pair, account) -> None:
    hold = f"go-{account}"
    job_id = pair.create(account, notes=2, hold=hold)
    for worker in pair.workers:
        with pair.events(account, job_id, worker=worker) as stream:
            next(stream.events())
    with pair.events(account, job_id) as stays:
        pair.release(hold)
        assert json.loads(stays.rest()[-2])["status"] == "completed"
    assert pair.job(account, job_id)["content"] == "Found it [1]."


@pytest.mark.slow
def test_the_server_s_end_does_not_pass_for_the_job_s(own_pair, tmp_path) -> None:
    """Either the job has failed with the server, or its stream just ends and can be resumed."""
    pair = own_pair
    job_id = pair.create("many", notes=2, hold="never")
    with ExitStack() as stack:
        streams = [
            stack.enter_context(pair.events("many", job_id, worker=worker))
            for worker in pair.workers
        ]
        readers = [stream.events() for stream in streams]
        for events in readers:
            while "note 1" not in next(events).data:
                pass
        pair.server.signal(signal.SIGTERM)
        told = [[event.data for event in events] for events in readers]
    assert pair.server.process.wait(60) == 0
    with closing(open_store(Settings(store=f"sqlite:///{tmp_path / 'jobs.sqlite3'}"))) as store:
        status = store.job(job_id).status
    for rest in told:
        if rest:
            end, done = rest
            assert json.loads(end) == {"status": status, "id": job_id}
            assert (status, done) == ("failed", "[DONE]")
