"""Matchers: which values pass, and how each is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.mock.matching import (
    Matcher,
    absent,
    anything,
    contains,
    exact,
    glob,
    predicate,
    regex,
)

MESSAGES = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What of"}, {"text": "quantum?"}]},
)


@pytest.mark.parametrize(
    ("matcher", "passes", "fails"),
    [
        (exact("a"), ["a"], ["A", "ab", "", None, 1, ["a"]]),
        (exact("Straße", ignore_case=True), ["STRASSE", "straße"], ["Strasse!", None]),
        (exact(1), [1, 1.0], [True, "1", 2, None]),
        (exact(True), [True], [1, "true", False, None]),
        (
            exact({"a": [1, {"b": None}]}),
            [{"a": (1, {"b": None})}],
            [{"a": [1]}, {"a": [True, {}]}],
        ),
        (exact(None), [None], [0, "", []]),
        (
            exact({"a": [contains("x")], "b": absent(), "c": 1}),
            [{"a": ["xy"], "c": 1}, {"a": ["x"], "b": None, "c": 1}],
            [{"a": ["y"], "c": 1}, {"a": ["x"], "b": 1, "c": 1}, {"a": ["x"]}, {"c": 1, "d": 2}],
        ),
        (contains("an"), ["a man", ["no", "man"], {"x": "man"}], ["men", 3, None, ["m"], {}]),
        (contains("a", "b"), ["ab", "xbxa"], ["a", "b", ["a", "b"]]),
        (contains("MaN", ignore_case=True), ["A MAN", "man"], ["men"]),
        (contains("of\nquantum"), [MESSAGES], [MESSAGES[:1]]),
        (regex(r"^q\w+m$"), ["quantum", ["x", "qm", "qum"]], ["a quantum", "quantum!", None]),
        (regex(re.compile("Q", re.IGNORECASE)), ["aq"], ["a"]),
        (regex("Q", ignore_case=True), ["aq"], ["a"]),
        (glob("gpt-*"), ["gpt-", "gpt-4o\n"], ["xgpt-4", "GPT-4", None, 3]),
        (glob("gpt-4"), ["gpt-4"], ["gpt-40"]),
        (glob("m[12]?"), ["m1a"], ["m3a", "m1"]),
        (anything(), ["", 0, False, []], [None]),
        (absent(), [None], ["", 0, False]),
        (predicate(lambda seen: seen and seen > 2), [3], [1, None]),
    ],
)
def test_what_passes(matcher: Matcher, passes: list[Any], fails: list[Any]) -> None:
    assert [value for value in passes if not matcher.test(value)] == []
    assert [value for value in fails if matcher.test(value)] == []


def is_even(number: int) -> bool:
    return number % 2 == 0


@pytest.mark.parametrize(
    ("matcher", "words"),
    [
        (exact("a"), "'a'"),
        (exact("a", ignore_case=True), "'a' in any case"),
        (contains("a", "b"), "contains 'a' and 'b'"),
        (contains("a", ignore_case=True), "contains 'a' in any case"),
        (regex("^a"), "regex '^a'"),
        (exact({"a": [contains("x")]}), "{'a': [contains 'x']}"),
        (glob("a*"), "glob 'a*'"),
        (glob("a"), "'a'"),
        (anything(), "anything"),
        (absent(), "absent"),
        (predicate(is_even), "predicate is_even"),
        (predicate(is_even, "an even one"), "predicate an even one"),
    ],
)
def test_how_it_is_told(matcher: Matcher, words: str) -> None:
    assert repr(matcher) == matcher.wanted == words


async def is_ready(value: object) -> bool:
    return False


class IsReady:
    async def __call__(self, value: object) -> bool:
        return False


def test_a_function_in_a_plain_value_is_told_its_cure() -> None:
    with pytest.raises(TypeError, match=r"write predicate\(\.\.\.\)"):
        exact({"a": is_even})


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: contains(), "contains: expected one text or more, got none"),
        (lambda: contains("a", 1), "contains: expected one text or more, got 'a' and 1"),
        (lambda: exact(1, ignore_case=True), "exact: ignore_case is for a text, got 1"),
        (lambda: regex("("), "regex: expected a regular expression, got '('"),
        (lambda: regex("[0--"), "regex: expected a regular expression, got '[0--'"),
        (lambda: glob(1), "glob: expected a text, got 1"),
        (lambda: regex(b"a"), "regex: expected a regular expression of text, got b'a'"),
        (lambda: regex(re.compile(b"a")), "regex: expected a regular expression of text, got re"),
        (lambda: exact(re.compile("a")), "exact: expected what JSON has, or a matcher, got re.com"),
        (lambda: exact({"a": [{1}]}), "exact: expected what JSON has, or a matcher, got {1}"),
        (lambda: exact({1: "a"}), "exact: expected names that are texts, got 1"),
        (lambda: predicate("x"), "predicate: expected a function, got 'x'"),
        (lambda: predicate(is_ready), "predicate: <function is_ready at"),
        (lambda: predicate(IsReady()), "predicate: <"),
    ],
)
def test_what_can_be_none_is_refused(make: Callable[[], Matcher], problem: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert str(caught.value).startswith(problem)


@given(st.text())
def test_a_text_is_exactly_itself_and_contains_itself(text: str) -> None:
    assert exact(text).test(text)
    assert contains(text).test(text)
    assert regex(re.escape(text)).test(text)


def test_what_a_predicate_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        predicate(lambda seen: 1 / 0).test(1)
