"""Scopes: which rule is used, how often, and what is decided where none is."""

from __future__ import annotations

import gc
import json
import re
import uuid
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from caesar_server.mock.calls import call_from_http
from caesar_server.mock.matching import conditions, contains, predicate
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.pacing import Pacing
from caesar_server.mock.model.reply import MockChoice, MockToken, Reply
from caesar_server.mock.model.rule import Decision, Rule
from caesar_server.mock.scope import EPOCH_S, Manner, Scope


def call(prompt: str | list[str] = "hi", path: str = "/compat/completions", **body: Any) -> Call:
    data = json.dumps({"prompt": prompt, **body}).encode()
    return call_from_http(method="POST", path=path, headers={}, body=data)


def rule(*texts: str, wanted: Mapping[str, Any] | None = None, **more: Any) -> Rule:
    replies = tuple(Reply(text=text) for text in texts)
    return Rule(conditions=conditions(**(wanted or {})), replies=replies, **more)


def failing(*, wanted: Mapping[str, Any] | None = None, status: int = 429, **more: Any) -> Rule:
    faults = (Fault(kind="status", status=status),)
    return Rule(conditions=conditions(**(wanted or {})), faults=faults, **more)


def text(decision: Decision) -> str | None:
    reply = decision.reply
    assert reply is None or isinstance(reply, Reply)
    return None if reply is None else reply.text_of(0)


def said(scope: Scope, *prompts: str) -> list[str | None]:
    return [text(scope.decide(call(prompt))) for prompt in prompts]


def statuses(scope: Scope, *calls: Call) -> list[list[int | None]]:
    return [[fault.status for fault, _ in scope.decide(one).faults] for one in calls]


def test_the_first_rule_that_matches_answers() -> None:
    scope = Scope()
    scope.add(rule("one", wanted={"prompt": contains("a")}))
    scope.add(rule("two", wanted={"prompt": contains("b")}))
    assert said(scope, "ab", "b", "c") == ["one", "two", "c"]
    assert [scope.uses(rule_id) for rule_id in ("r1", "r2", "r3")] == [1, 1, 0]


def test_a_higher_priority_is_tried_earlier_and_the_order_can_be_seen() -> None:
    scope = Scope()
    scope.add(rule("low", priority=-1))
    scope.add(rule("first", name="a"))
    scope.add(rule("second", name="b"))
    scope.add(failing(wanted={"prompt": "x"}, name="fault"))
    scope.add(rule("high", wanted={"prompt": "p"}, priority=1))
    assert [one.id for one in scope.rules] == ["r4", "r5", "r2", "r3", "r1"]
    assert said(scope, "p", "q") == ["high", "first"]


def test_rules_for_exactly_one_prompt_keep_their_place_among_the_others() -> None:
    scope = Scope()
    scope.add(rule("exact", wanted={"prompt": "a", "model": "m"}))
    scope.add(rule("general", wanted={"prompt": contains("a")}))
    scope.add(rule("late", wanted={"prompt": "a"}))
    scope.add(rule("other", wanted={"prompt": "b"}))
    assert said(scope, "a", "b", "c") == ["general", "other", "c"]
    assert text(scope.decide(call("a", model="m"))) == "exact"


def test_replies_take_turns_and_the_last_stays() -> None:
    scope = Scope()
    scope.add(rule("1", "2", "3"))
    assert said(scope, *"abcde") == ["1", "2", "3", "3", "3"]


def test_a_rule_is_used_so_often_and_lets_the_first_calls_pass() -> None:
    scope = Scope()
    scope.add(rule("x", times=2, skip=1))
    assert said(scope, *"abcd") == ["a", "x", "x", "d"]
    (state,) = scope.states()
    assert (state.matched, state.used, state.left) == (3, 2, 0)


def test_faults_are_tried_before_replies_and_do_not_use_them_up() -> None:
    scope = Scope()
    scope.add(rule("1", "2"))
    scope.add(failing(times=2))
    assert said(scope, *"abcd") == [None, None, "1", "2"]
    assert [scope.uses(rule_id) for rule_id in ("r1", "r2")] == [2, 2]


def test_a_fault_in_the_body_does_not_keep_the_reply() -> None:
    scope = Scope()
    scope.add(Rule(faults=(Fault(kind="missing_done"), Fault(kind="crlf"))))
    scope.add(rule("1"))
    decision = scope.decide(call())
    assert text(decision) == "1"
    assert [(fault.kind, by.id if by else None) for fault, by in decision.faults] == [
        ("missing_done", "r1"),
        ("crlf", "r1"),
    ]


