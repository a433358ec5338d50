"""Members of a body that the API does not define, for hosts who refuse them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from caesar_server.blueprints.compat.messages import (
    MESSAGE_MEMBERS,
    NESTED_MEMBERS,
    PART_MEMBERS,
)
from caesar_server.blueprints.compat.nested_schemas import StreamOptionsSchema
from caesar_server.web.errors import printable

_MAX_CHARS = 200
_PART_TYPES = ("text", "refusal", *NESTED_MEMBERS)
_STREAM_OPTIONS_MEMBERS = frozenset(StreamOptionsSchema().fields)


def unknown_members(body: Any, known: Collection[str]) -> Iterator[str]:
    """Yield the path of each member of a body that is neither known nor null.

    Those of the body itself come first, by name.  What ``metadata``, ``tools`` and the like hold is
    up to the caller and the backend.  A value of a wrong type is passed over: loading tells of it.

    :param known: names of the body's own members.
    """
    yield from sorted(_beyond(body, known))
    for name in _beyond(body.get("stream_options"), _STREAM_OPTIONS_MEMBERS):
        yield f"stream_options.{name}"
    for index, message in enumerate(_items(body.get("messages"))):
        for path in _in_message(message):
            yield f"messages[{index}].{path}"


def _in_message(message: Any) -> Iterator[str]:
    yield from _beyond(message, MESSAGE_MEMBERS)
    content = message.get("content") if isinstance(message, dict) else None
    for index, part in enumerate(_items(content)):
        if not isinstance(part, dict) or part.get("type") not in _PART_TYPES:
            continue  # of a kind that is refused as such
        for name in _beyond(part, PART_MEMBERS):
            yield f"content[{index}].{name}"
        for kind, members in NESTED_MEMBERS.items():
            for name in _beyond(part.get(kind), members):
                yield f"content[{index}].{kind}.{name}"


def _beyond(value: Any, known: Collection[str]) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in known and item is not None:
                # what is not printable grew by being written out
                yield printable(name)[:_MAX_CHARS]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
