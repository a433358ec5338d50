"""What is wrong with a value, in words, and where in a body it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from marshmallow import ValidationError, fields

_MAX_SHOWN = 60
_MARSHMALLOW_REQUIRED = fields.Field.default_error_messages["required"]


class WrongType(str):
    """A message about a value of a JSON type that its field does not take.

    marshmallow keeps the messages of its errors as they are, and nothing else of them.
    """

    __slots__ = ()


class Problem(NamedTuple):
    """Something wrong in a body.

    :param path: of the field, such as ``answers[0].question_id``; empty for the body itself.
    :param text: what was expected there and what was got.
    """

    path: str
    text: str

    @property
    def is_type(self) -> bool:
        """Whether the value is of a JSON type that its field does not take."""
        return isinstance(self.text, WrongType)

    @property
    def is_missing(self) -> bool:
        """Whether there is no value, and must be one."""
        return self.text == REQUIRED

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else str(self.text)


#: The text of a :class:`Problem` with a field that is not there.
REQUIRED = "required and missing"


def shown(value: object) -> str:
    """Return ``value`` for a message: as JSON types are named, and short."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array" if value else "an empty array"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def wrong(expected: str, value: object) -> ValidationError:
    """Return the error for a value that is not what was expected."""
    return ValidationError(f"expected {expected}, got {shown(value)}")


def wrong_type(expected: str, value: object) -> ValidationError:
    """Return the error for a value whose JSON type is not what was expected."""
    return ValidationError(WrongType(f"expected {expected}, got {shown(value)}"))


def problems_in(error: ValidationError) -> Iterator[Problem]:
    """Yield what marshmallow's tree of messages says, in the order of the schema's fields."""
    return _flatten(error.messages, "")


def _flatten(messages: Any, path: str) -> Iterator[Problem]:
    if isinstance(messages, Mapping):
        for key, item in messages.items():
            yield from _flatten(item, _joined_path(path, key))
    elif isinstance(messages, (list, tuple)):
        for item in messages:
            yield from _flatten(item, path)
    else:
        yield Problem(path, REQUIRED if messages == _MARSHMALLOW_REQUIRED else messages)


def _joined_path(path: str, key: object) -> str:
    if key == "_schema":
        return path
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)
