"""Frames of a stream: what they carry, and how they are broken.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from caesar_server.contract import sse

_DATA = b"data: "
#: The first two of the three bytes of U+20AC.
HALF_CHARACTER = b"\xe2\x82"
#: Stands for them while the rest is made JSON; private use, so hardly in the text itself.
_MARK = "\uf8ff"
_ESCAPED_MARK = b"\\uf8ff"


def carries_text(frame: bytes) -> bool:
    """Return whether a frame adds to the text of a choice."""
    body = parsed(frame)
    return body is not None and any(_text_place(choice) for choice in _choices(body))


def is_done(frame: bytes) -> bool:
    """Return whether a frame is ``[DONE]``."""
    return frame.strip() == sse.DONE.strip()


def is_data(frame: bytes) -> bool:
    """Return whether a frame has data other than ``[DONE]``."""
    return frame.startswith(_DATA) and not is_done(frame)


def parsed(frame: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a frame, or None."""
    if not is_data(frame):
        return None
    try:
        body = msgspec.json.decode(frame[len(_DATA) :])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return body if isinstance(body, dict) else None


def cut_json(frame: bytes) -> bytes:
    """Return ``frame`` with the first half of its JSON alone."""
    data = frame[len(_DATA) :].rstrip(b"\r\n")
    return _DATA + data[: len(data) // 2] + b"\n\n"


def with_half_character(frame: bytes) -> bytes:
    """Return ``frame`` with half a UTF-8 character at the end of its text."""
    body = parsed(frame)
    if body is None:
        return frame
    for choice in _choices(body):
        if (place := _text_place(choice)) is not None:
            holder, name = place
            holder[name] += _MARK
            # The last one: the text could hold another.
            before, _, after = sse.frame(body).rpartition(_ESCAPED_MARK)
            return before + HALF_CHARACTER + after
    return frame


def with_crlf(frame: bytes) -> bytes:
    """Return ``frame`` with CR LF at the end of each line."""
    return frame.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _choices(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = body.get("choices")
    if not isinstance(choices, list):
        return []
    return [choice for choice in choices if isinstance(choice, dict)]


def _text_place(choice: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Return the object that holds a choice's text and the text's name in it, if there is any."""
    delta = choice.get("delta")
    for holder, name in ((choice, "text"), (delta, "content")):
        if isinstance(holder, dict) and isinstance(holder.get(name), str) and holder[name]:
            return holder, name
    return None
