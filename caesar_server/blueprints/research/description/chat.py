"""What is said of follow-up chats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server.blueprints.research.description.objects import closed_object, described
from caesar_server.blueprints.research.description.parts import (
    JOB_ID,
    READ_ERRORS,
    WRITE_ERRORS,
    answer_of,
)
from caesar_server.blueprints.research.schemas import ChatCreateSchema
from caesar_server.web.description import Json, Operation, event_of, ref

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_MOMENT = {"type": "string", "format": "date-time"}

CITED: Json = closed_object(
    {
        "id": _TEXT,
        "title": _TEXT,
        "url": _TEXT,
        "citation_index": {"type": "integer", "minimum": 0},
    }
)
RESULTS: Json = described(
    {"type": ["array", "null"], "items": CITED},
    "What `content` cites, by number; null until it is complete.",
)
STATUS: Json = {"type": "string", "enum": ["processing", "completed", "failed"]}
MESSAGE_ID: Mapping[str, Json] = {
    **JOB_ID,
    "message_id": {"description": "Id of a message about it.", "schema": _TEXT},
}

SCHEMAS: Mapping[str, Any] = {
    "ChatRequest": ChatCreateSchema,
    "ChatMessage": closed_object(
        {
            "id": _TEXT,
            "role": {"type": "string", "enum": ["user", "assistant"]},
            "content": described(_TEXT, "Empty until it is complete."),
            "snippets": {"type": "array", "items": _TEXT},
            "status": STATUS,
            "created_at": _MOMENT,
            "updated_at": _MOMENT,
            "account_id": _TEXT_OR_NULL,
            "ask_id": described(_TEXT, "Id of the job."),
            "error_message": described(_TEXT_OR_NULL, "Why it failed; null unless it did."),
            "results": RESULTS,
        }
    ),
    "ChatHistory": {
        "anyOf": [
            closed_object({"data": {"type": "array", "items": ref("ChatMessage")}}),
            {"type": "array", "items": ref("ChatMessage")},
        ]
    },
    "ChatMessageChunk": closed_object(
        {
            "id": _TEXT,
            "object": {"type": "string", "const": "chat.completion.chunk"},
            "created": {"type": "integer"},
            "model": _TEXT,
            "choices": {
                "type": "array",
                "items": closed_object(
                    {
                        "index": {"type": "integer"},
                        "delta": closed_object({}, {"role": _TEXT, "content": _TEXT}),
                        "finish_reason": _TEXT_OR_NULL,
                    }
                ),
            },
        },
        {"results": described({"type": "array", "items": CITED}, "In the last chunk.")},
    ),
}
STREAM: Json = {"text/event-stream": {"schema": event_of("ChatMessageChunk", "Error")}}
EXAMPLES: Json = {
    "plain": {"summary": "A question", "value": {"content": "Which of these is the cheapest?"}}
}


def message_answer(component: str) -> Mapping[str, Json]:
    """Return the answers to a poll."""
    content = {"application/json": {"schema": ref(component)}}
    return {
        "200": {"description": "The message.", "content": content},
        "202": {"description": "It is being written.", "content": content},
    }


OPERATIONS: Mapping[str, Operation] = {
    "create_research_chat": Operation(
        summary="Ask about a completed job",
        description=(
            "Answers at once with the assistant's message, whose answer is polled or streamed.  It "
            "is made from the job's answer, its sources and what was asked since, and counts "
            "against no limit of the account."
        ),
        parameters=JOB_ID,
        body="ChatRequest",
        body_examples=EXAMPLES,
        responses=answer_of("ChatMessage", "The message, to be written."),
        errors=WRITE_ERRORS,
    ),
    "list_research_chat": Operation(
        summary="Chat about a job",
        description=(
            "The newest 200 messages, the newest first: each answer and then its question.  With "
            "the setting `cli_shapes`, or a key made so, a bare array."
        ),
        parameters=JOB_ID,
        responses=answer_of("ChatHistory", "The messages."),
        errors=READ_ERRORS,
    ),
    "retrieve_research_chat_message": Operation(
        summary="Retrieve a message",
        parameters=MESSAGE_ID,
        responses=message_answer("ChatMessage"),
        errors=READ_ERRORS,
    ),
    "stream_research_chat_message": Operation(
        summary="Stream an answer",
        description="From its beginning, live while it is being written, with comments meanwhile.",
        parameters=MESSAGE_ID,
        responses={"200": {"description": "Its chunks.", "content": STREAM}},
        errors=READ_ERRORS,
    ),
}
