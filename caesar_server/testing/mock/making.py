"""Replies, faults and what else a test gives by its fields, checked as in fixture files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from caesar_server.mock.files.shapes import read
from caesar_server.mock.model.fault import Fault
from caesar_server.mock.model.reply import Reply
from caesar_server.mock.scope import Fallback

_S = TypeVar("_S", bound=msgspec.Struct)


def make(what: str, kind: type[_S], value: _S | Mapping[str, Any]) -> _S:
    """Return ``value`` as a ``kind``, checked.

    :param what: for people.
    :raises ValueError: naming the field, if something in it is wrong.
    """
    if not isinstance(value, (msgspec.Struct, Mapping)):
        raise ValueError(f"{what}: expected a {kind.__name__} or its fields, got {value!r}")
    found: _S | None
    found, problems = read(_as_data(value), kind)
    if found is None:
        raise ValueError("; ".join(f"{what}: {problem}" for problem in problems))
    return found


def _as_data(value: Any) -> Any:
    """Return a value as files have it, in whose words its problems are told."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        return {name: _as_data(member) for name, member in value.items()}
    return [_as_data(item) for item in value] if isinstance(value, (list, tuple)) else value


def as_reply(value: str | Sequence[str] | Reply | Mapping[str, Any]) -> Reply:
    """Return what was given for a reply as one.

    :raises ValueError: naming the field, if something in it is wrong.
    """
    if isinstance(value, (Reply, Mapping)):
        return make("reply", Reply, value)
    given: Any = value  # tests are seldom checked for their types
    if isinstance(given, (bytes, bytearray)) or not isinstance(given, Sequence):
        raise ValueError(f"reply: expected a text, several texts or a Reply, got {given!r}")
    return make("reply", Reply, {"text": given if isinstance(given, str) else list(given)})


def as_faults(values: Iterable[Fault | Mapping[str, Any]]) -> tuple[Fault, ...]:
    """Return what was given for faults as such.

    :raises ValueError: naming the field, if something in one is wrong.
    """
    if isinstance(values, (Fault, Mapping, str)) or not isinstance(values, Iterable):
        raise ValueError(f"faults: expected a list of faults, got {values!r}")
    return tuple(make("fault", Fault, one) for one in values)


def as_fallback(value: str | Reply | Mapping[str, Any]) -> Fallback:
    """Return what was given for a fallback as one.

    :raises ValueError: if it is none, or something in its reply is wrong.
    """
    if not isinstance(value, str):
        return as_reply(value)
    if value not in ("echo", "error"):
        raise ValueError(f"fallback: expected 'echo', 'error' or a reply, got {value!r}")
    return cast(Fallback, value)
