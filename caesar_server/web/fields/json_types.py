"""Fields for the types that JSON has.

marshmallow's own fields take ``"4"`` for an integer and ``1`` for true.  OpenAI's API does not, but
values of Caesar's ``metadata`` may be strings, since OpenAI types metadata as string to string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields

from caesar_server.web.fields import json_schemas
from caesar_server.web.fields.problems import wrong, wrong_type
from caesar_server.web.framework.ids import plain_id

#: The most entries of a list of ids, domains and the like.
MAX_ITEMS = 1000
#: The most that 64 bits hold: more than any count, and what databases and other servers can read.
MAX_INTEGER = 2**63 - 1

_VISIBLE = re.compile(r"\S")


class Integer(fields.Integer):
    """A JSON integer within bounds, of which ``4.0`` is one; booleans and strings are none.

    :param low: the least value, or None.
    :param high: the greatest value, or None.
    :param coerce: also take a string that holds an integer.
    """

    def __init__(
        self,
        *,
        low: int | None = None,
        high: int | None = None,
        coerce: bool = False,
        **kw: Any,
    ) -> None:
        if coerce and low is not None and high is not None:
            schema = json_schemas.coerced_integer(low, high)
        else:
            schema = json_schemas.bounds(low, high)
        super().__init__(metadata=described(kw, schema), **kw)
        self.low, self.high, self.coerce = low, high, coerce

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> int:
        number, expected = value, f"an integer{self._told_range(value)}"
        if self.coerce and isinstance(value, str):
            number = _number(value)
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if not isinstance(number, int) or isinstance(number, bool):
            raise wrong_type(expected, value)
        if not within(number, self.low, self.high):
            raise wrong(expected, value)
        return number

    def _told_range(self, value: object) -> str:
        """Return the bounds as words; the largest of all numbers only to whom it matters."""
        exceeded = isinstance(value, (int, float)) and value > MAX_INTEGER
        return _range(self.low, None if self.high == MAX_INTEGER and not exceeded else self.high)


class Number(fields.Float):
    """A finite JSON number within bounds; booleans and strings are none."""

    def __init__(self, *, low: float | None = None, high: float | None = None, **kw: Any) -> None:
        super().__init__(metadata=described(kw, json_schemas.bounds(low, high)), **kw)
        self.low, self.high = low, high

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> float:
        expected = f"a number{_range(self.low, self.high)}"
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise wrong_type(expected, value)
        if not within(value, self.low, self.high):
            raise wrong(expected, value)
        return float(value)


class Boolean(fields.Boolean):
    """``true`` or ``false``.

    :param coerce: also take the strings ``"true"`` and ``"false"``.
    """

    def __init__(self, *, coerce: bool = False, **kw: Any) -> None:
        schema = json_schemas.COERCED_BOOLEAN if coerce else {}
        super().__init__(metadata=described(kw, schema), **kw)
        self.coerce = coerce

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> bool:
        if isinstance(value, bool):
            return value
        if self.coerce and isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise wrong_type("true or false", value)


class Text(fields.String):
    """A JSON string.

    :param min_length: characters.
    :param max_length: characters, or None.
    :param visible: refuse one that is empty or all spaces.
    """

    def __init__(
        self,
        *,
        min_length: int = 0,
        max_length: int | None = None,
        visible: bool = False,
        **kw: Any,
    ) -> None:
        schema: dict[str, Any] = {"minLength": min_length} if min_length else {}
        if max_length is not None:
            schema["maxLength"] = max_length
        if visible:
            schema["pattern"] = _VISIBLE.pattern
        super().__init__(metadata=described(kw, schema), **kw)
        self.min_length, self.max_length, self.visible = min_length, max_length, visible

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> str:
        if not isinstance(value, str):
            raise wrong_type("a string", value)
        if len(value) < self.min_length:
            raise wrong("a non-empty string", value)
        if self.max_length is not None and len(value) > self.max_length:
            raise ValidationError(
                f"expected at most {self.max_length} characters, got {len(value)}"
            )
        if self.visible and not _VISIBLE.search(value):
            raise wrong("a string that is not blank", value)
        return value


class Id(Text):
    """The id of something that the server keeps; a UUID in whatever case it is written."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(min_length=1, **kw)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> str:
        return plain_id(super()._deserialize(value, attr, data, **kw))


class ModelName(Text):
    """The name of a model, which may be a path.  Each chunk of a stream repeats it."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(min_length=1, max_length=1024, **kw)


class Object(fields.Dict):
    """A JSON object with whatever members."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> Any:
        if not isinstance(value, dict):
            raise wrong_type("an object", value)
        return value


class Array(fields.List[Any]):
    """A JSON array.  The first wrong item ends it: there may be millions of them.

    :param max_items: the most items, or None.
    """

    def __init__(self, inner: fields.Field[Any], *, max_items: int | None = None, **kw: Any):
        schema = {} if max_items is None else {"maxItems": max_items}
        super().__init__(inner, metadata=described(kw, schema), **kw)
        self.max_items = max_items

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> list[Any]:
        if not isinstance(value, list):
            raise wrong_type("an array", value)
        if self.max_items is not None and len(value) > self.max_items:
            raise ValidationError(f"expected at most {self.max_items} items, got {len(value)}")
        return [self._item(index, item, data, kw) for index, item in enumerate(value)]

    def _item(self, index: int, item: Any, data: Any, kw: Mapping[str, Any]) -> Any:
        try:
            # Not deserialize(): it has its own words for null, which is no absent item here.
            return self.inner._deserialize(item, str(index), data, **kw)
        except ValidationError as error:
            raise ValidationError({index: error.messages}) from None


def within(value: Any, low: float | None, high: float | None) -> bool:
    """Return whether a number is finite and within bounds; None is no bound."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return (low is None or value >= low) and (high is None or value <= high)


def described(kw: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's JSON Schema together with the ``metadata`` of its definition.

    :param kw: arguments of the field, of which ``metadata`` is taken out.
    """
    return {**schema, **kw.pop("metadata", {})}


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return f" of at least {low}" if low is not None else ""


def _number(text: str) -> object:
    """Return the integer in ``text``, or ``text`` itself if there is none."""
    stripped = text.strip()
    digits = stripped.removeprefix("-")
    return int(stripped) if digits.isascii() and digits.isdigit() and len(digits) < 20 else text
