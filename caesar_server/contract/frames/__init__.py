"""Recorded streams: what was asked over HTTP and what came back, frame by frame, with its timing.

A recording is JSON lines, so that it can be written while the answer comes, be read with any tool
and be cut off without harm.  One file may hold several, one after the other:

* ``{"request": {"path", "body"}, "created", "version": 1, ...}`` begins a recording;
* ``{"response": {"status", "headers"}, "at_s"}`` when the headers came;
* ``{"frame": "...", "at_s"}`` for each event of a stream: the text of its ``data``, ``[DONE]`` too;
* ``{"body": "...", "at_s"}`` in their place for an answer that is no stream;
* ``{"end": "complete", "at_s"}``; without it the recording was cut off.

``at_s`` is seconds since the request.  Lines and keys that a reader does not know are skipped.
"""

from caesar_server.contract.frames.lines import (
    FramesError,
    body_line,
    end_line,
    frame_line,
    read_recordings,
    recording_lines,
    request_line,
    response_line,
)
from caesar_server.contract.frames.recording import EndReason, RecordedFrame, Recording

__all__ = [
    "EndReason",
    "FramesError",
    "RecordedFrame",
    "Recording",
    "body_line",
    "end_line",
    "frame_line",
    "read_recordings",
    "recording_lines",
    "request_line",
    "response_line",
]
