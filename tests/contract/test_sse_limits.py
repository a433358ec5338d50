"""The decoder against a stream that is meant to hurt: memory and time stay in proportion."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import repeat

import pytest

from caesar_server.contract.sse import ServerSentEvent, SseDecoder, SseError

MIB = 1024 * 1024


def feed_all(decoder: SseDecoder, pieces: Iterable[bytes]) -> list[ServerSentEvent]:
    return [event for piece in pieces for event in decoder.feed(piece)]


def peak_of(decoder: SseDecoder, pieces: Iterator[bytes]) -> int:
    """Return the most memory that reading ``pieces`` took, in bytes."""
    tracemalloc.start()
    try:
        assert feed_all(decoder, pieces) == []
    except SseError:
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    pytest.fail("the stream was read to its end")


def test_a_large_event_in_small_pieces_takes_linear_time() -> None:
    # 160,000 pieces; looking at what came before with each of them would take minutes
    size = 16 * MIB
    decoder = SseDecoder(max_event_bytes=size + 100)
    pieces = [b"data: ", *repeat(b"x" * 100, size // 100), b"\n\n"]
    (event,) = feed_all(decoder, pieces)
    assert len(event.data) == size // 100 * 100


def test_a_large_event_of_many_lines_takes_linear_time() -> None:
    lines = 1_000_000
    (event,) = feed_all(SseDecoder(), [b"data: x\n"] * lines + [b"\n"])
    assert event.data == "\n".join("x" * lines)


@pytest.mark.parametrize("line", [b"data:xy\n", b"data\n", b"data: \xff\n"])
def test_an_event_of_short_lines_takes_little_more_memory_than_the_limit(line: bytes) -> None:
    peak = peak_of(SseDecoder(max_event_bytes=MIB), repeat(line, MIB))
    assert peak < 3 * MIB


@pytest.mark.parametrize("line", [b"", b"data: ", b": ", b"id: ", b"event: ", b"retry: ", b"foo"])
def test_a_line_of_any_kind_is_given_up_at_the_limit(line: bytes) -> None:
    pieces = [line, *repeat(b"x" * 1000, 2000)]
    peak = peak_of(SseDecoder(max_event_bytes=MIB), iter(pieces))
    assert peak < 4 * MIB


@pytest.mark.parametrize("line", [b": hello\n", b":\n", b"retry: 1\n", b"foo: bar\n", b"\n", b"\r"])
def test_any_number_of_lines_that_say_nothing_costs_nothing(line: bytes) -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    tracemalloc.start()
    try:
        assert feed_all(decoder, repeat(line * 50, 1000)) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert feed_all(decoder, [b"\ndata: a\n\n"]) == [ServerSentEvent("a")]


@pytest.mark.parametrize("name", [b"id", b"event"])
def test_of_many_names_and_ids_only_the_last_is_kept(name: bytes) -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    lines = [b"%s: %d%s\n" % (name, i, b"x" * 100) for i in range(1000)]
    (event,) = feed_all(decoder, [*lines, name + b": last\n", b"data: a\n\n"])
    assert getattr(event, name.decode()) == "last"


def test_the_limit_counts_every_line_of_data() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    line = b"data: " + b"x" * 24 + b"\n"
    assert feed_all(decoder, [line] * 3) == []
    with pytest.raises(SseError):
        feed_all(decoder, [line])


def test_an_event_just_within_the_limit_is_read() -> None:
    raw = b"data: " + b"x" * 94 + b"\n"
    (event,) = feed_all(SseDecoder(max_event_bytes=len(raw)), [raw, b"\n"])
    assert event.data == "x" * 94
    with pytest.raises(SseError):
        feed_all(SseDecoder(max_event_bytes=len(raw) - 1), [raw])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_bytes_that_are_no_utf8_stay_within_their_line(size: int) -> None:
    raw = b"data: \xe2\x82\ndata: \xf0\x9f\x98\ndata: ok\n\n"
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    (event,) = feed_all(SseDecoder(), pieces)
    assert event.data == "\ufffd\n\ufffd\nok"
