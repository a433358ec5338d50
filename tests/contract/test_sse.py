"""Server-sent events: written strictly, read as leniently as the specification."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from caesar_server.contract.sse import DONE, HEARTBEAT, ServerSentEvent, SseDecoder, SseError, frame

#: What some library or other takes for the end of a line, though only CR and LF are one.
LOOKALIKES = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def decode(raw: bytes, *, size: int | None = None) -> list[ServerSentEvent]:
    """Decode ``raw`` in pieces of ``size`` bytes, or all at once."""
    pieces = [raw] if size is None else [raw[i : i + size] for i in range(0, len(raw), size)]
    return feed_all(SseDecoder(), pieces)


def feed_all(decoder: SseDecoder, pieces: Iterable[bytes]) -> list[ServerSentEvent]:
    return [event for piece in pieces for event in decoder.feed(piece)]


STREAMS = {
    "lf": (b"data: a\n\ndata: b\n\n", ["a", "b"]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
    "lone cr": (b"data: a\r\rdata: b\r\r", ["a", "b"]),
    "mixed ends": (b"data: a\r\n\ndata: b\n\r\n", ["a", "b"]),
    "no space": (b"data:a\n\n", ["a"]),
    "two spaces": (b"data:  a \n\n", [" a "]),
    "tab is kept": (b"data:\ta\n\n", ["\ta"]),
    "colons in the value": (b"data: a:b: c\n\n", ["a:b: c"]),
    "comments": (b": hi\n\n:\ndata: a\n: in between\n\n:\n\n", ["a"]),
    "several data lines": (b"data: a\ndata:\ndata: b\n\n", ["a\n\nb"]),
    "empty data": (b"data:\n\n", [""]),
    "data without a colon": (b"data\n\n", [""]),
    "two empty data lines": (b"data\ndata\n\n", ["\n"]),
    "unknown fields": (b"foo: x\ndata: a\ndatax: y\nretry: 3\n\n", ["a"]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
    "only one byte order mark": (b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\ndata: a\n\n", ["a"]),
    "no data, no event": (b"event: ping\n\ndata: a\n\n", ["a"]),
    "blank lines before": (b"\n\r\n\rdata: a\n\n", ["a"]),
    "cut off at the end": (b"data: a\n\ndata: b\n", ["a"]),
    "characters of several bytes": ("data: é€🌊\n\n".encode(), ["é€🌊"]),
    "bytes that are no utf-8": (b"data: \xff\xc3\n\n", ["\ufffd\ufffd"]),
    "lookalikes": (f"data: a{LOOKALIKES}b\n\n".encode(), [f"a{LOOKALIKES}b"]),
}


@pytest.mark.parametrize("size", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_its_data_however_cut(name: str, size: int | None) -> None:
    raw, expected = STREAMS[name]
    assert [event.data for event in decode(raw, size=size)] == expected


def test_name_and_id_are_read() -> None:
    raw = b"event: ping\nid: 7\ndata: a\n\ndata: b\n\nid: x\0y\ndata: c\n\nid\ndata: d\n\n"
    assert decode(raw) == [
        ServerSentEvent("a", "ping", "7"),
        ServerSentEvent("b", "message", "7"),
        ServerSentEvent("c", "message", "7"),
        ServerSentEvent("d", "message", ""),
    ]


@pytest.mark.parametrize(
    ("raw", "pending"),
    [
        (b"", False),
        (b"data: a\n\n", False),
        (b"data: a\n", True),
        (b"dat", True),
        (b"event: x\n", True),
        (b"data: a\r\n\r", False),
    ],
)
def test_pending_tells_a_cut_stream_from_a_whole_one(raw: bytes, pending: bool) -> None:
    decoder = SseDecoder()
    list(decoder.feed(raw))
    assert decoder.pending is pending


@pytest.mark.parametrize("prefix", [b"data: ", b": ", b"", b"event: ", b"data: a\ndata: "])
def test_an_endless_line_is_given_up_at_the_limit(prefix: bytes) -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    list(decoder.feed(prefix))
    with pytest.raises(SseError, match="longer than 1000 bytes"):
        feed_all(decoder, [b"x" * 100] * 11)


def test_an_endless_event_is_given_up_at_the_limit() -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    with pytest.raises(SseError):
        feed_all(decoder, [b"data:\n"] * 201)


def test_the_limit_is_for_one_event_not_for_the_stream() -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    assert len(feed_all(decoder, [b"data: " + b"x" * 100 + b"\n\n"] * 50)) == 50


@given(st.binary(max_size=60), st.integers(1, 5))
def test_junk_gives_the_same_however_cut(junk: bytes, size: int) -> None:
    assert decode(junk, size=size) == decode(junk)


@given(st.text("ab:\r\n \ufeff", max_size=60).map(str.encode), st.integers(1, 5))
def test_lines_of_all_kinds_give_the_same_however_cut(raw: bytes, size: int) -> None:
    raw = raw.replace(b"a", b"data:")
    assert decode(raw, size=size) == decode(raw)


def test_a_frame_reads_back_equal(values: Callable[[Any], SearchStrategy[Any]]) -> None:
    @given(st.dictionaries(values(str), values(Any), max_size=4), st.integers(1, 9))
    def check(body: dict[str, Any], size: int) -> None:
        raw = frame(body)
        assert raw.isascii()
        assert raw.startswith(b"data: ")
        assert raw.index(b"\n") == len(raw) - 2
        assert b"\r" not in raw
        (event,) = decode(raw + HEARTBEAT, size=size)
        assert json.loads(event.data) == whole(body)

    check()


def whole(value: Any) -> Any:
    """Return a JSON value with U+FFFD for each lone surrogate."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return value


def test_a_frame_has_no_line_break_lookalikes() -> None:
    assert len(frame({"text": f"a\r\n{LOOKALIKES}"}).decode().splitlines()) == 2


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("text", ["", "\u00e9", "\ud800"])
def test_what_json_does_not_have_becomes_null(number: float, text: str) -> None:
    (event,) = decode(frame({"text": text, "x": number}))
    assert json.loads(event.data) == {"text": whole(text), "x": None}


def test_two_halves_become_a_character_and_numbers_stay_as_they_are() -> None:
    body = {"\udc00": ["a\ud83d\ude00\\ud83d", 2**70, 0.1, {"x": "\ud83d"}, True, None]}
    (event,) = decode(frame(body))
    assert json.loads(event.data) == {
        "\ufffd": ["a\U0001f600\\ud83d", 2**70, 0.1, {"x": "\ufffd"}, True, None]
    }


def test_the_fixed_frames_are_what_clients_look_for() -> None:
    assert [event.data for event in decode(HEARTBEAT + DONE + HEARTBEAT)] == ["[DONE]"]
