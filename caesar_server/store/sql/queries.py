"""What reads, as functions of a connection."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    and_,
    bindparam,
    exists,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    union_all,
)

from caesar_server.contract.events import Status
from caesar_server.contract.request import RequestKind
from caesar_server.store.base import LINGER_S, Job, Record, UnknownJobError
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.leasing import leases
from caesar_server.store.sql.rows import is_bulk, job_of, records_of, update_of
from caesar_server.store.sql.schema import (
    BULK_ONLY,
    checkpoints,
    jobs,
    records,
    requests,
    updates,
)
from caesar_server.store.updates import NumberedUpdate

#: Ids in one statement; databases bound the number of its parameters.
_IDS_AT_ONCE = 500
#: Rows of records that are fetched at once: few, since each may hold a whole source.
ROWS_AT_ONCE = 64

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
_BULK = records.alias("bulk")
#: Both by an index that has no row of the other kind: no body is read in vain.
_RECORDS_BY_BULK = {
    None: _RECORDS,
    True: _RECORDS.where(records.c.bulk.is_not(None)),
    False: _RECORDS.where(
        records.c.last_seq.not_in(
            select(_BULK.c.last_seq).where(
                _BULK.c.job_id == bindparam("id_"), _BULK.c.bulk == literal_column(f"'{BULK_ONLY}'")
            )
        )
    ),
}
_UPDATES = (
    select(updates)
    .where(updates.c.job_id == bindparam("id_"), updates.c.number > bindparam("after_"))
    .order_by(updates.c.number)
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
    :raises UnreadableRecordError: if it cannot be read.
    """
    return whole(job_row(connection, job_id))


def job_row(connection: Connection, job_id: str) -> RowMapping:
    """Return what :func:`whole` makes a job of.

    :raises UnknownJobError: if it does not exist.
    """
    row = connection.execute(_ONE, {"id_": job_id}).mappings().one_or_none()
    if row is None:
        raise UnknownJobError(job_id)
    return row


def rows_after(
    connection: Connection, job_id: str, after_seq: int, limit: int, bulk: bool | None
) -> Sequence[Any]:
    """Return the job's rows of records above ``after_seq``; if fewer than ``limit``, all.

    :param bulk: only rows that may hold records that are bulk, or that are not.
    :raises UnknownJobError: if it does not exist.
    """
    values = {"id_": job_id, "after_": after_seq, "rows_": limit}
    rows = connection.execute(_RECORDS_BY_BULK[bulk], values).all()
    # looked for afterwards: its rows were all there if it is
    if len(rows) < max(1, limit) and not connection.execute(_EXISTS, {"id_": job_id}).scalar():
        raise UnknownJobError(job_id)
    return rows


def records_in(job_id: str, rows: Sequence[Any], after_seq: int, bulk: bool | None) -> list[Record]:
    """Return the records of these rows of a job above ``after_seq``.

    :param bulk: only those that are bulk, or only those that are not.
    :raises UnreadableRecordError: if one of them cannot be read.
    """
    found: list[Record] = []
    for first_seq, _, body in rows:
        some = records_of(job_id, first_seq, body, after_seq)
        # a row of before revision 0002 may hold both
        found += some if bulk is None else (one for one in some if is_bulk(one) == bulk)
    return found


def listed(
    connection: Connection,
    *,
    account: str | None,
    statuses: Collection[Status] | None,
    backend: str | None,
    kinds: Collection[RequestKind] | None,
    parent_id: str | None,
    before: tuple[float, str] | None,
    offset: int,
    limit: int,
) -> Sequence[RowMapping]:
    """Return the rows of a page of jobs, the newest first."""
    chosen = select(jobs.c.id, jobs.c.created_at)
    if parent_id is not None:
        # its follow-ups are few: what else is asked is not looked up
        chosen = chosen.where(jobs.c.parent_id == parent_id)
    if account is not None:
        own = jobs.c.account if parent_id is None else jobs.c.account.concat("")
        chosen = chosen.where(own == account)
    if backend is not None:
        chosen = chosen.where(jobs.c.backend == backend)
    if before is not None:
        moment, id = before
        # said twice: the first part alone is what every database looks up in an index
        chosen = chosen.where(
            jobs.c.created_at <= moment,
            tuple_(jobs.c.created_at, jobs.c.id) < tuple_(literal(moment), literal(id)),
        )
    each = _ranges(chosen, statuses, kinds, by_kind=account is not None and parent_id is None)
    if not each:
        return []
    ids = list(connection.execute(_page(each, offset, limit)).scalars())
    # by themselves: joined to it, SQLite would read every job of the union
    page = _WHOLE.where(jobs.c.id.in_(ids)).order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
    return connection.execute(page).mappings().all()


