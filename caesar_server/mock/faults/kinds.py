"""The kinds of faults: what each needs, and which fields of a fault count for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

from caesar_server.mock.model.fault import BodyKind, FaultKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault.

    :param name: as a fault names it.
    :param does: what the client meets, in a sentence without its full stop.
    :param fields: of a fault, besides ``kind`` and ``probability``.
    :param required: those of them that must be set.
    :param in_body: whether it happens in the body of an answer; else before or instead of it.
    :param needs_socket: whether the host must lend the client's connection.
    :param needs_stream: whether it makes sense in a stream alone.
    """

    name: FaultKind
    does: str
    fields: frozenset[str] = field(default_factory=frozenset)
    required: frozenset[str] = field(default_factory=frozenset)
    in_body: bool = True
    needs_socket: bool = False
    needs_stream: bool = False


def _kind(
    name: FaultKind,
    does: str,
    fields: str = "",
    required: str = "",
    *,
    socket: bool = False,
    stream: bool = False,
) -> Kind:
    needed = frozenset(required.split())
    return Kind(
        name=name,
        does=does,
        fields=frozenset(fields.split()) | needed,
        required=needed,
        in_body=name in get_args(BodyKind),
        needs_socket=socket,
        needs_stream=stream,
    )


def _by_name(kinds: Iterable[Kind]) -> Mapping[str, Kind]:
    return {kind.name: kind for kind in kinds}


#: Every kind, by its name: first those before the answer, then those in its body.
KINDS: Mapping[str, Kind] = _by_name(
    (
        _kind(
            "status",
            "another status instead of the answer, with an error object or any body",
            "body headers message code retry_after_s",
            "status",
        ),
        _kind("delay", "the answer begins late", required="delay_s"),
        _kind(
            "hang",
            "no answer at all; after ``delay_s``, if it is set, the connection ends",
            "delay_s",
            socket=True,
        ),
        _kind("reset", "the connection is reset instead of an answer", socket=True),
        _kind("half_headers", "the connection ends within the answer's headers", socket=True),
        _kind(
            "early_hints",
            "an interim response 103 comes before the answer",
            "headers",
            socket=True,
        ),
        _kind(
            "error_frame",
            "a frame with an error object, then ``[DONE]``",
            "after_chunks message code",
        ),
        _kind("silent_close", "the body ends as if it were whole", "after_chunks"),
        _kind(
            "connection_reset",
            "the connection is reset within the body",
            "after_chunks",
            socket=True,
        ),
        _kind(
            "stall",
            "nothing more comes; after ``delay_s``, if it is set, the rest does",
            "after_chunks delay_s",
            socket=True,
        ),
        _kind("malformed_json", "a frame whose JSON is cut off", "after_chunks"),
        _kind("truncated_utf8", "text with half a UTF-8 character", "after_chunks"),
        _kind("missing_done", "the stream is whole but for its ``[DONE]``", stream=True),
        _kind("duplicate_chunk", "a chunk comes twice", "after_chunks", stream=True),
        _kind(
            "reorder_chunks",
            "a chunk comes after the one that follows",
            "after_chunks",
            stream=True,
        ),
        _kind("wrong_content_type", "another content type than the body's", "content_type"),
        _kind("crlf", "lines end with CR LF", "after_chunks", stream=True),
        _kind("empty_data", "frames whose data is empty", "after_chunks count", stream=True),
        _kind("comment_storm", "many comments", "after_chunks count", stream=True),
        _kind(
            "slow_drip",
            "the body comes in pieces of ``count`` bytes, ``delay_s`` apart",
            "after_chunks count",
            "delay_s",
        ),
    )
)
