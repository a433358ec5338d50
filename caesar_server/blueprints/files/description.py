"""What files and collections say about themselves, for the API description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from caesar_server.blueprints.files.schemas import (
    CollectionChangeSchema,
    CollectionSchema,
    FileSchema,
    ShownCollectionSchema,
)
from caesar_server.web.description import Json, Operation, Surface, ref
from caesar_server.web.error_reference import ERROR_STRING
from caesar_server.web.pagination import PAGE_QUERY
from caesar_server.web.uploads import MAX_PARTS

_READ = ("400", "401", "403", "405", "500", "503")
_READ_ONE = (*_READ, "404")
_WRITE = (*_READ, "429")

_UUID: Json = {"type": "string", "examples": ["9c6f8b1a-2a4f-4a35-86b9-0d0b5e25d5e5"]}
_FILE_ID = {"file_id": {"description": "Id of a file.", "schema": _UUID}}
_COLLECTION_ID = {"collection_id": {"description": "Id of a collection.", "schema": _UUID}}
_COUNT: Json = {"type": "integer", "minimum": 0}


def _page_of(component: str) -> Json:
    return {
        "type": "object",
        "required": ["data", "pagination"],
        "additionalProperties": False,
        "properties": {
            "data": {"type": "array", "items": ref(component)},
            "pagination": {
                "type": "object",
                "required": ["page", "limit", "has_next"],
                "properties": {
                    "page": _COUNT,
                    "limit": _COUNT,
                    "has_next": {"type": "boolean"},
                    "total": _COUNT,
                },
            },
        },
    }


_UPLOAD: Json = {
    "type": "object",
    "required": ["file"],
    "maxProperties": MAX_PARTS,
    "properties": {
        "file": {
            "type": "string",
            "minLength": 1,
            # of OpenAPI 3.1, and of 3.0, the only one that most generators of clients know
            "contentMediaType": "application/octet-stream",
            "format": "binary",
            "description": "The file, in one part, not empty.",
            "examples": ["What we know.\n"],
        },
        "collection_id": {
            "type": "string",
            "description": "The collection that it becomes part of.",
        },
    },
}
_DELETED: Json = {
    "type": "object",
    "required": ["id", "deleted"],
    "properties": {"id": {"type": "string"}, "deleted": {"const": True}},
}


def _answer(component: str, description: str, **more: Any) -> Mapping[str, Json]:
    content = {"application/json": {"schema": ref(component)}}
    return {"200": {"description": description, "content": content, **more}}


def _links(variable: str, *operations: str) -> Json:
    return {
        operation: {"operationId": operation, "parameters": {variable: "$response.body#/id"}}
        for operation in operations
    }


_BYTES: Json = {"schema": {"type": "string", "format": "binary"}}
_CONTENT: Mapping[str, Json] = {
    status: {
        "description": description,
        # the type is the file's; the first is for generators of clients, which know no wildcard
        "content": {"application/octet-stream": _BYTES, "*/*": _BYTES},
    }
    for status, description in (("200", "All bytes."), ("206", "The range that was asked for."))
}

_UPLOADING = Operation(
    summary="Upload a file",
    description=(
        "The type is told from the bytes, then from the name.  What is wrong with an upload is "
        "answered with 400, and nothing of it is kept."
    ),
    body="FileUpload",
    body_type="multipart/form-data",
    responses=_answer(
        "File",
        "The file.",
        links=_links(
            "file_id",
            "retrieve_research_file",
            "retrieve_research_file_content",
            "delete_research_file",
        ),
    ),
    errors=_WRITE,
)

_OPERATIONS: Mapping[str, Operation] = {
    "create_research_file": _UPLOADING,
    "create_agent_file": replace(_UPLOADING, summary="Upload a file, as an agent"),
    "list_research_files": Operation(
        summary="List the files",
        description="The newest first.",
        query={
            **PAGE_QUERY,
            "collection_id": {
                "description": "Only files of this collection.",
                "schema": {"type": "string"},
            },
        },
        responses=_answer("FilePage", "A page."),
        errors=_READ,
    ),
    "retrieve_research_file": Operation(
        summary="Retrieve a file",
        parameters=_FILE_ID,
        responses=_answer("File", "The file."),
        errors=_READ_ONE,
        extension=True,
    ),
    "retrieve_research_file_content": Operation(
        summary="Download a file",
        parameters=_FILE_ID,
        headers={
            "Range": {
                "description": "One range of bytes; of several, all bytes are sent.",
                "schema": {"type": "string", "examples": ["bytes=0-1023"]},
            }
        },
        responses=_CONTENT,
        errors=(*_READ_ONE, "412", "416"),
        extension=True,
    ),
    "delete_research_file": Operation(
        summary="Delete a file",
        description="Runs that read it already go on.",
        parameters=_FILE_ID,
        responses=_answer("FileDeleted", "It is gone."),
        errors=_READ_ONE,
        extension=True,
    ),
    "create_research_collection": Operation(
        summary="Make a collection",
        description="Files become part of it when they are uploaded.",
        body="CollectionCreate",
        body_examples={"named": {"summary": "A name", "value": {"name": "Reports of 2025"}}},
        responses=_answer(
            "Collection",
            "The collection.",
            links=_links(
                "collection_id",
                "retrieve_research_collection",
                "update_research_collection",
                "delete_research_collection",
            ),
        ),
        errors=_WRITE,
    ),
    "list_research_collections": Operation(
        summary="List the collections",
        description="The newest first.",
        query=PAGE_QUERY,
        responses=_answer("CollectionPage", "A page."),
        errors=_READ,
    ),
    "retrieve_research_collection": Operation(
        summary="Retrieve a collection",
        parameters=_COLLECTION_ID,
        responses=_answer("Collection", "The collection."),
        errors=_READ_ONE,
    ),
    "update_research_collection": Operation(
        summary="Change a collection",
        description="What is absent stays; an empty object changes nothing.",
        parameters=_COLLECTION_ID,
        body="CollectionChange",
        body_examples={
            "described": {"summary": "A description", "value": {"description": "All quarters."}}
        },
        responses=_answer("Collection", "The collection as it is now."),
        errors=_READ_ONE,
    ),
    "delete_research_collection": Operation(
        summary="Delete a collection",
        description="Its files stay, in no collection.",
        parameters=_COLLECTION_ID,
        responses=_answer("FileDeleted", "It is gone."),
        errors=_READ_ONE,
        extension=True,
    ),
}

SURFACE = Surface(
    tag="Files",
    description=(
        "Files and collections to ground answers on.\n\n"
        'Errors are `{"error": "message"}`.  What is another account\'s is not there.'
    ),
    operations=_OPERATIONS,
    schemas={
        "FilesError": ERROR_STRING,
        "File": FileSchema,
        "FileUpload": _UPLOAD,
        "FileDeleted": _DELETED,
        "FilePage": _page_of("File"),
        "Collection": ShownCollectionSchema,
        "CollectionCreate": CollectionSchema,
        "CollectionChange": CollectionChangeSchema,
        "CollectionPage": _page_of("Collection"),
    },
    error_schema="FilesError",
)
