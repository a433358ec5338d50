"""JSON form of the contract's frozen dataclasses: a plain object with a ``type`` key.

Requests and events travel between processes and machines (a job may be taken over by another one),
so each of them survives ``from_json(to_json(value)) == value``.  Keys that a reader does not know
are ignored, which lets a later minor version of the contract add fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Tagged(Protocol):
    """A frozen dataclass with a class attribute ``type`` that names it on the wire."""

    type: ClassVar[str]


def to_json(value: Tagged) -> dict[str, Any]:
    """Return ``value`` as a dict of JSON types (keys become strings, lists may stay tuples).

    :raises TypeError: if a field holds something that JSON cannot carry.
    """
    body = msgspec.to_builtins(value, str_keys=True)
    return {"type": value.type, **body}


def from_json(data: object, types: Mapping[str, type[T]], what: str) -> T:
    """Return the value that :func:`to_json` turned into ``data``.

    :param types: wire name -> class.
    :param what: the noun for error messages, such as ``"event"``.
    :raises ValueError: if ``data`` is no object, its ``type`` is unknown or a field does not fit.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{what}: expected an object, got {type(data).__name__}")
    name = data.get("type")
    cls = types.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"{what}: unknown type {name!r}; known: {', '.join(sorted(types))}")
    fields = {key: item for key, item in data.items() if key != "type"}
    try:
        return msgspec.convert(fields, cls, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"{what} {name}: {error}") from error
