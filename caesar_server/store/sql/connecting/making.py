"""What the writer is to do to add a job, or to move one on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from caesar_server.store.base import FencedError, Job, Record
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.outcome import follow_on, outcome_of
from caesar_server.store.quotas import Quota
from caesar_server.store.sql import steps
from caesar_server.store.sql.connecting.writer import Step
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.rows import checkpoint_body, job_values, record_rows, request_body


def adding(
    database: Database, job: Job, records: Sequence[Record] = (), *, quota: Quota | None = None
) -> Step:
    """Return the step that adds a job, as it stands after its ``records``.

    :raises TypeError: if it holds what JSON cannot carry.
    """
    row, body, rows = job_values(job), request_body(job), record_rows(job.id, records)
    return Step(
        lambda connection, again: steps.create(
            connection, database, row, body, quota, rows, again=again
        ),
        lambda connection: steps.uncreate(connection, row),
        account=None if quota is None else job.account,
    )


def appending(
    database: Database,
    job_id: str,
    attempt: int,
    records: Sequence[Record],
    checkpoint: Checkpoint | None,
) -> Step:
    """Return the step that adds records to a job, and its checkpoint if there is one.

    :raises FencedError: if the numbers of the records have gaps.
    :raises TypeError: if something holds what JSON cannot carry.
    """
    rows = record_rows(job_id, records)
    state = None if checkpoint is None else checkpoint_body(checkpoint)
    outcome = outcome_of(records)
    fence: dict[str, Any] = {"id_": job_id, "attempt_": attempt}
    if not records:
        return Step(lambda connection, _: steps.keep(connection, database, fence, state))
    if not follow_on(records[0].seq, records):
        raise FencedError(f"job {job_id}: the numbers of the records have gaps")
    fence |= {
        "old_": records[0].seq - 1,
        "new_": records[-1].seq,
        "checkpoint_seq_": None if state is None else records[-1].seq,
    }
    return Step(
        lambda connection, again: steps.append(
            connection, database, fence, rows, outcome, state, again=again
        )
    )
