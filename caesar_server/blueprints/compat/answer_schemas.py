"""What the compat surface answers, as JSON Schema 2020-12, for the API description.

Written after OpenAI's API description 2.3.0; ``caesar`` and ``reasoning_content`` are additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server.web.description import Json, ref


def _object(description: str, **properties: Json) -> Json:
    """Return an object whose members are always there."""
    return {
        "type": "object",
        "description": description,
        "required": list(properties),
        "properties": properties,
    }


def _with_optional(schema: Json, **properties: Json) -> Json:
    """Return an object that may have these members besides."""
    return {**schema, "properties": {**schema["properties"], **properties}}


def _nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Json, **keywords: Any) -> Json:
    return {"type": "array", "items": items, **keywords}


_TEXT: Json = {"type": "string"}
# always null here; as OpenAI types it, for generators of clients know no type that is null alone
_REFUSAL: Json = {"type": ["string", "null"], "description": "Null."}
_LOGPROB: Json = {"type": "number", "maximum": 0, "description": "Natural logarithm."}
_COUNT: Json = {"type": "integer", "minimum": 0}
_INDEX: Json = {**_COUNT, "description": "Position of the prompt times `n`, plus 0 to `n` - 1."}
_REASON: Json = {
    "type": "string",
    "enum": ["stop", "length", "content_filter"],
    "description": "`length`: cut by `max_tokens`.",
}
_REASON_SO_FAR: Json = {
    "type": ["string", "null"],
    "enum": ["stop", "length", "content_filter", None],
    "description": "Null until the choice ends; then told exactly once.",
}
_COMPLETION_LOGPROBS = _nullable(ref("CompletionLogprobs"))
_CHAT_LOGPROBS = _nullable(ref("ChatLogprobs"))


def _envelope(kind: str, **more: Json) -> Mapping[str, Json]:
    return {
        "id": {"type": "string", "format": "uuid", "description": "The job's id."},
        "object": {"type": "string", "const": kind},
        "created": {"type": "integer", "description": "Unix seconds."},
        "model": {"type": "string", "description": "The name that the client asked for."},
        **more,
    }


_CHUNK: Mapping[str, Json] = {
    "usage": {
        "anyOf": [ref("Usage"), {"type": "null"}],
        "description": "Only with `include_usage`: null until the last chunk.",
    },
    "caesar": ref("Progress"),
}

SCHEMAS: Mapping[str, Json] = {
    "Usage": _object(
        "Tokens, or words where a backend counts no tokens; a prompt counts once.",
        prompt_tokens=_COUNT,
        completion_tokens=_COUNT,
        total_tokens=_COUNT,
    ),
    "Progress": _object(
        "What the research is doing; its chunk has no content.",
        id=_TEXT,
        status={"type": "string", "examples": ["searching"]},
        message=_TEXT,
    ),
    "CompletionLogprobs": _object(
        "Four arrays of equal length, one item a token.",
        tokens=_list(_TEXT),
        token_logprobs=_list(_nullable(_LOGPROB)),
        top_logprobs=_list({"type": ["object", "null"], "additionalProperties": _LOGPROB}),
        text_offset=_list(_COUNT, description="Characters of the choice before the token."),
    ),
    "Completion": _object(
        "A whole text completion.",
        **_envelope(
            "text_completion",
            choices=_list(
                _object(
                    "One choice.",
                    text=_TEXT,
                    index=_INDEX,
                    logprobs=_COMPLETION_LOGPROBS,
                    finish_reason=_REASON,
                ),
                minItems=1,
            ),
            usage=ref("Usage"),
        ),
    ),
    "CompletionChunk": _with_optional(
        _object(
            "A piece of a streamed text completion.",
            **_envelope(
                "text_completion",
                choices=_list(
                    _object(
                        "More of one choice.",
                        text=_TEXT,
                        index=_INDEX,
                        logprobs=_COMPLETION_LOGPROBS,
                        finish_reason=_REASON_SO_FAR,
                    ),
                    maxItems=1,
                ),
            ),
        ),
        **_CHUNK,
    ),
    "ChatToken": _object(
        "A token with its log probability.",
        token=_TEXT,
        logprob=_LOGPROB,
        bytes=_list({"type": "integer", "minimum": 0, "maximum": 255}),
    ),
    "ChatLogprobs": _object(
        "The tokens of the content.",
        content=_list(
            _object(
                "A token and the most likely ones in its place.",
                token=_TEXT,
                logprob=_LOGPROB,
                bytes=_list({"type": "integer", "minimum": 0, "maximum": 255}),
                top_logprobs=_list(ref("ChatToken")),
            )
        ),
        refusal=_REFUSAL,
    ),
    "ChatCompletion": _object(
        "A whole answer to a chat.",
        **_envelope(
            "chat.completion",
            choices=_list(
                _object(
                    "One choice.",
                    index=_INDEX,
                    message=_with_optional(
                        _object(
                            "The answer.",
                            role={"type": "string", "const": "assistant"},
                            content=_TEXT,
                            refusal=_REFUSAL,
                        ),
                        reasoning_content={"type": "string", "description": "Thinking aloud."},
                    ),
                    logprobs=_CHAT_LOGPROBS,
                    finish_reason=_REASON,
                ),
                minItems=1,
            ),
            usage=ref("Usage"),
        ),
    ),
    "ChatCompletionChunk": _with_optional(
        _object(
            "A piece of a streamed answer to a chat.",
            **_envelope(
                "chat.completion.chunk",
                choices=_list(
                    _object(
                        "More of one choice.",
                        index=_INDEX,
                        delta={
                            "type": "object",
                            "description": "What is new; the first one of a choice has the role.",
                            "properties": {
                                "role": {"type": "string", "const": "assistant"},
                                "content": _TEXT,
                                "reasoning_content": {
                                    "type": "string",
                                    "description": "Thinking aloud, or progress.",
                                },
                            },
                        },
                        logprobs=_CHAT_LOGPROBS,
                        finish_reason=_REASON_SO_FAR,
                    ),
                    maxItems=1,
                ),
            ),
        ),
        **_CHUNK,
    ),
    "Model": _object(
        "A model that may be asked for.",
        id=_TEXT,
        object={"type": "string", "const": "model"},
        created={"type": "integer", "description": "Unix seconds."},
        owned_by=_TEXT,
    ),
    "ModelList": _object(
        "All models.", object={"type": "string", "const": "list"}, data=_list(ref("Model"))
    ),
}