def test_only_the_first_fault_rule_that_matches_is_used() -> None:
    scope = Scope()
    scope.add(failing(status=500, wanted={"prompt": "b"}))
    scope.add(failing(status=429, times=1))
    scope.add(failing(status=503))
    calls = [call("a"), call("a"), call("b")]
    assert statuses(scope, *calls) == [[429], [503], [500]]


def test_faults_of_a_header_go_before_rules_and_these_before_the_scopes_own() -> None:
    scope = Scope()
    scope.faults = (Fault(kind="status", status=500),)
    scope.add(failing(times=1))
    asked = (Fault(kind="status", status=418),)
    assert scope.decide(call(), faults=asked).faults == ((asked[0], None),)
    assert scope.decide(call(), faults=()).faults == ()
    assert scope.uses("r1") == 0
    assert statuses(scope, call(), call()) == [[429], [500]]


def test_a_fault_of_chance_is_drawn_from_the_seed_and_counts_when_it_happens() -> None:
    def happened(seed: int) -> list[bool]:
        scope = Scope(manner=Manner(seed=seed))
        scope.add(Rule(faults=(Fault(kind="status", status=500, probability=0.5),), times=20))
        found = [bool(scope.decide(call()).faults) for _ in range(100)]
        assert sum(found) == scope.uses("r1") == 20
        return found

    assert happened(7) == happened(7)
    assert happened(7) != happened(8)


def test_without_a_rule_the_fallback_answers() -> None:
    scope = Scope()
    assert said(scope, "echo") == ["echo"]
    scope.fallback = Reply(text="always")
    assert said(scope, "other") == ["always"]
    scope.fallback = "error"
    assert said(scope, "other") == [None]
    scope.fallback, scope.strict = "echo", True
    assert said(scope, "other") == [None]
    assert text(scope.decide(call("other"), strict=False)) == "other"


def test_the_nearest_rules_are_named_with_what_the_call_lacks() -> None:
    scope = Scope()
    scope.add(failing(wanted={"prompt": "never"}))
    scope.add(rule("1", wanted={"prompt": "x", "model": "m", "stream": True}))
    scope.add(rule("2", wanted={"prompt": "hi", "model": "n"}))
    scope.add(rule("3", wanted={"model": "n"}))
    scope.add(rule("4", wanted={"prompt": "hi"}, times=1))
    assert said(scope, "hi") == ["4"]
    decision = scope.decide(call("hi", model="m"))
    assert decision.rule is None
    assert [(near.rule.id, near.failed) for near in decision.nearest] == [
        ("r5", ("times: used up, 1 of 1",)),
        ("r3", ("model: wanted 'n', got 'm'",)),
        ("r4", ("model: wanted 'n', got 'm'",)),
    ]
    scope.add(rule("5", wanted={"prompt": "new"}, skip=1))
    near = scope.decide(call("new")).nearest[0]
    assert (near.rule.id, near.failed) == ("r6", ("skip: let pass, 1 of 1",))


def test_each_prompt_of_a_completion_is_answered_by_its_own_rule() -> None:
    scope = Scope()
    scope.add(rule("A1", "A2", wanted={"prompt": "a"}))
    scope.add(failing(wanted={"prompt": "c"}, times=1))
    decision = scope.decide(call(["a", "b", "a"]))
    assert [text(decision), *map(text, decision.rest)] == ["A1", "b", "A2"]
    assert decision.rest[0].nearest != ()
    failed = scope.decide(call(["a", "c"]))
    assert [fault.status for fault, _ in failed.faults] == [429]
    assert (failed.reply, failed.rest, scope.uses("r1")) == (None, (), 2)


def test_reply_rules_are_for_what_asks_for_an_answer() -> None:
    scope = Scope()
    scope.add(rule("x"))
    scope.add(failing(wanted={"path": "/compat/models"}))
    decision = scope.decide(call_from_http(method="GET", path="/v1/models", headers={}))
    assert (decision.reply, scope.uses("r1"), scope.uses("r2")) == (None, 0, 1)


