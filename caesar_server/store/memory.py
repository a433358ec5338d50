"""A store in the memory of one process: gone when it ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from caesar_server.contract.events import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Failed,
    Status,
    StatusChanged,
    UsageCounted,
)
from caesar_server.store.base import FencedError, Job, Record, Store, UnknownJobError


class MemoryStore(Store):
    """Keeps all running jobs and the last ``stored_jobs`` finished ones.

    :param stored_jobs: 0 keeps no job beyond its end.
    :param stored_bytes: what finished jobs may take together, by a rough estimate.  A job can be
        large: millions of tokens, or a request of megabytes.
    """

    def __init__(self, stored_jobs: int = 1000, stored_bytes: int = 64 * 1024 * 1024) -> None:
        self._stored_jobs = stored_jobs
        self._stored_bytes = stored_bytes
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._records: dict[str, list[Record]] = {}
        #: Bytes of each finished job, the oldest first.
        self._finished: dict[str, int] = {}
        self._finished_bytes = 0

    def create(self, job: Job) -> None:
        """Add a job that has not begun."""
        with self._lock:
            if job.id in self._jobs:
                raise ValueError(f"job {job.id} exists")
            self._jobs[job.id] = job
            self._records[job.id] = []

    def claim(self, job_id: str) -> Job:
        """Count ``attempt`` up and return the job."""
        with self._lock:
            job = self._get(job_id)
            job = self._jobs[job_id] = replace(job, attempt=job.attempt + 1)
            return job

    def append(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> None:
        """Add records to the job of this attempt, and the checkpoint if there is one."""
        # As other stores keep it; the backend may go on changing what it gave.
        state = None if checkpoint is None else json.loads(json.dumps(checkpoint))
        with self._lock:
            job = self._get(job_id)
            expected = list(range(job.last_seq + 1, job.last_seq + 1 + len(records)))
            if job.attempt != attempt or [record.seq for record in records] != expected:
                raise FencedError(f"job {job_id} is at attempt {job.attempt}, seq {job.last_seq}")
            self._jobs[job_id] = job = advanced(job, records, state)
            self._records[job_id].extend(records)
            if job.finished_at is not None:
                self._finish(job)

    def job(self, job_id: str) -> Job:
        """Return the job as it stands."""
        with self._lock:
            return self._get(job_id)

    def records(self, job_id: str, after_seq: int = 0) -> Sequence[Record]:
        """Return the job's records with a number above ``after_seq``."""
        with self._lock:
            self._get(job_id)
            return tuple(self._records[job_id][max(0, after_seq) :])

    def delete(self, job_id: str) -> None:
        """Remove the job and its records."""
        with self._lock:
            self._delete(job_id)

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._jobs.clear()
            self._records.clear()
            self._finished.clear()
            self._finished_bytes = 0

    def _get(self, job_id: str) -> Job:
        try:
            return self._jobs[job_id]
        except KeyError:
            raise UnknownJobError(job_id) from None

    def _delete(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)
        self._records.pop(job_id, None)
        self._finished_bytes -= self._finished.pop(job_id, 0)

    def _finish(self, job: Job) -> None:
        """Count a finished job, and forget the oldest ones that there is no room for."""
        size = _size_of(job.request) + sum(map(_size, self._records[job.id]))
        self._finished_bytes += size - self._finished.get(job.id, 0)
        self._finished[job.id] = size
        while len(self._finished) > self._stored_jobs or self._finished_bytes > self._stored_bytes:
            self._delete(next(iter(self._finished)))


#: What a record or another object takes besides its text, measured roughly.
_RECORD_BYTES = 250
_OBJECT_BYTES = 50


def _size(record: Record) -> int:
    """Return about how many bytes a record takes."""
    event = record.event
    # nearly all are of these two kinds
    if isinstance(event, ContentDelta) and event.logprobs is None:
        return _RECORD_BYTES + len(event.text)
    if isinstance(event, (ChoiceFinished, UsageCounted)):
        return _RECORD_BYTES
    return _RECORD_BYTES + _size_of(event)


def _size_of(value: object) -> int:
    """Return about how many bytes a value takes; a client may nest what it sends deeply."""
    size, left = 0, [value]
    while left:
        item = left.pop()
        if item is None or item is False or item == ():
            continue
        size += _OBJECT_BYTES
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, Mapping):
            left += item.keys()
            left += item.values()
        elif isinstance(item, (tuple, list)):
            if item and isinstance(item[0], int):  # token ids, perhaps millions
                size += _OBJECT_BYTES * len(item)
            else:
                left += item
        else:
            # the contract's dataclasses have slots; numbers have none
            left += (getattr(item, name) for name in getattr(item, "__slots__", ()))
    return size


def advanced(job: Job, records: Sequence[Record], checkpoint: Mapping[str, Any] | None) -> Job:
    """Return ``job`` as it stands after ``records``."""
    status, finished_at = job.status, job.finished_at
    for record in records:
        if isinstance(record.event, StatusChanged):
            status = record.event.status
        elif isinstance(record.event, (Completed, Failed)):
            status = _final(record)
            finished_at = record.created_at
    return replace(
        job,
        status=status,
        finished_at=finished_at,
        last_seq=job.last_seq + len(records),
        checkpoint=job.checkpoint if checkpoint is None else checkpoint,
    )


def _final(record: Record) -> Status:
    return "completed" if isinstance(record.event, Completed) else "failed"
