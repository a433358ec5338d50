"""What the fields of :mod:`.fields` take, as JSON Schema 2020-12, for the API description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

_TOKENS: Json = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    "minItems": 1,
    "description": "One prompt as token ids, for a backend that takes them.",
}
PROMPT: Json = {
    "oneOf": [
        {"type": "string", "minLength": 1, "description": "One prompt."},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "description": "Several prompts.",
        },
        _TOKENS,
        {
            "type": "array",
            "items": _TOKENS,
            "minItems": 1,
            "description": "Several prompts as token ids.",
        },
    ]
}
STOP: Json = {
    "oneOf": [
        {"type": "string", "minLength": 1, "description": "One sequence."},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "maxItems": 4,
            "description": "Up to four sequences; an empty list is none.",
        },
        {"type": "null"},
    ]
}
LOGIT_BIAS: Json = {
    "type": "object",
    "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
    "propertyNames": {"pattern": "^[0-9]{1,10}$"},
}
_TEXT_PART: Json = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"type": "string", "const": "text"}, "text": {"type": "string"}},
}
_REFUSAL_PART: Json = {
    "type": "object",
    "required": ["type", "refusal"],
    "properties": {"type": {"type": "string", "const": "refusal"}, "refusal": {"type": "string"}},
}
_FILE_ID: Json = {
    "type": "string",
    "minLength": 1,
    "maxLength": 128,
    "description": "Id of an uploaded file; no base64, no URL.",
}
FILE_PART: Json = {
    "type": "object",
    "description": "A file of the caller's, for a backend that reads files.",
    "required": ["type", "file"],
    "properties": {
        "type": {"type": "string", "const": "file"},
        "file": {
            "type": "object",
            "minProperties": 1,
            "properties": {
                "file_id": _FILE_ID,
                "fileData": _FILE_ID,
                "file_data": _FILE_ID,
                "filename": {"type": "string"},
            },
        },
    },
}
_IMAGE_PART: Json = {
    "type": "object",
    "description": "An image, for a backend that takes images.",
    "required": ["type", "image_url"],
    "properties": {
        "type": {"type": "string", "const": "image_url"},
        "image_url": {
            "type": "object",
            "required": ["url"],
            "properties": {
                "url": {
                    "type": "string",
                    # JSON Schema's patterns have no switch for upper and lower case
                    "pattern": "^([hH][tT][tT][pP][sS]?://|[dD][aA][tT][aA]:)",
                    "description": "Where it is, or itself as a `data:` URL.",
                },
                "detail": {
                    "type": ["string", "null"],
                    "enum": ["auto", "low", "high", None],
                    "description": "How closely to look.",
                },
            },
        },
    },
}
_AUDIO_PART: Json = {
    "type": "object",
    "description": "Recorded sound, for a backend that takes audio.",
    "required": ["type", "input_audio"],
    "properties": {
        "type": {"type": "string", "const": "input_audio"},
        "input_audio": {
            "type": "object",
            "required": ["data", "format"],
            "properties": {
                "data": {
                    "type": "string",
                    "minLength": 1,
                    "pattern": "^([A-Za-z0-9+/]{4})*"
                    "([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$",
                    "contentEncoding": "base64",
                },
                "format": {"type": "string", "enum": ["wav", "mp3"]},
            },
        },
    },
}
_TEXT: Json = {"type": "string"}
_PARTS: Json = {
    "type": "array",
    "items": {"oneOf": [_TEXT_PART, FILE_PART]},
    "minItems": 1,
    "description": "Parts: texts and files.",
}
_USER_PARTS: Json = {
    **_PARTS,
    "items": {"oneOf": [_TEXT_PART, FILE_PART, _IMAGE_PART, _AUDIO_PART]},
    "description": "Parts: texts, files, images and audio.",
}
_SAID_PARTS: Json = {
    **_PARTS,
    "items": {"oneOf": [_TEXT_PART, FILE_PART, _REFUSAL_PART]},
    "description": "Parts: texts, files and refusals.",
}


def _message(
    description: str, roles: Sequence[str], *contents: Json, required: Sequence[str]
) -> Json:
    return {
        "type": "object",
        "description": description,
        "required": list(required),
        "properties": {
            "role": {"type": "string", "enum": list(roles)},
            "content": {"oneOf": list(contents)},
            "name": {"type": ["string", "null"]},
        },
    }


_NULL: Json = {"type": "null"}
_SAID = "What was said before; other members, as `tool_calls`, are kept."
MESSAGE: Json = {
    "oneOf": [
        _message(
            "What the answer must heed.",
            ("system", "developer"),
            *(_TEXT, _PARTS),
            required=("role", "content"),
        ),
        _message("What is asked.", ("user",), _TEXT, _USER_PARTS, required=("role", "content")),
        _message(_SAID, ("assistant",), _TEXT, _SAID_PARTS, _NULL, required=("role",)),
        _message(_SAID, ("tool", "function"), _TEXT, _PARTS, _NULL, required=("role",)),
    ]
}
#: Among the messages of a chat one must be the user's.
HAS_USER_MESSAGE: Json = {
    "contains": {
        "type": "object",
        "required": ["role"],
        "properties": {"role": {"const": "user"}},
    }
}
