"""How texts are cut, and when chunks are due."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.mock.answering.pieces import Schedule, cut, evenly, is_paced, split_tokens
from caesar_server.mock.model.pacing import ChunkUnit, Pacing

UNITS: tuple[ChunkUnit, ...] = ("character", "word", "token")


@pytest.mark.parametrize(
    ("unit", "size", "chunks"),
    [
        ("character", 1, ["T", "o", " ", "b", "e", ",", " ", "u", "n", "d", "e", "r", "."]),
        ("character", 5, ["To be", ", und", "er."]),
        ("word", 1, ["To", " be,", " under."]),
        ("word", 2, ["To be,", " under."]),
        ("token", 1, ["To", " be", ",", " unde", "r", "."]),
        ("token", 4, ["To be, unde", "r."]),
    ],
)
def test_units_and_sizes(unit: ChunkUnit, size: int, chunks: list[str]) -> None:
    assert cut("To be, under.", Pacing(unit=unit, size=size)) == chunks


@pytest.mark.parametrize(
    ("chunks", "pieces"),
    [(1, ["abcdefg"]), (3, ["ab", "cd", "efg"]), (99, list("abcdefg"))],
)
def test_a_number_of_chunks_of_about_equal_length(chunks: int, pieces: list[str]) -> None:
    assert cut("abcdefg", Pacing(), chunks) == pieces


@given(st.text(), st.sampled_from(UNITS), st.integers(1, 5), st.none() | st.integers(1, 9))
def test_pieces_join_to_the_text_and_none_is_empty(
    text: str, unit: ChunkUnit, size: int, chunks: int | None
) -> None:
    pieces = cut(text, Pacing(unit=unit, size=size), chunks)
    assert "".join(pieces) == text
    assert all(pieces)


@given(st.text())
def test_tokens_join_to_the_text(text: str) -> None:
    tokens = split_tokens(text)
    assert "".join(tokens) == text
    assert all(len(token.strip()) <= 4 for token in tokens)


@given(st.lists(st.integers()), st.integers(1, 9))
def test_groups_differ_by_one_at_most(items: list[int], groups: int) -> None:
    found = evenly(items, groups)
    assert [item for group in found for item in group] == items
    sizes = [len(group) for group in found]
    assert not sizes or max(sizes) - min(sizes) <= 1


def due(pacing: Pacing, *chunks: str, seed: int = 0) -> list[float]:
    schedule = Schedule(pacing, Random(seed))
    return [schedule.due_s(chunk) for chunk in chunks]


def test_the_first_chunk_has_a_wait_of_its_own_and_the_others_that_of_their_tokens() -> None:
    pacing = Pacing(first_chunk_s=0.5, tokens_per_s=10)
    assert due(pacing, "first", " a", " wonderful") == pytest.approx([0.5, 0.6, 0.9])
    assert due(Pacing(first_chunk_s=2), "a", "b") == [2, 2]
    assert due(Pacing(tokens_per_s=4), "a", "b", "c") == [0, 0.25, 0.5]


def test_jitter_is_seeded_and_stays_within_its_share() -> None:
    pacing = Pacing(first_chunk_s=1, tokens_per_s=1, jitter=0.2)
    times = due(pacing, *"abcdef", seed=1)
    waits = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    assert all(0.8 <= wait <= 1.2 for wait in waits)
    assert len(set(waits)) == 6
    assert due(pacing, *"abcdef", seed=1) == times
    assert due(pacing, *"abcdef", seed=2) != times


def test_what_need_not_wait() -> None:
    assert not is_paced(Pacing(jitter=0.5))
    assert is_paced(Pacing(first_chunk_s=1))
    assert is_paced(Pacing(tokens_per_s=1))
