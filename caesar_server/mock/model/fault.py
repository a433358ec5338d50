"""What can go wrong on purpose."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from caesar_server.mock.model.pacing import Probability, Seconds

#: Instead of the answer, or before it.
BeforeKind: TypeAlias = Literal["status", "delay", "hang", "reset", "half_headers", "early_hints"]
#: In the body of the answer; of a stream after ``after_chunks`` frames of text.
BodyKind: TypeAlias = Literal[
    "error_frame",
    "silent_close",
    "connection_reset",
    "stall",
    "malformed_json",
    "truncated_utf8",
    "missing_done",
    "duplicate_chunk",
    "reorder_chunks",
    "wrong_content_type",
    "crlf",
    "empty_data",
    "comment_storm",
    "slow_drip",
]
FaultKind: TypeAlias = BeforeKind | BodyKind


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault; which fields count depends on ``kind``, others are refused when it is made.

    :param kind: what goes wrong.
    :param after_chunks: body faults: so many frames that carry text (of a JSON body: bytes) leave
        whole before it.
    :param status: of ``status``: 100 to 599.
    :param body: of ``status``: a JSON value, or text that is sent as it is; None makes the error
        object of the surface.
    :param headers: of ``status`` and ``early_hints``.
    :param message: of the error object or frame that is made.
    :param code: likewise.
    :param retry_after_s: of ``status``: sent as ``retry-after`` and ``retry-after-ms``.
    :param delay_s: of ``delay``; the pause before each piece of ``slow_drip``; how long ``hang``
        and ``stall`` last (None: until the client leaves).
    :param content_type: of ``wrong_content_type``.
    :param count: of ``comment_storm`` (comments), ``empty_data`` (frames), ``slow_drip`` (bytes at
        a time).
    :param probability: of its happening, drawn from the scope's seed; 1: always.
    """

    kind: FaultKind
    after_chunks: Annotated[int, msgspec.Meta(ge=0)] = 0
    status: Annotated[int, msgspec.Meta(ge=100, le=599)] | None = None
    body: Any = None
    headers: dict[str, str] = {}
    message: str | None = None
    code: str | None = None
    retry_after_s: Seconds | None = None
    delay_s: Seconds | None = None
    content_type: str | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    probability: Probability = 1
