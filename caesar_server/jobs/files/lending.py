"""The files of one run: found and made when the backend first looks at them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from caesar_server.contract.context import StoredFile
from caesar_server.contract.errors import BackendError, InvalidRequestError
from caesar_server.contract.request import Request
from caesar_server.jobs.files.gone import file_gone, lost, members_of
from caesar_server.jobs.files.named import collection_ids_of, file_ids_of
from caesar_server.jobs.files.names import path_name
from caesar_server.store.base import StoreError
from caesar_server.store.blobs.base import BlobStore, UnknownBlobError
from caesar_server.store.owned.base import OwnedFile, OwnedStore

logger = logging.getLogger(__name__)

V = TypeVar("V")


class Lent:
    """What a run may read; leave the ``with`` block when the run is over.

    A run that never looks pays nothing.  One that does finds a file under its path until it ends,
    even if the file is deleted meanwhile, and a collection as it was at the first look.  Safe from
    any thread.

    Looking raises :class:`InvalidRequestError` with the code ``file_not_found`` or
    ``collection_not_found`` if something is gone that the request names, and
    :class:`BackendError` if it cannot be read now or the bytes of a file are missing.

    :ivar files: the request's files by id, and those of :meth:`add`.
    :ivar collections: the files of the request's collections, the newest first, by collection id.
    """

    def __init__(
        self, account: str, request: Request, owned: Callable[[], OwnedStore], blobs: BlobStore
    ) -> None:
        self._account = account
        self._owned = owned
        self._blobs = blobs
        self._lock = threading.RLock()
        self._closing = ExitStack()
        self._closed = False
        self._paths: dict[str, StoredFile] = {}
        self._members: dict[str, Sequence[StoredFile]] = {}
        self._file_ids = dict.fromkeys(file_ids_of(request))
        self.files: Mapping[str, StoredFile] = _Lazy(lambda: tuple(self._file_ids), self._file)
        self.collections: Mapping[str, Sequence[StoredFile]] = _Lazy(
            lambda: collection_ids_of(request), self._collection
        )

    def add(self, file_ids: Iterable[str]) -> None:
        """Let :attr:`files` have these, too: those of an update."""
        with self._lock:
            self._file_ids.update(dict.fromkeys(file_ids))

    def close(self) -> None:
        """Remove the run's copies; may be called more than once."""
        with self._lock:
            self._closed = True
            self._closing.close()

    def __enter__(self) -> Lent:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @cached_property
    def _folder(self) -> Path:
        return self._closing.enter_context(self._blobs.lending())

    def _file(self, file_id: str) -> StoredFile:
        with self._lock:
            if file_id in self._paths:
                return self._paths[file_id]
            with _failing():
                found = self._owned().files(self._account, ids=[file_id])
                if not found:
                    raise file_gone(file_id)
                return self._lend(found[0])

    def _collection(self, collection_id: str) -> Sequence[StoredFile]:
        with self._lock, _failing():
            if collection_id not in self._members:
                members = members_of(self._owned(), self._account, collection_id)
                self._members[collection_id] = tuple(self._present(members))
            return self._members[collection_id]

    def _present(self, members: Iterable[OwnedFile]) -> Iterator[StoredFile]:
        """Yield the members of a collection, without those that are deleted just now."""
        for file in members:
            try:
                yield self._lend(file)
            except InvalidRequestError as error:
                logger.info("left out of a collection: %s", error)

    def _lend(self, file: OwnedFile) -> StoredFile:
        if file.id not in self._paths:
            if self._closed:
                raise BackendError("the run is over: its files are gone")
            # a folder for each, since two may have one name
            folder = self._folder / str(len(self._paths))
            path = folder / path_name(file.name)
            try:
                folder.mkdir(mode=0o700, exist_ok=True)
                self._blobs.lend(file.key, path)
            except UnknownBlobError:
                raise lost(self._owned(), file) from None
            self._paths[file.id] = StoredFile(
                id=file.id,
                name=file.name,
                content_type=file.content_type,
                size=file.size,
                path=path,
            )
        return self._paths[file.id]


class _Lazy(Mapping[str, V]):
    """A mapping whose values are made when they are looked at.

    :param ids: gives the keys.
    :param make: makes a value; it remembers what is dear.
    """

    def __init__(self, ids: Callable[[], Sequence[str]], make: Callable[[str], V]) -> None:
        self._ids = ids
        self._make = make

    def __getitem__(self, key: str) -> V:
        if key not in self._ids():
            raise KeyError(key)
        return self._make(key)

    def __contains__(self, key: object) -> bool:
        return key in self._ids()

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids())

    def __len__(self) -> int:
        return len(self._ids())

    def __repr__(self) -> str:
        return f"<files by id: {', '.join(self._ids())}>"


@contextmanager
def _failing() -> Iterator[None]:
    """Turn what the stores raise in the block into what a run may raise."""
    try:
        yield
    except (StoreError, OSError) as error:
        # its sentence names paths, which are the operator's: it stays in the log
        logger.error("the files of a run cannot be read: %s", error)
        raise BackendError(
            "the files of the request cannot be read now", code="files_unavailable"
        ) from error
