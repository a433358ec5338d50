"""Recorded streams survive being written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.contract.frames import (
    FramesError,
    RecordedFrame,
    Recording,
    frame_line,
    read_recordings,
    recording_lines,
    request_line,
)

times = st.integers(0, 10**10).map(lambda micros: micros / 1e6)
texts = st.text()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
recordings = st.builds(
    Recording,
    path=texts,
    body=st.dictionaries(texts, json_values, max_size=4),
    created=times,
    server=texts,
    status=st.just(200),
    headers=st.dictionaries(texts, texts, max_size=3),
    headers_at_s=times,
    frames=st.lists(st.builds(RecordedFrame, times, texts), max_size=5).map(tuple),
    content=st.none(),
    end=st.sampled_from(("complete", "cut", "failed", "cancelled")),
    end_at_s=times,
)


@given(st.lists(recordings, max_size=3))
def test_what_is_written_is_read(written: list[Recording]) -> None:
    lines = [line for recording in written for line in recording_lines(recording)]
    assert all(line.isascii() and line.count("\n") == 1 for line in lines)
    assert list(read_recordings(lines)) == written


def test_a_body_in_place_of_frames() -> None:
    recording = Recording(
        path="p", body={}, status=500, content="<html>", content_at_s=0.5, end="failed"
    )
    assert list(read_recordings(recording_lines(recording))) == [recording]


def test_a_recording_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    whole = [request_line("chat/completions", {"n": 1}), frame_line(0.25, "{}")]
    (read,) = read_recordings([*whole, frame_line(1, "more")[:-4]])
    assert (read.frames, read.end) == ((RecordedFrame(0.25, "{}"),), None)


def test_what_a_later_version_adds_is_skipped() -> None:
    (read,) = read_recordings([request_line("p", {}), '{"news": 1, "at_s": 0}\n', "\n"])
    assert read == Recording(path="p", body={})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["nonsense\n"], "line 1: not JSON"),
        (["[]\n"], "line 1: expected an object, got list"),
        ([frame_line(0, "x")], "line 1: expected a request first"),
        (['{"request": {"path": "p", "body": {}}, "created": 0}\n'], "version: expected 1"),
        ([request_line("p", {}), '{"frame": 1, "at_s": 0}\n'], "line 2: frame: expected a string"),
        ([request_line("p", {}), '{"frame": "x"}\n'], "line 2: at_s: expected a number"),
        ([request_line("p", {}), '{"end": "now", "at_s": 0}\n'], "line 2: end: expected one of"),
        (
            [request_line("p", {}), '{"response": {"status": "200", "headers": {}}, "at_s": 0}\n'],
            "line 2: status: expected an integer",
        ),
    ],
)
def test_what_is_no_recording_is_refused_by_line(lines: list[str], message: str) -> None:
    with pytest.raises(FramesError, match=message):
        list(read_recordings(lines))


def test_a_body_that_is_not_json_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        request_line("p", {"x": float("nan")})
