"""Jobs and their records as text and as JSON."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from caesar_server.cli.tables import table
from caesar_server.contract.events import event_to_json
from caesar_server.contract.request import request_to_json
from caesar_server.store.base import Job, Record

_COLUMNS = ("ID", "CREATED", "STATUS", "BACKEND", "ACCOUNT", "EVENTS", "TOOK", "RUNS IN")
#: As much of a request or an event as one line shows.
_LINE_CHARS = 120
#: Why a job waits, with its backend.
_STUCK = "no running process has the backend {}: start one that has it, or cancel the job"


def job_table(jobs: Sequence[Job], stuck: Collection[str]) -> Iterator[str]:
    """Yield the lines of a table of jobs.

    :param stuck: the ids of those whose backend no living process has.
    """
    return table(_COLUMNS, [_row(job, job.id in stuck) for job in jobs])


def job_object(job: Job, stuck: Collection[str]) -> dict[str, Any]:
    """Return what there is to tell of a job, without its checkpoint: that is its backend's own.

    :param stuck: as of :func:`job_table`.
    """
    return {
        "id": job.id,
        "created_at": job.created_at,
        "finished_at": job.finished_at,
        "status": state_of(job),
        "error_code": job.error_code,
        "account": job.account,
        "model": job.model,
        "backend": job.backend,
        "durable": job.durable,
        "detached": job.detached,
        "attempt": job.attempt,
        "owner": job.owner,
        "stuck": _STUCK.format(job.backend) if job.id in stuck else None,
        "cancel_requested": job.cancel_requested,
        "events": job.last_seq,
        "has_checkpoint": job.checkpoint is not None,
        "request": request_to_json(job.request),
    }


def record_object(record: Record) -> dict[str, Any]:
    """Return a record as JSON has it."""
    return {
        "seq": record.seq,
        "created_at": record.created_at,
        "event": event_to_json(record.event),
    }


def job_lines(job: Job, stuck: Collection[str]) -> Iterator[str]:
    """Yield a job as lines of name and value; ``stuck`` as of :func:`job_table`."""
    told = job_object(job, stuck)
    told["created_at"] = moment(job.created_at)
    told["finished_at"] = "" if job.finished_at is None else moment(job.finished_at)
    for name, value in told.items():
        if value not in (None, "", False):
            yield f"{name + ':':18}{_line(value)}"


def record_lines(records: Sequence[Record]) -> Iterator[str]:
    """Yield one line a record."""
    for record in records:
        event = event_to_json(record.event)
        rest = {key: value for key, value in event.items() if key != "type"}
        yield f"{record.seq:6}  {moment(record.created_at)}  {record.event.type:16}{_line(rest)}"


def state_of(job: Job) -> str:
    """Return a job's status, and of one that has an owner and did not say anything: ``running``."""
    if job.finished_at is None and job.status == "queued" and job.owner is not None:
        return "running"
    return job.status


def moment(unix_s: float) -> str:
    """Return a moment in the machine's own time.

    >>> len(moment(0))
    19
    """
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))


def _row(job: Job, is_stuck: bool) -> tuple[str, ...]:
    ended = job.finished_at is not None
    owner = "no process has its backend" if is_stuck else job.owner
    state = f"{state_of(job)} ({job.error_code})" if job.error_code else state_of(job)
    return (
        job.id,
        moment(job.created_at),
        state,
        job.backend,
        job.account or "-",
        str(job.last_seq),
        f"{job.finished_at - job.created_at:.1f} s" if job.finished_at is not None else "-",
        "-" if ended or owner is None else owner,
    )


def _line(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LINE_CHARS else text[: _LINE_CHARS - 1] + "…"
