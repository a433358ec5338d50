"""What the writer is to do to add a job, or to move one on."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from caesar_server.store.base import FencedError, Job, Record
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.outcome import advanced, follow_on, outcome_of
from caesar_server.store.quotas import Quota
from caesar_server.store.sql import steps
from caesar_server.store.sql.connecting.held import HeldJob
from caesar_server.store.sql.connecting.process import Process
from caesar_server.store.sql.connecting.writer import Step
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.rows import checkpoint_body, job_values, record_rows


def adding(
    database: Database,
    job: Job,
    body: bytes,
    records: Sequence[Record] = (),
    *,
    quota: Quota | None = None,
) -> Step:
    """Return the step that adds a job, as it stands after its ``records``.

    :param body: its request.
    :raises TypeError: if an event holds what JSON cannot carry.
    """
    row, rows = job_values(job), record_rows(job.id, records)
    return Step(
        lambda connection, again: steps.create(
            connection, database, row, body, quota, rows, again=again
        ),
        lambda connection: steps.uncreate(connection, row),
        account=None if quota is None else job.account,
    )


def begin_adding(database: Database, here: Process, held: HeldJob) -> None:
    """Begin to add a job that was kept back; nobody waits for that."""
    step = adding(database, *held)
    step.unwatched = held.job.id
    here.writer.begin(step)


def begin_whole(
    here: Process,
    database: Database,
    job_id: str,
    attempt: int,
    records: Sequence[Record],
    *,
    asked: bool,
) -> Future[None] | None:
    """Begin to add a job that was kept back with all that came of it, if that is all.

    :param asked: a client waits for it.
    :return: None if there is no such job, or more to come: nothing was begun.
    :raises TypeError: if something holds what JSON cannot carry.
    """
    held = here.held.get(job_id)
    if held is None or not steps.is_whole(held.job, attempt, records):
        return None
    step = adding(database, advanced(held.job, records, None), held.body, records)
    step.asked = asked
    return here.held.end(job_id, lambda: here.writer.begin(step))


def appending(
    database: Database,
    job_id: str,
    attempt: int,
    records: Sequence[Record],
    checkpoint: Checkpoint | None,
    *,
    asked: bool,
) -> Step:
    """Return the step that adds records to a job, and its checkpoint if there is one.

    :param asked: a client waits for it, or somebody who tries again.
    :raises FencedError: if the numbers of the records have gaps.
    :raises TypeError: if something holds what JSON cannot carry.
    """
    rows = record_rows(job_id, records)
    state = None if checkpoint is None else checkpoint_body(checkpoint)
    outcome = outcome_of(records)
    fence: dict[str, Any] = {"id_": job_id, "attempt_": attempt}
    if not records:
        return Step(
            lambda connection, _: steps.keep(connection, database, fence, state), asked=asked
        )
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
        ),
        asked=asked,
    )
