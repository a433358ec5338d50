"""What a store can do, and what of it happens in one step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import msgspec
import msgspec.structs

from caesar_server.contract.codec import Value
from caesar_server.contract.context import Update
from caesar_server.contract.events import Event, RequestLogged, SourceStored, Status
from caesar_server.contract.request import Request, RequestKind
from caesar_server.store.changes import Changes
from caesar_server.store.checkpoints import Checkpoint
from caesar_server.store.leases import Leases
from caesar_server.store.owned.base import OwnedStore
from caesar_server.store.quotas import Quota, Standing
from caesar_server.store.updates import NumberedUpdate


class Record(msgspec.Struct, frozen=True, gc=False):
    """An event with its place in the job; msgspec's, since there is one for every token.

    :param seq: 1 for the first, without gaps.
    :param created_at: Unix seconds.
    """

    seq: int
    created_at: float
    event: Event


class Job(Value, frozen=True, kw_only=True):
    """A job as it stands; msgspec's, since each answer makes a few.

    :param id: a UUID.
    :param account: whose it is; empty where no keys are configured.
    :param model: the name that the client asked for.
    :param backend: the name of the backend that answers.
    :param backend_model: the model's name as that backend knows it.
    :param request: as the backend gets it; a follow-up as it was asked.
    :param timeout_s: seconds that one attempt may take, or None.
    :param detached: goes on without its client, in any process; others end with their process.
    :param durable: its backend resumes from a checkpoint.
    :param fingerprint: what a repeat of the same request is known by, or None.
    :param attempt: 0 until somebody has claimed it, then counts the claims.
    :param released: attempts that gave it back through no fault of its; they do not count.
    :param owner: the process that runs it, or None while it waits and after its end.
    :param cancel_requested: somebody asked for its cancel; whoever runs it ends it.
    :param last_seq: the number of the last stored record, 0 for none.
    :param checkpoint: the last state that the backend stored, or None.
    :param checkpoint_seq: the number of the last record that was stored before or with it.
    :param unrepeated: as the :class:`Checkpoint` has it.
    :param error_code: the code of the failure that ended it, or None.
    :param api_version: the API version to show it in unless the reader names another, or None.
    :param parent_id: the job that this one is a follow-up of, or None.
    :param session_id: the brainstorm session that it has used up, or None.
    :param loops: that finished: the largest ``LoopFinished``, or its end's ``loops_consumed``.
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
    detached: bool = False
    durable: bool = False
    fingerprint: str | None = None
    attempt: int = 0
    released: int = 0
    owner: str | None = None
    cancel_requested: bool = False
    last_seq: int = 0
    finished_at: float | None = None
    checkpoint: Mapping[str, Any] | None = None
    checkpoint_seq: int = 0
    unrepeated: tuple[int, ...] = ()
    error_code: str | None = None
    api_version: str | None = None
    parent_id: str | None = None
    session_id: str | None = None
    loops: int = 0

    def changed(self, **changes: Any) -> Job:
        """Return the job with other values of these fields."""
        return msgspec.structs.replace(self, **changes)

    @property
    def kind(self) -> RequestKind:
        """What kind of request it answers."""
        return self.request.type  # type: ignore[return-value]


#: How long a detached job stays after its end at least: whoever follows it reads it from the store.
LINGER_S = 60.0


class FencedError(Exception):
    """Somebody else has claimed the job: what this attempt still writes must not count."""


class UnknownJobError(LookupError):
    """There is no such job."""


#: Events that hold whole pages or exchanges: most readers of a job want the others alone.
BULK_EVENTS = (SourceStored, RequestLogged)


class StoreError(Exception):
    """The store cannot be used: no room, no right to write, no connection, a damaged file.

    The message is a sentence for the operator, without a password.  Nothing of the step was done;
    only where the connection to a database was lost during its commit, and did not come back in
    time, it may have been.  A claim that nobody heard of is given back then.
    """


