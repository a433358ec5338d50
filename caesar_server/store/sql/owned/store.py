"""Files, collections and sessions over a database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol, TypeVar

from sqlalchemy import Connection

from caesar_server.store.owned.base import (
    FileQuota,
    OwnedCollection,
    OwnedFile,
    OwnedSession,
    OwnedStore,
)
from caesar_server.store.sql.connecting.writer import Step
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.owned import queries, steps
from caesar_server.store.sql.owned.rows import session_values
from caesar_server.store.sql.rows import is_id
from caesar_server.store.sql.schema import sessions

T = TypeVar("T")


class Read(Protocol):
    """Returns what a function reads of a connection."""

    def __call__(self, read: Callable[[Connection], T], /) -> T: ...


class SqlOwned(OwnedStore):
    """What accounts own, in the database of a store, by that store's thread and connections.

    :param begin: hands a step in.
    :param read: reads.
    """

    def __init__(
        self, database: Database, begin: Callable[[Step], Future[Any]], read: Read
    ) -> None:
        self._database = database
        self._begin = begin
        self._read = read

    def add_file(self, file: OwnedFile, quota: FileQuota) -> OwnedFile:
        """Add a file, and return it as it was added."""
        step = Step(
            lambda connection, again: steps.add_file(connection, file, quota, again=again),
            # whoever is told that it was not added may remove its bytes
            lambda connection: steps.remove_file(connection, file.id),
            tells=False,
            account=file.account,
        )
        added: OwnedFile = self._begin(step).result()
        return added

    def file(self, account: str, file_id: str) -> OwnedFile:
        """Return a file."""
        return self._read(lambda connection: queries.file(connection, account, file_id))

    def files(
        self,
        account: str,
        *,
        collection_id: str | None = None,
        ids: Collection[str] | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> Sequence[OwnedFile]:
        """Return files of an account, the newest first."""
        return self._read(
            lambda connection: queries.listed_files(
                connection,
                account,
                collection_id=collection_id,
                ids=ids,
                offset=offset,
                limit=limit,
            )
        )

    def count_files(self, account: str, *, collection_id: str | None = None) -> tuple[int, int]:
        """Return how many files those are, and how many bytes together."""
        return self._read(
            lambda connection: queries.counted_files(connection, account, collection_id)
        )

    def delete_file(self, account: str, file_id: str) -> str | None:
        """Remove a file; return the key of its bytes if nothing refers to it any more."""
        key: str | None = self._write(account, steps.Removal(account, file_id).of_file)
        return key

    def replace_key(self, account: str, old: str, new: str) -> bool:
        """Let the account's files that refer to ``old`` refer to ``new``."""
        replaced: bool = self._write(
            account, lambda connection, _: steps.replace_key(connection, account, old, new)
        )
        return replaced

    def used_keys(self, keys: Collection[str]) -> Collection[str]:
        """Return those of these keys that files refer to."""
        return self._read(lambda connection: queries.used_keys(connection, keys))

    def add_collection(self, collection: OwnedCollection, most: int | None = None) -> None:
        """Add a collection."""
        self._write(
            collection.account,
            lambda connection, again: steps.add_collection(
                connection, self._database, collection, most, again=again
            ),
        )

    def collection(self, account: str, collection_id: str) -> OwnedCollection:
        """Return a collection."""
        return self._read(lambda connection: queries.collection(connection, account, collection_id))

    def collections(
        self,
        account: str,
        *,
        ids: Collection[str] | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> Sequence[OwnedCollection]:
        """Return collections of an account, the newest first."""
        return self._read(
            lambda connection: queries.listed_collections(
                connection, account, ids=ids, offset=offset, limit=limit
            )
        )

    def count_collections(self, account: str) -> int:
        """Return how many collections the account has."""
        return self._read(lambda connection: queries.counted_collections(connection, account))

    def change_collection(
        self,
        account: str,
        collection_id: str,
        *,
        updated_at: float,
        changes: Mapping[Literal["name", "description"], str | None],
    ) -> OwnedCollection:
        """Change what ``changes`` names, and return the collection as it is then."""
        changed: OwnedCollection = self._write(
            account,
            lambda connection, _: steps.change_collection(
                connection, account, collection_id, updated_at, changes
            ),
        )
        return changed

    def delete_collection(self, account: str, collection_id: str) -> None:
        """Remove a collection; its files stay, in none."""
        self._write(account, steps.Removal(account, collection_id).of_collection)

    def add_session(self, session: OwnedSession) -> None:
        """Add a brainstorm session."""
        row = session_values(session)
        self._write(
            None,
            lambda connection, again: steps.add(
                connection, self._database, sessions, row, again=again
            ),
        )

    def session(self, account: str, session_id: str) -> OwnedSession:
        """Return a session."""
        return self._read(lambda connection: queries.session(connection, account, session_id))

    def delete_session(self, account: str, session_id: str) -> None:
        """Remove a session of the account; no error if there is none."""
        if is_id(session_id):
            self._write(
                None,
                lambda connection, _: steps.delete_session(connection, account, session_id),
            )

    def prune_sessions(self, created_before: float, *, limit: int = 1000) -> int:
        """Remove the sessions that were made before this Unix time."""
        gone: int = self._write(
            None, lambda connection, _: steps.prune_sessions(connection, created_before, limit)
        )
        return gone

    def _write(self, account: str | None, run: Callable[[Connection, bool], Any]) -> Any:
        """Do a step, with the account locked if one is named; nobody watches for it."""
        return self._begin(Step(run, tells=False, account=account)).result()
