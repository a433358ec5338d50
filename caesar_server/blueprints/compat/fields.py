"""marshmallow fields for OpenAI's types: strict about JSON types, clear about what was expected.

marshmallow's own fields take ``"4"`` for an integer and ``1`` for true.  OpenAI's API does not, but
values of Caesar's ``metadata`` may be strings, since OpenAI types metadata as string to string.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields

from caesar_server.blueprints.compat import json_schemas

_MAX_SHOWN = 60


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


class Integer(fields.Integer):
    """A JSON integer within bounds; ``4.0`` counts as 4, booleans and strings do not.

    :param low: the least value, or None.
    :param high: the greatest value, or None.
    :param coerce: also take a string that holds an integer.
    """

    def __init__(
        self, *, low: int | None = None, high: int | None = None, coerce: bool = False, **kw: Any
    ) -> None:
        if coerce and low is not None and high is not None:
            schema = json_schemas.coerced_integer(low, high)
        else:
            schema = json_schemas.bounds(low, high)
        super().__init__(metadata=_described(kw, schema), **kw)
        self.low, self.high, self.coerce = low, high, coerce

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> int:
        number = value
        if self.coerce and isinstance(value, str):
            number = _number(value)
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        fits = isinstance(number, int) and not isinstance(number, bool)
        if not fits or not _within(number, self.low, self.high):
            raise wrong(f"an integer{_range(self.low, self.high)}", value)
        return int(number)


class Number(fields.Float):
    """A finite JSON number within bounds; booleans and strings are none."""

    def __init__(self, *, low: float | None = None, high: float | None = None, **kw: Any) -> None:
        super().__init__(metadata=_described(kw, json_schemas.bounds(low, high)), **kw)
        self.low, self.high = low, high

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or not _within(value, self.low, self.high):
            raise wrong(f"a number{_range(self.low, self.high)}", value)
        return float(value)


class Boolean(fields.Boolean):
    """``true`` or ``false``.

    :param coerce: also take the strings ``"true"`` and ``"false"``.
    """

    def __init__(self, *, coerce: bool = False, **kw: Any) -> None:
        schema = json_schemas.COERCED_BOOLEAN if coerce else {}
        super().__init__(metadata=_described(kw, schema), **kw)
        self.coerce = coerce

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> bool:
        if isinstance(value, bool):
            return value
        if self.coerce and isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise wrong("true or false", value)


class Text(fields.String):
    """A JSON string, at least ``min_length`` characters long."""

    def __init__(self, *, min_length: int = 0, **kw: Any) -> None:
        schema = {"minLength": min_length} if min_length else {}
        super().__init__(metadata=_described(kw, schema), **kw)
        self.min_length = min_length

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> str:
        if not isinstance(value, str):
            raise wrong("a string", value)
        if len(value) < self.min_length:
            raise wrong("a non-empty string", value)
        return value


class Object(fields.Dict):
    """A JSON object with whatever members."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> Any:
        if not isinstance(value, dict):
            raise wrong("an object", value)
        return value


class Array(fields.List[Any]):
    """A JSON array.  The first wrong item ends it: there may be millions of them."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> list[Any]:
        if not isinstance(value, list):
            raise wrong("an array", value)
        return [self._item(index, item, data, kw) for index, item in enumerate(value)]

    def _item(self, index: int, item: Any, data: Any, kw: Mapping[str, Any]) -> Any:
        try:
            # Not deserialize(): it has its own words for null, which is no absent item here.
            return self.inner._deserialize(item, str(index), data, **kw)
        except ValidationError as error:
            raise ValidationError({index: error.messages}) from None


class Prompt(fields.Field[Any]):
    """One or several prompts: text or token ids.  Returns a tuple of them."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(metadata=_described(kw, json_schemas.PROMPT), **kw)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> Any:
        if isinstance(value, str):
            return (self._one(value),)
        if not isinstance(value, list):
            raise wrong("a string or an array of strings or token ids", value)
        if not value:
            raise wrong("at least one prompt", value)
        if all(_is_token(item) for item in value):
            return (tuple(map(int, value)),)
        kinds = {type(item) for item in value}
        if len(kinds) > 1:
            raise ValidationError("expected prompts of one type, got an array of mixed types")
        return tuple(self._one(item, index) for index, item in enumerate(value))

    def _one(self, value: Any, index: int | None = None) -> Any:
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and all(_is_token(item) for item in value):
            return tuple(map(int, value))
        error = wrong("a non-empty string or token ids (integers from 0)", value)
        raise error if index is None else ValidationError({index: error.messages})


class Stop(fields.Field[Any]):
    """Nothing, a string or up to four strings, none of them empty.  Returns a tuple."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(metadata=_described(kw, json_schemas.STOP), **kw)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> Any:
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list):
            raise wrong("a string or an array of 1 to 4 strings", value)
        if len(stops) > 4:
            raise ValidationError(f"expected at most 4 strings, got {len(stops)}")
        for index, stop in enumerate(stops):
            if not isinstance(stop, str) or not stop:
                error = wrong("a non-empty string", stop)
                raise ValidationError(
                    {index: error.messages} if isinstance(value, list) else error.messages
                )
        return tuple(stops)


class LogitBias(fields.Field[Any]):
    """Token id -> bias from -100 to 100.  Returns a dict with integer keys."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(metadata=_described(kw, json_schemas.LOGIT_BIAS), **kw)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> Any:
        if not isinstance(value, dict):
            raise wrong("an object of token ids and numbers from -100 to 100", value)
        biases: dict[int, float] = {}
        for key, bias in value.items():
            if not _is_id(key):
                raise ValidationError(f"expected token ids as keys, got {shown(key)}")
            if bias is None:
                continue
            fits = isinstance(bias, (int, float)) and not isinstance(bias, bool)
            if not fits or not _within(bias, -100, 100):
                raise ValidationError({key: wrong("a number from -100 to 100", bias).messages})
            biases[int(key)] = float(bias)
        return biases


def _is_token(value: object) -> bool:
    # as for Integer, 4.0 counts as 4
    if isinstance(value, float):
        return value.is_integer() and 0 <= value < 2**31
    return type(value) is int and 0 <= value < 2**31


def _is_id(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= 10


def _number(text: str) -> object:
    """Return the integer in ``text``, or ``text`` itself if there is none."""
    stripped = text.strip()
    digits = stripped.removeprefix("-")
    return int(stripped) if digits.isascii() and digits.isdigit() and len(digits) < 20 else text


def _within(value: Any, low: float | None, high: float | None) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return (low is None or value >= low) and (high is None or value <= high)


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return f" of at least {low}" if low is not None else ""


def _described(kw: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's JSON Schema together with the ``metadata`` of its definition."""
    return {**schema, **kw.pop("metadata", {})}
