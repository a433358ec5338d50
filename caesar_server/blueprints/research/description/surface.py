"""The operations of the native surface."""

from __future__ import annotations

from collections.abc import Mapping

from caesar_server.blueprints.research.description import agents, chat, objects
from caesar_server.blueprints.research.description.parts import (
    FORMAT,
    JOB_ID,
    READ_ERRORS,
    RESULT_ID,
    WRITE_ERRORS,
    answer_list_of,
    answer_of,
)
from caesar_server.blueprints.research.schemas import (
    AnswerSchema,
    BrainstormSchema,
    ResearchSchema,
    UpdateSchema,
)
from caesar_server.web.description import Json, Operation, Surface, event_of, ref
from caesar_server.web.error_reference import ERROR_STRING
from caesar_server.web.pagination import PAGE_QUERY

_LAST_EVENT: Mapping[str, Json] = {
    "Last-Event-ID": {
        "description": "Of a stream: the id of the last event that the reader has.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
    }
}
_QUERY = {"query": "What is new in quantum computing?"}


def _links(pointer: str, *operations: str) -> Json:
    """Return links to operations on the job whose id a body holds."""
    return {
        operation: {
            "operationId": operation,
            "parameters": {"job_id": f"$response.body#{pointer}"},
            "description": "About this job.",
        }
        for operation in operations
    }


_ABOUT_A_JOB = (
    "retrieve_research",
    "list_research_events",
    "list_http_requests",
    "list_research_updates",
    "create_research_update",
    "cancel_research",
    "delete_research",
)
_CONTENT_LINK: Json = {
    "content": {
        "operationId": "retrieve_result_content",
        "parameters": {
            "job_id": "$response.body#/id",
            "result_id": "$response.body#/results/0/id",
        },
        "description": "What was stored of the first result.",
    }
}

OPERATIONS: Mapping[str, Operation] = {
    "create_research": Operation(
        summary="Begin a research job",
        description=(
            "Answers at once; the job goes on, whatever becomes of the connection.  `model` names "
            "the one that writes the answer, or a backend of this server."
        ),
        body="ResearchRequest",
        body_examples={
            "plain": {"summary": "A question", "value": _QUERY},
            "thorough": {
                "summary": "More loops, fewer domains",
                "value": {
                    **_QUERY,
                    "reasoning_loops": 3,
                    "allow_early_exit": True,
                    "excluded_domains": ["example.com"],
                },
            },
        },
        responses=answer_of("ResearchCreated", "The job.", links=_links("/id", *_ABOUT_A_JOB)),
        errors=WRITE_ERRORS,
    ),
    "list_research": Operation(
        summary="List the jobs",
        description="The newest first.",
        query=PAGE_QUERY,
        responses=answer_of("ResearchPage", "A page."),
        errors=READ_ERRORS,
    ),
    "retrieve_research": Operation(
        summary="Retrieve a job",
        parameters=JOB_ID,
        responses=answer_of("Research", "The job as it stands.", links=_CONTENT_LINK),
        errors=READ_ERRORS,
    ),
    "delete_research": Operation(
        summary="Delete a job",
        description="Cancels it first if it is not done.  Its follow-up chat goes with it.",
        parameters=JOB_ID,
        responses=answer_of("Deleted", "It is gone."),
        errors=READ_ERRORS,
        extension=True,
    ),
    "cancel_research": Operation(
        summary="Cancel a job",
        description="Without effect on one that is done.  It ends as `failed`, within a second.",
        parameters=JOB_ID,
        responses=answer_of("Research", "The job as it stands."),
        errors=READ_ERRORS,
        extension=True,
    ),
    "list_research_events": Operation(
        summary="Progress of a job",
        description=(
            "Oldest first, as an array or, with `Accept: text/event-stream`, as a stream: an event "
            "each with its `id`, comments while nothing happens, then `status` and `id` of the job "
            "that ended and `[DONE]`."
        ),
        parameters=JOB_ID,
        headers=_LAST_EVENT,
        responses={
            "200": {
                "description": "What the job has told so far.",
                "content": {
                    "application/json": {
                        "schema": {"type": "array", "items": ref("ResearchEvent")}
                    },
                    "text/event-stream": {"schema": event_of("ResearchEvent", "ResearchEnd")},
                },
            }
        },
        errors=READ_ERRORS,
    ),
    "retrieve_result_content": Operation(
        summary="Content of a result",
        parameters=RESULT_ID,
        query=FORMAT,
        responses=answer_of("ResultContent", "What was stored of it."),
        errors=READ_ERRORS,
    ),
    "list_http_requests": Operation(
        summary="Calls to third parties",
        parameters=JOB_ID,
        responses=answer_list_of("HttpRequest", "In the order in which they were made."),
        errors=READ_ERRORS,
    ),
    "list_research_updates": Operation(
        summary="Updates of a job",
        parameters=JOB_ID,
        responses=answer_list_of("ResearchUpdate", "Oldest first."),
        errors=READ_ERRORS,
    ),
    "create_research_update": Operation(
        summary="Steer a running job",
        parameters=JOB_ID,
        body="ResearchUpdateRequest",
        body_examples={
            "plain": {
                "summary": "More to look for",
                "value": {"update_content": "Look at error correction too."},
            }
        },
        responses=answer_of("ResearchUpdate", "The update."),
        errors=WRITE_ERRORS,
    ),
    "create_brainstorm": Operation(
        summary="Ask clarifying questions",
        description=(
            "Answers go to `POST /research`, with the session's id.  A session is used once.  A "
            "query that is specific already gets no questions."
        ),
        body="BrainstormRequest",
        body_examples={"plain": {"summary": "A question", "value": {"query": "quantum computing"}}},
        responses=answer_of("Brainstorm", "The questions."),
        errors=WRITE_ERRORS,
    ),
}

SURFACE = Surface(
    tag="Research",
    description=(
        "Caesar's research API, in the versions 2025-08-08 and 2025-11-27: the header "
        '`API-Version` chooses, and is on each answer.  Errors are `{"error": "message"}`.'
    ),
    operations={**OPERATIONS, **chat.OPERATIONS, **agents.OPERATIONS},
    error_schema="ResearchError",
    schemas={
        # first those that the others refer to
        "BrainstormAnswer": AnswerSchema,
        "ResearchRequest": ResearchSchema,
        "ResearchUpdateRequest": UpdateSchema,
        "BrainstormRequest": BrainstormSchema,
        "ResearchError": ERROR_STRING,
        **objects.SCHEMAS,
        **chat.SCHEMAS,
        **agents.SCHEMAS,
    },
)
