"""A difference is told where it is, however long what is around it."""

from __future__ import annotations

from typing import Any

import pytest

from caesar_server.mock.calls import call_from_http
from caesar_server.mock.matching import conditions, contains
from caesar_server.mock.matching.differences import difference
from caesar_server.testing.mock.caesar_mock import CaesarMock
from caesar_server.testing.sse_client import SseClient

LONG = "a b c " * 500


@pytest.mark.parametrize(
    ("wanted", "seen", "told"),
    [
        ("Hi", "Hello", ": wanted 'Hi', got 'Hello'"),
        (5, "5", ": wanted 5, got '5'"),
        ("Hi", None, ": wanted 'Hi', got nothing"),
        ([{"a": 1}, {"a": "Hi"}], [{"a": 1}, {"a": "Ho"}], "[1].a: wanted 'Hi', got 'Ho'"),
        ([1], [1, {"b": None}], '[1]: wanted nothing, got {"b": null}'),
        ([1, 2], [1], "[1]: wanted 2, got nothing"),
        ({"a": None}, {}, ".a: wanted null, got nothing"),
        ({"a": 1}, {"a": None}, ".a: wanted 1, got null"),
        ({"a": {}}, {"a": {"b": True}}, ".a.b: wanted nothing, got True"),
        ({"a": contains("x"), "b": 1}, {"b": 1, "a": "y"}, ".a: wanted contains 'x', got 'y'"),
        ({"a": {"b": 1}}, {"a": [1]}, '.a: wanted {"b": 1}, got [1]'),
        (
            f"{LONG}X{LONG}",
            f"{LONG}Y",
            f" from character 3001 on: wanted '…{LONG[-40:]}X{LONG[:79]}…', got '…{LONG[-40:]}Y'",
        ),
        (
            f"{LONG}X",
            LONG,
            f" from character 3001 on: wanted '…{LONG[-40:]}X', got '…{LONG[-40:]}'",
        ),
        (f"X{LONG}", "Hi", f": wanted 'X{LONG[:119]}…', got 'Hi'"),
    ],
)
def test_a_difference_is_told_with_its_place(wanted: Any, seen: Any, told: str) -> None:
    assert difference(wanted, seen) == told


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"messages": [{"role": "user", "content": "Hi"}]}, "messages[0].content: wanted 'Hi', "),
        ({"body": {"messages": [{"role": "x", "content": "Ho"}]}}, "body.messages[0].role: "),
        ({"headers": {"x-a": LONG + "X"}}, "header x-a from character 3001 on: wanted '…"),
        ({"headers": {"authorization": LONG}}, "header authorization: wanted '***', got another"),
    ],
)
def test_a_condition_tells_it(wanted: dict[str, Any], told: str) -> None:
    (condition,) = conditions(**wanted)
    call = call_from_http(
        method="POST",
        path="/compat/chat/completions",
        headers={"x-a": LONG + "Y", "authorization": "key"},
        body=b'{"messages": [{"role": "user", "content": "Ho"}]}',
    )
    assert not condition.holds(call)
    assert condition.lack(call).startswith(told)


def test_a_check_that_fails_shows_the_place_and_not_all_of_it(caesar_mock: CaesarMock) -> None:
    client = SseClient(caesar_mock.base_url)
    with client.post("/compat/completions", {"model": "any", "prompt": f"{LONG}Y"}) as response:
        assert response.status == 200
    with pytest.raises(AssertionError) as failed:
        caesar_mock.assert_requested(prompt=f"{LONG}X")
    assert "prompt from character 3001 on: wanted " in str(failed.value)
    assert len(str(failed.value)) < 1000
