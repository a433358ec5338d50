"""What a surface says about itself, so that the API description can be made without knowing it.

Each surface has such a value; ``create_app`` hands them to the one that shows the description.
The parts are those of OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.1): a schema is a JSON Schema
2020-12, text is CommonMark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from marshmallow import Schema

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one view does, whatever the paths that lead to it.

    :param summary: a few words.
    :param description: whatever else a caller must know.
    :param body: name of the component that the JSON body must match, or None for no body.
    :param body_optional: whether the body may be left out.
    :param body_examples: bodies by name, each ``{"summary": ..., "value": ...}``.
    :param parameters: schema and description of each variable of the path, by its name.
    :param body_type: the media type of the body.
    :param headers: likewise of each header of the request that matters, none of which is required.
    :param query: likewise of each parameter of the query, none of which is required.
    :param responses: OpenAPI responses by status, apart from the errors.
    :param errors: statuses that are answered with the surface's error body; ``4XX`` is a range.
    :param open: whether it never asks for a key.
    :param extension: whether it is this server's own, and not of the API that it serves.
    """

    summary: str
    description: str = ""
    body: str | None = None
    body_optional: bool = False
    body_type: str = "application/json"
    body_examples: Json = field(default_factory=dict)
    parameters: Mapping[str, Json] = field(default_factory=dict)
    headers: Mapping[str, Json] = field(default_factory=dict)
    query: Mapping[str, Json] = field(default_factory=dict)
    responses: Mapping[str, Json] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    open: bool = False
    extension: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What a family of URLs says about itself.

    :param tag: its name in the description.
    :param operations: by the name of the view.
    :param schemas: components by name; a marshmallow schema is translated.
    :param keywords: what a translated schema says besides, by the component's name.
    :param error_schema: name of the component that its errors match.
    """

    tag: str
    description: str
    operations: Mapping[str, Operation]
    schemas: Mapping[str, Json | type[Schema]] = field(default_factory=dict)
    keywords: Mapping[str, Json] = field(default_factory=dict)
    error_schema: str = "Error"


def ref(component: str) -> dict[str, str]:
    """Return the reference to a schema among the components."""
    return {"$ref": f"#/components/schemas/{component}"}


def event_of(*components: str) -> dict[str, Any]:
    """Return the schema of one event of a stream whose data is one of these, or ``[DONE]``.

    OpenAPI 3.1 has no word for that; its tools take the schema of this media type for an event's.

    :param components: the usual one first.
    """
    json_data = {"type": "string", "contentMediaType": "application/json"}
    return {
        "type": "object",
        "required": ["data"],
        "properties": {
            "data": {
                "anyOf": [
                    *({**json_data, "contentSchema": ref(one)} for one in components),
                    {"type": "string", "const": "[DONE]"},
                ]
            }
        },
    }
