"""Fields of a request that OpenAI's API does not define, as llama.cpp and vLLM call them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from caesar_backend_local_llm.engine.grammars.grammar import (
    GrammarError,
    grammar_of_choices,
    grammar_of_gbnf,
    grammar_of_regex,
    grammar_of_schema,
)
from caesar_server.contract import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar that the text must follow.

    :param grammar: in the notation of ``engine.grammars.grammar.Grammars``.
    :param param: the field of the request that it comes from.
    """

    grammar: str
    param: str


def field_of(extra: Mapping[str, Any], name: str, kind: type, what: str) -> Any:
    """Return a further field of the request, or None if it is absent or null.

    :param what: the expected type in words.
    :raises InvalidRequestError: if it is of another type.
    """
    value = extra.get(name)
    if value is not None and not isinstance(value, kind):
        raise _unexpected(name, what, value)
    return value


def number_of(extra: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    """Return a number of the request, or None if it is absent or null.

    :raises InvalidRequestError: if it is none, or out of range.
    """
    value = extra.get(name)
    if value is None:
        return None
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or not low <= value <= high:
        raise _unexpected(name, f"a number from {low:g} to {high:g}", value)
    return float(value)


def constraint_of(extra: Mapping[str, Any], *, allowed: bool) -> Constraint | None:
    """Return the grammar that a request asks for, or None.

    It may be ``response_format`` (OpenAI), ``json_schema`` or ``grammar`` (llama.cpp),
    ``guided_json`` and the like, or ``structured_outputs`` (vLLM).

    :param allowed: whether the operator lets requests have one.
    :raises InvalidRequestError: if there are two, one is wrong, or none is allowed.
    """
    found = [
        constraint
        for constraint in (
            _response_format(extra),
            _schema(extra.get("json_schema"), "json_schema"),
            _gbnf(extra.get("grammar"), "grammar"),
            *(_guided(extra, kind, f"guided_{kind}") for kind in _KINDS),
            *_structured(extra),
        )
        if constraint is not None
    ]
    if len(found) > 1:
        raise InvalidRequestError(
            f"{found[1].param}: there is a {found[0].param} too; send one of them",
            param=found[1].param,
        )
    if found and not allowed:
        raise InvalidRequestError(
            f"{found[0].param}: this model answers without grammars and schemas",
            param=found[0].param,
            code="unsupported_parameter",
        )
    return found[0] if found else None


def _response_format(extra: Mapping[str, Any]) -> Constraint | None:
    form = field_of(extra, "response_format", dict, "an object")
    kind = None if form is None else form.get("type")
    if form is None or kind == "text":
        return None
    if kind == "json_object":
        # llama.cpp's server takes a schema there, too
        return _schema(form.get("schema") or {"type": "object"}, "response_format.schema")
    if kind == "json_schema":
        inner = form.get("json_schema")
        if isinstance(inner, Mapping) and inner.get("schema") is not None:
            return _schema(inner["schema"], "response_format.json_schema.schema")
        raise _unexpected("response_format.json_schema.schema", "a JSON schema", inner)
    raise _unexpected("response_format.type", "text, json_object or json_schema", kind)


def _guided(form: Mapping[str, Any], kind: str, name: str, within: str = "") -> Constraint | None:
    return _KINDS[kind](form.get(name), f"{within}{name}")


def _structured(extra: Mapping[str, Any]) -> list[Constraint | None]:
    form = field_of(extra, "structured_outputs", dict, "an object")
    if form is None:
        return []
    found = [_guided(form, kind, kind, "structured_outputs.") for kind in _KINDS]
    if not any(found):
        raise _unexpected("structured_outputs", " or ".join(_KINDS), form)
    return found


def _schema(schema: object, param: str) -> Constraint | None:
    if schema is None:
        return None
    if isinstance(schema, str):
        schema = _parsed(schema, param)
    return _constraint(grammar_of_schema, schema, param, "JSON schema")


def _parsed(text: str, param: str) -> object:
    """Return a schema that came as text, as vLLM takes it, too."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _unexpected(param, "a JSON schema", text) from None


def _choice(choices: object, param: str) -> Constraint | None:
    if choices is None:
        return None
    good = isinstance(choices, list) and choices and all(isinstance(one, str) for one in choices)
    if not good:
        raise _unexpected(param, "a list of texts", choices)
    return _constraint(grammar_of_choices, choices, param, "choice")


def _regex(pattern: object, param: str) -> Constraint | None:
    if pattern is None:
        return None
    if not isinstance(pattern, str):
        raise _unexpected(param, "a regular expression", pattern)
    return _constraint(grammar_of_regex, pattern, param, "regular expression")


def _gbnf(grammar: object, param: str) -> Constraint | None:
    if grammar is None or grammar == "":
        return None
    if not isinstance(grammar, str):
        raise _unexpected(param, "a grammar in GBNF", grammar)
    return _constraint(grammar_of_gbnf, grammar, param, "grammar")


#: How vLLM calls what a text may have to follow.
_KINDS: Mapping[str, Callable[[object, str], Constraint | None]] = {
    "json": _schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _gbnf,
}


def _constraint(
    grammar_of: Callable[[Any], str], value: object, param: str, what: str
) -> Constraint:
    try:
        return Constraint(grammar_of(value), param)
    except GrammarError as error:
        raise InvalidRequestError(f"{param}: no usable {what}: {error}", param=param) from error


def _unexpected(name: str, what: str, value: object) -> InvalidRequestError:
    return InvalidRequestError(f"{name}: expected {what}, got {value!r:.80}", param=name)
