"""choice_events: from pieces to the events of one choice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.contract import (
    Cancelled,
    ChoiceFinished,
    ContentDelta,
    Sampling,
    StopHoldback,
    UsageCounted,
    choice_events,
    count_words,
    split_words,
)
from caesar_server.jobs.context import RunContext


@pytest.fixture
def context() -> RunContext:
    return RunContext("00000000-0000-4000-8000-000000000000")


def test_each_piece_is_a_delta_and_the_end_says_why(context: RunContext) -> None:
    assert list(choice_events(["to", " be"], context, Sampling(), choice=3)) == [
        ContentDelta("to", 3),
        ContentDelta(" be", 3),
        UsageCounted(completion_tokens=2),
        ChoiceFinished(3, "stop"),
    ]


def test_no_pieces_are_a_choice_without_text(context: RunContext) -> None:
    assert list(choice_events([], context, Sampling())) == [UsageCounted(), ChoiceFinished()]


def test_max_tokens_cuts_and_says_length(context: RunContext) -> None:
    events = list(choice_events(["a", " b", " c"], context, Sampling(max_tokens=2)))
    assert events == [
        ContentDelta("a"),
        ContentDelta(" b"),
        UsageCounted(completion_tokens=2),
        ChoiceFinished(0, "length"),
    ]


def test_text_of_exactly_max_tokens_is_whole(context: RunContext) -> None:
    events = list(choice_events(["a", " b"], context, Sampling(max_tokens=2)))
    assert events[-1] == ChoiceFinished(0, "stop")


def test_endless_pieces_are_asked_for_one_more_than_max_tokens(context: RunContext) -> None:
    taken = []
    pieces = (taken.append(n) or f" {n}" for n in itertools.count())
    list(choice_events(pieces, context, Sampling(max_tokens=3)))
    assert taken == [0, 1, 2, 3]


def test_a_stop_across_pieces_is_cut_out_and_ends_the_choice(context: RunContext) -> None:
    pieces = iter(["one", " #", "#", " never"])
    events = list(choice_events(pieces, context, Sampling(stop=(" ##",))))
    assert events == [
        ContentDelta("one"),
        UsageCounted(completion_tokens=1),
        ChoiceFinished(0, "stop"),
    ]
    assert list(pieces) == [" never"]


def test_what_was_held_back_for_a_stop_comes_at_the_end(context: RunContext) -> None:
    events = list(choice_events(["one", " #"], context, Sampling(stop=("##",))))
    assert [event.text for event in events if isinstance(event, ContentDelta)] == ["one", " ", "#"]


def test_echo_is_outside_of_stop_max_tokens_and_usage(context: RunContext) -> None:
    sampling = Sampling(stop=("x",), max_tokens=1)
    events = list(choice_events(["a", "b"], context, sampling, echo="x y "))
    assert events == [
        ContentDelta("x y "),
        ContentDelta("a"),
        UsageCounted(completion_tokens=1),
        ChoiceFinished(0, "length"),
    ]


def test_tokens_are_counted_as_the_backend_counts_them(context: RunContext) -> None:
    events = list(choice_events(["abc", "de"], context, Sampling(), count=len))
    assert UsageCounted(completion_tokens=5) in events


def test_a_cancel_ends_it_at_the_next_piece(context: RunContext) -> None:
    closed = []

    def pieces() -> Iterator[str]:
        try:
            yield from ["a", "b", "c"]
        finally:
            closed.append(True)

    made = pieces()
    events = choice_events(made, context, Sampling())
    assert next(events) == ContentDelta("a")
    context.cancel()
    with pytest.raises(Cancelled):
        next(events)
    made.close()
    assert closed == [True]


@given(
    st.text("ab \n", max_size=40),
    st.lists(st.text("ab ", min_size=1, max_size=3), max_size=3),
    st.none() | st.integers(1, 6),
)
def test_the_text_is_that_of_the_pieces_up_to_both_limits(
    text: str, stops: list[str], max_tokens: int | None
) -> None:
    words = split_words(text)
    events = list(
        choice_events(words, RunContext("x"), Sampling(stop=tuple(stops), max_tokens=max_tokens))
    )
    hold = StopHoldback(stops)
    allowed = "".join(words[:max_tokens])
    expected = hold.feed(allowed) + hold.finish()
    deltas = [event.text for event in events if isinstance(event, ContentDelta)]
    assert "".join(deltas) == expected
    assert "" not in deltas
    cut = not hold.stopped and max_tokens is not None and len(words) > max_tokens
    assert events[-2:] == [
        UsageCounted(completion_tokens=count_words(expected)),
        ChoiceFinished(0, "length" if cut else "stop"),
    ]
