"""JSON Schema of conditions: what :mod:`caesar_server.mock.matching.data` takes."""

from __future__ import annotations

from typing import Any

from caesar_server.mock.matching.asked import PATH_PATTERN
from caesar_server.mock.matching.data import IGNORE_CASE, OPERATORS

Json = dict[str, Any]

_OPERATORS_REF = {"$ref": "#/$defs/Operators"}
_VALUE_REF = {"$ref": "#/$defs/Value"}
#: An object that says something of a value, and is no value itself.
_HAS_OPERATORS: Json = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"enum": [*OPERATORS, IGNORE_CASE]},
}


def when_definitions() -> Json:
    """Return the schemas ``When``, ``Operators``, ``Named`` and ``Value``."""
    return {"When": _when(), "Operators": _operators(), "Named": _named(), "Value": _value()}


def _when() -> Json:
    text, names = _or_operators({"type": "string"}), {"$ref": "#/$defs/Named"}
    number = _or_operators({"type": "integer", "minimum": 1})
    header = {"anyOf": [{"type": ["string", "null"]}, _OPERATORS_REF]}
    return {
        "description": "What a call must have, all of it.  A plain value means exactly this one.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "prompt": _said(
                text, "The prompt, the last user message, the query, or the follow-up question."
            ),
            "messages": _said(
                _or_operators({"type": "array", "items": _VALUE_REF}),
                "The messages of a chat; operators for text look at each of them.",
            ),
            "query": _said(text, "The query of a research or brainstorm request."),
            "model": _said(text, "The model's name; a plain value may have `*`, `?` and `[...]`."),
            "metadata": _said(
                names,
                "The request's metadata, or the parameters in the body of a research request: "
                "name -> value; null: not there.",
            ),
            "headers": {
                "description": "Header -> value, in any case of its name; null: not there.",
                "type": "object",
                "additionalProperties": header,
            },
            "path": _said(
                _or_operators({"type": "string", "pattern": PATH_PATTERN}),
                "The path, such as `/compat/completions`, also where an alias of it was asked for; "
                "a plain value may have `*`, `?` and `[...]`, or `{id}` for one step that is an "
                "id, as in `/research/{id}`.  It has no query.",
            ),
            "method": _said(text, "The HTTP method."),
            "stream": _said(_or_operators({"type": "boolean"}), "Whether a stream was asked for."),
            "attempt": _said(
                number, "1 for the first try of a call, one more with each retry of the client."
            ),
            "turn": _said(number, "Of a chat: one more than the answers so far."),
            "body": _said(names, "The JSON body: name -> value; null: not there."),
            "jmespath": {
                "description": "A JMESPath expression, or several, that must find something true "
                "in the JSON body.",
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}},
                ],
            },
        },
    }


def _operators() -> Json:
    text = {"type": "string"}
    return {
        "description": "What a value must be like; all that is said must hold.",
        "type": "object",
        "additionalProperties": False,
        "anyOf": [{"required": [name]} for name in OPERATORS],
        "properties": {
            "exact": {"description": "Equal to this."},
            "contains": {
                "description": "Has this text in it, or all of several.",
                "anyOf": [text, {"type": "array", "items": text, "minItems": 1}],
            },
            "regex": _said(text, "A regular expression of Python that is found in it."),
            "glob": _said(text, "`*`: any characters, `?`: one, `[ab]`: either."),
            "anything": {"description": "It is there.", "const": True},
            "absent": {"description": "It is not there.", "const": True},
            IGNORE_CASE: {
                "description": "Of `exact`, `contains` and `regex`: in any case of the letters.",
                "type": "boolean",
            },
        },
        "if": {"required": ["exact", IGNORE_CASE], "properties": {IGNORE_CASE: {"const": True}}},
        "then": {"properties": {"exact": text}},
    }


def _named() -> Json:
    """Return the schema of what has names inside, which may be asked for as a whole, too."""
    return {
        "if": _HAS_OPERATORS,
        "then": _OPERATORS_REF,
        "else": {
            "type": "object",
            "additionalProperties": _VALUE_REF,
        },
    }


def _value() -> Json:
    """Return the schema of a value of JSON, inside of which operators may stand for others."""
    return {
        "description": "Equal to this; an object of operators says what is like it, at any depth.",
        "if": _HAS_OPERATORS,
        "then": _OPERATORS_REF,
        "else": {"items": _VALUE_REF, "additionalProperties": _VALUE_REF},
    }


def _or_operators(plain: Json) -> Json:
    return {"anyOf": [plain, _OPERATORS_REF]}


def _said(schema: Json, description: str) -> Json:
    return {"description": description, **schema}
