"""A recorded exchange as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

#: How an answer ended: as its protocol says, cut off by the other side, with an error that this
#: side made of it, or given up by whoever read it.
EndReason: TypeAlias = Literal["complete", "cut", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """One event of a stream.

    :param at_s: seconds since the request.
    :param data: the text of its ``data``, as it came; ``[DONE]`` for the last one of OpenAI's.
    """

    at_s: float
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One request and its answer.

    :param path: below the base URL, such as ``chat/completions``.
    :param body: the JSON that was sent.
    :param created: Unix seconds.
    :param server: a name for who answered; empty where it is not known.
    :param status: HTTP status, or None if no answer came.
    :param headers: those of the answer that were kept, names in lower case.
    :param headers_at_s: when they came, in seconds since the request.
    :param frames: the stream's events in order; empty for an answer that is no stream.
    :param content: the body of an answer that is no stream, or None.
    :param content_at_s: when it was there.
    :param end: how it ended; None: the recording itself was cut off.
    :param end_at_s: when.
    """

    path: str
    body: Mapping[str, Any]
    created: float = 0.0
    server: str = ""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_at_s: float = 0.0
    frames: tuple[RecordedFrame, ...] = ()
    content: str | None = None
    content_at_s: float = 0.0
    end: EndReason | None = None
    end_at_s: float = 0.0
