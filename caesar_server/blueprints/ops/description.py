"""What the operator's surface says about itself, for the API description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server import __version__
from caesar_server.web.description import Json, Operation, Surface, ref
from caesar_server.web.error_reference import ERROR_STRING

_ERRORS = ("403", "405", "500")

_STATE: Json = {
    "type": "object",
    "required": ["status", "message"],
    "properties": {
        "status": {"type": "string", "enum": ["ok", "degraded", "down"]},
        "message": {"type": "string"},
    },
}
_SCHEMAS: Mapping[str, Json] = {
    "NativeError": ERROR_STRING,
    "Health": {
        "type": "object",
        "description": "The process answers.",
        "required": ["status", "version"],
        "properties": {
            "status": {"type": "string", "const": "ok"},
            "version": {"type": "string"},
        },
    },
    "Readiness": {
        "type": "object",
        "description": "Whether the default backend can answer.",
        "required": [
            *(
                "status",
                "reasons",
                "default_backend",
                "backends",
                "store",
                "files",
                "failed",
                "warnings",
            )
        ],
        "properties": {
            "status": {"type": "string", "enum": ["ready", "not ready"]},
            "reasons": {
                "type": "array",
                "description": "Why it is not ready; empty if it is.",
                "items": {"type": "string"},
            },
            "default_backend": {"type": "string"},
            "backends": {
                "type": "object",
                "description": "The backends that are loaded, by name.",
                "additionalProperties": _STATE,
            },
            "store": _STATE,
            "files": _STATE,
            "failed": {
                "type": "object",
                "description": "Why others could not be loaded, by name.",
                "additionalProperties": {"type": "string"},
            },
            "warnings": {"type": "array", "items": {"type": "string"}},
        },
    },
}


def _json(description: str, schema: Json, example: Any = None) -> Json:
    examples = {} if example is None else {"examples": {"answer": {"value": example}}}
    content = {"application/json": {"schema": schema, **examples}}
    return {"description": description, "content": content}


_READY = {
    "status": "ready",
    "reasons": [],
    "default_backend": "mock",
    "backends": {},
    "store": {"status": "ok", "message": ""},
    "files": {"status": "ok", "message": ""},
    "failed": {},
    "warnings": [],
}

_OPERATIONS: Mapping[str, Operation] = {
    "show_health": Operation(
        summary="Tell that the process answers",
        responses={
            "200": _json("It does.", ref("Health"), {"status": "ok", "version": __version__})
        },
        errors=_ERRORS,
        open=True,
    ),
    "show_readiness": Operation(
        summary="Tell whether the default backend can answer",
        responses={
            "200": _json("It can.", ref("Readiness"), _READY),
            "503": _json("It cannot, and why.", ref("Readiness")),
        },
        errors=_ERRORS,
        open=True,
    ),
    "show_metrics": Operation(
        summary="Show the server's numbers for Prometheus",
        description="It asks for a key as other paths do, unless `metrics_public` is set.",
        responses={
            "200": {
                "description": "The sum over all worker processes.",
                "content": {
                    "text/plain": {"schema": {"type": "string"}},
                    "application/openmetrics-text": {"schema": {"type": "string"}},
                },
            }
        },
        errors=("401", *_ERRORS),
    ),
    "show_openapi": Operation(
        summary="Show this description",
        responses={"200": _json("An OpenAPI 3.1 document.", {"type": "object"})},
        errors=_ERRORS,
        open=True,
    ),
    "show_docs": Operation(
        summary="Show this description as a page",
        responses={
            "200": {
                "description": "A page.",
                "content": {"text/html": {"schema": {"type": "string"}}},
            }
        },
        errors=_ERRORS,
        open=True,
    ),
    "show_docs_asset": Operation(
        summary="Fetch a file of that page",
        parameters={
            "name": {
                "description": "Name of the file.",
                "schema": {"type": "string", "minLength": 1, "examples": ["docs.css"]},
            }
        },
        responses={
            "200": {
                "description": "The file.",
                "content": {
                    "text/css": {"schema": {"type": "string"}},
                    "text/javascript": {"schema": {"type": "string"}},
                    "image/svg+xml": {"schema": {"type": "string"}},
                },
            }
        },
        errors=("403", "404", "405", "500"),
        open=True,
    ),
}

SURFACE = Surface(
    tag="Operations",
    description='For those who run the server.  Errors are `{"error": "message"}`.',
    operations=_OPERATIONS,
    schemas=_SCHEMAS,
    error_schema="NativeError",
)
