"""What the schemas of bodies have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import Schema, fields, pre_load

from caesar_server.web.fields.problems import wrong_type


class NullIsAbsent(Schema):
    """A schema for which ``null`` and absent are the same (vllm#19862: null crashed)."""

    @pre_load
    def drop_nulls(self, data: Any, **kwargs: Any) -> Any:
        """Remove the members that are null."""
        if not isinstance(data, Mapping):
            raise wrong_type("an object", data)
        return {key: value for key, value in data.items() if value is not None}

    def on_bind_field(self, field_name: str, field_obj: fields.Field[Any]) -> None:
        """Let the API description say so."""
        field_obj.allow_none = not field_obj.required


def means(text: str, **schema: Any) -> dict[str, Any]:
    """Return what a field means, for the API description, with JSON Schema keywords."""
    return {"description": text, **schema}
