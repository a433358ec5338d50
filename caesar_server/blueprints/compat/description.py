"""What the compat surface says about itself, for the API description."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from caesar_server.blueprints.compat import answer_schemas
from caesar_server.blueprints.compat.nested_schemas import MetadataSchema, StreamOptionsSchema
from caesar_server.blueprints.compat.schemas import ChatSchema, CompletionSchema
from caesar_server.web.description import Json, Operation, Surface, event_of, ref
from caesar_server.web.error_reference import ERROR_OBJECT

_ID = "9c6f8b1a-2a4f-4a35-86b9-0d0b5e25d5e5"
_CREATED = 1_764_441_600
_MODEL = "caesar-research"
_QUESTION = "What is new in quantum computing?"
_USAGE = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
_MODEL_EXAMPLE = {"id": _MODEL, "object": "model", "created": 0, "owned_by": "caesar-server"}

_READ_ERRORS = ("401", "403", "404", "405", "500", "503")
_ANSWER_ERRORS = (
    *("400", "401", "403", "404", "405", "413", "415", "429", "4XX"),
    *("500", "502", "503", "504"),
)

#: ``stream_options`` needs a stream, as JSON Schema says it.
_STREAM_OPTIONS_NEED_STREAM: Json = {
    "if": {"required": ["stream_options"], "properties": {"stream_options": {"type": "object"}}},
    "then": {"required": ["stream"], "properties": {"stream": {"const": True}}},
}
#: ``top_logprobs`` needs ``logprobs``.
_TOP_LOGPROBS_NEED_LOGPROBS: Json = {
    "if": {"required": ["top_logprobs"], "properties": {"top_logprobs": {"type": "integer"}}},
    "then": {"required": ["logprobs"], "properties": {"logprobs": {"const": True}}},
}


def _both(first: Json, second: Json) -> Json:
    """Return two such rules as one, without ``allOf``.

    With that, generators of clients take the fields beside it for those of a base class.
    """
    return {**first, "then": {**first["then"], **second}, "else": second}


def _completion_chunk(text: str, reason: str | None) -> Json:
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
    return _chunk("text_completion", choice)


def _chat_chunk(delta: Json, reason: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return _chunk("chat.completion.chunk", choice)


def _chunk(kind: str, *choices: Json, **more: Any) -> Json:
    head = {"id": _ID, "object": kind, "created": _CREATED, "model": _MODEL}
    return {**head, "choices": list(choices), **more}


def _stream_of(chunks: Iterable[Json]) -> str:
    frames = (f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n" for chunk in chunks)
    return "".join(frames) + "data: [DONE]\n\n"


_COMPLETION_EXAMPLE = {
    **_chunk(
        "text_completion",
        {
            "text": "Error correction works better.",
            "index": 0,
            "logprobs": None,
            "finish_reason": "stop",
        },
    ),
    "usage": _USAGE,
}
_COMPLETION_STREAM = _stream_of(
    (
        _completion_chunk("Error correction", None),
        _completion_chunk(" works better.", None),
        _completion_chunk("", "stop"),
    )
)
_CHAT_EXAMPLE = {
    **_chunk(
        "chat.completion",
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Error correction works better.",
                "refusal": None,
            },
            "logprobs": None,
            "finish_reason": "stop",
        },
    ),
    "usage": _USAGE,
}
_CHAT_STREAM = _stream_of(
    (
        _chat_chunk({"role": "assistant", "content": "Error correction"}, None),
        _chat_chunk({"content": " works better."}, None),
        _chat_chunk({}, "stop"),
    )
)


def _answer(body: str, chunk: str, example: Json, stream: str) -> Json:
    return {
        "description": (
            "The answer as one JSON body, or, with `stream: true`, as server-sent events.\n\n"
            "Each event of a stream is one `data:` line with a chunk and a blank line; the last "
            "is `data: [DONE]`.  A comment, `: keep-alive`, comes after a while of silence.  A "
            "failure after the stream has begun is an event with the error object in place of a "
            "chunk, and `data: [DONE]` follows it."
        ),
        "content": {
            "application/json": {"schema": ref(body), "examples": {"answer": {"value": example}}},
            "text/event-stream": {
                "schema": event_of(chunk, "Error"),
                "examples": {"stream": {"value": stream}},
            },
        },
    }


def _found(description: str, schema: str, example: Json, **more: Any) -> Json:
    content = {"schema": ref(schema), "examples": {"found": {"value": example}}}
    return {"description": description, "content": {"application/json": content}, **more}


_MESSAGES = [{"role": "user", "content": _QUESTION}]
_RESEARCH = {
    "reasoning_loops": 4,
    "source_timeout": 30,
    "reasoning_mode": True,
    "allow_early_exit": True,
    "exclude_social": False,
    "system_prompt": "You are a research assistant who sums up recent papers.",
}
_COMMON_NOTES = (
    "`null` is the same as an absent field.  Fields that are not known are ignored, unless the "
    "server was told to refuse them.  A body of the single key `body` is unwrapped.\n\n"
    "A parameter that only tunes is always accepted.  {refused} are honoured, or refused with a "
    "400 that names the parameter and the backend.\n\n"
    "How large a body may be, and how many prompts and choices one request may have, is set by the "
    "operator; more is a 413 or a 400."
)

OPERATIONS: Mapping[str, Operation] = {
    "create_completion": Operation(
        summary="Continue prompts",
        description=_COMMON_NOTES.format(
            refused="`n`, `best_of`, `logprobs`, `echo`, `suffix`, several prompts and token ids"
        ),
        body="CompletionRequest",
        body_examples={
            "plain": {
                "summary": "One prompt",
                "value": {"model": _MODEL, "prompt": _QUESTION, "max_tokens": 150},
            },
            "stream": {
                "summary": "A stream that ends with the usage",
                "value": {
                    "model": _MODEL,
                    "prompt": _QUESTION,
                    "stream": True,
                    "stream_options": {"include_usage": True},
                },
            },
            "several": {
                "summary": "Two prompts, sampled, with stop sequences",
                "value": {
                    "model": _MODEL,
                    "prompt": ["Once upon a time", "In the beginning"],
                    "temperature": 0.7,
                    "top_p": 0.9,
                    "stop": ["\n", "###"],
                    "seed": 42,
                },
            },
            "research": {
                "summary": "Research parameters",
                "value": {"model": _MODEL, "prompt": _QUESTION, "metadata": _RESEARCH},
            },
        },
        responses={
            "200": _answer("Completion", "CompletionChunk", _COMPLETION_EXAMPLE, _COMPLETION_STREAM)
        },
        errors=_ANSWER_ERRORS,
    ),
    "create_chat_completion": Operation(
        summary="Answer a chat",
        description=_COMMON_NOTES.format(refused="`n`, `logprobs`, images and audio"),
        body="ChatCompletionRequest",
        body_examples={
            "plain": {
                "summary": "One question",
                "value": {"model": _MODEL, "messages": _MESSAGES},
            },
            "stream": {
                "summary": "A stream",
                "value": {"model": _MODEL, "messages": _MESSAGES, "stream": True},
            },
            "research": {
                "summary": "A system message and research parameters",
                "value": {
                    "model": _MODEL,
                    "messages": [{"role": "system", "content": "Be brief."}, *_MESSAGES],
                    "metadata": {"reasoning_loops": 2, "excluded_domains": ["example.com"]},
                },
            },
        },
        responses={
            "200": _answer("ChatCompletion", "ChatCompletionChunk", _CHAT_EXAMPLE, _CHAT_STREAM)
        },
        errors=_ANSWER_ERRORS,
    ),
    "list_models": Operation(
        summary="List the models",
        description="What may be given as `model`; other names go to the default backend.",
        responses={
            "200": _found(
                "The models.",
                "ModelList",
                {"object": "list", "data": [_MODEL_EXAMPLE]},
                links={
                    "first": {
                        "operationId": "retrieve_model",
                        "parameters": {"model_id": "$response.body#/data/0/id"},
                        "description": "The first of the list.",
                    }
                },
            )
        },
        errors=_READ_ERRORS,
    ),
    "retrieve_model": Operation(
        summary="Describe one model",
        parameters={
            "model_id": {
                "description": (
                    "A name from the list, or any other that a route or a backend's name claims; "
                    "it may contain slashes."
                ),
                "schema": {"type": "string", "minLength": 1, "examples": [_MODEL]},
            }
        },
        responses={"200": _found("The model.", "Model", _MODEL_EXAMPLE)},
        errors=_READ_ERRORS,
    ),
}

SURFACE = Surface(
    tag="OpenAI-compatible",
    description=(
        "The wire of OpenAI's completions and chat completions, with Caesar's research parameters "
        "in `metadata`.  Errors have OpenAI's form."
    ),
    operations=OPERATIONS,
    schemas={
        # first those that the others refer to
        "StreamOptions": StreamOptionsSchema,
        "ResearchMetadata": MetadataSchema,
        "CompletionRequest": CompletionSchema,
        "ChatCompletionRequest": ChatSchema,
        "Error": ERROR_OBJECT,
        **answer_schemas.SCHEMAS,
    },
    keywords={
        "CompletionRequest": _STREAM_OPTIONS_NEED_STREAM,
        "ChatCompletionRequest": _both(_STREAM_OPTIONS_NEED_STREAM, _TOP_LOGPROBS_NEED_LOGPROBS),
    },
)
