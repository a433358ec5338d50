"""Files, collections and sessions as what a row holds, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server.store.owned.base import OwnedCollection, OwnedFile, OwnedSession
from caesar_server.store.sql.rows import decode, encode

#: Columns of a file that stand in its row under the name of their field.
_FILE = ("id", "account", "created_at", "size", "sha256", "key", "collection_id")


def file_values(file: OwnedFile) -> dict[str, Any]:
    """Return the row of a file."""
    body = encode({"name": file.name, "content_type": file.content_type})
    return {"body": body, **{name: getattr(file, name) for name in _FILE}}


def file_of(row: Mapping[Any, Any]) -> OwnedFile:
    """Return the file of a row."""
    return OwnedFile(**{name: row[name] for name in _FILE}, **decode(row["body"]))


def collection_values(collection: OwnedCollection) -> dict[str, Any]:
    """Return the row of a collection."""
    return {
        "id": collection.id,
        "account": collection.account,
        "created_at": collection.created_at,
        "updated_at": collection.updated_at,
        "body": encode({"name": collection.name, "description": collection.description}),
    }


def collection_of(row: Mapping[Any, Any]) -> OwnedCollection:
    """Return the collection of a row."""
    return OwnedCollection(
        id=row["id"],
        account=row["account"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        **decode(row["body"]),
    )


def session_values(session: OwnedSession) -> dict[str, Any]:
    """Return the row of a session."""
    return {
        "id": session.id,
        "account": session.account,
        "created_at": session.created_at,
        "body": encode({"query": session.query, "questions": session.questions}),
    }


def session_of(row: Mapping[Any, Any]) -> OwnedSession:
    """Return the session of a row."""
    body = decode(row["body"])
    return OwnedSession(
        id=row["id"],
        account=row["account"],
        created_at=row["created_at"],
        query=body["query"],
        questions=tuple(body["questions"]),
    )
