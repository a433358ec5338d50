"""Requests and events survive JSON text, whatever is in them."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from caesar_server.contract import (
    ChatRequest,
    CompletionRequest,
    ContentDelta,
    Event,
    Request,
    codec,
)
from caesar_server.contract.events import EVENT_TYPES, event_from_json, event_to_json
from caesar_server.contract.request import (
    REQUEST_TYPES,
    RequestKind,
    request_from_json,
    request_to_json,
)

Values = Callable[[Any], SearchStrategy[Any]]


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_an_event_comes_back_equal_from_json_text(name: str, values: Values) -> None:
    @given(values(EVENT_TYPES[name]))
    def check(event: Event) -> None:
        text = json.dumps(event_to_json(event), allow_nan=False)
        back = event_from_json(json.loads(text))
        assert back == event
        assert type(back) is type(event)

    check()


@pytest.mark.parametrize("name", sorted(REQUEST_TYPES))
def test_a_request_comes_back_equal_from_json_text(name: str, values: Values) -> None:
    @given(values(REQUEST_TYPES[name]))
    def check(request: Request) -> None:
        text = json.dumps(request_to_json(request), allow_nan=False)
        back = request_from_json(json.loads(text))
        assert back == request
        assert type(back) is type(request)

    check()


def test_the_wire_names_are_those_of_the_type_aliases() -> None:
    assert set(REQUEST_TYPES) == set(get_args(RequestKind))
    assert {cls.type for cls in get_args(Event)} == set(EVENT_TYPES)
    assert {cls.type for cls in get_args(Request)} == set(REQUEST_TYPES)


def test_a_field_of_a_later_contract_is_ignored() -> None:
    data = {**event_to_json(ContentDelta("hi", 1)), "colour": "red"}
    assert event_from_json(data) == ContentDelta("hi", 1)


def test_an_absent_field_has_its_default() -> None:
    assert event_from_json({"type": "content_delta", "text": "x"}) == ContentDelta("x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "event: expected an object, got NoneType"),
        ([], "event: expected an object, got list"),
        ({}, "event: unknown type None; known: choice_finished, "),
        ({"type": ["x"]}, "event: unknown type \\['x'\\]"),
        ({"type": "nonsense"}, "event: unknown type 'nonsense'; known: "),
        ({"type": "content_delta"}, "event content_delta: .*missing required field `text`"),
        ({"type": "content_delta", "text": 1}, "event content_delta: Expected `str`, got `int`"),
        ({"type": "status_changed", "status": "asleep"}, "event status_changed: .*'asleep'"),
    ],
)
def test_what_is_no_event_is_refused_with_a_reason(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        event_from_json(data)


@given(st.data())
def test_damaged_json_raises_nothing_but_value_error(data: st.DataObject) -> None:
    junk = data.draw(
        st.dictionaries(
            st.sampled_from(["text", "choice", "channel", "logprobs", "x"]),
            st.none() | st.integers() | st.text() | st.lists(st.integers()),
        )
    )
    try:
        event = event_from_json({"type": "content_delta", **junk})
    except ValueError:
        return
    assert isinstance(event, ContentDelta)


def test_what_json_cannot_carry_is_refused_when_written() -> None:
    request = CompletionRequest(prompts=("x",), extra={"socket": object()})
    with pytest.raises(TypeError):
        request_to_json(request)


@pytest.mark.parametrize(
    ("request_", "choices"),
    [
        (CompletionRequest(prompts=("a", "b")), 2),
        (ChatRequest(messages=()), 1),
    ],
)
def test_choices_are_prompts_times_n(request_: Any, choices: int) -> None:
    from dataclasses import replace

    assert request_.choices == choices
    tripled = replace(request_, sampling=replace(request_.sampling, n=3))
    assert tripled.choices == 3 * choices


@pytest.mark.parametrize(
    "delta", [ContentDelta("hi \ud800"), ContentDelta("", 3, "reasoning"), ContentDelta("a", 1)]
)
def test_the_short_way_of_plain_text_says_the_same(delta: ContentDelta) -> None:
    short, whole = event_to_json(delta), codec.to_json(delta)
    assert list(short.items()) == list(whole.items())
    assert event_from_json(short) == delta


@pytest.mark.parametrize("cls", EVENT_TYPES.values(), ids=EVENT_TYPES)
def test_every_event_is_an_immutable_dataclass(cls: Any) -> None:
    values = {field.name: f"the {field.name}" for field in dataclasses.fields(cls)}
    event = cls(**values)
    assert dataclasses.asdict(event) == values
    name = next(iter(values))
    changed = dataclasses.replace(event, **{name: "another"})
    assert type(changed) is cls
    assert dataclasses.asdict(changed) == {**values, name: "another"}
    assert (changed == event, dataclasses.replace(event) == event) == (False, True)
    with pytest.raises(AttributeError):
        setattr(event, name, "another")
    assert pickle.loads(pickle.dumps(event)) == copy.copy(event) == event


def test_one_text_is_not_a_prompt_for_each_of_its_letters() -> None:
    with pytest.raises(TypeError, match=r"prompts: .* write prompts=\(text,\)"):
        CompletionRequest(prompts="Why?")  # type: ignore[arg-type]
