"""Conditions from keywords and from data: what holds, what is seen, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from caesar_server.mock.calls import call_from_http
from caesar_server.mock.matching import (
    ConditionError,
    absent,
    anything,
    conditions,
    contains,
    predicate,
)
from caesar_server.mock.matching.data import conditions_of
from caesar_server.mock.model.call import Call

CALL = call_from_http(
    method="post",
    path="/v1/chat/completions",
    headers={
        "x-team": "blue",
        "authorization": "Bearer sk-secret",
        "x-stainless-retry-count": "1",
    },
    body=b"""{
        "model": "gpt-4o", "stream": true, "max_tokens": 5,
        "metadata": {"auto": true, "k": {"a": 1}},
        "messages": [
            {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": "What of quantum?"}
        ]
    }""",
)
QUERY = call_from_http(method="POST", path="/research", headers={}, body=b'{"query": "Why?"}')


def holds(*predicates: Any, **wanted: Any) -> bool:
    return all(condition.holds(CALL) for condition in conditions(*predicates, **wanted))


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"prompt": "What of quantum?"},
        {"prompt": contains("quantum")},
        {"messages": contains("Yes?")},
        {"messages": [dict(message) for message in CALL.messages]},
        {"model": "gpt-*"},
        {"path": "/compat/chat/completions"},
        {"path": "/compat/*"},
        {"method": "post"},
        {"stream": True},
        {"attempt": 2},
        {"turn": 2},
        {"turn": predicate(lambda turn: turn > 1)},
        {"headers": {"X-TEAM": "blue", "x-other": None}},
        {"metadata": {"auto": True, "k": {"a": 1}, "none": absent()}},
        {"metadata": predicate(lambda metadata: len(metadata) == 2)},
        {"body": {"max_tokens": 5, "stream": True}},
        {"body": contains("gpt-4o")},
        {"jmespath": "max_tokens > `3`"},
        {"jmespath": ["messages[?role=='assistant']", "length(messages) == `3`"]},
        {"query": None or absent()},
    ],
)
def test_what_a_call_has_holds(wanted: dict[str, Any]) -> None:
    pytest.importorskip("jmespath") if "jmespath" in wanted else None
    assert holds(**wanted)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"prompt": "quantum"}, "prompt: 'quantum', got 'What of quantum?'"),
        ({"model": "claude-*"}, "model: glob 'claude-*', got 'gpt-4o'"),
        (
            {"path": "/v1/completions"},
            "path: '/compat/completions', got '/compat/chat/completions'",
        ),
        ({"method": "GET"}, "method: 'GET', got 'POST'"),
        ({"stream": False}, "stream: False, got True"),
        ({"attempt": 1}, "attempt: 1, got 2"),
        ({"turn": 1}, "turn: 1, got 2"),
        ({"headers": {"x-team": "red"}}, "header x-team: 'red', got 'blue'"),
        ({"headers": {"x-b": "red"}}, "header x-b: 'red', got nothing"),
        ({"headers": {"x-team": None}}, "header x-team: absent, got 'blue'"),
        (
            {"headers": {"authorization": "Bearer k"}},
            "header authorization: '***', got another '***'",
        ),
        ({"metadata": {"auto": 1}}, "metadata.auto: 1, got True"),
        ({"metadata": {"k": {"a": 2}}}, "metadata.k: {'a': 2}, got {\"a\": 1}"),
        ({"body": {"max_tokens": 6}}, "body.max_tokens: 6, got 5"),
        ({"query": contains("a")}, "query: contains 'a', got nothing"),
        ({"jmespath": "max_tokens > `5`"}, "jmespath: 'max_tokens > `5`', got False"),
        ({"jmespath": "abs(model)"}, "jmespath: 'abs(model)', got nothing"),
    ],
)
def test_what_it_has_not_is_told(wanted: dict[str, Any], told: str | None) -> None:
    pytest.importorskip("jmespath") if "jmespath" in wanted else None
    (condition,) = conditions(**wanted)
    assert not condition.holds(CALL)
    if told is not None:
        assert f"{condition.field}: {condition.wanted}, got {condition.seen(CALL)}" == told


def test_a_predicate_sees_the_whole_call() -> None:
    def from_blue(call: Call) -> bool:
        return call.headers["x-team"] == "blue"

    (condition,) = conditions(from_blue)
    assert condition.holds(CALL)
    assert (condition.field, condition.wanted) == ("call", "predicate from_blue")
    assert condition.seen(CALL) == "'POST /compat/chat/completions'"


def test_what_is_seen_is_short() -> None:
    (condition,) = conditions(prompt="x")
    long = call_from_http(
        method="POST", path="/", headers={}, body=b'{"prompt": "%s"}' % (b"a" * 999)
    )
    assert len(condition.seen(long)) == 200


def test_a_rule_for_exactly_one_prompt_says_so() -> None:
    assert conditions(prompt="x")[0].exact_prompt == "x"
    assert conditions(prompt=contains("x"))[0].exact_prompt is None
    assert conditions(query="x")[0].exact_prompt is None


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"prompt": 1}, "prompt: expected a text or a matcher, got 1"),
        ({"stream": "yes"}, "stream: expected True, False or a matcher, got 'yes'"),
        ({"stream": 1}, "stream: expected True, False or a matcher, got 1"),
        ({"attempt": 0}, "attempt: expected a number from 1 or a matcher, got 0"),
        ({"turn": True}, "turn: expected a number from 1 or a matcher, got True"),
        ({"messages": "x"}, "messages: expected a list of messages or a matcher, got 'x'"),
        ({"headers": "x"}, "headers: expected a mapping from name to value or matcher, got 'x'"),
        ({"headers": contains("x")}, "headers: expected a mapping from name to value or matcher"),
        ({"headers": {"a": 1}}, "headers.a: expected a text, a matcher or None, got 1"),
        ({"headers": {1: "a"}}, "headers: expected names that are texts, got 1"),
        ({"path": "compat/completions"}, "path: expected a path that begins with '/' and has no"),
        ({"path": "http://localhost/research"}, "path: expected a path that begins with '/'"),
        ({"path": "/research?limit=5"}, "path: expected a path that begins with '/' and has no"),
        ({"path": ""}, "path: expected a path that begins with '/'"),
        ({"jmespath": 1}, "jmespath: expected a JMESPath expression or a list of them, got 1"),
        ({"jmespath": "a["}, "jmespath: "),
        ({"jmespath": "`foo`"}, "jmespath: "),
        (
            {"body": {"a": {"b": len}}},
            "body.a: expected what JSON has, or a matcher, got <built-in",
        ),
        ({"messages": [{1}]}, "messages: expected what JSON has, or a matcher, got {1}"),
    ],
)
def test_what_no_call_can_have_is_refused(wanted: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConditionError) as caught:
        conditions(**wanted)
    assert str(caught.value).startswith(problem)


def test_an_unknown_field_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match="unknown condition 'promt'; did you mean 'prompt'"):
        conditions(promt="x")


@pytest.mark.parametrize(
    "when",
    [
        {},
        {"prompt": {"contains": ["What", "quantum"]}},
        {"prompt": {"contains": "QUANTUM", "regex": "^What", "ignore_case": True}},
        {"model": {"glob": "gpt*"}},
        {"model": {"exact": "gpt-4o"}},
        {"method": {"exact": "post"}},
        {"headers": {"x-team": {"regex": "^bl"}, "x-none": {"absent": True}, "x-also": None}},
        {"metadata": {"k": {"a": 1}, "auto": True}},
        {"metadata": {"k": {"exact": {"a": 1}}}},
        {"body": {"model": {"contains": "gpt"}}},
        {"body": {"contains": "quantum"}},
        {"query": {"absent": True}, "prompt": {"anything": True}},
        {"attempt": 2, "turn": 2, "stream": True},
        {"metadata": {"k": {"a": {"anything": True}}}},
        {"metadata": {"k": {"a": 1, "b": {"absent": True}}}},
        {"body": {"messages": [{"anything": True}, {"anything": True}, {"contains": "quantum"}]}},
        {"body": {"metadata": {"auto": True, "k": {"a": {"exact": 1}}}}},
        {
            "messages": [
                {"role": "user", "content": {"contains": "HI", "glob": "H?", "ignore_case": True}},
                {"anything": True},
                {"role": "user", "content": {"regex": "m.$"}},
            ]
        },
    ],
)
def test_data_asks_the_same(when: dict[str, Any]) -> None:
    assert all(condition.holds(CALL) for condition in conditions_of(when))


@pytest.mark.parametrize(
    "when",
    [
        {"model": {"exact": "gpt*"}},
        {"prompt": {"contains": "quantum", "regex": "^quantum"}},
        {"prompt": {"contains": "QUANTUM"}},
        {"body": {"model": {"absent": True}}},
        {"query": "Why?"},
        {"metadata": {"k": {"a": {"contains": "1"}}}},
        {"metadata": {"k": {"exact": {"a": {"anything": True}}}}},
        {"metadata": {"k": {"b": {"absent": True}}}},
        {"messages": [{"anything": True}, {"anything": True}]},
    ],
)
def test_all_that_data_says_must_hold(when: dict[str, Any]) -> None:
    assert not all(condition.holds(CALL) for condition in conditions_of(when))


def test_matchers_stand_inside_of_plain_values() -> None:
    said = [{"role": "user", "content": contains("H")}, anything(), anything()]
    assert holds(messages=said, metadata={"k": {"a": predicate(lambda seen: seen > 0)}})
    assert not holds(messages=said[:2])
    assert not holds(metadata={"k": {"a": contains("x")}})


def test_a_query_is_a_prompt_too() -> None:
    for when in ({"query": "Why?"}, {"prompt": "Why?"}, {"body": {"query": {"contains": "W"}}}):
        assert all(condition.holds(QUERY) for condition in conditions_of(when))


@pytest.mark.parametrize(
    ("when", "path", "message"),
    [
        ({"promt": "x"}, ("promt",), "unknown condition; did you mean 'prompt'?"),
        ({"prompt": 3}, ("prompt",), "expected a text or a matcher, got 3"),
        ({"prompt": {}}, ("prompt",), "expected one of exact, contains"),
        ({"prompt": {"ignore_case": True}}, ("prompt",), "expected one of exact, contains"),
        ({"prompt": {"contain": "x"}}, ("prompt", "contain"), "unknown operator; did you mean"),
        ({"prompt": {"contains": 3}}, ("prompt", "contains"), "contains: expected one text"),
        ({"prompt": {"regex": "("}}, ("prompt", "regex"), "regex: expected a regular expression"),
        ({"prompt": {"regex": 3}}, ("prompt", "regex"), "expected a regular expression, got 3"),
        ({"prompt": {"absent": False}}, ("prompt", "absent"), "expected true, got False"),
        (
            {"prompt": {"exact": "a", "ignore_case": "x"}},
            ("prompt", "ignore_case"),
            "expected true or false, got 'x'",
        ),
        ({"headers": {"x-team": 3}}, ("headers", "x-team"), "expected a text, a matcher or None"),
        ({"headers": {"x-team": {"regex": "("}}}, ("headers", "x-team", "regex"), "regex: "),
        ({"attempt": "1"}, ("attempt",), "expected a number from 1"),
        ({"body": {"a": {"b": {"contains": 3}}}}, ("body", "a", "b", "contains"), "contains: "),
        ({"messages": [1, {"a": {"regex": "("}}]}, ("messages", 1, "a", "regex"), "regex: "),
    ],
)
def test_what_data_may_not_say_is_told_by_its_place(
    when: dict[str, Any], path: tuple[str | int, ...], message: str
) -> None:
    with pytest.raises(ConditionError) as caught:
        conditions_of(when)
    ((where, text),) = caught.value.problems
    assert where == path
    assert text.startswith(message)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConditionError) as caught:
        conditions_of({"a": 1, "prompt": {"b": 1}, "model": "fine"})
    assert [path for path, _ in caught.value.problems] == [("a",), ("prompt", "b")]


def test_without_the_package_an_expression_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jmespath", None)
    with pytest.raises(ConditionError, match=r"install caesar-server\[mock\]"):
        conditions(jmespath="a")
