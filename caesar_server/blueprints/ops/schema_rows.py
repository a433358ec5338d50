"""From a JSON Schema to the rows of a table: name, type in words, default, meaning.  Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from caesar_server.web.description import Json

#: Deeper members are not listed one by one.
_MAX_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Row:
    """One member of a body, or one variable of a path.

    :param name: its path, such as ``choices[].text``.
    :param type: in words.
    :param bounds: in words, or empty.
    :param default: as JSON, or empty.
    """

    name: str
    type: str
    bounds: str
    required: bool
    default: str
    meaning: str


def member_row(
    document: Json, name: str, schema: Json, *, required: bool, meaning: str = ""
) -> Row:
    """Return the row of a member with this schema.

    :param meaning: instead of the schema's own description.
    """
    target = reference(document, schema)
    kinds = type_words(document, schema)
    nullable = "null" in kinds and kinds != "null"
    plain = kinds.removesuffix(" or null")
    return Row(
        name=name,
        # An optional member that is null is as good as absent.
        type=f"{plain} or null" if nullable and required else plain,
        bounds=bounds_words(document, schema),
        required=required,
        default=json.dumps(schema["default"]) if "default" in schema else "",
        meaning=meaning or schema.get("description") or target.get("description", ""),
    )


def reference(document: Json, item: Json) -> Json:
    """Return what ``item`` refers to, or ``item`` itself."""
    while "$ref" in item:
        target: Any = document
        for key in item["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        item = target
    return item


def schema_rows(document: Json, schema: Json, prefix: str = "", depth: int = 0) -> Iterator[Row]:
    """Yield a row for each member of an object, followed by the rows of what is inside it."""
    schema = reference(document, schema)
    required = schema.get("required", ())
    members = schema.get("properties", {}).items()
    for name, member in sorted(members, key=lambda item: item[0] not in required):
        path = f"{prefix}{name}"
        yield member_row(document, path, member, required=name in required)
        if depth < _MAX_DEPTH:
            for inner, suffix in _objects_in(document, member):
                yield from schema_rows(document, inner, f"{path}{suffix}.", depth + 1)


def _objects_in(document: Json, schema: Json, suffix: str = "") -> Iterator[tuple[Json, str]]:
    """Yield the objects that a value is or holds, with what leads to them."""
    schema = reference(document, schema)
    for option in _options(schema):
        yield from _objects_in(document, option, suffix)
    if "properties" in schema:
        yield schema, suffix
    if "items" in schema:
        yield from _objects_in(document, schema["items"], suffix + "[]")


def _options(schema: Json) -> list[Json]:
    return [option for key in ("oneOf", "anyOf") for option in schema.get(key, ())]


def type_words(document: Json, schema: Json) -> str:
    """Return the type of a value in words, null last.

    >>> type_words({}, {"type": "array", "items": {"type": ["string", "null"]}})
    'list of strings or null'
    """
    words = list(dict.fromkeys(_words(document, schema)))
    return " or ".join(sorted(words, key=lambda word: word == "null"))


def _words(document: Json, schema: Json) -> Iterator[str]:
    schema = reference(document, schema)
    kinds = schema.get("type", "anything")
    if options := _options(schema):
        for option in options:
            yield from _words(document, option)
    elif "const" in schema:
        yield json.dumps(schema["const"])
    elif "enum" in schema:
        yield from map(json.dumps, schema["enum"])
    else:
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            yield _list_words(document, schema) if kind == "array" else kind


def _list_words(document: Json, schema: Json) -> str:
    items = type_words(document, schema.get("items", {})).split(" or ")
    return f"list of {' or '.join(map(_plural, items))}"


def _plural(words: str) -> str:
    first, *rest = words.split(" ", 1)
    plural = first if first in ("null", "anything") or first.startswith('"') else f"{first}s"
    return " ".join((plural, *rest))


def bounds_words(document: Json, schema: Json) -> str:
    """Return the bounds of a value in words, or an empty string.

    >>> bounds_words({}, {"type": ["integer", "null"], "minimum": 1, "maximum": 9})
    '1 to 9'
    """
    schema = reference(document, schema)
    found = [_bounds(option) for option in (schema, *_options(schema))]
    return "; ".join(dict.fromkeys(filter(None, found)))


def _bounds(schema: Json) -> str:
    for low_name, high_name, unit in (
        ("minimum", "maximum", ""),
        ("minItems", "maxItems", " items"),
        ("minLength", "maxLength", " characters"),
    ):
        low, high = schema.get(low_name), schema.get(high_name)
        if unit and low == 1 and high is None:
            return "not empty"
        if low is not None and high is not None:
            return f"{_number(low)} to {_number(high)}{unit}"
        if low is not None:
            return f"at least {_number(low)}{unit}"
        if high is not None:
            return f"at most {_number(high)}{unit}"
    return ""


def _number(value: float) -> str:
    # 64-bit integers say less than their power of two
    if abs(value) > 2**53:
        return "-2^63" if value < 0 else "2^63 - 1"
    return f"{value:.12g}"
