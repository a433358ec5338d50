"""Ends that jobs get from outside of their runs."""

from __future__ import annotations

from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import Failed, StatusChanged
from caesar_server.errors import ATTEMPTS, CANCELLED, STORE_AWAY, UNEXPECTED, WORKER_LOST
from caesar_server.store.base import (
    FencedError,
    Job,
    Record,
    Store,
    StoreError,
    UnknownJobError,
)


def verdict(job: Job, max_attempts: int) -> ErrorInfo | None:
    """Return how a job ends that was claimed after its process was lost, or gave it back.

    None means that it is to be run.

    :param job: as it was claimed.
    :param max_attempts: attempts that may have begun, not counting those that were given back.
    """
    if job.cancel_requested:
        return CANCELLED
    # what is beyond the server's own `queued` cannot be told a second time
    if not job.detached or (job.last_seq > 1 and not job.durable):
        return WORKER_LOST
    if job.attempt - job.released > max_attempts:
        return ATTEMPTS
    return None


def end_after(error: BaseException | None) -> ErrorInfo:
    """Return how a job ends that could not be run to its end, through no fault of its backend.

    :param error: what kept it from that, if anything is known of it.
    """
    if isinstance(error, UnknownJobError):
        return CANCELLED  # it was deleted
    return STORE_AWAY if isinstance(error, StoreError) else UNEXPECTED


def end_job(store: Store, job: Job, info: ErrorInfo, time_s: float) -> list[Record]:
    """Store the end of a job that does not run, and return the records that were added.

    :param job: as this process has claimed it.
    :param time_s: now, in Unix seconds.
    :raises FencedError: if somebody else has claimed it since.
    :raises UnknownJobError: if it does not exist any more.
    """
    records = []
    if job.last_seq == 0:
        records.append(Record(1, time_s, StatusChanged("queued")))
    records.append(Record(job.last_seq + len(records) + 1, time_s, Failed(info)))
    store.append(job.id, job.attempt, records)
    return records


def cancel_job(store: Store, job_id: str, owner: str, time_s: float) -> Job:
    """Ask for the cancel of a job, in whatever process it runs, and return it as it then stands.

    Whoever runs it notices within a second; one that waits is ended here.

    :param owner: the name of this process, in which no run of the job is under way.
    :param time_s: now, in Unix seconds.
    :raises UnknownJobError: if there is no such job.
    """
    job = store.request_cancel(job_id)
    if job.owner is not None or job.finished_at is not None:
        return job
    try:
        end_job(store, store.claim(job_id, owner, attempt=job.attempt), CANCELLED, time_s)
    except FencedError:
        # Somebody has just begun with it, or ended it; they see the request.
        return store.job(job_id)
    return store.job(job_id)
