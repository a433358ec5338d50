"""The steps that write files, collections and sessions, within a transaction.

As with those of jobs, a step that cannot be done raises before it has written, and ``again`` says
that an earlier try may have been committed.  Whatever counts or shares what an account has runs
with the account locked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from sqlalchemy import Connection, Table, delete, exists, select, update

from caesar_server.store.owned.base import (
    FileQuota,
    OwnedCollection,
    OwnedFile,
    TooManyCollectionsError,
    UnknownOwnedError,
)
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.owned import queries
from caesar_server.store.sql.owned.rows import collection_values, file_values
from caesar_server.store.sql.schema import collections, files, sessions


def add_file(
    connection: Connection, file: OwnedFile, quota: FileQuota, *, again: bool
) -> OwnedFile:
    """Add a file, and return it as it was added.

    :raises FileQuotaExceededError: if the account has no room.
    :raises UnknownOwnedError: if its collection is not the account's.
    :raises ValueError: if its id exists.
    """
    if _exists(connection, files, file.id):
        if again:
            return queries.file(connection, file.account, file.id)
        raise ValueError(f"file {file.id} exists")
    if file.collection_id is not None:
        queries.collection(connection, file.account, file.collection_id)
    quota.check(*queries.counted_files(connection, file.account, None), file.size)
    equal = select(files.c.key).where(
        files.c.account == file.account,
        files.c.sha256 == file.sha256,
        files.c.size == file.size,
    )
    key = connection.execute(equal.limit(1)).scalar()
    added = file if key is None else replace(file, key=key)
    connection.execute(files.insert(), file_values(added))
    return added


def remove_file(connection: Connection, file_id: str) -> None:
    """Remove a file; no error if it does not exist."""
    connection.execute(delete(files).where(files.c.id == file_id))


def delete_file(connection: Connection, file: OwnedFile) -> str | None:
    """Remove a file; return its key if nothing refers to it any more."""
    remove_file(connection, file.id)
    used = connection.execute(select(exists().where(files.c.key == file.key))).scalar()
    return None if used else file.key


def replace_key(connection: Connection, account: str, old: str, new: str) -> bool:
    """Let the account's files of one key have another; return whether any has that one then."""
    of_old = (files.c.account == account, files.c.key == old)
    connection.execute(update(files).where(*of_old).values(key=new))
    return bool(connection.execute(select(exists().where(files.c.key == new))).scalar())


def add(
    connection: Connection, database: Database, table: Table, row: dict[str, Any], *, again: bool
) -> None:
    """Add a collection or a session.

    :raises ValueError: if its id exists.
    """
    adding = database.insert(table).on_conflict_do_nothing()
    added = connection.execute(adding.execution_options(preserve_rowcount=True), row)
    if added.rowcount != 1 and not again:
        raise ValueError(f"{row['id']} exists")


def add_collection(
    connection: Connection,
    database: Database,
    collection: OwnedCollection,
    most: int | None,
    *,
    again: bool,
) -> None:
    """Add a collection.

    :raises TooManyCollectionsError: if the account has as many as it may.
    :raises ValueError: if its id exists.
    """
    if (
        most is not None
        # one that an earlier try has added is not counted against itself
        and not _exists(connection, collections, collection.id)
        and queries.counted_collections(connection, collection.account) >= most
    ):
        raise TooManyCollectionsError
    add(connection, database, collections, collection_values(collection), again=again)


def change_collection(
    connection: Connection,
    account: str,
    collection_id: str,
    updated_at: float,
    changes: Mapping[Literal["name", "description"], str | None],
) -> OwnedCollection:
    """Change what ``changes`` names, and return the collection.

    :raises UnknownOwnedError: if it is not the account's.
    """
    before = queries.collection(connection, account, collection_id)
    changed = before.changed(updated_at, changes)
    row = collection_values(changed)
    connection.execute(update(collections).where(collections.c.id == collection_id).values(row))
    return changed


def delete_collection(connection: Connection, account: str, collection_id: str) -> None:
    """Remove a collection; its files stay, in none.

    :raises UnknownOwnedError: if it is not the account's.
    """
    queries.collection(connection, account, collection_id)
    connection.execute(delete(collections).where(collections.c.id == collection_id))
    connection.execute(
        update(files).where(files.c.collection_id == collection_id).values(collection_id=None)
    )


def delete_session(connection: Connection, account: str, session_id: str) -> None:
    """Remove a session of the account, if there is one."""
    connection.execute(
        delete(sessions).where(sessions.c.id == session_id, sessions.c.account == account)
    )


def prune_sessions(connection: Connection, created_before: float, limit: int) -> int:
    """Remove the sessions that were made before a moment; return how many went."""
    old = select(sessions.c.id).where(sessions.c.created_at < created_before).limit(limit)
    return connection.execute(delete(sessions).where(sessions.c.id.in_(old))).rowcount


def _exists(connection: Connection, table: Table, id: str) -> bool:
    return bool(connection.execute(select(exists().where(table.c.id == id))).scalar())


class Removal:
    """A removal that remembers what it removed, in case that its commit is not heard of."""

    def __init__(self, account: str, id: str) -> None:
        self._account = account
        self._id = id
        self._file: OwnedFile | None = None
        self._collection_is_gone = False

    def of_file(self, connection: Connection, again: bool) -> str | None:
        """Remove a file; return its key if nothing refers to it any more.

        :raises UnknownOwnedError: if it is not the account's.
        """
        try:
            self._file = queries.file(connection, self._account, self._id)
        except UnknownOwnedError:
            if not again or self._file is None:
                raise
        return delete_file(connection, self._file)

    def of_collection(self, connection: Connection, again: bool) -> None:
        """Remove a collection.

        :raises UnknownOwnedError: if it is not the account's.
        """
        try:
            delete_collection(connection, self._account, self._id)
        except UnknownOwnedError:
            if not (again and self._collection_is_gone):
                raise
        self._collection_is_gone = True
