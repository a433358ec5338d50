"""What the fields of :mod:`.fields` take, as JSON Schema 2020-12, for the API description."""

from __future__ import annotations

from collections.abc import Mapping
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
COERCED_BOOLEAN: Json = {
    "anyOf": [
        {"type": "boolean"},
        {"type": "string", "pattern": r"^\s*([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])\s*$"},
    ]
}
_TEXT_PART: Json = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"type": "string", "const": "text"}, "text": {"type": "string"}},
}
_CONTENT: tuple[Json, ...] = (
    {"type": "string"},
    {"type": "array", "items": _TEXT_PART, "minItems": 1, "description": "Parts of text."},
)
_NAME: Json = {"type": ["string", "null"]}
MESSAGE: Json = {
    "oneOf": [
        {
            "type": "object",
            "description": "What the answer must heed.",
            "required": ["role", "content"],
            "properties": {
                "role": {"type": "string", "enum": ["system", "developer", "user"]},
                "content": {"oneOf": list(_CONTENT)},
                "name": _NAME,
            },
        },
        {
            "type": "object",
            "description": "What was answered before; other members, as `tool_calls`, are kept.",
            "required": ["role"],
            "properties": {
                "role": {"type": "string", "enum": ["assistant", "tool", "function"]},
                "content": {"oneOf": [*_CONTENT, {"type": "null"}]},
                "name": _NAME,
            },
        },
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


def bounds(low: float | None, high: float | None) -> dict[str, float]:
    """Return the bounds of a number."""
    found = {"minimum": low, "maximum": high}
    return {name: bound for name, bound in found.items() if bound is not None}


def coerced_integer(low: int, high: int) -> Json:
    """Return what takes an integer from ``low`` (0 or more) to ``high``, or a string with one."""
    text = {"type": "string", "pattern": rf"^\s*0*({decimals(low, high)})\s*$"}
    return {"anyOf": [{"type": "integer", **bounds(low, high)}, text]}


def decimals(low: int, high: int) -> str:
    """Return a regular expression for the numbers from ``low`` (0 or more) to ``high``.

    >>> decimals(3, 24)
    '[3-9]|1[0-9]|2[0-4]'
    """
    last_digits: dict[int, list[int]] = {}
    for number in range(low, high + 1):
        last_digits.setdefault(number // 10, []).append(number % 10)
    tens: dict[str, list[str]] = {}
    for ten, digits in last_digits.items():
        last = str(digits[0]) if len(digits) == 1 else f"[{digits[0]}-{digits[-1]}]"
        tens.setdefault(last, []).append(str(ten) if ten else "")
    return "|".join(
        (first[0] if len(first) == 1 else f"({'|'.join(first)})") + last
        for last, first in tens.items()
    )
