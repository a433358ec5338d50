"""Leases in a database, as functions of a connection within a transaction."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, or_, select

from caesar_server.store.leases import Unclaimable
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.schema import jobs, leases

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


def is_free(database: Database) -> ColumnElement[bool]:
    """Return whether nobody runs a job that has not ended."""
    return or_(jobs.c.owner.is_(None), is_lost(database))


def is_lost(database: Database) -> ColumnElement[bool]:
    """Return whether a job's owner has no lease; neither true nor false if it has no owner."""
    return jobs.c.owner.not_in(select(leases.c.owner).where(is_valid(database)))


def renew(
    connection: Connection,
    database: Database,
    owner: str,
    lease_s: float,
    backends: Collection[str] | None,
) -> None:
    """Begin or prolong a lease, and forget those that have run out."""
    now = database.now()
    connection.execute(delete(leases).where(~is_valid(database), leases.c.owner != owner))
    adding = database.insert(leases).values(
        owner=owner,
        boot_id=database.boot_id,
        begins_at=now,
        ends_at=now + lease_s,
        backends=None if backends is None else json.dumps(sorted(backends)),
    )
    new = {
        column.name: adding.excluded[column.name] for column in leases.c if not column.primary_key
    }
    connection.execute(adding.on_conflict_do_update(index_elements=[leases.c.owner], set_=new))


def retire(connection: Connection, owner: str) -> None:
    """End a lease."""
    connection.execute(delete(leases).where(leases.c.owner == owner))


def unclaimable(connection: Connection, database: Database, limit: int) -> list[Unclaimable]:
    """Return jobs that nobody runs and whose backend no living process has, the oldest first."""
    had = _had(connection, database)
    if had is None:
        return []
    waiting: Select[Any] = (
        select(jobs.c.id, jobs.c.backend, jobs.c.attempt)
        .where(
            jobs.c.finished_at.is_(None),
            jobs.c.detached.is_(True),
            # not looked up by backend: all that waits or runs is less than all of one backend
            jobs.c.backend.concat("").not_in(had),
            is_free(database),
        )
        .order_by(jobs.c.created_at, jobs.c.id)
        .limit(limit)
    )
    return [Unclaimable(*row) for row in connection.execute(waiting)]


def _had(connection: Connection, database: Database) -> set[str] | None:
    """Return the backends that living processes have, or None if one of them does not tell."""
    told = connection.execute(select(leases.c.backends).where(is_valid(database))).scalars().all()
    if None in told:
        return None
    return {name for names in told for name in json.loads(names)}
