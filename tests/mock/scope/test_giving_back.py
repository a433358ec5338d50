"""What a refused call took of the rules is taken by the next ones."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from caesar_server.mock.calls import call_from_http
from caesar_server.mock.matching import conditions, predicate
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.model.rule import Decision, Rule
from caesar_server.mock.scope import Manner, Scope


def call(*prompts: str) -> Call:
    data = json.dumps({"prompt": list(prompts)}).encode()
    return call_from_http(method="POST", path="/compat/completions", headers={}, body=data)


def rule(*texts: str, **more: object) -> Rule:
    return Rule(replies=tuple(Reply(text=text) for text in texts), **more)  # type: ignore[arg-type]


def text(decision: Decision) -> str | None:
    reply = decision.reply
    return reply.text_of(0) if isinstance(reply, Reply) else None


def counters(scope: Scope) -> list[tuple[int, int]]:
    return [(state.matched, state.used) for state in scope.states()]


def test_the_next_call_takes_the_turn_that_was_given_back() -> None:
    scope = Scope()
    scope.add(rule("one", "two", "three", times=3))
    first, second = scope.decide(call("a")), scope.decide(call("a"))
    scope.give_back(first.uses)
    assert (text(second), counters(scope)) == ("two", [(1, 1)])
    assert [text(scope.decide(call("a"))) for _ in range(3)] == ["one", "three", "a"]
    assert counters(scope) == [(3, 3)]


def test_a_call_that_was_let_pass_is_given_back_too() -> None:
    scope = Scope()
    scope.add(rule("one", skip=1))
    refused = scope.decide(call("a"))
    assert text(scope.decide(call("a"))) == "one"
    scope.give_back(refused.uses)
    assert counters(scope) == [(1, 1)]
    passed = scope.decide(call("a"))
    assert text(passed) == "a"
    assert passed.nearest[0].failed == ("skip: let pass, 1 of 1",)
    assert text(scope.decide(call("a"))) == "one"


def test_a_fault_rule_is_given_back() -> None:
    scope = Scope()
    scope.add(Rule(faults=(Fault(kind="missing_done"),), times=1))
    scope.give_back(scope.decide(call("a")).uses)
    assert counters(scope) == [(0, 0)]
    assert scope.decide(call("a")).faults


def test_after_a_reset_there_is_nothing_to_give_back() -> None:
    scope = Scope()
    scope.add(rule("one", "two"))
    refused = scope.decide(call("a"))
    scope.reset("counters")
    scope.give_back(refused.uses)
    assert counters(scope) == [(0, 0)]
    assert [text(scope.decide(call("a"))) for _ in range(2)] == ["one", "two"]


def test_files_that_are_read_again_meanwhile_lose_nothing() -> None:
    scope = Scope()
    scope.set_files([rule("one", "two", id="file")])
    refused = scope.decide(call("a"))
    scope.set_files([rule("one", "two", id="file")])
    scope.give_back(refused.uses)
    assert counters(scope) == [(0, 0)]


def test_of_several_prompts_one_without_a_reply_refuses_all() -> None:
    scope = Scope(manner=Manner(strict=True))
    scope.add(rule("one", "two", conditions=conditions(prompt="a")))
    decision = scope.decide(call("a", "b", "a"))
    decisions = (decision, *decision.rest)
    assert [(one.rule, one.reply) for one in decisions] == [(None, None)] * 3
    assert decision.nearest[0].failed == ("prompt: wanted 'a', got 'b'",)
    assert counters(scope) == [(0, 0)]
    assert text(scope.decide(call("a"))) == "one"


def test_what_is_let_pass_without_another_reply_stays_counted() -> None:
    scope = Scope(manner=Manner(strict=True))
    scope.add(rule("one", skip=1))
    for_nobody = scope.decide(call("a"))
    scope.give_back(for_nobody.uses)
    assert [for_nobody.reply, text(scope.decide(call("a")))] == [None, "one"]


def test_a_predicate_that_raises_uses_nothing_up() -> None:
    def fails(one: Call) -> bool:
        raise ZeroDivisionError

    scope = Scope()
    scope.add(rule("one", conditions=conditions(prompt="a")))
    scope.add(rule("two", conditions=conditions(predicate(fails))))
    with pytest.raises(ZeroDivisionError):
        scope.decide(call("a", "b"))
    assert counters(scope) == [(0, 0), (0, 0)]


def test_refusals_among_200_calls_at_once_are_counted_exactly() -> None:
    scope = Scope()
    texts = [str(number) for number in range(100)]
    scope.add(rule(*texts, "rest", skip=5))

    def ask(number: int) -> str | None:
        decision = scope.decide(call("echo"))
        if number % 2:
            scope.give_back(decision.uses)
            return None
        return text(decision)

    with ThreadPoolExecutor(50) as pool:
        said = list(pool.map(ask, range(200)))
    said += [ask(2 * number) for number in range(30)]
    found = Counter(said)
    assert [found[one] for one in texts] == [1] * 100
    assert found["rest"] == 130 - 100 - found["echo"]
    assert counters(scope) == [(130, 130 - found["echo"])]
