"""Files, collections and sessions in the memory of one process."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal, Protocol, TypeVar

from caesar_server.store.owned.base import (
    FileQuota,
    OwnedCollection,
    OwnedFile,
    OwnedSession,
    OwnedStore,
    TooManyCollectionsError,
    UnknownOwnedError,
)


class _Owned(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def created_at(self) -> float: ...


T = TypeVar("T", bound=_Owned)


class MemoryOwned(OwnedStore):
    """Keeps everything until it is deleted; gone with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, OwnedFile] = {}
        self._collections: dict[str, OwnedCollection] = {}
        self._sessions: dict[str, OwnedSession] = {}

    def add_file(self, file: OwnedFile, quota: FileQuota) -> OwnedFile:
        """Add a file, and return it as it was added."""
        with self._lock:
            if file.id in self._files:
                raise ValueError(f"file {file.id} exists")
            if file.collection_id is not None:
                _of(self._collections, file.account, file.collection_id)
            own = [one for one in self._files.values() if one.account == file.account]
            held = sum(one.size for one in own)
            quota.check(len(own), held, file.size)
            equal = (one for one in own if (one.sha256, one.size) == (file.sha256, file.size))
            key = next((one.key for one in equal), file.key)
            added = self._files[file.id] = replace(file, key=key)
            return added

    def file(self, account: str, file_id: str) -> OwnedFile:
        """Return a file."""
        with self._lock:
            return _of(self._files, account, file_id)

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
        with self._lock:
            return _page(self._chosen(account, collection_id), ids, offset, limit)

    def count_files(self, account: str, *, collection_id: str | None = None) -> tuple[int, int]:
        """Return how many files those are, and how many bytes together."""
        with self._lock:
            sizes = [file.size for file in self._chosen(account, collection_id)]
            return len(sizes), sum(sizes)

    def delete_file(self, account: str, file_id: str) -> str | None:
        """Remove a file; return the key of its bytes if nothing refers to it any more."""
        with self._lock:
            key = _of(self._files, account, file_id).key
            del self._files[file_id]
            return None if any(file.key == key for file in self._files.values()) else key

    def replace_key(self, account: str, old: str, new: str) -> bool:
        """Let the account's files that refer to ``old`` refer to ``new``."""
        with self._lock:
            for file in [*self._files.values()]:
                if (file.account, file.key) == (account, old):
                    self._files[file.id] = replace(file, key=new)
            return any(file.key == new for file in self._files.values())

    def used_keys(self, keys: Collection[str]) -> Collection[str]:
        """Return those of these keys that files refer to."""
        with self._lock:
            return {file.key for file in self._files.values()} & set(keys)

    def add_collection(self, collection: OwnedCollection, most: int | None = None) -> None:
        """Add a collection."""
        with self._lock:
            if most is not None and self._collections_of(collection.account) >= most:
                raise TooManyCollectionsError
            _add(self._collections, collection)

    def collection(self, account: str, collection_id: str) -> OwnedCollection:
        """Return a collection."""
        with self._lock:
            return _of(self._collections, account, collection_id)

    def collections(
        self,
        account: str,
        *,
        ids: Collection[str] | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> Sequence[OwnedCollection]:
        """Return collections of an account, the newest first."""
        with self._lock:
            own = [one for one in self._collections.values() if one.account == account]
            return _page(own, ids, offset, limit)

    def count_collections(self, account: str) -> int:
        """Return how many collections the account has."""
        with self._lock:
            return self._collections_of(account)

    def change_collection(
        self,
        account: str,
        collection_id: str,
        *,
        updated_at: float,
        changes: Mapping[Literal["name", "description"], str | None],
    ) -> OwnedCollection:
        """Change what ``changes`` names, and return the collection as it is then."""
        with self._lock:
            collection = _of(self._collections, account, collection_id)
            changed = self._collections[collection_id] = collection.changed(updated_at, changes)
            return changed

    def delete_collection(self, account: str, collection_id: str) -> None:
        """Remove a collection; its files stay, in none."""
        with self._lock:
            _of(self._collections, account, collection_id)
            del self._collections[collection_id]
            for file in self._chosen(account, collection_id):
                self._files[file.id] = replace(file, collection_id=None)

    def add_session(self, session: OwnedSession) -> None:
        """Add a brainstorm session."""
        with self._lock:
            _add(self._sessions, session)

    def session(self, account: str, session_id: str) -> OwnedSession:
        """Return a session."""
        with self._lock:
            return _of(self._sessions, account, session_id)

    def delete_session(self, account: str, session_id: str) -> None:
        """Remove a session of the account; no error if there is none."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None and session.account == account:
                del self._sessions[session_id]

    def prune_sessions(self, created_before: float, *, limit: int = 1000) -> int:
        """Remove the sessions that were made before this Unix time."""
        with self._lock:
            old = (one.id for one in self._sessions.values() if one.created_at < created_before)
            gone = list(islice(old, limit))
            for id in gone:
                del self._sessions[id]
            return len(gone)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for held in (self._files, self._collections, self._sessions):
                held.clear()

    def _collections_of(self, account: str) -> int:
        return sum(one.account == account for one in self._collections.values())

    def _chosen(self, account: str, collection_id: str | None) -> list[OwnedFile]:
        return [
            file
            for file in self._files.values()
            if file.account == account
            and (collection_id is None or file.collection_id == collection_id)
        ]


def _of(held: Mapping[str, T], account: str, id: str) -> T:
    """Return what has this id, if it is the account's."""
    found = held.get(id)
    if found is None or found.account != account:
        raise UnknownOwnedError(id)
    return found


def _add(held: dict[str, T], new: T) -> None:
    if new.id in held:
        raise ValueError(f"{new.id} exists")
    held[new.id] = new


def _page(
    own: Iterable[T], ids: Collection[str] | None, offset: int, limit: int | None
) -> tuple[T, ...]:
    wanted = None if ids is None else set(ids)
    chosen = [one for one in own if wanted is None or one.id in wanted]
    chosen.sort(key=lambda one: (one.created_at, one.id), reverse=True)
    return tuple(chosen[offset : None if limit is None else offset + limit])
