"""What cannot be read any more, or not for now."""

from __future__ import annotations

from caesar_server.store.base import StoreError


class StoreAwayError(StoreError):
    """The store was not reached, or held by others, for all the time that a step is tried.

    It says nothing of the step: once the store is back, it may be done.
    """


class UnreadableRecordError(ValueError):
    """What is stored of a job cannot be read: it is damaged, or another version wrote it.

    To try again does not help, and other jobs are not concerned.  A method of a store that returns
    this job, its records or its updates raises it, and has not claimed the job then.  One that
    returns several jobs leaves it out, and ``claim_next`` passes over it; both log it, once in a
    process.

    :param job_id: whose.
    :param reason: what was wrong, for the operator.
    """

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(f"job {job_id}: what is stored of it cannot be read: {reason}")
        self.job_id = job_id
