"""marshmallow fields for what completions alone have: prompts, stop sequences, biases."""

from __future__ import annotations

from typing import Any

from marshmallow import ValidationError, fields

from caesar_server.blueprints.compat import json_schemas
from caesar_server.web.fields import described, shown, within, wrong

#: What is said of files where there can be none.
NO_FILES = (
    "text completions take no files; upload them with POST /research/files and give their ids in "
    "file parts of a message to /compat/chat/completions, or as files to POST /research"
)


class Prompt(fields.Field[Any]):
    """One or several prompts: text or token ids.  Returns a tuple of them."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(metadata=described(kw, json_schemas.PROMPT), **kw)

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
        if len(kinds) > 1 and dict not in kinds:
            raise ValidationError("expected prompts of one type, got an array of mixed types")
        return tuple(self._one(item, index) for index, item in enumerate(value))

    def _one(self, value: Any, index: int | None = None) -> Any:
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and all(_is_token(item) for item in value):
            return tuple(map(int, value))
        error = wrong("a non-empty string or token ids (integers from 0)", value)
        if isinstance(value, dict) and ("file" in value or value.get("type") == "file"):
            error = ValidationError(NO_FILES)
        raise error if index is None else ValidationError({index: error.messages})


class Stop(fields.Field[Any]):
    """Nothing, a string or up to four strings, none of them empty.  Returns a tuple."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(metadata=described(kw, json_schemas.STOP), **kw)

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
        super().__init__(metadata=described(kw, json_schemas.LOGIT_BIAS), **kw)

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
            if not fits or not within(bias, -100, 100):
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
