"""Whose turn it is, with the real engine: two threads in one context would end the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from caesar_server.contract import CompletionRequest, ContentDelta, Sampling, Started
from caesar_server.testing import FakeClock, make_context

#: Real seconds after which something that should happen did not.
SOON_S = 60.0
ENDLESS = {"ignore_eos": True}


def running(ask, prompt: str = "Once upon", **sampling: Any):
    """Return the iterator of a run that is in the middle of its text."""
    request = CompletionRequest(prompts=(prompt,), sampling=Sampling(**sampling), extra=ENDLESS)
    events = ask.backend.run(request, make_context())
    assert isinstance(next(events), Started)
    assert any(isinstance(event, ContentDelta) for event in events)
    return closing(events)


def in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    return thread, found


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(SOON_S * 1000)):
        if condition():
            return
        pause.wait(0.001)
    pytest.fail("it did not happen")


def waiting(ask) -> int:
    (message,) = [part for part in ask.backend.health().message.split(", ") if "waiting" in part]
    return int(message.split()[0])


def test_an_open_stream_keeps_its_instance(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, temperature=0)
    with running(ask):
        thread, found = in_thread(lambda: ask.complete("Once upon", max_tokens=2))
        wait_until(lambda: waiting(ask) == 1)
        assert not found
    thread.join(SOON_S)
    assert found[0].text == " a time"


def test_a_second_instance_answers_meanwhile(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, instances=2, temperature=0)
    with running(ask):
        assert ask.complete("Once upon", max_tokens=2).text == " a time"
        assert "1 of 2 instances at work" in ask.backend.health().message


def test_first_come_first_served(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, temperature=0)
    order: list[int] = []
    threads = []
    with running(ask):
        for number in range(4):
            thread, _ = in_thread(
                lambda number=number: (ask.complete("Once", max_tokens=1), order.append(number))
            )
            threads.append(thread)
            wait_until(lambda number=number: waiting(ask) == number + 1)
    for thread in threads:
        thread.join(SOON_S)
    assert sorted(order) == [0, 1, 2, 3]
    assert waiting(ask) == 0


def test_a_full_queue_says_which_number_it_would_be(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, queue=1, temperature=0)
    with running(ask):
        thread, found = in_thread(lambda: ask.complete("Once upon", max_tokens=1))
        wait_until(lambda: waiting(ask) == 1)
        error = ask.complete("Once upon").error
        assert (error.status, error.code) == (429, "queue_full")
        assert "1 at work and 1 waiting" in error.message
        assert "number 2 in a queue of 1" in error.message
        assert 0.5 <= error.retry_after_s <= 30
    thread.join(SOON_S)
    assert found[0].text == " a"


def test_no_queue_at_all(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, queue=0, temperature=0)
    with running(ask):
        assert ask.complete("Once upon").error.status == 429
    assert ask.complete("Once upon", max_tokens=1).text == " a"


def test_who_waits_too_long_is_told_its_number(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, wait_s=20, temperature=0)
    clock = FakeClock()
    with running(ask):
        thread, found = in_thread(
            lambda: ask.complete("Once upon", context=make_context(clock=clock))
        )
        wait_until(lambda: waiting(ask) == 1)
        clock.wait_for_waiters()
        clock.advance(20)
        thread.join(SOON_S)
        error = found[0].error
        assert (error.status, error.code) == (503, "queue_timeout")
        assert "busy for 20 s" in error.message
        assert "number 1 in its queue" in error.message
        assert waiting(ask) == 0


def test_who_leaves_the_queue_is_not_served(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, temperature=0)
    context = make_context()
    with running(ask):
        thread, found = in_thread(lambda: ask.complete("Once upon", context=context))
        wait_until(lambda: waiting(ask) == 1)
        context.cancel()
        thread.join(SOON_S)
        assert found[0].error.code == "cancelled"
        assert waiting(ask) == 0
    assert ask.complete("Once upon", max_tokens=1).text == " a"


def test_a_bad_request_does_not_wait_for_its_turn(opened, tiny_model) -> None:
    ask = opened(tiny_model("echo").path, n_ctx=256)
    with running(ask):
        assert ask.complete("Once upon", max_tokens=300).error.status == 400


@pytest.mark.parametrize("instances", [1, 3])
def test_eight_at_once_are_as_one_by_one(opened, tiny_model, instances: int) -> None:
    ask = opened(tiny_model("random").path, instances=instances)
    prompts = [f"Once upon {'a time ' * number}" for number in range(8)]

    def answer(number: int) -> tuple[str, Any]:
        found = ask.complete(prompts[number], seed=number, max_tokens=40, logprobs=1)
        return found.text, found.tokens()

    alone = [answer(number) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(answer, range(8))) == alone


def test_the_free_instance_that_knows_the_prompt_answers(opened, tiny_model) -> None:
    ask = opened(tiny_model("random").path, instances=2, batch_tokens=8)
    one, other = "Once upon a time " * 8, "every request " * 8
    with running(ask, one, seed=1):
        ask.complete(other, max_tokens=1)
    from caesar_backend_local_llm.hosting.turns import Turns

    (host,) = ask.backend._hosts.values()
    turns: Turns = host._ready.turns
    for prompt in (one, other, one):
        tokens = host._ready.model.vocabulary.tokens(prompt, special=True)
        with turns.turn(tokens, make_context()) as instance:
            assert instance.shared_with(tokens) >= 8
