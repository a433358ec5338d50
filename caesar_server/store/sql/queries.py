"""What reads, as functions of a connection."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
    union_all,
)

from caesar_server.contract.events import Status
from caesar_server.store.base import LINGER_S, Job, Record, UnknownJobError
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.rows import job_of, records_of
from caesar_server.store.sql.schema import checkpoints, jobs, leases, records, requests

#: Ids in one statement; databases bound the number of its parameters.
_IDS_AT_ONCE = 500
#: Rows of records that are fetched at once: few, since each may hold a whole source.
_ROWS_AT_ONCE = 64

_WHOLE = (
    select(jobs, requests.c.body.label("request_body"), checkpoints.c.body.label("state_body"))
    .join(requests, requests.c.job_id == jobs.c.id)
    .outerjoin(checkpoints, checkpoints.c.job_id == jobs.c.id)
)
_ONE = _WHOLE.where(jobs.c.id == bindparam("id_"))
_EXISTS = select(exists().where(jobs.c.id == bindparam("id_")))
_RECORDS = (
    select(records.c.first_seq, records.c.last_seq, records.c.body)
    .where(records.c.job_id == bindparam("id_"), records.c.last_seq > bindparam("after_"))
    .order_by(records.c.last_seq)
    .limit(bindparam("rows_"))
)
_FOUND = (
    _WHOLE.where(
        jobs.c.account == bindparam("account_"), jobs.c.fingerprint == bindparam("fingerprint_")
    )
    .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
    .limit(1)
)
_CANCELLED = select(jobs.c.id).where(
    jobs.c.finished_at.is_(None),
    jobs.c.cancel_requested.is_(True),
    jobs.c.owner == bindparam("owner_"),
)
_WAITING = select(func.count()).select_from(
    select(jobs.c.id)
    .where(jobs.c.finished_at.is_(None), jobs.c.owner.is_(None), jobs.c.detached.is_(True))
    .limit(bindparam("limit_"))
    .subquery()
)


def job(connection: Connection, job_id: str) -> Job:
    """Return one job.

    :raises UnknownJobError: if it does not exist.
    """
    row = connection.execute(_ONE, {"id_": job_id}).mappings().one_or_none()
    if row is None:
        raise UnknownJobError(job_id)
    return _job(row)


def records_after(
    connection: Connection, job_id: str, after_seq: int, limit: int | None
) -> list[Record]:
    """Return the job's records above ``after_seq``, at most ``limit``.

    :raises UnknownJobError: if it does not exist.
    """
    if not connection.execute(_EXISTS, {"id_": job_id}).scalar():
        raise UnknownJobError(job_id)
    found: list[Record] = []
    for first_seq, body in _rows_after(connection, job_id, after_seq):
        if limit is not None and len(found) >= limit:
            break
        found += records_of(first_seq, body, after_seq)
    return found if limit is None else found[:limit]


def _rows_after(connection: Connection, job_id: str, after_seq: int) -> Iterator[tuple[int, bytes]]:
    values = {"id_": job_id, "after_": after_seq, "rows_": _ROWS_AT_ONCE}
    while True:
        rows = connection.execute(_RECORDS, values).all()
        for first_seq, _, body in rows:
            yield first_seq, body
        if len(rows) < _ROWS_AT_ONCE:
            return
        values["after_"] = rows[-1].last_seq


def listed(
    connection: Connection,
    *,
    account: str | None,
    statuses: Collection[Status] | None,
    backend: str | None,
    before: tuple[float, str] | None,
    limit: int,
) -> list[Job]:
    """Return a page of jobs, the newest first."""
    chosen = select(jobs.c.id, jobs.c.created_at)
    if account is not None:
        chosen = chosen.where(jobs.c.account == account)
    if backend is not None:
        chosen = chosen.where(jobs.c.backend == backend)
    if before is not None:
        moment, id = before
        # said twice: the first part alone is what every database looks up in an index
        chosen = chosen.where(
            jobs.c.created_at <= moment,
            tuple_(jobs.c.created_at, jobs.c.id) < tuple_(literal(moment), literal(id)),
        )
    newest = jobs.c.created_at.desc(), jobs.c.id.desc()
    if statuses is None:
        page = chosen.order_by(*newest).limit(limit)
    else:
        # each status by itself is a range of an index; several at once would be sorted whole
        each = [
            select(chosen.where(jobs.c.status == status).order_by(*newest).limit(limit).subquery())
            for status in sorted(set(statuses))
        ]
        if not each:
            return []
        union = union_all(*each).subquery()
        page = (
            select(union.c.id, union.c.created_at)
            .order_by(union.c.created_at.desc(), union.c.id.desc())
            .limit(limit)
        )
    ids = list(connection.execute(page).scalars())
    # by themselves: joined to it, SQLite would read every job of the union
    whole = _WHOLE.where(jobs.c.id.in_(ids)).order_by(*newest)
    return [_job(row) for row in connection.execute(whole).mappings()]


def found(connection: Connection, account: str, fingerprint: str) -> Job | None:
    """Return the newest job of a fingerprint."""
    values = {"account_": account, "fingerprint_": fingerprint}
    row = connection.execute(_FOUND, values).mappings().one_or_none()
    return None if row is None else _job(row)


def positions(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return ``last_seq`` of each job that exists."""
    found: dict[str, int] = {}
    for first in range(0, len(ids), _IDS_AT_ONCE):
        some = ids[first : first + _IDS_AT_ONCE]
        rows = connection.execute(select(jobs.c.id, jobs.c.last_seq).where(jobs.c.id.in_(some)))
        found.update((id, last_seq) for id, last_seq in rows)
    return found


