"""From the JSON bodies of collections to what they say, or one error that names the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from marshmallow import EXCLUDE, Schema, ValidationError, fields, validates_schema

from caesar_server.web.fields import Text, load_object, means

MAX_NAME_CHARS = 255
MAX_DESCRIPTION_CHARS = 10_000

#: What a body says of a collection; absent is what it says nothing of.
Changes: TypeAlias = dict[Literal["name", "description"], str | None]

# U+0000 and halves of surrogate pairs: no database takes them
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# the last three: what turns the direction of text around
_CONTROLS_RANGE = (
    r"\u0000-\u001f\u007f-\u009f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
)
_CONTROLS = re.compile(f"[{_CONTROLS_RANGE}]")


def _name(*, required: bool) -> Text:
    return Text(
        required=required,
        visible=True,
        error_messages={"null": "expected a string, got null"},
        metadata=means(
            "What it is called, without control characters.",
            maxLength=MAX_NAME_CHARS,
            pattern=rf"^[^{_CONTROLS_RANGE}]*[^\s{_CONTROLS_RANGE}][^{_CONTROLS_RANGE}]*$",
            examples=["Reports of 2025"],
        ),
    )


class CollectionSchema(Schema):
    """The body of ``POST /research/collections``."""

    class Meta:
        unknown = EXCLUDE

    name = _name(required=True)
    description = Text(
        allow_none=True,
        metadata=means("What is in it.", maxLength=MAX_DESCRIPTION_CHARS),
    )

    @validates_schema
    def check_texts(self, data: Mapping[str, Any], **kwargs: Any) -> None:
        """Texts are not too long, and can be stored and shown."""
        for field, most, bad in (
            ("name", MAX_NAME_CHARS, _CONTROLS),
            ("description", MAX_DESCRIPTION_CHARS, _UNSTORABLE),
        ):
            text = data.get(field) or ""
            if len(text) > most:
                raise ValidationError(f"expected at most {most} characters, got {len(text)}", field)
            if bad.search(text) or _UNSTORABLE.search(text):
                raise ValidationError("expected text without control characters", field)


class CollectionChangeSchema(CollectionSchema):
    """The body of ``PATCH /research/collections/{id}``; what is absent stays."""

    name = _name(required=False)


def load_collection(body: Mapping[str, Any], *, refuse_unknown: bool) -> Changes:
    """Return name and description of a new collection.

    :raises BadRequestError: naming the field that is wrong.
    """
    found: Changes = load_object(CollectionSchema(), body, refuse_unknown=refuse_unknown)
    return found


def load_changes(body: Mapping[str, Any], *, refuse_unknown: bool) -> Changes:
    """Return what is to be changed of a collection; likewise."""
    found: Changes = load_object(CollectionChangeSchema(), body, refuse_unknown=refuse_unknown)
    return found


class FileSchema(Schema):
    """A file, for the API description."""

    id = fields.UUID(required=True)
    file_name = fields.String(required=True, metadata=means("For display.", maxLength=255))
    filename = fields.String(required=True, metadata=means("The same."))
    content_type = fields.String(required=True, metadata=means("MIME type, from the bytes."))
    size = fields.Integer(required=True, metadata=means("Bytes.", minimum=1))
    created_at = fields.DateTime(required=True)
    collection_id = fields.UUID(required=True, allow_none=True)
    sha256 = fields.String(required=True, metadata={"pattern": "^[0-9a-f]{64}$"})


class ShownCollectionSchema(Schema):
    """A collection, for the API description."""

    id = fields.UUID(required=True)
    name = fields.String(required=True)
    description = fields.String(required=True, allow_none=True)
    created_at = fields.DateTime(required=True)
    updated_at = fields.DateTime(required=True)
