"""What is said of the agents family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server.blueprints.research.description import chat
from caesar_server.blueprints.research.description.objects import (
    STATUSES,
    closed_object,
    described,
)
from caesar_server.blueprints.research.description.parts import (
    JOB_ID,
    READ_ERRORS,
    RESULT_ID,
    WRITE_ERRORS,
    answer_list_of,
    answer_of,
)
from caesar_server.blueprints.research.schemas import AgentResearchSchema, AgentUpdateSchema
from caesar_server.web.description import Json, Operation, event_of, ref

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_RESULT: Mapping[str, Json] = {"title": _TEXT, "url": _TEXT}
_NUMBER: Mapping[str, Json] = {"citation_index": {"type": "integer"}}


def _flag(name: str, text: str) -> Mapping[str, Json]:
    return {name: {"description": text, "schema": {"type": "boolean", "default": False}}}


SCHEMAS: Mapping[str, Any] = {
    "AgentResearchRequest": AgentResearchSchema,
    "AgentUpdateRequest": AgentUpdateSchema,
    "AgentResearch": closed_object(
        {
            "status": {"type": "string", "enum": list(STATUSES)},
            "query": _TEXT,
            "content": described(_TEXT_OR_NULL, "The answer; null until it is complete."),
        },
        {"error": described(_TEXT, "Why it failed; only if it did.")},
    ),
    "AgentResult": closed_object({"id": _TEXT, **_RESULT}, _NUMBER),
    "AgentOneResult": closed_object(
        _RESULT,
        {
            **_NUMBER,
            "highlights": described(
                {"type": "array", "items": _TEXT, "maxItems": 3},
                "The sentences that share most words with the query.",
            ),
            "content": described(_TEXT, "If a format was asked for and anything was stored."),
        },
    ),
    "AgentUpdate": closed_object({"created_at": {"type": "string", "format": "date-time"}}),
    "AgentChatCreated": closed_object(
        {
            "id": described(_TEXT, "Of the assistant's message."),
            "content": _TEXT,
            "status": chat.STATUS,
            "error_message": _TEXT_OR_NULL,
            "results": chat.RESULTS,
        }
    ),
    "AgentChatMessage": closed_object(
        {"status": chat.STATUS, "content": _TEXT, "results": chat.RESULTS}
    ),
}

OPERATIONS: Mapping[str, Operation] = {
    "create_agent_research": Operation(
        summary="Begin a research job, for an agent",
        description=(
            "With `stream` its progress follows, as from `/research/{id}/events`; the header "
            "`Content-Location` then says which job it is."
        ),
        query=_flag("stream", "Follow the job at once."),
        body="AgentResearchRequest",
        body_examples={
            "plain": {
                "summary": "A question",
                "value": {"query": "What is new in quantum computing?"},
            }
        },
        responses={
            "200": {
                "description": "The job.",
                "content": {
                    "application/json": {"schema": ref("ResearchCreated")},
                    "text/event-stream": {
                        "schema": event_of("ResearchEvent", "ResearchCreated", "ResearchError")
                    },
                },
            }
        },
        errors=WRITE_ERRORS,
    ),
    "retrieve_agent_research": Operation(
        summary="Status and answer of a job",
        parameters=JOB_ID,
        responses=answer_of("AgentResearch", "The job as it stands."),
        errors=READ_ERRORS,
    ),
    "list_agent_results": Operation(
        summary="Results of a job",
        parameters=JOB_ID,
        query=_flag("citations_only", "Only those that have a number."),
        responses=answer_list_of("AgentResult", "By number; those without one last."),
        errors=READ_ERRORS,
    ),
    "retrieve_agent_result": Operation(
        summary="One result of a job",
        parameters=RESULT_ID,
        query={
            "format": {
                "description": "Of the content, which is left out without it.",
                "schema": {"type": "string", "enum": ["raw", "markdown"]},
            },
            **_flag("with_highlights", "Show the passages that have most to do with the query."),
        },
        responses=answer_of("AgentOneResult", "The result."),
        errors=READ_ERRORS,
    ),
    "create_agent_update": Operation(
        summary="Steer a running job, for an agent",
        parameters=JOB_ID,
        body="AgentUpdateRequest",
        body_examples={
            "plain": {
                "summary": "More to look for",
                "value": {"update_content": "Look at error correction too."},
            }
        },
        responses=answer_of("AgentUpdate", "When it was noted."),
        errors=WRITE_ERRORS,
    ),
    "create_agent_chat": Operation(
        summary="Ask about a completed job, for an agent",
        parameters=JOB_ID,
        query=_flag("stream", "Stream the answer at once."),
        body="ChatRequest",
        body_examples=chat.EXAMPLES,
        responses={
            "200": {
                "description": "The message, to be written.",
                "content": {
                    "application/json": {"schema": ref("AgentChatCreated")},
                    **chat.STREAM,
                },
            }
        },
        errors=WRITE_ERRORS,
    ),
    "retrieve_agent_chat_message": Operation(
        summary="Retrieve a message, for an agent",
        parameters=chat.MESSAGE_ID,
        responses=chat.message_answer("AgentChatMessage"),
        errors=READ_ERRORS,
    ),
    "stream_agent_chat_message": Operation(
        summary="Stream an answer, for an agent",
        parameters=chat.MESSAGE_ID,
        responses={"200": {"description": "Its chunks.", "content": chat.STREAM}},
        errors=READ_ERRORS,
    ),
}
