"""What the schemas of bodies have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import Schema, ValidationError, fields
from marshmallow.exceptions import SCHEMA

from caesar_server.web.fields.problems import wrong_type


class NullIsAbsent(Schema):
    """A schema for which ``null`` and absent are the same (vllm#19862: null crashed)."""

    def load(self, data: Any, **options: Any) -> Any:
        """Return what becomes of an object once the members that are null are left out.

        What marshmallow's hooks do is done here: they take as long as all the fields together.
        """
        if not isinstance(data, Mapping):
            raise ValidationError({SCHEMA: wrong_type("an object", data).messages})
        given = {key: value for key, value in data.items() if value is not None}
        return self.made(super().load(given, **options))

    def made(self, data: dict[str, Any]) -> Any:
        """Return what is made of the fields, if they go together; here themselves.

        :raises ValidationError: if they do not.
        """
        return data

    def on_bind_field(self, field_name: str, field_obj: fields.Field[Any]) -> None:
        """Let the API description say so."""
        field_obj.allow_none = not field_obj.required


def means(text: str, **schema: Any) -> dict[str, Any]:
    """Return what a field means, for the API description, with JSON Schema keywords."""
    return {"description": text, **schema}
