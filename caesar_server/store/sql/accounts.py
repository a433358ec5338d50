"""What is counted for an account."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, func, literal, select

from caesar_server.store.quotas import LIMITED_KINDS, Standing, month_of
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.schema import jobs, sessions, usage

_IN_PROGRESS = select(func.count()).where(
    jobs.c.finished_at.is_(None),
    jobs.c.account == bindparam("account_"),
    jobs.c.kind.in_(sorted(LIMITED_KINDS)),
)
_LOOPS = select(usage.c.loops).where(
    usage.c.account == bindparam("account_"), usage.c.month == bindparam("month_")
)
_SESSION = select(jobs.c.id).where(jobs.c.session_id == bindparam("session_id_"))


def standing(connection: Connection, account: str, month: str) -> Standing:
    """Return what the account has in progress, and what it consumed in a month."""
    in_progress = connection.execute(_IN_PROGRESS, {"account_": account}).scalar_one()
    loops = connection.execute(_LOOPS, {"account_": account, "month_": month}).scalar()
    return Standing(jobs_in_progress=in_progress, loops=loops or 0)


def session_job(connection: Connection, session_id: str) -> str | None:
    """Return the id of the job that has used the session, or None."""
    id: str | None = connection.execute(_SESSION, {"session_id_": session_id}).scalar()
    return id


def remove_sessions(connection: Connection, job_ids: Sequence[str]) -> None:
    """Remove the sessions of jobs that are about to be removed, but for those not begun."""
    used = select(jobs.c.session_id).where(
        jobs.c.id.in_(job_ids), jobs.c.session_id.is_not(None), jobs.c.last_seq > 0
    )
    connection.execute(delete(sessions).where(sessions.c.id.in_(used)))


def add_usage(connection: Connection, database: Database, job_id: str, moment: float) -> None:
    """Add the loops of a job, completed at ``moment``, to what its account consumed.

    Those of other kinds than :data:`LIMITED_KINDS` are free.
    """
    month = month_of(moment)
    consumed = select(jobs.c.account, literal(month), jobs.c.loops).where(
        jobs.c.id == job_id, jobs.c.loops > 0, jobs.c.kind.in_(sorted(LIMITED_KINDS))
    )
    adding = database.insert(usage).from_select(["account", "month", "loops"], consumed)
    connection.execute(
        adding.on_conflict_do_update(
            index_elements=[usage.c.account, usage.c.month],
            set_={"loops": usage.c.loops + adding.excluded.loops},
        )
    )
