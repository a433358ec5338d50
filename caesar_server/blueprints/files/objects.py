"""Files and collections as the API shows them.

https://docs.caesar.org/documentation/reference/files
"""

from __future__ import annotations

from typing import Any

from caesar_server.store.owned.base import OwnedCollection, OwnedFile
from caesar_server.web.timestamps import timestamp


def file_object(file: OwnedFile) -> dict[str, Any]:
    """Return a file as JSON.

    Caesar's documentation has two shapes, with ``file_name`` and ``content_type`` or with
    ``filename``, ``size`` and ``created_at``: this is both.
    """
    return {
        "id": file.id,
        "file_name": file.name,
        "filename": file.name,
        "content_type": file.content_type,
        "size": file.size,
        "created_at": timestamp(file.created_at),
        "collection_id": file.collection_id,
        "sha256": file.sha256,
    }


def collection_object(collection: OwnedCollection) -> dict[str, Any]:
    """Return a collection as JSON."""
    return {
        "id": collection.id,
        "name": collection.name,
        "description": collection.description,
        "created_at": timestamp(collection.created_at),
        "updated_at": timestamp(collection.updated_at),
    }
