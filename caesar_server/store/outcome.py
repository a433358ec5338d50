"""What follows for a job from records that are added to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from caesar_server.contract.events import Completed, Failed, Status, StatusChanged
from caesar_server.store.base import Job, Record


@dataclass(frozen=True, slots=True)
class Outcome:
    """What some records change.

    :param status: the last one among them, or None if there is none.
    :param finished_at: Unix seconds of the terminal record, or None without one.
    :param error_code: that of the failure that ended the job, or None.
    """

    status: Status | None = None
    finished_at: float | None = None
    error_code: str | None = None

    @property
    def ended(self) -> bool:
        """Whether a terminal record is among them."""
        return self.finished_at is not None


def outcome_of(records: Sequence[Record]) -> Outcome:
    """Return what ``records`` change."""
    status: Status | None = None
    for record in records:
        event = record.event
        if isinstance(event, StatusChanged):
            status = event.status
        elif isinstance(event, Completed):
            return Outcome("completed", record.created_at)
        elif isinstance(event, Failed):
            return Outcome("failed", record.created_at, event.error.code)
    return Outcome(status)


def follow_on(first_seq: int, records: Sequence[Record]) -> bool:
    """Return whether the records are numbered from ``first_seq`` without gaps."""
    return all(record.seq == seq for seq, record in enumerate(records, first_seq))


def advanced(job: Job, records: Sequence[Record], checkpoint: Mapping[str, Any] | None) -> Job:
    """Return ``job`` as it stands after ``records``."""
    outcome = outcome_of(records)
    last_seq = job.last_seq + len(records)
    return replace(
        job,
        status=outcome.status or job.status,
        finished_at=outcome.finished_at,
        error_code=outcome.error_code,
        owner=None if outcome.ended else job.owner,
        last_seq=last_seq,
        checkpoint=job.checkpoint if checkpoint is None else checkpoint,
        checkpoint_seq=job.checkpoint_seq if checkpoint is None else last_seq,
    )