def _ranges(
    chosen: Select[Any],
    statuses: Collection[Status] | None,
    kinds: Collection[RequestKind] | None,
    *,
    by_kind: bool,
) -> list[Select[Any]]:
    """Return queries that together find what has one of these statuses and one of these kinds.

    Each value by itself is a range of an index; several at once would be sorted whole.

    :param by_kind: there is an index for the kinds.
    """
    if kinds is not None and by_kind and statuses is None:
        return [chosen.where(jobs.c.kind == kind) for kind in sorted(set(kinds))]
    if kinds is not None:
        chosen = chosen.where(jobs.c.kind.concat("").in_(kinds))
    if statuses is None:
        return [chosen]
    return [chosen.where(jobs.c.status == status) for status in sorted(set(statuses))]


def _page(each: Sequence[Select[Any]], offset: int, limit: int) -> Select[Any]:
    """Return the query for a page of what several queries find, the newest first."""
    newest = jobs.c.created_at.desc(), jobs.c.id.desc()
    if len(each) == 1:
        return each[0].order_by(*newest).limit(limit).offset(offset)
    first = [select(one.order_by(*newest).limit(offset + limit).subquery()) for one in each]
    union = union_all(*first).subquery()
    return (
        select(union.c.id, union.c.created_at)
        .order_by(union.c.created_at.desc(), union.c.id.desc())
        .limit(limit)
        .offset(offset)
    )


def counted(connection: Connection, account: str, kinds: Collection[RequestKind]) -> int:
    """Return how many jobs of these kinds the account has."""
    chosen = select(func.count()).where(jobs.c.account == account, jobs.c.kind.in_(kinds))
    return int(connection.execute(chosen).scalar_one())


def updates_after(connection: Connection, job_id: str, after: int) -> list[NumberedUpdate]:
    """Return the job's updates with a number above ``after``."""
    rows = connection.execute(_UPDATES, {"id_": job_id, "after_": after}).mappings()
    return list(map(update_of, rows))


def found(connection: Connection, account: str, fingerprint: str) -> RowMapping | None:
    """Return the row of the newest job of a fingerprint."""
    values = {"account_": account, "fingerprint_": fingerprint}
    return connection.execute(_FOUND, values).mappings().one_or_none()


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


def free(database: Database, backends: Collection[str], below: int | None) -> Select[Any]:
    """Return the query for the ids of jobs that may be claimed, the oldest first.

    :param below: attempts that count, of which they have fewer; None: any number.
    """
    few = true() if below is None else jobs.c.attempt - jobs.c.released < below
    return (
        select(jobs.c.id)
        .where(
            jobs.c.finished_at.is_(None),
            jobs.c.detached.is_(True),
            # not looked up by backend: all that waits or runs is less than all of one backend
            jobs.c.backend.concat("").in_(backends),
            leases.is_free(database),
            few,
        )
        .order_by(jobs.c.created_at, jobs.c.id)
    )


def lost(connection: Connection, database: Database, limit: int) -> Sequence[RowMapping]:
    """Return the rows of running jobs whose owner has no lease."""
    lost = _WHOLE.where(
        jobs.c.finished_at.is_(None),
        jobs.c.owner.is_not(None),
        leases.is_lost(database),
    )
    return connection.execute(lost.limit(limit)).mappings().all()


def prunable(
    connection: Connection, finished_before: float | None, keep: int | None, limit: int
) -> list[str]:
    """Return the ids of finished jobs to remove, the oldest first.

    What is followed up by a job that stays, stays.
    """
    first_gone = None
    if keep is not None:
        newest = jobs.c.finished_at.desc(), jobs.c.id.desc()
        ended = select(jobs.c.finished_at, jobs.c.id).where(jobs.c.finished_at.is_not(None))
        first_gone = connection.execute(ended.order_by(*newest).offset(keep).limit(1)).one_or_none()
    lingers_from = time.time() - LINGER_S

    def goes(table: Any) -> ColumnElement[bool]:
        bounds: list[ColumnElement[bool]] = []
        if finished_before is not None:
            bounds.append(table.c.finished_at < finished_before)
        if first_gone is not None:
            moment = tuple_(literal(first_gone.finished_at), literal(first_gone.id))
            lingers = table.c.detached.is_(True) & (table.c.finished_at > lingers_from)
            bounds.append((tuple_(table.c.finished_at, table.c.id) <= moment) & ~lingers)
        return and_(table.c.finished_at.is_not(None), or_(false(), *bounds))

    if finished_before is None and first_gone is None:
        return []
    follow_up = jobs.alias()
    stays = exists().where(follow_up.c.parent_id == jobs.c.id, ~goes(follow_up))
    oldest = select(jobs.c.id).where(goes(jobs), ~stays)
    oldest = oldest.order_by(jobs.c.finished_at, jobs.c.id).limit(limit)
    return list(connection.execute(oldest).scalars())


def whole(row: Mapping[Any, Any]) -> Job:
    """Return the job of a row.

    :raises UnreadableRecordError: if it cannot be made of it.
    """
    return job_of(row, row["request_body"], row["state_body"])
