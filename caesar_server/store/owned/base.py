"""What a store keeps of files, collections and brainstorm sessions; bytes are elsewhere.

The bytes of a file are in a :class:`caesar_server.store.blobs.base.BlobStore`, under a key.  A key
is made anew for each upload and never used again, so that whoever learns from a step here that
nothing refers to a key any more may remove its bytes at leisure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedFile:
    """An uploaded file.

    :param id: a UUID.
    :param account: whose it is; empty where no keys are configured.
    :param created_at: Unix seconds.
    :param name: for display.
    :param content_type: MIME type, from the bytes.
    :param size: bytes.
    :param sha256: of the bytes, in lower-case hexadecimal.
    :param key: of its bytes among the blobs; files of equal bytes of one account share one.
    :param collection_id: the collection that it is in, or None.
    """

    id: str
    account: str
    created_at: float
    name: str
    content_type: str
    size: int
    sha256: str
    key: str
    collection_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedCollection:
    """A set of files.

    :param id: a UUID.
    :param created_at: Unix seconds; so is ``updated_at``.
    """

    id: str
    account: str
    created_at: float
    updated_at: float
    name: str
    description: str | None = None

    def changed(
        self, updated_at: float, changes: Mapping[Literal["name", "description"], str | None]
    ) -> OwnedCollection:
        """Return it with what ``changes`` names; it has a name in any case."""
        name = changes.get("name")
        return replace(
            self,
            updated_at=updated_at,
            name=self.name if name is None else name,
            description=changes.get("description", self.description),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedSession:
    """Clarifying questions that may be answered once.

    :param id: a UUID.
    :param created_at: Unix seconds.
    :param questions: ``{"id", "question", "options": [str, ...]}`` each.
    """

    id: str
    account: str
    created_at: float
    query: str
    questions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuota:
    """What the files of an account may be; None is no limit.

    :param files: how many.
    :param bytes: how large together, each counted as often as it was uploaded.
    """

    files: int | None = None
    bytes: int | None = None

    def check(self, files: int, held_bytes: int, size: int) -> None:
        """Return if there is room for another file.

        :param files: how many there are.
        :param held_bytes: how large they are together.
        :param size: bytes of the new one.
        :raises FileQuotaExceededError: otherwise; too many is told before too large.
        """
        if self.files is not None and files >= self.files:
            raise FileQuotaExceededError("files")
        if self.bytes is not None and held_bytes + size > self.bytes:
            raise FileQuotaExceededError("bytes")


class FileQuotaExceededError(Exception):
    """The account has no room for another file.

    :param limit: what of it.
    """

    def __init__(self, limit: Literal["files", "bytes"]) -> None:
        super().__init__(f"the account has no room for another file: {limit}")
        self.limit = limit


class TooManyCollectionsError(Exception):
    """The account has as many collections as it may."""


class UnknownOwnedError(LookupError):
    """There is nothing of this id, or it is another account's."""


class SessionUsedError(ValueError):
    """Another job has used the brainstorm session up."""


class OwnedStore(ABC):
    """Primitives over what accounts own.  Each method is one atomic step, safe from any thread.

    What a method has returned from is stored, as with :class:`caesar_server.store.base.Store`;
    every method may raise its ``StoreError``.  Ids may be any text: one that can be none is
    unknown.
    """

    @abstractmethod
    def add_file(self, file: OwnedFile, quota: FileQuota) -> OwnedFile:
        """Add a file whose bytes are stored already, and return it as it was added.

        If the account has a file of equal bytes (``sha256`` and ``size``), the new one gets that
        one's ``key``: nothing refers to the given key then, and its bytes may be removed.  After a
        ``StoreError`` ask :meth:`used_keys` first, later: it may have been added for a moment, and
        another file of equal bytes with it.

        :raises FileQuotaExceededError: if the account has no room; nothing was added.
        :raises UnknownOwnedError: if its collection is not the account's; likewise.
        """

    @abstractmethod
    def file(self, account: str, file_id: str) -> OwnedFile:
        """Return a file.

        :raises UnknownOwnedError: if it is not the account's.
        """

    @abstractmethod
    def files(
        self,
        account: str,
        *,
        collection_id: str | None = None,
        ids: Collection[str] | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> Sequence[OwnedFile]:
        """Return files of an account, the newest first; of equal moments the larger id first.

        :param collection_id: only of this collection.
        :param ids: only these; those that are not the account's are left out.
        """

    @abstractmethod
    def count_files(self, account: str, *, collection_id: str | None = None) -> tuple[int, int]:
        """Return how many files those are, and how many bytes together."""

    @abstractmethod
    def delete_file(self, account: str, file_id: str) -> str | None:
        """Remove a file; return the key of its bytes if nothing refers to it any more, else None.

        :raises UnknownOwnedError: if it is not the account's.
        """

    @abstractmethod
    def replace_key(self, account: str, old: str, new: str) -> bool:
        """Let the account's files that refer to ``old``, whose bytes are lost, refer to ``new``.

        :returns: whether any file refers to ``new`` then; if not, its bytes may be removed.
        """

    @abstractmethod
    def used_keys(self, keys: Collection[str]) -> Collection[str]:
        """Return those of these keys that files refer to."""

    @abstractmethod
    def add_collection(self, collection: OwnedCollection, most: int | None = None) -> None:
        """Add a collection.

        :param most: so many the account may have; None is no limit.
        :raises TooManyCollectionsError: if it has as many; nothing was added.
        :raises ValueError: if its id exists.
        """

    @abstractmethod
    def collection(self, account: str, collection_id: str) -> OwnedCollection:
        """Return a collection.

        :raises UnknownOwnedError: if it is not the account's.
        """

    @abstractmethod
    def collections(
        self,
        account: str,
        *,
        ids: Collection[str] | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> Sequence[OwnedCollection]:
        """Return collections of an account, the newest first, as :meth:`files` does."""

    @abstractmethod
    def count_collections(self, account: str) -> int:
        """Return how many collections the account has."""

    @abstractmethod
    def change_collection(
        self,
        account: str,
        collection_id: str,
        *,
        updated_at: float,
        changes: Mapping[Literal["name", "description"], str | None],
    ) -> OwnedCollection:
        """Change what ``changes`` names, and return the collection as it is then.

        A name of None leaves it as it is; a description of None takes it away.

        :raises UnknownOwnedError: if it is not the account's.
        """

    @abstractmethod
    def delete_collection(self, account: str, collection_id: str) -> None:
        """Remove a collection; its files stay, in none.

        :raises UnknownOwnedError: if it is not the account's.
        """

    @abstractmethod
    def add_session(self, session: OwnedSession) -> None:
        """Add a brainstorm session.

        :raises ValueError: if its id exists.
        """

    @abstractmethod
    def session(self, account: str, session_id: str) -> OwnedSession:
        """Return a session.

        :raises UnknownOwnedError: if it is not the account's.
        """

    @abstractmethod
    def delete_session(self, account: str, session_id: str) -> None:
        """Remove a session of the account; no error if there is none."""

    @abstractmethod
    def prune_sessions(self, created_before: float, *, limit: int = 1000) -> int:
        """Remove the sessions that were made before this Unix time; return how many went."""
