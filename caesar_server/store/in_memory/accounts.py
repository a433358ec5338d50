"""What accounts have used up, as a store in memory counts it."""

from __future__ import annotations

from collections import Counter

from caesar_server.store.base import Job
from caesar_server.store.owned.base import OwnedStore, SessionUsedError
from caesar_server.store.quotas import LIMITED_KINDS, month_of


class MemoryAccounts:
    """Loops that completed jobs consumed, and sessions that jobs have used; needs the store's lock.

    The loops outlive their jobs.

    :param owned: where the sessions themselves are.
    """

    def __init__(self, owned: OwnedStore) -> None:
        self._owned = owned
        self._loops: Counter[tuple[str, str]] = Counter()
        self._sessions: dict[str, str] = {}

    def loops(self, account: str, month: str) -> int:
        """Return what the account consumed in a month."""
        return self._loops[account, month]

    def session_job(self, session_id: str) -> str | None:
        """Return the id of the job that has used the session, or None."""
        return self._sessions.get(session_id)

    def check(self, job: Job) -> None:
        """Return if the job may use its session, if it has one.

        :raises SessionUsedError: if another job has.
        """
        if job.session_id is not None and job.session_id in self._sessions:
            raise SessionUsedError(f"session {job.session_id} is used up")

    def created(self, job: Job) -> None:
        """Note the session of a new job."""
        if job.session_id is not None:
            self._sessions[job.session_id] = job.id

    def finished(self, job: Job) -> None:
        """Count the loops of a job that has ended."""
        counts = job.kind in LIMITED_KINDS and job.status == "completed"
        if counts and job.finished_at is not None and job.loops:
            self._loops[job.account, month_of(job.finished_at)] += job.loops

    def removed(self, job: Job) -> None:
        """Forget the session of a job, and remove it unless the job has not begun."""
        if job.session_id is not None:
            del self._sessions[job.session_id]
            if job.last_seq > 0:
                self._owned.delete_session(job.account, job.session_id)

    def clear(self) -> None:
        """Forget everything."""
        self._loops.clear()
        self._sessions.clear()
