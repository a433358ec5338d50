"""The one that jobs and surfaces ask about files."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing

from caesar_server.contract.backend import Capabilities
from caesar_server.contract.request import Request
from caesar_server.errors import ValidationFailedError
from caesar_server.jobs.files.gone import file_gone, lost, members_of
from caesar_server.jobs.files.inlining import inlined
from caesar_server.jobs.files.lending import Lent
from caesar_server.jobs.files.named import collection_ids_of, file_ids_of
from caesar_server.jobs.files.sweeping import OLDER_THAN_S, Swept, sweep
from caesar_server.store.base import Store
from caesar_server.store.blobs.base import BlobStore, UnknownBlobError
from caesar_server.store.owned.base import OwnedFile


class Files:
    """Resolves ids of files and collections.  Safe from any thread.

    :param store: where the rows are.
    :param blobs: where the bytes are.
    """

    def __init__(self, store: Store, blobs: BlobStore) -> None:
        self._store = store
        self._blobs = blobs
        self._lock = threading.Lock()
        self._sweep_at = 0.0

    def check(
        self,
        account: str,
        file_ids: Sequence[str] = (),
        collection_ids: Sequence[str] = (),
        *,
        file_params: Sequence[str] | str = "files",
        collections_param: str = "collection_ids",
    ) -> None:
        """Refuse ids that are not the account's; costs nothing where there are none.

        :param file_params: path of the field that is to blame, for messages; or one for each id.
        :raises ValidationFailedError: naming the first of them.
        :raises StoreError: if the store cannot be read.
        """
        if file_ids:
            found = {file.id for file in self._store.owned.files(account, ids=set(file_ids))}
            for index, file_id in enumerate(file_ids):
                if file_id not in found:
                    param = file_params if isinstance(file_params, str) else file_params[index]
                    raise ValidationFailedError(
                        f"{param}: unknown file {file_id[:100]!r}; upload it with "
                        "POST /research/files and give the id that it returns",
                        param=param,
                    )
        if collection_ids:
            sets = self._store.owned.collections(account, ids=set(collection_ids))
            known = {one.id for one in sets}
            for collection_id in collection_ids:
                if collection_id not in known:
                    raise ValidationFailedError(
                        f"{collections_param}: unknown collection {collection_id[:100]!r}; make "
                        "one with POST /research/collections and give the id that it returns",
                        param=collections_param,
                    )

    def inlined(
        self, account: str, request: Request, capabilities: Capabilities, backend: str
    ) -> Request:
        """Return the request as a backend gets it that reads no files: with their text.

        :param backend: its name, for messages.
        :raises InvalidRequestError: if one of them is no text or they are too large, or, with the
            code ``file_not_found`` or ``collection_not_found``, if something is gone.
        :raises BackendError: if the bytes of one are missing.
        :raises StoreError: if they cannot be read now.
        """
        named = self._named(account, request)
        return inlined(request, capabilities, backend, named, self._read)

    def _read(self, file: OwnedFile) -> bytes:
        try:
            with closing(self._blobs.read(file.key)) as pieces:
                return b"".join(pieces)
        except UnknownBlobError:
            raise lost(self._store.owned, file) from None

    def _named(self, account: str, request: Request) -> Sequence[OwnedFile]:
        """Return the files that a request names: one by one, then those of its collections."""
        owned, ids = self._store.owned, file_ids_of(request)
        found = {file.id: file for file in owned.files(account, ids=ids)} if ids else {}
        for file_id in ids:
            if file_id not in found:
                raise file_gone(file_id)
        files = {file_id: found[file_id] for file_id in ids}
        for collection_id in collection_ids_of(request):
            members = members_of(owned, account, collection_id)
            files |= {file.id: file for file in reversed(members)}
        return tuple(files.values())

    def lent(self, account: str, request: Request) -> Lent:
        """Return what a run of ``request`` may read, for a ``with`` block around the run.

        Nothing is looked up before the backend looks.
        """
        return Lent(account, request, lambda: self._store.owned, self._blobs)

    def sweep(self, older_than_s: float = OLDER_THAN_S) -> Swept:
        """Remove what crashes left behind; see :func:`caesar_server.jobs.files.sweeping.sweep`."""
        return sweep(self._store.owned, self._blobs, older_than_s)

    def sweep_if_due(self) -> Swept:
        """Sweep, but only once an hour in this process: it looks at every file that is kept."""
        with self._lock:
            now = time.monotonic()
            if now < self._sweep_at:
                return Swept()
            self._sweep_at = now + OLDER_THAN_S
        return self.sweep()
