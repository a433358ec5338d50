"""What a store can do, and what of it happens in one step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from caesar_server.contract.events import Event, Status
from caesar_server.contract.request import Request


class Record(NamedTuple):
    """An event with its place in the job; a named tuple, since there is one for every token.

    :param seq: 1 for the first, without gaps.
    :param created_at: Unix seconds.
    """

    seq: int
    created_at: float
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stands.

    :param id: a UUID.
    :param account: whose it is; empty where no keys are configured.
    :param model: the name that the client asked for.
    :param backend: the name of the backend that answers.
    :param backend_model: the model's name as that backend knows it.
    :param request: as the backend gets it.
    :param timeout_s: seconds that one attempt may take, or None.
    :param attempt: 0 until somebody has claimed it, then counts the claims.
    :param last_seq: the number of the last stored record, 0 for none.
    :param checkpoint: the last state that the backend stored, or None.
    """

    id: str
    created_at: float
    model: str
    backend: str
    request: Request
    backend_model: str = ""
    account: str = ""
    status: Status = "queued"
    timeout_s: float | None = None
    attempt: int = 0
    last_seq: int = 0
    finished_at: float | None = None
    checkpoint: Mapping[str, Any] | None = None


class FencedError(Exception):
    """Somebody else has claimed the job: what this attempt still writes must not count."""


class UnknownJobError(LookupError):
    """There is no such job."""


class Store(ABC):
    """Primitives over jobs.  Each method is one atomic step, safe from any thread."""

    @abstractmethod
    def create(self, job: Job) -> None:
        """Add a job that has not begun.

        :raises ValueError: if its id exists.
        """

    @abstractmethod
    def claim(self, job_id: str) -> Job:
        """Count ``attempt`` up and return the job: from now on earlier attempts are fenced.

        :raises UnknownJobError: if it does not exist.
        """

    @abstractmethod
    def append(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> None:
        """Add records to the job of this attempt, and the checkpoint if there is one.

        The job's ``status``, ``last_seq`` and ``finished_at`` follow from the records in the same
        step.

        :param records: numbered from ``last_seq + 1`` without gaps.
        :raises FencedError: if ``attempt`` or the numbers are not the job's: nothing was written.
        :raises UnknownJobError: if the job does not exist.
        """

    @abstractmethod
    def job(self, job_id: str) -> Job:
        """Return the job as it stands.

        :raises UnknownJobError: if it does not exist.
        """

    @abstractmethod
    def records(self, job_id: str, after_seq: int = 0) -> Sequence[Record]:
        """Return the job's records with a number above ``after_seq``, in order.

        :raises UnknownJobError: if it does not exist.
        """

    @abstractmethod
    def delete(self, job_id: str) -> None:
        """Remove the job and its records; no error if it does not exist."""

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds."""
