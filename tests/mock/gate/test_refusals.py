"""A call that the server refuses itself uses nothing up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from caesar_server.mock.matching import conditions
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import MockError, Reply
from caesar_server.mock.model.rule import Rule

PLAIN = {"model": "m", "prompt": "hello"}
STREAM = {**PLAIN, "stream": True}
WRONG = {**PLAIN, "n": 500}


@pytest.fixture
def used(mock, scopes) -> Any:
    """Return how often the rule was used that answers ``one`` and then ``two``."""
    scopes.get().remove("text")
    replies = (Reply(text="one"), Reply(text="two"))
    scopes.get().add(Rule(id="turns", conditions=conditions(prompt="hello"), replies=replies))
    return lambda: scopes.get().uses("turns")


@pytest.mark.parametrize("body", [WRONG, {**WRONG, "stream": True}, {**PLAIN, "model": 5}])
def test_a_call_with_something_wrong(mock, used, body):
    assert mock.ask(body).head.startswith("HTTP/1.1 400 ")
    assert (used(), mock.entry().rule, mock.entry().decided) == (0, None, False)
    assert b'"one"' in mock.ask(PLAIN).body
    assert (used(), mock.entry(1).rule.id) == (1, "turns")


def test_a_call_of_caesars_own_api_with_something_wrong(mock, used):
    native = mock.scope.add(
        Rule(id="", conditions=conditions(query="why"), replies=(Reply(text="so"),))
    )
    wrong = {"query": "why", "reasoning_loops": "x"}
    assert mock.ask(wrong, "/research").head.startswith("HTTP/1.1 400 ")
    assert mock.scope.uses(native.id) == 0


def test_a_path_that_is_not_there(mock, used):
    assert mock.ask(PLAIN, "/nowhere").head.startswith("HTTP/1.1 404 ")
    assert used() == 0


def test_a_fault_that_needs_a_stream(mock, used):
    fault = mock.scope.add(Rule(faults=(Fault(kind="missing_done"),), times=1))
    assert mock.ask(PLAIN).head.startswith("HTTP/1.1 422 ")
    assert (used(), mock.scope.uses(fault.id), mock.entry().rule) == (0, 0, None)
    assert b"[DONE]" not in mock.ask(STREAM).body
    assert (used(), mock.scope.uses(fault.id)) == (1, 1)


def test_a_fault_that_has_happened_stays_used(mock, used):
    faults = (Fault(kind="delay", delay_s=0.001), Fault(kind="missing_done"))
    fault = mock.scope.add(Rule(faults=faults, times=1))
    assert mock.ask(PLAIN).head.startswith("HTTP/1.1 422 ")
    assert (used(), mock.scope.uses(fault.id)) == (0, 1)
    assert [one.kind for one in mock.entry().faults] == ["delay"]


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_of_which_one_matches_no_rule(mock, used, stream):
    mock.scope.strict = True
    received = mock.ask({"model": "m", "prompt": ["hello", "other"], "stream": stream})
    assert received.head.startswith("HTTP/1.1 404 ")
    assert b"got 'other'" in received.body
    entry = mock.entry()
    assert (used(), entry.rule, entry.decided) == (0, None, True)
    assert entry.nearest[0].rule.id == "turns"


def test_a_status_in_place_of_the_answer_comes_whatever_the_body_is(mock, used):
    fault = mock.scope.add(Rule(faults=(Fault(kind="status", status=429),), times=2))
    heads = [mock.ask(body).head.split()[1] for body in (WRONG, PLAIN, WRONG, PLAIN)]
    assert heads == ["429", "429", "400", "200"]
    assert (used(), mock.scope.uses(fault.id)) == (1, 2)


def test_the_error_of_a_reply_is_an_answer(mock):
    failing = Reply(error=MockError(message="no", status=400))
    mock.scope.add(Rule(id="err", replies=(failing,), priority=1))
    assert mock.ask(PLAIN).head.startswith("HTTP/1.1 400 ")
    assert (mock.scope.uses("err"), mock.entry().rule.id) == (1, "err")


def test_refusals_among_parallel_calls_are_counted_exactly(mock, used):
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(mock.ask, [PLAIN, WRONG] * 20))
    answers.append(mock.ask(PLAIN))
    texts = [one.body for one in answers if one.head.startswith("HTTP/1.1 200 ")]
    assert (used(), len(texts)) == (21, 21)
    assert sum(b'"one"' in one for one in texts) == 1
