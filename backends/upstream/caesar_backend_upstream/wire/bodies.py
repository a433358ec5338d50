"""The bytes of an answer as JSON objects, whatever it says that it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from caesar_backend_upstream.wire.answers import AnswerError
from caesar_server.contract.sse import ServerSentEvent, SseDecoder, SseError

DONE = "[DONE]"
#: What an answer is.
Form: TypeAlias = Literal["stream", "json", "html", "empty", "other"]

_STREAM_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


class Readable(Protocol):
    """What bytes are read from."""

    def read(self) -> bytes:
        """Return some bytes, as they come; none at the end."""


class Opened:
    """An answer whose first bytes have been looked at.  Not safe for threads."""

    def __init__(self, readable: Readable, content_type: str) -> None:
        self._readable = readable
        self._first = b""
        self.form: Form = self._look(content_type.partition(";")[0].strip().lower())

    def read(self) -> bytes:
        """Return the next bytes, the first ones included."""
        first, self._first = self._first, b""
        return first or self._readable.read()

    def _look(self, content_type: str) -> Form:
        if content_type == "text/event-stream":
            # Still perhaps not: some send errors as JSON under the type of the request.
            self._first = self._readable.read()
            return "json" if self._first.lstrip()[:1] == b"{" else "stream"
        start = self._begin()
        if start[:1] in (b"{", b"["):
            return "json"
        if start.startswith(_STREAM_STARTS):
            return "stream"
        if not start:
            return "empty"
        return "html" if start[:1] == b"<" or "html" in content_type else "other"

    def _begin(self) -> bytes:
        """Read until something can be told from what is there."""
        while len(start := self._first.lstrip()) < max(map(len, _STREAM_STARTS)):
            more = self._readable.read()
            if not more:
                break
            self._first += more
        return start


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream: its object, or the end.

    :param body: None for ``[DONE]``.
    :param name: the event's; ``message`` unless it has one.
    """

    body: Mapping[str, Any] | None
    name: str = "message"

    @property
    def is_aside(self) -> bool:
        """Whether it is no part of the answer: a ping, or what else a server has a name for."""
        body = self.body or {}
        named = self.name != "message" or isinstance(body.get("type"), str)
        return named and body.keys().isdisjoint(("choices", "usage", "caesar"))


def frames(
    opened: Opened, max_bytes: int, note: Callable[[str], None] | None = None
) -> Iterator[Frame]:
    """Yield the events of a stream as they come, until its end; ``[DONE]`` is the last of them.

    :param max_bytes: the longest event.
    :param note: is given the text of each.
    :raises AnswerError: if an event is no JSON object, or too long.
    """
    decoder = SseDecoder(max_bytes)
    try:
        while data := opened.read():
            for event in decoder.feed(data):
                frame = _frame(event, note)
                if frame is not None:
                    yield frame
                    if frame.body is None:
                        return
    except SseError as error:
        raise AnswerError(f"sent a stream that cannot be read: {error}") from error
    if decoder.pending:
        # Some leave out the last line break, which ends no event by the book.
        for event in decoder.feed(b"\n\n"):
            try:
                frame = _frame(event, note)
            except AnswerError as error:
                raise AnswerError("cut its stream off within an event") from error
            if frame is not None:
                yield frame


def _frame(event: ServerSentEvent, note: Callable[[str], None] | None) -> Frame | None:
    """Return an event's frame; None for a sign of life: no data, or a comment in their place."""
    if note is not None:
        note(event.data)
    text = event.data.strip()
    if not text or text.startswith(":"):
        return None
    return Frame(None) if text == DONE else Frame(_object(text), event.event)


def whole_body(opened: Opened, note: Callable[[str], None] | None = None) -> Mapping[str, Any]:
    """Return the JSON object that the whole answer is.

    :raises AnswerError: if it is none.
    """
    parts: list[bytes] = []
    while data := opened.read():
        parts.append(data)
    text = b"".join(parts).decode("utf-8", errors="replace")
    if note is not None:
        note(text)
    return _object(text)


def json_or_none(data: bytes) -> object:
    """Return the JSON that an error's body is, or None if it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _object(text: str) -> Mapping[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnswerError("sent something that is not JSON") from error
    if not isinstance(body, dict):
        raise AnswerError(f"sent JSON that is no object but {type(body).__name__}")
    return body
