"""Text that comes in pieces gives the same as text that comes at once."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caesar_server.contract import (
    IncrementalUtf8,
    StopHoldback,
    WholeCharacters,
    count_words,
    split_words,
)


def cut(data: st.DataObject, whole: str | bytes) -> list:
    """Draw a way of cutting ``whole`` into pieces, empty ones among them."""
    at = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]


def before_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """Read character by character until the text ends with a stop; the longest one wins a tie."""
    for end in range(len(text) + 1):
        met = [stop for stop in stops if text[:end].endswith(stop)]
        if met:
            return text[: end - max(map(len, met))], True
    return text, False


#: Few letters, so that stops occur, overlap and nearly occur.
LETTERS = st.text("ab\n", max_size=30)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=4)


@given(LETTERS, STOPS, st.data())
@example("aab", ["ab"], None)
def test_text_ends_before_the_stop_that_completes_first(
    text: str, stops: list[str], data: st.DataObject | None
) -> None:
    pieces = list(text) if data is None else cut(data, text)
    hold = StopHoldback(stops)
    joined = "".join(hold.feed(piece) for piece in pieces) + hold.finish()
    assert (joined, hold.stopped) == before_first_stop(text, stops)
    assert not any(stop in joined for stop in stops)


@given(LETTERS, STOPS)
def test_nothing_is_held_that_cannot_become_a_stop(text: str, stops: list[str]) -> None:
    hold = StopHoldback(stops)
    released = ""
    for position, letter in enumerate(text, start=1):
        released += hold.feed(letter)
        if hold.stopped:
            return
        held = text[len(released) : position]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_after_a_stop_everything_is_swallowed() -> None:
    hold = StopHoldback(["."])
    assert [hold.feed("a.b"), hold.feed("c"), hold.finish()] == ["a", "", ""]


@pytest.mark.parametrize(
    ("piece", "stop"),
    [
        ("a" * 1_000_000, "b" + "a" * 1_000_000),
        ("a" * 1_000_000, "a" * 999_999 + "b"),
        ("a ", "a " * 100_000 + "b"),
        ("a ", "a " * 400_000 + "b"),
    ],
)
def test_a_long_stop_takes_no_quadratic_time(piece: str, stop: str) -> None:
    text = "a " * 300_000 if piece == "a " else piece
    pieces = [piece] * (len(text) // len(piece))
    hold = StopHoldback([stop])
    began = time.process_time()
    joined = "".join([*map(hold.feed, pieces), hold.finish()])
    assert joined == text
    assert time.process_time() - began < 10  # it would be minutes


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopHoldback(["x", ""])


@given(st.text(), st.data())
def test_utf8_cut_anywhere_gives_the_text(text: str, data: st.DataObject) -> None:
    decoder = IncrementalUtf8()
    pieces = [decoder.feed(piece) for piece in cut(data, text.encode())]
    assert "".join(pieces) + decoder.finish() == text


@given(st.binary(), st.data())
def test_any_bytes_give_the_same_however_cut(raw: bytes, data: st.DataObject) -> None:
    decoder = IncrementalUtf8()
    joined = "".join(decoder.feed(piece) for piece in cut(data, raw)) + decoder.finish()
    assert joined == raw.decode("utf-8", errors="replace")


def test_half_a_character_waits_for_its_other_half() -> None:
    decoder = IncrementalUtf8()
    assert [decoder.feed(bytes([byte])) for byte in "🌊".encode()] == ["", "", "", "🌊"]


def test_a_character_that_is_never_completed_becomes_a_replacement() -> None:
    decoder = IncrementalUtf8()
    assert (decoder.feed(b"a\xf0\x9f"), decoder.finish()) == ("a", "\ufffd")


#: Spaces of all kinds, those that str.splitlines knows among them.
WORDY = st.text("ab \t\n\r\x0b\x0c\x1c\x85\xa0\u2028\u3000é")


@given(WORDY | st.text())
def test_words_join_to_the_text(text: str) -> None:
    assert "".join(split_words(text)) == text


@given(WORDY | st.text())
def test_there_are_as_many_pieces_as_words(text: str) -> None:
    expected = count_words(text) or (1 if text else 0)
    assert len(split_words(text)) == expected


#: Characters, and halves of those beyond U+FFFF.
UNITS = st.text(st.one_of(st.sampled_from("a\U0001f600"), st.characters(categories=["Cs"])))


def in_units(text: str) -> str:
    """Return each unit of UTF-16 as a character of its own."""
    data = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(data[at] | data[at + 1] << 8) for at in range(0, len(data), 2))


@given(UNITS, st.data())
def test_no_half_of_a_character_comes_out_however_text_is_cut(
    text: str, data: st.DataObject
) -> None:
    whole = WholeCharacters()
    pieces = [whole.feed(piece) for piece in cut(data, in_units(text))]
    pieces.append(whole.finish())
    for piece in pieces:
        piece.encode()
    expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert "".join(pieces) == expected
    assert whole.finish() == ""


def test_what_is_complete_is_passed_on_at_once() -> None:
    whole = WholeCharacters()
    assert [whole.feed("a"), whole.feed("b\U0001f600"), whole.finish()] == ["a", "b\U0001f600", ""]
