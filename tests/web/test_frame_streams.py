"""What a stream writes of a job's records."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import pytest

from caesar_server.contract import sse
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Event,
    Failed,
    StatusChanged,
)
from caesar_server.contract.request import CompletionRequest
from caesar_server.contract.sse import split_frames
from caesar_server.store.base import Job, Record
from caesar_server.web.streaming import OpenAIFraming
from caesar_server.web.streaming.response import FrameStream

BROKEN = ErrorInfo("no more", "no_more")


class Ready:
    """A job whose records are all there."""

    job = Job(
        id="j", created_at=0.0, model="m", backend="b", request=CompletionRequest(prompts=("p",))
    )
    left = False

    def __init__(self, *batches: Iterable[Event]) -> None:
        self._batches = [list(batch) for batch in batches]
        self._seq = 0

    def take(self, timeout_s: float | None) -> list[Record]:
        batch = self._batches.pop(0) if self._batches else []
        records = [Record(self._seq + at, 0.0, event) for at, event in enumerate(batch, 1)]
        self._seq += len(batch)
        return records

    @property
    def drained(self) -> bool:
        return not self._batches

    def leave(self) -> None:
        self.left = True


def frames_of(events: Iterable[Event]) -> Iterator[bytes]:
    for event in events:
        if isinstance(event, ChoiceFinished):
            raise LookupError("cannot be shown")
        yield sse.frame({"is": event.type})


def written(*batches: Iterable[Event]) -> list[bytes]:
    stream = FrameStream(
        Ready(*batches), OpenAIFraming(frames_of), (), 10.0, lambda: None, lambda: None
    )
    writes = list(stream)
    stream.close()
    # the first sends the headers
    assert writes[0] == b""
    return writes[1:]


def test_all_that_is_ready_leaves_in_one_write():
    first, second = written(
        [StatusChanged("queued"), ContentDelta("a")], [ContentDelta("b"), Completed()]
    )
    assert first == b'data: {"is":"status_changed"}\n\ndata: {"is":"content_delta"}\n\n'
    assert second == b'data: {"is":"content_delta"}\n\ndata: {"is":"completed"}\n\n' + sse.DONE


def test_a_failure_is_told_and_ends_the_stream():
    (data,) = written([ContentDelta("a"), Failed(BROKEN)])
    text, error, done = split_frames(data)
    assert text == b'data: {"is":"content_delta"}\n\n'
    assert b'"message":"no more"' in error
    assert done == sse.DONE


def test_what_was_rendered_before_an_error_is_sent(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.ERROR):
        (data,) = written([ContentDelta("a"), ChoiceFinished(), ContentDelta("b")])
    text, error, done = split_frames(data)
    assert text == b'data: {"is":"content_delta"}\n\n'
    assert b"internal_error" in error
    assert done == sse.DONE
    assert "could not be rendered" in caplog.text


def test_frames_are_told_apart():
    comment, numbered = sse.HEARTBEAT, b'id: 3\ndata: {"a":"\\n\\n"}\n\n'
    assert split_frames(comment + numbered + sse.DONE) == [comment, numbered, sse.DONE]
    assert split_frames(sse.DONE) == [sse.DONE]