def test_what_a_predicate_raises_comes_out() -> None:
    scope = Scope()
    scope.add(rule("x", wanted={"prompt": predicate(lambda prompt: 1 / 0)}))
    with pytest.raises(ZeroDivisionError):
        scope.decide(call())


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (Rule(), "expected either replies or faults"),
        (
            Rule(name="n", replies=(Reply(),), faults=(Fault(kind="hang"),)),
            "rule 'n': expected either replies or faults",
        ),
        (rule("x", times=-1), "times: expected 0 or more, got -1"),
        (rule("x", skip=-1), "skip: expected 0 or more, got -1"),
        (rule("x", id="taken"), "id: there is a rule 'taken' already"),
        (
            Rule(replies=(Reply(), Reply(text="a", template="b"))),
            "replies[1].template: expected one of text, template and choices, got text and",
        ),
        (Rule(replies=(Reply(template="{% if %}"),)), "replies[0].template: expected a Jinja"),
        (
            Rule(
                replies=(Reply(choices=(MockChoice(text="ab", logprobs=(MockToken(token="a"),)),)),)
            ),
            "replies[0].choices[0].logprobs: expected tokens that join to the choice's text",
        ),
        (Rule(faults=(Fault(kind="hang", status=500),)), "status"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_its_field(wrong: Rule, problem: str) -> None:
    scope = Scope()
    scope.add(rule("x", id="taken"))
    with pytest.raises(ValueError, match=re.escape(problem)):
        scope.add_all([rule("fine"), wrong])
    assert [one.id for one in scope.rules] == ["taken"]


def test_a_fault_of_the_scope_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="status"):
        Scope().faults = (Fault(kind="hang", status=500),)


def test_rules_are_replaced_in_their_place_and_removed() -> None:
    scope = Scope()
    first = scope.add(rule("1", times=1))
    scope.add(rule("2"))
    assert said(scope, *"ab") == ["1", "2"]
    scope.replace(replace(first, replies=(Reply(text="new"),)))
    assert said(scope, *"ab") == ["new", "2"]
    assert scope.state("r1").rule == replace(first, replies=(Reply(text="new"),))
    assert scope.remove("r1")
    assert not scope.remove("r1")
    assert scope.state("r1") is None
    with pytest.raises(KeyError):
        scope.replace(first)
    scope.clear()
    assert scope.rules == ()


def test_rules_of_files_come_after_the_scopes_own_and_keep_their_counters() -> None:
    scope = Scope()
    once = rule("file once", id="f", times=1)
    scope.set_files([once, rule("file", id="g")])
    scope.add(rule("own", wanted={"prompt": "a"}))
    assert said(scope, *"abc") == ["own", "file once", "file"]
    scope.set_files([replace(once, conditions=conditions()), rule("changed", id="g")])
    assert said(scope, "d") == ["changed"]
    assert (scope.uses("f"), scope.uses("g")) == (1, 1)
    scope.set_files([rule("other", id="f", times=1)])
    assert said(scope, *"ef") == ["other", "f"]


def test_two_rules_of_files_with_one_id_change_nothing() -> None:
    scope = Scope()
    scope.set_files([rule("1", id="f")])
    with pytest.raises(ValueError, match="there is a rule 'g' already"):
        scope.set_files([rule("2", id="g"), rule("3", id="g")])
    assert said(scope, "a") == ["1"]


def test_reset_of_the_counters_begins_anew() -> None:
    scope = Scope()
    scope.add(rule("1", "2", times=2))

    def decide() -> Decision:
        # what was counted is counted of something else after a reset
        return structs.replace(scope.decide(call()), uses=())

    before = [decide() for _ in range(3)]
    scope.reset("counters")
    assert [decide() for _ in range(3)] == before


def test_reset_of_all_leaves_what_the_server_began_with() -> None:
    scope = Scope(manner=Manner(seed=3, strict=True, pacing=Pacing(first_chunk_s=1)))
    scope.set_files([rule("file", wanted={"prompt": "f"})])
    scope.add(rule("own"))
    scope.seed, scope.strict, scope.fallback, scope.pacing = 9, False, "error", Pacing()
    scope.faults = (Fault(kind="hang"),)
    scope.clock.advance(5)
    scope.journal.open(call())
    scope.reset()
    assert [text(Decision(reply=one.replies[0])) for one in scope.rules] == ["file"]  # type: ignore[arg-type]
    assert (scope.seed, scope.strict, scope.fallback, scope.faults) == (3, True, "echo", ())
    assert scope.pacing == Pacing(first_chunk_s=1)
    assert (scope.clock.stopped, scope.clock.turned_s) == (False, 0)
    assert scope.journal.entries() == ()


def test_reset_of_the_journal_leaves_the_counters() -> None:
    scope = Scope()
    scope.add(rule("1", times=1))
    scope.decide(call())
    scope.journal.open(call())
    scope.reset("journal")
    assert (scope.journal.entries(), scope.uses("r1")) == ((), 1)