class Store(Leases):
    """Primitives over jobs.  Each method is one atomic step, safe from any thread.

    What a method has returned from is stored: a crash of the process afterwards does not undo it
    (how far a crash of the machine can, the store says).  Every method may raise
    :class:`StoreError`; one that returns a job or what belongs to it ``UnreadableRecordError``.

    :cvar shared: whether other processes may have the same jobs.
    """

    shared: ClassVar[bool] = True

    @abstractmethod
    def create(
        self, job: Job, *, wait: bool = True, held: bool = False, quota: Quota | None = None
    ) -> None:
        """Add a job that has not begun: one that waits, or one that its owner is about to run.

        The latter comes with its ``owner`` and ``attempt`` 1, as if it had been claimed in the same
        step.

        :param wait: False returns before the job is stored: claims and appends that come later in
            this process find it, but for a moment a read may not.  If it could not be stored, the
            first append raises the ``StoreError`` of that.  For jobs that end with their client.
        :param held: lets the store keep the job back, without ``wait``, until this process reads or
            writes anything else than records of such jobs: one that ends before costs one step in
            all.  For jobs whose id nobody is told before their end.
        :param quota: what the job's account may have, counted in the same step; with ``wait``
            alone.
        :raises QuotaExceededError: if it has as much already: the job was not added.
        :raises SessionUsedError: if another job has the same ``session_id``: likewise.
        :raises UnknownJobError: of its ``parent_id``, if that job does not exist: likewise.
        :raises ValueError: if its id exists; with ``wait=False`` a later step fails instead.
        """

    @abstractmethod
    def claim(self, job_id: str, owner: str, *, attempt: int | None = None) -> Job:
        """Count ``attempt`` up, make ``owner`` the job's, and return the job.

        From now on earlier attempts are fenced.  A lease of its present owner does not hinder it.

        :param attempt: claim only if this is still the job's attempt.
        :raises UnknownJobError: if it does not exist.
        :raises FencedError: if it has ended, or ``attempt`` is not the job's any more.
        """

    @abstractmethod
    def claim_next(
        self, owner: str, backends: Collection[str], *, below: int | None = None
    ) -> Job | None:
        """Claim the oldest detached job of one of ``backends`` that nobody runs.

        Nobody runs a job that has no owner, or whose owner's lease has run out.  Two processes
        never get the same.  Called once a second by each process that has room, mostly in vain.

        :param below: pass over jobs with so many attempts, or more, that count; None: over none.
        :return: the job as :meth:`claim` returns it, or None if there is none.
        """

    @abstractmethod
    def release(self, job_id: str, attempt: int, *, forgiven: bool = True) -> None:
        """Give a job back that did not come to its end: anybody may claim it at once.

        Its attempt is over: what it still appends is fenced.

        :param forgiven: count ``released`` up, so that the attempt does not count against the job.
        :raises FencedError: if ``attempt`` is not the job's any more, was given back, or it has
            ended.
        :raises UnknownJobError: if it does not exist.
        """

    @abstractmethod
    def append(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Add records to the job of this attempt, and the checkpoint if there is one.

        The job's ``status``, ``last_seq``, ``finished_at``, ``error_code``, ``loops`` and, at the
        end, ``owner`` follow from the records in the same step.  If the last one is ``Completed``,
        the job's loops are added to what its account has consumed in the month (UTC) of that
        record.

        :param records: numbered from ``last_seq + 1`` without gaps.
        :param checkpoint: kept as it is now, until another one replaces it.
        :raises FencedError: if ``attempt`` or the numbers are not the job's, the attempt was given
            back or has ended: nothing was written.
        :raises UnknownJobError: if the job does not exist.
        :raises TypeError: if the checkpoint or an event holds what JSON cannot carry.
        """

    def append_soon(
        self,
        job_id: str,
        attempt: int,
        records: Sequence[Record],
        *,
        checkpoint: Checkpoint | None = None,
    ) -> Future[None]:
        """Begin an :meth:`append` without waiting until it is stored.

        Steps of one process on one job are done in the order in which they were begun.  The
        future's callbacks are called in whatever thread stores, or in this one if it is done
        already; they must be short, and may use nothing of the store but this method.

        :return: gets None once it is stored, or the exception of :meth:`append`.
        """
        done: Future[None] = Future()
        try:
            self.append(job_id, attempt, records, checkpoint=checkpoint)
            done.set_result(None)
        except Exception as error:  # noqa: BLE001 - handed on
            done.set_exception(error)
        return done

    @abstractmethod
    def job(self, job_id: str) -> Job:
        """Return the job as it stands.

        :raises UnknownJobError: if it does not exist.
        """

    @abstractmethod
    def records(
        self,
        job_id: str,
        after_seq: int = 0,
        *,
        limit: int | None = None,
        bulk: bool | None = None,
    ) -> Sequence[Record]:
        """Return the job's records with a number above ``after_seq``, in order.

        :param limit: at most so many.
        :param bulk: True: only those of :data:`BULK_EVENTS`; False: only the others, without
            reading what the former hold; None: all.
        :raises UnknownJobError: if it does not exist.
        """

    @abstractmethod
    def jobs(
        self,
        *,
        account: str | None = None,
        statuses: Collection[Status] | None = None,
        backend: str | None = None,
        kinds: Collection[RequestKind] | None = None,
        parent_id: str | None = None,
        before: tuple[float, str] | None = None,
        offset: int = 0,
        limit: int = 50,
    ) -> Sequence[Job]:
        """Return jobs, the newest first; of equal moments the larger id first.

        :param account: only of this account, and ``kinds``: only of these kinds; None: of all.
        :param parent_id: only follow-ups of this job; None: whatever they are.
        :param before: (created_at, id) of the last job of the page before.
        :param offset: so many of what is left are passed over.
        :param limit: at least 1.
        """

    @abstractmethod
    def count(self, account: str, kinds: Collection[RequestKind]) -> int:
        """Return how many jobs of these kinds the account has."""

    @abstractmethod
    def standing(self, account: str, month: str) -> Standing:
        """Return what the account has in progress, and what it consumed in a month.

        :param month: ``YYYY-MM``, in UTC.
        """

    @abstractmethod
    def session_job(self, session_id: str) -> str | None:
        """Return the id of the job that has used a brainstorm session up, or None."""

    @abstractmethod
    def add_update(self, job_id: str, update: Update, created_at: float) -> None:
        """Note an update for whoever runs the job.

        :param created_at: Unix seconds.
        :raises UnknownJobError: if it does not exist.
        :raises JobEndedError: if it has ended: the update was not noted.
        """

    @abstractmethod
    def updates(self, job_id: str, after: int = 0) -> Sequence[NumberedUpdate]:
        """Return updates numbered above ``after``, oldest first; none if there is no such job."""

    @property
    @abstractmethod
    def owned(self) -> OwnedStore:
        """What accounts own besides jobs, in the same place; closed with the store."""

    @abstractmethod
    def find(self, account: str, fingerprint: str) -> Job | None:
        """Return the newest job of the account with this fingerprint, or None."""

    @abstractmethod
    def positions(self, job_ids: Collection[str]) -> Mapping[str, int]:
        """Return the number of the last stored record of each of these jobs that exists."""

    @abstractmethod
    def waiting(self, *, limit: int, urgent: bool = False) -> int:
        """Return how many detached jobs have no owner and have not ended, counting to ``limit``.

        :param urgent: does not wait for other reads, however many there are.
        """

    @abstractmethod
    def request_cancel(self, job_id: str) -> Job:
        """Note that the job is to be cancelled; no effect on one that has ended.

        :return: the job as it then stands.
        :raises UnknownJobError: if it does not exist.
        """

    @abstractmethod
    def cancel_requests(self, owner: str) -> Collection[str]:
        """Return the ids of this owner's running jobs whose cancel was asked for."""

    @abstractmethod
    def lost(self, *, limit: int = 100) -> Sequence[Job]:
        """Return running jobs, detached or not, whose owner has no lease any more.

        An attached job that was created without an owner and never claimed is none of them.
        """

    @abstractmethod
    def delete(self, job_id: str) -> None:
        """Remove the job, all that belongs to it and its follow-ups; no error if it does not exist.

        Its session goes too if it has records.  A follow-up of meanwhile goes too, or is refused.
        """

    @abstractmethod
    def prune(
        self, *, finished_before: float | None = None, keep: int | None = None, limit: int = 1000
    ) -> int:
        """Remove finished jobs, the oldest first, at most ``limit`` and their follow-ups.

        Each job goes as with :meth:`delete`, but not all of them go in one step.  One that is
        followed up by a job that stays, stays as well.

        :param finished_before: those that ended before this Unix time.
        :param keep: those beyond the newest so many finished ones; detached ones that ended less
            than :data:`LINGER_S` ago stay.
        :return: how many went, the follow-ups too.
        """

    @abstractmethod
    def changes(self) -> Changes:
        """Return what tells of changes by any process; it begins with the call."""

    @abstractmethod
    def check(self) -> None:
        """Return if the store can be read and written.

        :raises StoreError: otherwise.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds; waits for steps that were begun."""
