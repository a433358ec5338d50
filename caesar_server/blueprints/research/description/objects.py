"""What the native surface answers, as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from caesar_server.web.description import ref

_Schema: TypeAlias = Mapping[str, Any]

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_UUID = {"type": "string", "format": "uuid"}
_MOMENT = {"type": "string", "format": "date-time"}
_COUNT = {"type": "integer", "minimum": 0}
STATUSES = (
    "queued",
    "searching",
    "researching",
    "analyzing",
    "summarizing",
    "completed",
    "failed",
)
_STATUS = {"type": "string", "enum": list(STATUSES)}


def closed_object(
    required: Mapping[str, Any], optional: Mapping[str, Any] | None = None
) -> _Schema:
    """Return the schema of an object with these members and no others."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


def described(schema: Mapping[str, Any], text: str) -> _Schema:
    """Return a schema with what it means."""
    return {**schema, "description": text}


RESULT = closed_object(
    {"id": _TEXT, "title": _TEXT, "url": _TEXT},
    {
        "citation_index": described(
            {"type": ["integer", "null"], "minimum": 1}, "The `n` of `[n]` in the answer."
        ),
        "score": described(
            {"type": "number", "minimum": 0, "maximum": 1}, "In version 2025-08-08 alone."
        ),
    },
)

SCHEMAS: Mapping[str, _Schema] = {
    "ResearchResult": RESULT,
    "Research": closed_object(
        {
            "id": _UUID,
            "created_at": _MOMENT,
            "status": _STATUS,
            "query": _TEXT,
            "results": {"type": "array", "items": ref("ResearchResult")},
            "content": described(_TEXT_OR_NULL, "The answer; null until it is complete."),
            "transformed_content": described(
                _TEXT_OR_NULL, "The answer as the system prompt shapes it; null without one."
            ),
        },
        {
            "reasoning_loops_consumed": _COUNT,
            "compute_units_consumed": described(_COUNT, "In version 2025-08-08 alone."),
            "running_time": described(_COUNT, "Seconds."),
            "completed_at": described(_MOMENT, "Once it has ended."),
            "error": described(_TEXT, "Why it failed; only if it did."),
        },
    ),
    "ResearchCreated": closed_object({"id": _UUID, "status": _STATUS}, {"warning": _TEXT}),
    "Pagination": closed_object(
        {
            "page": {"type": "integer", "minimum": 1},
            "limit": {"type": "integer", "minimum": 1},
            "has_next": {"type": "boolean"},
        },
        {"total": _COUNT},
    ),
    "ResearchPage": closed_object(
        {
            "data": {"type": "array", "items": ref("Research")},
            "pagination": ref("Pagination"),
        }
    ),
    "ResearchEvent": closed_object({"message": _TEXT, "created_at": _MOMENT}),
    "ResearchEnd": closed_object({"status": {"enum": ["completed", "failed"]}, "id": _UUID}),
    "ResultContent": closed_object({"content": _TEXT}),
    "HttpLog": closed_object(
        {
            "id": _UUID,
            "request_url": _TEXT,
            "request_method": _TEXT,
            "response_status": described({"type": "integer"}, "0 if no answer came."),
            "duration_ms": _COUNT,
            "request_headers": _TEXT,
            "request_body": _TEXT,
            "response_headers": _TEXT,
            "response_body": _TEXT,
        }
    ),
    "HttpRequest": closed_object(
        {
            "ask_id": _UUID,
            "url": _TEXT,
            "http_logs": {"type": "array", "items": ref("HttpLog")},
            "provider": _TEXT,
            "provider_display_name": _TEXT,
            "provider_icon": _TEXT,
        },
        {
            "results_index": described(
                _COUNT, "Place among the job's results; only if the call became one."
            )
        },
    ),
    "ResearchUpdate": closed_object(
        {
            "id": _UUID,
            "ask_id": _UUID,
            "update_content": _TEXT,
            "files": {"type": "array", "items": _TEXT},
            "created_at": _MOMENT,
        }
    ),
    "Deleted": closed_object({"id": _TEXT, "deleted": {"type": "boolean", "const": True}}),
    "BrainstormQuestion": closed_object(
        {
            "id": _TEXT,
            "question": _TEXT,
            "options": {
                "anyOf": [
                    {"type": "array", "items": closed_object({"key": _TEXT, "text": _TEXT})},
                    {"type": "object", "additionalProperties": _TEXT},
                ]
            },
        }
    ),
    "Brainstorm": closed_object(
        {
            "id": _UUID,
            "query": _TEXT,
            "status": {"type": "string", "enum": ["ready", "used"]},
            "created_at": _MOMENT,
            "questions": {
                "type": "array",
                "maxItems": 7,
                "items": ref("BrainstormQuestion"),
            },
        }
    ),
}
