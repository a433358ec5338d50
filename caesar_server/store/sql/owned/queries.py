"""What reads files, collections and sessions, as functions of a connection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, Table, func, select

from caesar_server.store.owned.base import (
    OwnedCollection,
    OwnedFile,
    OwnedSession,
    UnknownOwnedError,
)
from caesar_server.store.sql.owned.rows import collection_of, file_of, session_of
from caesar_server.store.sql.rows import is_id
from caesar_server.store.sql.schema import collections, files, sessions

T = TypeVar("T", OwnedFile, OwnedCollection)

#: Ids or keys in one statement; databases bound the number of its parameters.
_AT_ONCE = 500


def file(connection: Connection, account: str, file_id: str) -> OwnedFile:
    """Return a file.

    :raises UnknownOwnedError: if it is not the account's.
    """
    return file_of(_row(connection, files, account, file_id))


def collection(connection: Connection, account: str, collection_id: str) -> OwnedCollection:
    """Return a collection.

    :raises UnknownOwnedError: if it is not the account's.
    """
    return collection_of(_row(connection, collections, account, collection_id))


def session(connection: Connection, account: str, session_id: str) -> OwnedSession:
    """Return a session.

    :raises UnknownOwnedError: if it is not the account's.
    """
    return session_of(_row(connection, sessions, account, session_id))


def _row(connection: Connection, table: Table, account: str, id: str) -> Mapping[Any, Any]:
    if is_id(id):
        chosen = select(table).where(table.c.id == id, table.c.account == account)
        row = connection.execute(chosen).mappings().one_or_none()
        if row is not None:
            return row
    raise UnknownOwnedError(id)


def listed_files(
    connection: Connection,
    account: str,
    *,
    collection_id: str | None,
    ids: Collection[str] | None,
    offset: int,
    limit: int | None,
) -> list[OwnedFile]:
    """Return files of an account, the newest first."""
    if collection_id is not None and not is_id(collection_id):
        return []
    chosen = select(files).where(files.c.account == account)
    if collection_id is not None:
        chosen = chosen.where(files.c.collection_id == collection_id)
    return _listed(connection, files, chosen, file_of, ids, offset, limit)


def listed_collections(
    connection: Connection,
    account: str,
    *,
    ids: Collection[str] | None,
    offset: int,
    limit: int | None,
) -> list[OwnedCollection]:
    """Return collections of an account, the newest first."""
    chosen = select(collections).where(collections.c.account == account)
    return _listed(connection, collections, chosen, collection_of, ids, offset, limit)


def _listed(
    connection: Connection,
    table: Table,
    chosen: Select[Any],
    made_of: Callable[[Mapping[Any, Any]], T],
    ids: Collection[str] | None,
    offset: int,
    limit: int | None,
) -> list[T]:
    """Return what ``chosen`` finds, the newest first."""
    if ids is None:
        newest = chosen.order_by(table.c.created_at.desc(), table.c.id.desc())
        page = newest.limit(limit).offset(offset)
        return [made_of(row) for row in connection.execute(page).mappings()]
    found: list[T] = []
    known = sorted({id for id in ids if is_id(id)})
    for first in range(0, len(known), _AT_ONCE):
        some = chosen.where(table.c.id.in_(known[first : first + _AT_ONCE]))
        found += [made_of(row) for row in connection.execute(some).mappings()]
    found.sort(key=lambda one: (one.created_at, one.id), reverse=True)
    return found[offset : None if limit is None else offset + limit]


def counted_files(
    connection: Connection, account: str, collection_id: str | None
) -> tuple[int, int]:
    """Return how many files those are, and how many bytes together."""
    if collection_id is not None and not is_id(collection_id):
        return 0, 0
    chosen = select(func.count(), func.sum(files.c.size)).where(files.c.account == account)
    if collection_id is not None:
        chosen = chosen.where(files.c.collection_id == collection_id)
    count, size = connection.execute(chosen).one()
    return int(count), int(size or 0)


def counted_collections(connection: Connection, account: str) -> int:
    """Return how many collections the account has."""
    chosen = select(func.count()).where(collections.c.account == account)
    return int(connection.execute(chosen).scalar_one())


def used_keys(connection: Connection, keys: Collection[str]) -> set[str]:
    """Return those of these keys that files refer to."""
    used: set[str] = set()
    known = sorted({key for key in keys if is_id(key)})
    for first in range(0, len(known), _AT_ONCE):
        some = select(files.c.key).where(files.c.key.in_(known[first : first + _AT_ONCE]))
        used.update(connection.execute(some.distinct()).scalars())
    return used
