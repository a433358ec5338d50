"""Frames of a stream: what they carry, and how they are broken.  Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from caesar_server.contract import sse

#: The data of a frame, which may have a number before it.
_DATA = re.compile(rb"\A(?P<head>(?:id: [^\n]*\n)?data: )")
#: The first two of the three bytes of U+20AC.
HALF_CHARACTER = b"\xe2\x82"
#: Stands for them while the rest is made JSON; private use, so hardly in the text itself.
_MARK = "\uf8ff"
_ESCAPED_MARK = b"\\uf8ff"


def carries_text(frame: bytes) -> bool:
    """Return whether a frame adds to the text of a choice, or tells of a job's progress."""
    body = parsed(frame)
    return body is not None and any(map(_text_place, _holders(body)))


def is_done(frame: bytes) -> bool:
    """Return whether a frame is ``[DONE]``."""
    return frame.strip() == sse.DONE.strip()


def is_data(frame: bytes) -> bool:
    """Return whether a frame has data other than ``[DONE]``."""
    return _DATA.match(frame) is not None and not is_done(frame)


def parsed(frame: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a frame, or None."""
    if not is_data(frame):
        return None
    try:
        body = msgspec.json.decode(_split(frame)[1])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return body if isinstance(body, dict) else None


def cut_json(frame: bytes) -> bytes:
    """Return ``frame`` with the first half of its JSON alone."""
    head, data = _split(frame)
    return head + data[: len(data) // 2] + b"\n\n"


def with_half_character(frame: bytes) -> bytes:
    """Return ``frame`` with half a UTF-8 character at the end of its text."""
    body = parsed(frame)
    if body is None:
        return frame
    for one in _holders(body):
        if (place := _text_place(one)) is not None:
            holder, name = place
            holder[name] += _MARK
            made = _split(frame)[0] + _split(sse.frame(body))[1] + b"\n\n"
            # The last one: the text could hold another.
            before, _, after = made.rpartition(_ESCAPED_MARK)
            return before + HALF_CHARACTER + after
    return frame


def with_crlf(frame: bytes) -> bytes:
    """Return ``frame`` with CR LF at the end of each line."""
    return frame.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _split(frame: bytes) -> tuple[bytes, bytes]:
    """Return what comes before the data of a frame, and the data."""
    found = _DATA.match(frame)
    end = 0 if found is None else found.end()
    return frame[:end], frame[end:].rstrip(b"\r\n")


def _holders(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects in a frame that may have text: its choices, or itself if it has none."""
    choices = body.get("choices", [body])
    if not isinstance(choices, list):
        return []
    return [choice for choice in choices if isinstance(choice, dict)]


def _text_place(choice: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Return the object that holds a text and the text's name in it, if there is any."""
    delta = choice.get("delta")
    for holder, name in ((choice, "text"), (delta, "content"), (choice, "message")):
        if isinstance(holder, dict) and isinstance(holder.get(name), str) and holder[name]:
            return holder, name
    return None
