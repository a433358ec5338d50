"""The contract's values, and their JSON form: a plain object with a ``type`` key.

Requests and events travel between processes and machines (a job may be taken over by another one),
so each of them survives ``from_json(to_json(value)) == value``.  Keys that a reader does not know
are ignored, which lets a later minor version of the contract add fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, make_dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class _DataclassFields:
    """Tells :mod:`dataclasses` of the fields of msgspec's classes, once they are asked for.

    A class cannot be given to its decorator: of one without a docstring that asks msgspec for the
    signature, which crashes the interpreter as long as the class is not complete.
    """

    def __init__(self) -> None:
        self._known: dict[type[msgspec.Struct], dict[str, Field[Any]]] = {}

    def __get__(self, instance: object, owner: type[msgspec.Struct]) -> dict[str, Field[Any]]:
        found = self._known.get(owner)
        if found is None:
            twin: Any = make_dataclass(owner.__name__, owner.__struct_fields__)
            found = self._known[owner] = twin.__dataclass_fields__
        return found


class Value(msgspec.Struct, frozen=True):
    """The base of requests and events, which are made often.

    They are as frozen dataclasses with slots, but msgspec makes them, in a tenth of the time.
    ``dataclasses.replace`` and its kin take them all the same.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]] = _DataclassFields()  # type: ignore[assignment]


class Tagged(Protocol):
    """A value with a class attribute ``type`` that names it on the wire."""

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
