"""Collections: create, list, retrieve, change, delete."""

from __future__ import annotations

from flask import Response, jsonify, request

from caesar_server.blueprints.files.objects import collection_object
from caesar_server.blueprints.files.schemas import load_changes, load_collection
from caesar_server.errors import NotFoundError, ValidationFailedError
from caesar_server.store.owned.base import (
    OwnedCollection,
    TooManyCollectionsError,
    UnknownOwnedError,
)
from caesar_server.web.access.auth import caller
from caesar_server.web.bodies import read_json_object
from caesar_server.web.pagination import page_object, page_of
from caesar_server.web.services import Services, services


def create_research_collection() -> Response:
    """``POST /research/collections``: make a collection."""
    parts = services()
    given = load_collection(read_json_object(request), refuse_unknown=_refuses_unknown(parts))
    stamp = parts.stamp()
    collection = OwnedCollection(
        id=stamp.id,
        account=caller().account,
        created_at=stamp.created_at,
        updated_at=stamp.created_at,
        name=given["name"] or "",
        description=given.get("description"),
    )
    most = parts.settings.account_collections
    try:
        parts.store.owned.add_collection(collection, most or None)
    except TooManyCollectionsError:
        # no 429: the clients of Caesar and OpenAI would ask again and again
        raise ValidationFailedError(
            f"the account has no room for another collection: it may have {most}; delete some with "
            "DELETE /research/collections/{id}"
        ) from None
    return jsonify(collection_object(collection))


def list_research_collections() -> Response:
    """``GET /research/collections``: the caller's collections, the newest first."""
    parts, account = services(), caller().account
    page = page_of(request.args)
    found = parts.store.owned.collections(account, offset=page.offset, limit=page.limit + 1)
    shown, has_next = page.cut(found)
    return jsonify(
        page_object(
            [collection_object(one) for one in shown],
            page,
            has_next=has_next,
            total=parts.store.owned.count_collections(account),
        )
    )


def retrieve_research_collection(collection_id: str) -> Response:
    """``GET /research/collections/{id}``: a collection."""
    return jsonify(collection_object(_own_collection(collection_id)))


def update_research_collection(collection_id: str) -> Response:
    """``PATCH /research/collections/{id}``: change name or description."""
    parts = services()
    # who asks for what is not there is told so, whatever he sends
    collection = _own_collection(collection_id)
    changes = load_changes(read_json_object(request), refuse_unknown=_refuses_unknown(parts))
    if changes:
        try:
            collection = parts.store.owned.change_collection(
                caller().account,
                collection_id,
                updated_at=parts.clock.time(),
                changes=changes,
            )
        except UnknownOwnedError:
            raise NotFoundError("Resource not found") from None
    return jsonify(collection_object(collection))


def delete_research_collection(collection_id: str) -> Response:
    """``DELETE /research/collections/{id}``: remove a collection, not its files; an extension."""
    try:
        services().store.owned.delete_collection(caller().account, collection_id)
    except UnknownOwnedError:
        raise NotFoundError("Resource not found") from None
    return jsonify({"id": collection_id, "deleted": True})


def _own_collection(collection_id: str) -> OwnedCollection:
    try:
        return services().store.owned.collection(caller().account, collection_id)
    except UnknownOwnedError:
        raise NotFoundError("Resource not found") from None


def _refuses_unknown(parts: Services) -> bool:
    return parts.settings.unknown_fields == "reject"
