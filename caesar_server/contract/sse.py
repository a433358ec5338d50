"""Server-sent events as OpenAI's streams use them: encode and decode, pure.

Encoding emits nothing but ``data:`` frames and comments, with LF only: openai-python 3.57 raises
``JSONDecodeError`` on ``retry:``, ``id:`` and empty ``data:``.  Decoding accepts whatever the
specification (https://html.spec.whatwg.org/multipage/server-sent-events.html) allows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": keep-alive\n\n"

_NOT_ASCII = re.compile(rb"[\x80-\xff]+")


def frame(body: Mapping[str, Any]) -> bytes:
    """Return ``body`` as one frame.

    NaN and infinity, which JSON does not have, become null.  Half a character becomes U+FFFD, for
    strict readers refuse it; two halves that belong together become the character.  Only ASCII is
    written, since some readers split lines at U+2028 or U+0085.
    """
    return b"data: " + ascii_json(body) + b"\n\n"


def ascii_json(body: Mapping[str, Any] | str) -> bytes:
    """Return an object or a string as :func:`frame` writes it."""
    # Streams are many small frames, and msgspec is ten times as fast as json; it cannot escape.
    try:
        data = msgspec.json.encode(body)
    except UnicodeEncodeError:  # a lone surrogate
        data = msgspec.json.encode(_whole(body))
    return data if data.isascii() else _NOT_ASCII.sub(_escaped, data)


def _whole(body: Mapping[str, Any] | str) -> Any:
    """Return ``body`` without half a character anywhere in it."""
    units = json.dumps(body, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
    return json.loads(units.decode("utf-16-le", "replace"), parse_constant=_null)


def _null(name: str) -> None:
    """Return what stands in JSON for a number that it does not have."""


def _escaped(found: re.Match[bytes]) -> bytes:
    """Return UTF-8 as JSON's escapes, which are of UTF-16."""
    units = found[0].decode().encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)).encode()


def split_frames(data: bytes) -> list[bytes]:
    """Return the frames and comments of which ``data`` is made, at least one, each of them whole.

    There are as many as blank lines in ``data``, each of which ends one.

    >>> split_frames(b": keep-alive\\n\\ndata: {}\\n\\n")
    [b': keep-alive\\n\\n', b'data: {}\\n\\n']
    """
    return [frame + b"\n\n" for frame in data.removesuffix(b"\n\n").split(b"\n\n")]


class SseError(ValueError):
    """The stream cannot be read on, because a line or an event is longer than allowed."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event of a stream.

    :param data: the ``data`` lines joined by LF.
    :param event: its name; ``message`` unless it has another.
    :param id: the last event id seen, or an empty string.
    """

    data: str
    event: str = "message"
    id: str = ""


class SseDecoder:
    """Turns bytes, cut anywhere, into events.  Not safe for threads: one instance a stream.

    Follows the specification: lines end with CRLF, LF or CR and with nothing else; comments and
    unknown fields are skipped; a block without ``data`` is no event; an event that the end of the
    stream cuts off is dropped, and :attr:`pending` tells so.
    """

    def __init__(self, max_event_bytes: int = 16 * 1024 * 1024) -> None:
        """:param max_event_bytes: the longest event that is accepted, in bytes."""
        self._max_event_bytes = max_event_bytes
        self._line = bytearray()
        self._after_cr = False
        self._at_start = True
        # Bytes and not a string a line: of short lines those would take ten times the limit.
        self._data = bytearray()
        self._data_bytes = 0
        self._event = ""
        self._id = ""

    @property
    def pending(self) -> bool:
        """Whether an event has begun and its blank line has not come yet."""
        return bool(self._line or self._data_bytes or self._event)

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that ``data`` completes.

        The iterator must be run to its end before the next call.

        :raises SseError: if an event becomes longer than ``max_event_bytes``.
        """
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if data.endswith(b"\r"):
            self._after_cr = True
        # bytes.splitlines knows exactly CRLF, LF and CR, unlike str.splitlines
        for line in data.splitlines(keepends=True):
            self._line += line
            if len(self._line) + self._data_bytes > self._max_event_bytes:
                raise SseError(f"an event is longer than {self._max_event_bytes} bytes")
            if line[-1] in b"\r\n":
                complete, self._line = bytes(self._line).rstrip(b"\r\n"), bytearray()
                event = self._take(complete)
                if event is not None:
                    yield event

    def _take(self, raw: bytes) -> ServerSentEvent | None:
        if self._at_start:
            self._at_start = False
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if not raw:
            return self._dispatch()
        name, _, value = raw.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data += value + b"\n"
            self._data_bytes += len(raw)
        elif name == b"event":
            self._event = _text(value)
        elif name == b"id" and b"\0" not in value:
            self._id = _text(value)
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, event = self._data, self._event
        self._data, self._data_bytes, self._event = bytearray(), 0, ""
        if not data:
            return None
        return ServerSentEvent(_text(data[:-1]), event or "message", self._id)


def _text(raw: bytes | bytearray) -> str:
    return raw.decode("utf-8", errors="replace")
