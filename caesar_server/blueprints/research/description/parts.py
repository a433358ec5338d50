"""What the descriptions of the native operations are put together from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server.web.description import Json, ref

READ_ERRORS = ("400", "401", "403", "404", "405", "500", "503")
WRITE_ERRORS = (*("400", "401", "403", "404", "405", "429", "4XX"), *("500", "502", "503", "504"))

JOB_ID: Mapping[str, Json] = {
    "job_id": {
        "description": "Id of a job; that of an OpenAI-compatible answer is one too.",
        "schema": {"type": "string", "examples": ["9c6f8b1a-2a4f-4a35-86b9-0d0b5e25d5e5"]},
    }
}
RESULT_ID: Mapping[str, Json] = {
    **JOB_ID,
    "result_id": {"description": "Id of one of its results.", "schema": {"type": "string"}},
}
FORMAT: Mapping[str, Json] = {
    "format": {
        "description": "As fetched, or as Markdown; without effect in version 2025-08-08.",
        "schema": {"type": "string", "enum": ["raw", "markdown"], "default": "raw"},
    }
}


def json_answer(description: str, schema: Json, **more: Any) -> Mapping[str, Json]:
    """Return the one good answer of an operation."""
    content = {"application/json": {"schema": schema}}
    return {"200": {"description": description, "content": content, **more}}


def answer_of(component: str, description: str, **more: Any) -> Mapping[str, Json]:
    """Return it if a component describes its body."""
    return json_answer(description, ref(component), **more)


def answer_list_of(component: str, description: str) -> Mapping[str, Json]:
    """Return it if its body is an array of what a component describes."""
    return json_answer(description, {"type": "array", "items": ref(component)})
