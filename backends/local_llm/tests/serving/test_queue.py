"""One worker, one instance: who waits, who is refused, and who makes room by leaving."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_makes_room(one_worker: Any, stream: bool) -> None:
    asked = one_worker.send(
        "local_llm/alone", "Once", stream=stream, ignore_eos=True, max_tokens=60_000
    )
    one_worker.wait(lambda: one_worker.at_work("alone") == 1)
    asked.leave()
    status, body, _ = one_worker.ask("alone", "Once upon", max_tokens=3, seed=1)
    assert status == 200
    assert body["usage"]["completion_tokens"] <= 3
    one_worker.wait(lambda: one_worker.at_work("alone") == 0)


def test_who_hangs_up_in_a_long_prompt_makes_room_before_its_end(one_worker: Any) -> None:
    assert one_worker.ask("deep", "x", max_tokens=1)[0] == 200
    read = one_worker.metric("prompt_tokens_total", "deep")
    assert read > 0
    prompt = [(7 * number) % 250 + 3 for number in range(8000)]
    asked = one_worker.send("local_llm/deep", prompt, max_tokens=1)
    one_worker.wait(lambda: one_worker.at_work("deep") == 1)
    asked.leave()
    one_worker.wait(lambda: one_worker.at_work("deep") == 0)
    assert one_worker.metric("prompt_tokens_total", "deep") == read
    assert one_worker.ask("deep", "x", max_tokens=1)[0] == 200


def test_a_full_queue_and_a_queue_that_is_left(one_worker: Any) -> None:
    first = one_worker.stream("alone")
    second = one_worker.send("local_llm/alone", "Once", max_tokens=1)
    one_worker.wait(lambda: "1 of 1 instances at work, 1 waiting" in one_worker.get("/readyz")[1])
    status, body, headers = one_worker.ask("alone", "Once", max_tokens=1)
    assert (status, body["error"]["code"]) == (429, "queue_full")
    assert "number 2 in a queue of 1" in body["error"]["message"]
    assert float(headers["Retry-After"]) > 0
    second.leave()
    one_worker.wait(lambda: "1 of 1 instances at work, 0 waiting" in one_worker.get("/readyz")[1])
    first.leave()
    assert one_worker.ask("alone", "Once", max_tokens=1)[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_wait_that_is_too_long(one_worker: Any, stream: bool) -> None:
    first = one_worker.stream("hasty")
    status, body, _ = one_worker.ask("hasty", "Once", max_tokens=1, stream=stream)
    assert (status, body["error"]["code"]) == (503, "queue_timeout")
    assert "busy for 0.2 s; the request was number 1" in body["error"]["message"]
    assert first.read_chunks(5)  # which goes on
    first.leave()
    one_worker.wait(lambda: one_worker.at_work("hasty") == 0)
    assert one_worker.ask("hasty", "Once", max_tokens=1)[0] == 200


def test_other_models_are_answered_meanwhile(one_worker: Any) -> None:
    first = one_worker.stream("alone")
    status, body, _ = one_worker.ask("script", "Once upon", max_tokens=1)
    assert (status, body["choices"][0]["text"]) == (200, " a")
    assert one_worker.get("/healthz")[0] == 200
    first.leave()
