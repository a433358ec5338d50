"""What follows for a job from records that are added to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from caesar_server.contract.events import (
    ChoiceFinished,
    Completed,
    ContentDelta,
    Failed,
    LoopFinished,
    Started,
    Status,
    StatusChanged,
    UsageCounted,
)
from caesar_server.store.base import Job, Record
from caesar_server.store.checkpoints import Checkpoint

#: Numbers of loops are kept up to this one, which every database can hold.
MOST_LOOPS = 2**31 - 1


#: Events that change nothing of their job.
_NO_CHANGE = frozenset({ChoiceFinished, ContentDelta, Started, UsageCounted})


class Outcome(NamedTuple):
    """What some records change.

    :param status: the last one among them, or None if there is none.
    :param finished_at: Unix seconds of the terminal record, or None without one.
    :param error_code: that of the failure that ended the job, or None.
    :param loops: the largest number among the loops that finished, or 0.
    :param consumed: what the ``Completed`` says of the loops, or None if it says nothing.
    """

    status: Status | None = None
    finished_at: float | None = None
    error_code: str | None = None
    loops: int = 0
    consumed: int | None = None

    @property
    def ended(self) -> bool:
        """Whether a terminal record is among them."""
        return self.finished_at is not None


def outcome_of(records: Sequence[Record]) -> Outcome:
    """Return what ``records`` change."""
    status: Status | None = None
    loops = 0
    for record in records:
        event = record.event
        if type(event) in _NO_CHANGE:  # what nearly all of them are
            continue
        if isinstance(event, StatusChanged):
            status = event.status
        elif isinstance(event, LoopFinished):
            loops = max(loops, min(event.loop, MOST_LOOPS))
        elif isinstance(event, Completed):
            consumed = _consumed(event)
            return Outcome("completed", record.created_at, loops=loops, consumed=consumed)
        elif isinstance(event, Failed):
            return Outcome("failed", record.created_at, event.error.code, loops)
    return Outcome(status, loops=loops)


def _consumed(event: Completed) -> int | None:
    told = event.details.get("loops_consumed")
    if isinstance(told, int) and not isinstance(told, bool) and told >= 0:
        return min(told, MOST_LOOPS)
    return None


def follow_on(first_seq: int, records: Sequence[Record]) -> bool:
    """Return whether the records are numbered from ``first_seq`` without gaps."""
    for seq, record in enumerate(records, first_seq):  # noqa: SIM110 - all() takes twice as long
        if record.seq != seq:
            return False
    return True


def advanced(job: Job, records: Sequence[Record], checkpoint: Checkpoint | None) -> Job:
    """Return ``job`` as it stands after ``records``."""
    outcome = outcome_of(records)
    last_seq = job.last_seq + len(records)
    if checkpoint is not None:
        job = job.changed(
            checkpoint=checkpoint.state, checkpoint_seq=last_seq, unrepeated=checkpoint.unrepeated
        )
    return job.changed(
        status=outcome.status or job.status,
        finished_at=outcome.finished_at,
        error_code=outcome.error_code,
        owner=None if outcome.ended else job.owner,
        last_seq=last_seq,
        loops=max(job.loops, outcome.loops) if outcome.consumed is None else outcome.consumed,
    )