def test_another_manner_changes_what_differs_and_what_reset_returns_to() -> None:
    scope = Scope(manner=Manner(seed=1))
    scope.strict = True
    scope.set_manner(Manner(seed=1, fallback="error"))
    assert (scope.strict, scope.fallback) == (True, "error")
    scope.set_manner(Manner(seed=2))
    scope.reset()
    assert (scope.seed, scope.strict, scope.fallback) == (2, False, "echo")


def stamps(scope: Scope, *prompts: str) -> list[str]:
    return [scope.stamp(scope.decide(call(prompt)))[0] for prompt in prompts]


def test_the_same_calls_get_the_same_ids_in_any_order() -> None:
    once = stamps(Scope(), "a", "b", "a")
    assert len(set(once)) == 3
    other = stamps(Scope(), "b", "a", "a")
    assert [other[1], other[0], other[2]] == once
    assert all(str(uuid.UUID(id)) == id for id in once)


def test_what_a_call_makes_is_told_apart_and_younger_than_what_came_before() -> None:
    scope = Scope()
    decision = scope.decide(call("a"))
    made = [scope.stamp(decision, place) for place in (1, 2, 3)]
    assert len({id for id, _ in made}) == 3
    moments = [created_at for _, created_at in made]
    assert moments == sorted(set(moments))
    scope.reset("counters")
    assert [scope.stamp(scope.decide(call("a"))), scope.stamp(decision, 2)] == made[:2]


def test_a_reset_makes_another_owner() -> None:
    scope = Scope()
    assert scope.owner == ""
    scope.reset("counters")
    assert scope.owner == ""
    scope.reset()
    first = scope.owner
    scope.reset()
    assert len({"", first, scope.owner}) == 3


def test_seed_and_scope_make_other_ids() -> None:
    assert stamps(Scope(), "a") != stamps(Scope(manner=Manner(seed=1)), "a")
    assert stamps(Scope(), "a") != stamps(Scope("other"), "a")
    scope = Scope()
    first = stamps(scope, "a")
    scope.seed = scope.seed
    assert stamps(scope, "a") == first


def test_jobs_are_made_at_a_fixed_time_that_the_clock_moves() -> None:
    scope = Scope()
    assert scope.stamp()[1] == EPOCH_S
    scope.clock.advance(90)
    assert EPOCH_S + 90 < scope.stamp()[1] < EPOCH_S + 90.001
    assert scope.stamp()[0] != scope.stamp()[0]


def test_ids_stay_unique_beyond_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caesar_server.mock.drawing._MOST_CALLS", 3)
    scope = Scope()
    found = stamps(scope, *"abcdeabcde")
    assert len(set(found)) == 10
    scope.reset("counters")
    assert stamps(scope, *"abcdeabcde") == found


def test_ids_of_calls_are_unique_and_never_come_again() -> None:
    scope = Scope("a")
    assert [scope.new_call_id(), scope.new_call_id(), Scope().new_call_id()] == ["a-1", "a-2", "1"]
    scope.reset()
    assert scope.new_call_id() == "a-3"


def test_200_calls_at_once_are_counted_exactly() -> None:
    scope = Scope()
    scope.add(rule("first", "second", "rest", times=150, skip=10, name="counted"))
    scope.add(failing(times=30, wanted={"prompt": contains("")}))
    calls = [call(f"prompt {number}") for number in range(200)]
    with ThreadPoolExecutor(50) as pool:
        decisions = list(pool.map(scope.decide, calls))
    assert sum(bool(decision.faults) for decision in decisions) == 30
    texts = Counter(text(decision) for decision in decisions)
    assert (texts["first"], texts["second"], texts["rest"]) == (1, 1, 148)
    echoed = [one for one, decision in zip(calls, decisions, strict=True) if decision.nearest]
    assert len(echoed) == 200 - 30 - 150
    assert [scope.uses(rule_id) for rule_id in ("r1", "r2")] == [150, 30]
    assert len({scope.stamp(decision)[0] for decision in decisions}) == 200


def test_rules_may_be_changed_while_calls_come() -> None:
    scope = Scope()

    def change(number: int) -> None:
        added = scope.add(rule(str(number), wanted={"prompt": str(number)}))
        scope.decide(call(str(number)))
        scope.states()
        assert scope.remove(added.id)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(change, range(200)))
    assert scope.rules == ()


def test_memory_does_not_grow_with_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caesar_server.mock.drawing._MOST_CALLS", 100)
    scope = Scope()
    scope.add(rule("x", wanted={"prompt": "1"}))

    def objects_after(first: int) -> int:
        for number in range(first, first + 300):
            scope.decide(call(str(number)))
        gc.collect()
        return len(gc.get_objects())

    objects_after(0)
    assert abs(objects_after(1000) - objects_after(2000)) < 200
