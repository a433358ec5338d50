"""What is said of files and collections that are not there when they are looked at."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from caesar_server.contract.errors import BackendError, InvalidRequestError
from caesar_server.store.owned.base import OwnedFile, OwnedStore, UnknownOwnedError

logger = logging.getLogger(__name__)


def file_gone(file_id: str) -> InvalidRequestError:
    """Return what a run fails with whose file was deleted."""
    return InvalidRequestError(
        f"the file {file_id[:100]!r} was deleted before it could be read",
        param="files",
        code="file_not_found",
    )


def lost(owned: OwnedStore, file: OwnedFile) -> BackendError:
    """Return what a run fails with that found no bytes of ``file``.

    If the file is there all the same, the server has lost them: the log tells that, too.

    :raises StoreError: if the store cannot be read.
    """
    if not exists(owned, file):
        return file_gone(file.id)
    logger.error("the bytes of file %s are missing: there is nothing under %s", file.id, file.key)
    return BackendError(
        f"the bytes of the file {file.id!r} are missing on the server; upload it again",
        code="file_bytes_missing",
    )


def exists(owned: OwnedStore, file: OwnedFile) -> bool:
    """Return whether a file that was there before still is."""
    try:
        owned.file(file.account, file.id)
    except UnknownOwnedError:
        return False
    return True


def members_of(owned: OwnedStore, account: str, collection_id: str) -> Sequence[OwnedFile]:
    """Return the files of a collection, the newest first.

    :raises InvalidRequestError: if it was deleted.
    """
    members = owned.files(account, collection_id=collection_id)
    # asked after its files: deleted in between, it would seem to be empty
    if not owned.collections(account, ids=[collection_id]):
        raise InvalidRequestError(
            f"the collection {collection_id[:100]!r} was deleted before it could be read",
            param="collection_ids",
            code="collection_not_found",
        )
    return members
