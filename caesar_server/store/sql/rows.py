"""Jobs and records as what a row holds, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from caesar_server.contract.events import event_from_json, event_to_json
from caesar_server.contract.request import request_from_json, request_to_json
from caesar_server.store.base import Job, Record

#: Records in one row at most, so that a reader who asks for a few need not get them all.
RECORDS_IN_A_ROW = 256
#: Begins a body that only Python's own JSON can read.
_LENIENT = b" "

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
)


def job_values(job: Job) -> dict[str, Any]:
    """Return the row of a job."""
    return {name: getattr(job, name) for name in FIELDS}


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

    :raises ValueError: if a later version of the server wrote what this one cannot read.
    """
    body = decode(request)
    return Job(
        model=body["model"],
        backend_model=body["backend_model"],
        request=request_from_json(body["request"]),
        checkpoint=None if checkpoint is None else decode(checkpoint),
        **{name: row[name] for name in FIELDS},
    )


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
        }
        for batch in _batches(records)
    ]


def records_of(first_seq: int, body: bytes, after_seq: int) -> Iterator[Record]:
    """Yield the records of a row with a number above ``after_seq``."""
    skipped = max(0, after_seq + 1 - first_seq)
    for seq, (created_at, event) in enumerate(decode(body)[skipped:], first_seq + skipped):
        yield Record(seq, created_at, event_from_json(event))


def checkpoint_body(state: Mapping[str, Any]) -> bytes:
    """Return a checkpoint as JSON.

    :raises TypeError: if it holds something else.
    """
    return _LENIENT + json.dumps(state).encode("ascii")


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


def _batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    for first in range(0, len(records), RECORDS_IN_A_ROW):
        yield records[first : first + RECORDS_IN_A_ROW]
