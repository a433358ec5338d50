"""Recordings as JSON lines: pure functions from values to lines and back."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from caesar_server.contract.frames.recording import EndReason, RecordedFrame, Recording

VERSION = 1
_ENDS = frozenset(typing.get_args(EndReason))


class FramesError(ValueError):
    """Lines that are no recordings; the message begins with the number of the line, from 1."""


def request_line(
    path: str, body: Mapping[str, Any], *, created: float = 0.0, server: str = ""
) -> str:
    """Return the line that begins a recording; the parameters are those of :class:`Recording`.

    :raises ValueError: if ``body`` is not JSON.
    """
    first = {"request": {"path": path, "body": body}, "created": created, "version": VERSION}
    return _line({**first, "server": server} if server else first)


def response_line(at_s: float, status: int, headers: Mapping[str, str]) -> str:
    """Return the line for the answer's status and headers."""
    return _line({"response": {"status": status, "headers": dict(headers)}, "at_s": _rounded(at_s)})


def frame_line(at_s: float, data: str) -> str:
    """Return the line for one event of a stream."""
    return _line({"frame": data, "at_s": _rounded(at_s)})


def body_line(at_s: float, text: str) -> str:
    """Return the line for the body of an answer that is no stream."""
    return _line({"body": text, "at_s": _rounded(at_s)})


def end_line(at_s: float, reason: EndReason) -> str:
    """Return the line that ends a recording."""
    return _line({"end": reason, "at_s": _rounded(at_s)})


def recording_lines(recording: Recording) -> Iterator[str]:
    """Yield the lines of a whole recording, each with its line break.

    Times are kept to the microsecond.

    :raises ValueError: if its body is not JSON.
    """
    yield request_line(
        recording.path, recording.body, created=recording.created, server=recording.server
    )
    if recording.status is not None:
        yield response_line(recording.headers_at_s, recording.status, recording.headers)
    for frame in recording.frames:
        yield frame_line(frame.at_s, frame.data)
    if recording.content is not None:
        yield body_line(recording.content_at_s, recording.content)
    if recording.end is not None:
        yield end_line(recording.end_at_s, recording.end)


def read_recordings(lines: Iterable[str]) -> Iterator[Recording]:
    """Yield the recordings that :func:`recording_lines` wrote, in order.

    A last line that is cut off in the middle is left out: its writer was stopped.

    :raises FramesError: for a line that is no JSON object, that comes before the first request, or
        whose values are not what they must be; for a version that is not known.
    """
    current: Recording | None = None
    frames: list[RecordedFrame] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        item = _read_line(line, number)
        if item is None:
            break
        try:
            if "request" in item:
                if current is not None:
                    yield replace(current, frames=tuple(frames))
                current, frames = _begun(item), []
            elif current is None:
                raise ValueError("expected a request first")
            elif "frame" in item:
                frames.append(RecordedFrame(_number(item, "at_s"), _text(item, "frame")))
            else:
                current = _continued(current, item)
        except ValueError as error:
            raise FramesError(f"line {number}: {error}") from error
    if current is not None:
        yield replace(current, frames=tuple(frames))


def _read_line(line: str, number: int) -> Mapping[str, Any] | None:
    """Return the object in a line; None if the line is cut off."""
    try:
        item = json.loads(line)
    except ValueError as error:
        if not line.endswith("\n"):
            return None
        raise FramesError(f"line {number}: not JSON: {error}") from error
    if not isinstance(item, dict):
        raise FramesError(f"line {number}: expected an object, got {type(item).__name__}")
    return item


def _begun(item: Mapping[str, Any]) -> Recording:
    if item.get("version") != VERSION:
        raise ValueError(f"version: expected {VERSION}, got {item.get('version')!r}")
    request = _object(item, "request")
    return Recording(
        path=_text(request, "path"),
        body=_object(request, "body"),
        created=_number(item, "created"),
        server=_text(item, "server") if "server" in item else "",
    )


def _continued(current: Recording, item: Mapping[str, Any]) -> Recording:
    if "response" in item:
        response = _object(item, "response")
        status, headers = response.get("status"), _object(response, "headers")
        if type(status) is not int:
            raise ValueError(f"status: expected an integer, got {status!r}")
        return replace(
            current,
            status=status,
            headers={name: _text(headers, name) for name in headers},
            headers_at_s=_number(item, "at_s"),
        )
    if "body" in item:
        return replace(current, content=_text(item, "body"), content_at_s=_number(item, "at_s"))
    if "end" in item:
        if item["end"] not in _ENDS:
            raise ValueError(f"end: expected one of {', '.join(sorted(_ENDS))}")
        return replace(current, end=item["end"], end_at_s=_number(item, "at_s"))
    return current


def _object(item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = item.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected an object")
    return value


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected a string")
    return value


def _number(item: Mapping[str, Any], key: str) -> float:
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{key}: expected a number")
    return float(value)


def _rounded(at_s: float) -> float:
    return round(at_s, 6)


def _line(item: Mapping[str, Any]) -> str:
    # ASCII, since some readers split lines at U+2028 or U+0085.
    return json.dumps(item, separators=(",", ":"), allow_nan=False) + "\n"
