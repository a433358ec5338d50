"""Retries, fallback, health, weights and hedging: all of it before the first byte."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from caesar_backend_upstream.servers import Condition, RetryBudget
from caesar_server.testing import collect_events, make_context


def test_a_failure_before_the_first_byte_is_tried_again(raw, opened, wire, told) -> None:
    server = raw(wire.head(status="503 No"), wire.head(status="500 No"), wire.hello())
    answer = told(opened(server, retries=2).complete())
    assert answer.text() == "Hello you"
    assert len(server.asked) == 3
    assert server.asked[0].body == server.asked[2].body


def test_nothing_is_tried_again_after_it(raw, opened, wire, told) -> None:
    server = raw(wire.stream(wire.text("hi"), done=False), wire.hello())
    answer = told(opened(server, server, retries=5).complete())
    assert answer.text() == "hi"
    assert answer.error.status == 502
    assert len(server.asked) == 1


def test_retry_after_is_waited_for(raw, opened, wire, told) -> None:
    server = raw(wire.head(status="429 No", retry_after_ms="150"), wire.hello())
    context = make_context()
    slept: list[float] = []
    context.sleep = slept.append
    ask = opened(server, retries=1)
    from_events = told(collect_events(ask.backend, request(), context))
    assert from_events.text() == "Hello you"
    assert slept == [pytest.approx(slept[0])]
    assert slept[0] >= 0.15


def request():
    from caesar_server.contract import CompletionRequest

    return CompletionRequest(prompts=("hi",), model="m")


def test_pauses_grow_and_vary(raw, opened, wire) -> None:
    server = raw(wire.head(status="503 No"))
    ask = opened(server, retries=4, retry_budget=10)
    pauses: list[list[float]] = []
    for _ in range(8):
        context = make_context()
        slept: list[float] = []
        context.sleep = slept.append
        collect_events(ask.backend, request(), context)
        assert len(slept) == 4
        assert all(0 <= pause <= 0.25 * 2**number for number, pause in enumerate(slept))
        pauses.append(slept)
    assert len({tuple(pause) for pause in pauses}) == 8


def test_a_pause_beyond_the_deadline_is_not_begun(raw, opened, wire, told) -> None:
    server = raw(wire.head(status="503 No", Retry_After="4"))
    events = collect_events(
        opened(server, retries=3, max_retry_after_s=60).backend,
        request(),
        make_context(timeout_s=2.0),
    )
    assert told(events).error.status == 503
    assert len(server.asked) == 1


def test_retries_have_a_budget(raw, opened, wire) -> None:
    server = raw(wire.head(status="503 No"))
    ask = opened(server, retries=1, retry_budget=0.5)
    for _ in range(40):
        context = make_context()
        context.sleep = lambda _: None
        collect_events(ask.backend, request(), context)
    # 40 requests, ten retries in hand and half a retry for each request
    assert 40 + 10 <= len(server.asked) <= 40 + 10 + 20


def test_the_budget_fills_up_to_its_reserve() -> None:
    budget = RetryBudget(0.5)
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]
    budget.add_request()
    assert not budget.take()
    budget.add_request()
    assert budget.take()
    for _ in range(100):
        budget.add_request()
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]


@pytest.mark.parametrize("status", ["500 No", "503 No", "429 No", "401 No", "302 No"])
def test_the_next_server_answers(raw, opened, wire, told, status: str) -> None:
    broken, well = raw(wire.head(status=status)), raw(wire.hello())
    answer = told(opened(broken, well).complete())
    assert (answer.text(), answer.answered_by) == ("Hello you", "s2")


def test_the_next_server_is_not_asked_what_the_client_did_wrong(raw, opened, wire, told) -> None:
    body = {"error": {"message": "no"}}
    first, second = raw(wire.json(body, status="400 No")), raw(wire.hello())
    assert told(opened(first, second).complete()).error.status == 400
    assert second.made == 0


def test_a_broken_server_cools_down_and_comes_back(raw, opened, wire, told) -> None:
    broken, well = raw(wire.head(status="500 No")), raw(wire.hello())
    ask = opened(broken, well, failures=2, cooldown_s=60)
    for _ in range(5):
        assert told(ask.complete()).answered_by == "s2"
    assert len(broken.asked) == 2
    health = ask.backend.health()
    assert (health.status, "s1" in health.message) == ("degraded", True)


def test_when_all_cool_down_they_are_asked_all_the_same(raw, opened, wire, told) -> None:
    server = raw(wire.head(status="500 No"), wire.hello())
    ask = opened(server, failures=1, cooldown_s=60)
    assert told(ask.complete()).error.status == 502
    assert ask.backend.health().status == "down"
    assert told(ask.complete()).text() == "Hello you"
    assert ask.backend.health().status == "ok"


def test_a_cooldown_ends_by_time_or_by_success() -> None:
    now = [0.0]
    condition = Condition(failures=2, cooldown_s=10, monotonic=lambda: now[0])
    condition.failed()
    assert not condition.cooling
    condition.failed()
    assert condition.cooling
    now[0] = 10.0
    assert not condition.cooling
    condition.failed()
    assert condition.cooling
    condition.succeeded()
    assert not condition.cooling
    condition.asked_for_a_break(3600)
    assert condition.cooling
    now[0] = 20.0
    assert not condition.cooling


def test_a_server_that_asks_for_a_break_gets_one(raw, opened, wire, told) -> None:
    limited, well = raw(wire.head(status="429 No", Retry_After="60")), raw(wire.hello())
    ask = opened(limited, well, cooldown_s=60)
    assert [told(ask.complete()).answered_by for _ in range(3)] == ["s2"] * 3
    assert len(limited.asked) == 1


def test_weights_share_the_requests_out(raw, opened, wire, told) -> None:
    servers = [raw(wire.hello()) for _ in range(3)]
    table = {
        f"s{number}": {"url": server.url, "weight": weight}
        for number, (server, weight) in enumerate(zip(servers, (3, 1, 0), strict=True), start=1)
    }
    ask = opened(servers=table, order="weighted")
    ask.backend._open.attempts._chance = random.Random(1)
    counts = Counter(told(ask.complete()).answered_by for _ in range(200))
    assert counts["s3"] == 0
    assert 120 < counts["s1"] < 180


def test_models_choose_servers(raw, opened, wire, told) -> None:
    one, two = raw(wire.hello()), raw(wire.hello())
    table = {
        "one": {"url": one.url, "models": ["llama*", "exact"]},
        "two": {"url": two.url, "models": ["gpt-?"], "model": "theirs"},
    }
    ask = opened(servers=table)
    assert told(ask.complete(model="llama-3")).answered_by == "one"
    assert told(ask.complete(model="gpt-5")).answered_by == "two"
    assert [one.asked[0].body["model"], two.asked[0].body["model"]] == ["llama-3", "theirs"]
    error = told(ask.complete(model="other")).error
    assert (error.status, error.param, error.code) == (400, "model", "model_not_found")


def test_without_servers_the_cure_is_named(opened, told) -> None:
    ask = opened()
    error = told(ask.complete()).error
    assert error.status == 503
    assert "backends.upstream.servers.NAME.url" in error.message
    assert ask.backend.health().status == "down"


def silent(peer) -> None:
    peer.hang()


class TestHedging:
    def test_a_silent_server_is_overtaken_and_left(self, raw, opened, wire, told) -> None:
        slow, quick = raw(silent), raw(wire.hello())
        answer = told(opened(slow, quick, hedge_after_s=0.05).complete())
        assert (answer.text(), answer.answered_by) == ("Hello you", "s2")
        slow.wait_for(lambda server: server.made == 1 and server.open == 0)

    def test_a_quick_server_is_not_hedged(self, raw, opened, wire, told) -> None:
        quick, other = raw(wire.hello()), raw(wire.hello())
        answer = told(opened(quick, other, hedge_after_s=50).complete())
        assert (answer.text(), answer.answered_by) == ("Hello you", "s1")
        assert other.made == 0

    def test_the_first_may_still_win(self, raw, opened, wire, told) -> None:
        second_asked = threading.Event()

        def late(peer) -> None:
            second_asked.wait(60)
            peer.send(wire.hello())

        def never(peer) -> None:
            second_asked.set()
            peer.hang()

        one, two = raw(late), raw(never)
        answer = told(opened(one, two, hedge_after_s=0.05).complete())
        assert (answer.text(), answer.answered_by) == ("Hello you", "s1")
        two.wait_for(lambda server: server.made == 1 and server.open == 0)

    def test_a_failure_does_not_wait(self, raw, opened, wire, told) -> None:
        broken, well = raw(wire.head(status="500 No")), raw(wire.hello())
        answer = told(opened(broken, well, hedge_after_s=50).complete())
        assert answer.answered_by == "s2"

    def test_when_all_fail_it_is_an_error(self, raw, opened, wire, told) -> None:
        one, two = raw(wire.head(status="500 No")), raw(wire.head(status="503 No"))
        assert told(opened(one, two, hedge_after_s=50).complete()).error.status == 503

    def test_a_clients_mistake_ends_the_race(self, raw, opened, wire, told) -> None:
        body = {"error": {"message": "no"}}
        one, two = raw(silent), raw(wire.json(body, status="400 No"))
        assert told(opened(one, two, hedge_after_s=0.05).complete()).error.status == 400
        one.wait_for(lambda server: server.open == 0)

    def test_a_cancel_ends_both(self, raw, opened, told) -> None:
        one, two = raw(silent), raw(silent)
        ask = opened(one, two, hedge_after_s=0.05)
        context, events = make_context(), []
        run = threading.Thread(
            target=lambda: events.extend(collect_events(ask.backend, request(), context))
        )
        run.start()
        two.wait_for(lambda server: server.open == 1)
        context.cancel()
        run.join(60)
        assert told(events).error.code == "cancelled"
        for server in (one, two):
            server.wait_for(lambda server: server.open == 0)
