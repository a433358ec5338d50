"""Jobs and records as what a row holds, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from caesar_server.contract.context import Update
from caesar_server.contract.events import event_from_json, event_to_json
from caesar_server.contract.request import request_from_json, request_to_json
from caesar_server.store.base import BULK_EVENTS, Job, Record
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.sql.schema import BULK_ONLY
from caesar_server.store.unreadable import UnreadableRecordError
from caesar_server.store.updates import NumberedUpdate

#: Records in one row at most, so that a reader who asks for a few need not get them all.
RECORDS_IN_A_ROW = 256
#: Begins a body that only Python's own JSON can read.
_LENIENT = b" "
#: What comes of reading a body that is not what was written, or not what this version writes.
_UNREADABLE = (
    msgspec.MsgspecError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
)

#: Columns of a job that stand in its row under the name of their field.
FIELDS = (
    "id",
    "created_at",
    "account",
    "backend",
    "status",
    "timeout_s",
    "detached",
    "durable",
    "fingerprint",
    "attempt",
    "released",
    "owner",
    "cancel_requested",
    "last_seq",
    "checkpoint_seq",
    "finished_at",
    "error_code",
    "api_version",
    "parent_id",
    "session_id",
    "loops",
)


def job_values(job: Job) -> dict[str, Any]:
    """Return the row of a job."""
    return {"kind": job.kind, **{name: getattr(job, name) for name in FIELDS}}


def request_body(job: Job) -> bytes:
    """Return what else a job needs, as JSON."""
    return encode(
        {
            "model": job.model,
            "backend_model": job.backend_model,
            "request": request_to_json(job.request),
        }
    )


def job_of(row: Mapping[str, Any], request: bytes, checkpoint: bytes | None) -> Job:
    """Return the job of a row and its bodies.

    :raises UnreadableRecordError: if it cannot be made of them.
    """
    try:
        body = decode(request)
        return Job(
            model=body["model"],
            backend_model=body["backend_model"],
            request=request_from_json(body["request"]),
            **_checkpoint_fields(checkpoint),
            **{name: row[name] for name in FIELDS},
        )
    except _UNREADABLE as error:
        raise _unreadable(row["id"], error) from error


def record_rows(job_id: str, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the rows for records that follow each other.

    :raises TypeError: if an event holds what JSON cannot carry.
    """
    return [
        {
            "job_id": job_id,
            "first_seq": batch[0].seq,
            "last_seq": batch[-1].seq,
            "body": encode([(record.created_at, event_to_json(record.event)) for record in batch]),
            "bulk": BULK_ONLY if is_bulk(batch[0]) else None,
        }
        for batch in _batches(records)
    ]


def records_of(job_id: str, first_seq: int, body: bytes, after_seq: int) -> list[Record]:
    """Return the records of a row with a number above ``after_seq``.

    :raises UnreadableRecordError: if one of them cannot be read.
    """
    skipped = max(0, after_seq + 1 - first_seq)
    try:
        return [
            Record(seq, created_at, event_from_json(event))
            for seq, (created_at, event) in enumerate(decode(body)[skipped:], first_seq + skipped)
        ]
    except _UNREADABLE as error:
        raise _unreadable(job_id, error) from error


def checkpoint_body(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as JSON: its state, or an array of that and of what is unrepeated.

    The state alone is an object; what else a backend may have given goes into the array.

    :raises TypeError: if it holds something else.
    """
    state, unrepeated = checkpoint.state, checkpoint.unrepeated
    alone = isinstance(state, dict) and not unrepeated
    return _LENIENT + json.dumps(state if alone else [state, unrepeated]).encode("ascii")


def _checkpoint_fields(body: bytes | None) -> dict[str, Any]:
    """Return what a body of :func:`checkpoint_body` is of a job."""
    held = None if body is None else decode(body)
    if isinstance(held, list):
        state, unrepeated = held
        return {"checkpoint": state, "unrepeated": tuple(unrepeated)}
    return {"checkpoint": held}


def encode(value: Any) -> bytes:
    """Return ``value`` as JSON.

    :raises TypeError: if JSON cannot carry it.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON may escape and UTF-8 not hold
        return _LENIENT + json.dumps(msgspec.to_builtins(value, str_keys=True)).encode("ascii")


def decode(body: bytes) -> Any:
    """Return the value that :func:`encode` made ``body`` of."""
    return json.loads(body) if body.startswith(_LENIENT) else msgspec.json.decode(body)


def update_values(job_id: str, update: Update, created_at: float) -> dict[str, Any]:
    """Return the row of an update, without its number."""
    return {
        "job_id": job_id,
        "id": update.id,
        "created_at": created_at,
        "body": encode({"content": update.content, "file_ids": update.file_ids}),
    }


def update_of(row: Mapping[Any, Any]) -> NumberedUpdate:
    """Return the update of a row.

    :raises UnreadableRecordError: if it cannot be read.
    """
    try:
        body = decode(row["body"])
        update = Update(row["id"], body["content"], tuple(body["file_ids"]))
    except _UNREADABLE as error:
        raise _unreadable(row["job_id"], error) from error
    return NumberedUpdate(row["number"], row["created_at"], update)


def is_id(text: str) -> bool:
    """Return whether this may be an id: a database takes no NUL and no half character."""
    return text.isascii() and text.isprintable()


def _unreadable(job_id: str, error: Exception) -> UnreadableRecordError:
    return UnreadableRecordError(job_id, f"{type(error).__name__}: {error}")


def _batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yield what belongs in one row each: bulk is by itself."""
    bulk = [isinstance(record.event, BULK_EVENTS) for record in records]
    begins = (
        [n for n, pair in enumerate(pairwise(bulk), 1) if pair[0] != pair[1]] if any(bulk) else ()
    )
    for begin, end in pairwise((0, *begins, len(records))):
        for first in range(begin, end, RECORDS_IN_A_ROW):
            yield records[first : min(first + RECORDS_IN_A_ROW, end)]


def is_bulk(record: Record) -> bool:
    """Return whether the record is one of those that most readers leave out."""
    return isinstance(record.event, BULK_EVENTS)
