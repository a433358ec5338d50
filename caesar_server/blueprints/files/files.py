"""Files: upload, list, retrieve, delete."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import NoReturn

from flask import Response, jsonify, request

from caesar_server.blueprints.files.objects import file_object
from caesar_server.errors import NotFoundError, ValidationFailedError
from caesar_server.store.owned.base import (
    FileQuota,
    FileQuotaExceededError,
    OwnedFile,
    UnknownOwnedError,
)
from caesar_server.web.access.auth import caller
from caesar_server.web.errors import printable
from caesar_server.web.framework.ids import plain_id
from caesar_server.web.incoming import sole_values
from caesar_server.web.pagination import page_object, page_of
from caesar_server.web.services import Services, services
from caesar_server.web.uploads import Upload, received

logger = logging.getLogger(__name__)


def create_research_file() -> Response:
    """``POST /research/files``: upload a file."""
    parts, account = services(), caller().account
    _check_room(parts, account)
    with received(
        request,
        parts.blobs,
        max_file_bytes=parts.settings.max_file_bytes,
        patience_s=parts.settings.write_timeout_s,
        check_collection=partial(_check_collection, parts, account),
    ) as upload:
        return jsonify(file_object(_keep(parts, account, upload)))


def create_agent_file() -> Response:
    """``POST /agents/files``: upload a file, as ``POST /research/files`` does."""
    return create_research_file()


def list_research_files() -> Response:
    """``GET /research/files``: the caller's files, the newest first."""
    parts, account = services(), caller().account
    page = page_of(request.args)
    given = sole_values(request.args, "collection_id").get("collection_id")
    collection_id = plain_id(given) if given else None
    files = parts.store.owned.files(
        account, collection_id=collection_id, offset=page.offset, limit=page.limit + 1
    )
    shown, has_next = page.cut(files)
    total, _ = parts.store.owned.count_files(account, collection_id=collection_id)
    return jsonify(
        page_object([file_object(one) for one in shown], page, has_next=has_next, total=total)
    )


def retrieve_research_file(file_id: str) -> Response:
    """``GET /research/files/{id}``: a file; an extension."""
    return jsonify(file_object(own_file(file_id)))


def delete_research_file(file_id: str) -> Response:
    """``DELETE /research/files/{id}``: remove a file; an extension."""
    parts = services()
    try:
        unused_key = parts.store.owned.delete_file(caller().account, file_id)
    except UnknownOwnedError:
        raise NotFoundError("Resource not found") from None
    if unused_key is not None:
        parts.blobs.delete(unused_key)
    return jsonify({"id": file_id, "deleted": True})


def own_file(file_id: str) -> OwnedFile:
    """Return a file of the caller.

    :raises NotFoundError: if it is not the caller's.
    """
    try:
        return services().store.owned.file(caller().account, file_id)
    except UnknownOwnedError:
        raise NotFoundError("Resource not found") from None


def _keep(parts: Services, account: str, upload: Upload) -> OwnedFile:
    """Store the bytes, then the row, so that there never is a row without bytes."""
    stamp = parts.stamp()
    file = OwnedFile(
        id=stamp.id,
        account=account,
        created_at=stamp.created_at,
        name=upload.name,
        content_type=upload.content_type,
        size=upload.size,
        sha256=upload.sha256,
        key=upload.staged.key,
        collection_id=upload.collection_id,
    )
    upload.staged.keep()
    try:
        # Where the store fails it may have the row all the same: then the bytes must stay.
        added = parts.store.owned.add_file(file, _quota(parts))
    except FileQuotaExceededError as error:
        parts.blobs.delete(file.key)
        _refuse_room(parts, error)
    except UnknownOwnedError:
        parts.blobs.delete(file.key)
        raise _unknown_collection(upload.collection_id or "") from None
    return added if added.key == file.key else _share(parts, added, file.key)


def _share(parts: Services, added: OwnedFile, own_key: str) -> OwnedFile:
    """Drop the bytes under ``own_key``, which the account has already, unless those are lost."""
    owned = parts.store.owned
    if parts.blobs.has(added.key):
        parts.blobs.delete(own_key)
        return added
    logger.error("bytes are missing: nothing is under %s; they are uploaded anew", added.key)
    if not owned.replace_key(added.account, added.key, own_key):
        # another upload was faster, or somebody has deleted the file
        parts.blobs.delete(own_key)
    return replace(added, key=own_key)


def _quota(parts: Services) -> FileQuota:
    settings = parts.settings
    return FileQuota(
        files=settings.account_files or None, bytes=settings.account_file_bytes or None
    )


def _check_room(parts: Services, account: str) -> None:
    """Refuse an upload that would find no room, before it is read."""
    quota = _quota(parts)
    if quota.files is None and quota.bytes is None:
        return
    files, size = parts.store.owned.count_files(account)
    if quota.files is not None and files >= quota.files:
        _refuse_room(parts, FileQuotaExceededError("files"))
    if quota.bytes is not None and size >= quota.bytes:
        _refuse_room(parts, FileQuotaExceededError("bytes"))


def _refuse_room(parts: Services, error: FileQuotaExceededError) -> NoReturn:
    most = (
        f"{parts.settings.account_files} files"
        if error.limit == "files"
        else f"{parts.settings.account_file_bytes} bytes of files"
    )
    # no 429: the clients of Caesar and OpenAI would send the file again and again
    raise ValidationFailedError(
        f"file: the account has no room for it: it may have {most}; delete some with "
        "DELETE /research/files/{id}",
        param="file",
    ) from None


def _check_collection(parts: Services, account: str, collection_id: str) -> None:
    try:
        parts.store.owned.collection(account, collection_id)
    except UnknownOwnedError:
        raise _unknown_collection(collection_id) from None


def _unknown_collection(collection_id: str) -> ValidationFailedError:
    return ValidationFailedError(
        f"collection_id: unknown collection '{printable(collection_id)}'; make one with "
        "POST /research/collections and give the id that it returns",
        param="collection_id",
    )