def waiting(connection: Connection, limit: int) -> int:
    """Return how many detached jobs have no owner, up to ``limit``."""
    return int(connection.execute(_WAITING, {"limit_": limit}).scalar_one())


def cancelled(connection: Connection, owner: str) -> set[str]:
    """Return the owner's running jobs whose cancel was asked for."""
    return set(connection.execute(_CANCELLED, {"owner_": owner}).scalars())


#: No process takes so long from its look at the clock to that at a lease.
_LOOKED_BEFORE_S = 60.0


def is_valid(database: Database) -> ColumnElement[bool]:
    """Return whether a lease holds now.

    It may have been renewed after this process looked at its clock and before it looks at the
    lease, so one that begins a little later than now holds.  One that begins much later is from
    before the machine was started, where nothing else tells its starts apart.
    """
    now = database.now()
    return (
        (leases.c.boot_id == database.boot_id)
        & (leases.c.ends_at > now)
        & (leases.c.begins_at <= now + _LOOKED_BEFORE_S)
    )


def _holders(database: Database) -> Select[Any]:
    return select(leases.c.owner).where(is_valid(database))


def free(database: Database, backends: Collection[str]) -> Select[Any]:
    """Return the query for the ids of jobs that may be claimed, the oldest first."""
    return (
        select(jobs.c.id)
        .where(
            jobs.c.finished_at.is_(None),
            jobs.c.detached.is_(True),
            # not looked up by backend: all that waits or runs is less than all of one backend
            jobs.c.backend.concat("").in_(backends),
            or_(jobs.c.owner.is_(None), jobs.c.owner.not_in(_holders(database))),
        )
        .order_by(jobs.c.created_at, jobs.c.id)
    )


def lost(connection: Connection, database: Database, limit: int) -> list[Job]:
    """Return running jobs whose owner has no lease."""
    lost = _WHOLE.where(
        jobs.c.finished_at.is_(None),
        jobs.c.owner.is_not(None),
        jobs.c.owner.not_in(_holders(database)),
    )
    return [_job(row) for row in connection.execute(lost.limit(limit)).mappings()]


def prunable(
    connection: Connection, finished_before: float | None, keep: int | None, limit: int
) -> list[str]:
    """Return the ids of finished jobs to remove, the oldest first."""
    ended = jobs.c.finished_at.is_not(None)
    bounds: list[ColumnElement[bool]] = []
    if finished_before is not None:
        bounds.append(jobs.c.finished_at < finished_before)
    if keep is not None:
        newest = jobs.c.finished_at.desc(), jobs.c.id.desc()
        first = select(jobs.c.finished_at, jobs.c.id).where(ended).order_by(*newest)
        row = connection.execute(first.offset(keep).limit(1)).one_or_none()
        if row is not None:
            moment = tuple_(literal(row.finished_at), literal(row.id))
            lingers = jobs.c.detached.is_(True) & (jobs.c.finished_at > time.time() - LINGER_S)
            bounds.append((tuple_(jobs.c.finished_at, jobs.c.id) <= moment) & ~lingers)
    if not bounds:
        return []
    oldest = select(jobs.c.id).where(ended, or_(*bounds))
    oldest = oldest.order_by(jobs.c.finished_at, jobs.c.id).limit(limit)
    return list(connection.execute(oldest).scalars())


def _job(row: Mapping[Any, Any]) -> Job:
    return job_of(row, row["request_body"], row["state_body"])
