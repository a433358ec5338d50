"""From a JSON body of the native API to what its schema makes of it, or one error.

https://docs.caesar.org/documentation/reference/errors
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from marshmallow import Schema, ValidationError, fields

from caesar_server.errors import (
    BadRequestError,
    MissingFieldError,
    UnknownFieldError,
    ValidationFailedError,
)
from caesar_server.web.errors import printable
from caesar_server.web.fields.problems import Problem, problems_in

_MAX_TOLD = 5


def load_object(schema: Schema, body: Mapping[str, Any], *, refuse_unknown: bool = False) -> Any:
    """Return what ``schema`` makes of ``body``.

    :param refuse_unknown: refuse members that the API does not define, at any depth, unless they
        are null.
    :raises BadRequestError: naming the first field that is wrong.  A wrong JSON type is told before
        all else, in the documented words; several wrong values are told together.
    """
    if refuse_unknown and (unknown := next(_unknown(schema, body), None)) is not None:
        raise UnknownFieldError(f"{unknown}: unknown field", param=unknown)
    try:
        return schema.load(body)
    except ValidationError as error:
        raise _bad_request(list(problems_in(error))) from None


def _bad_request(problems: list[Problem]) -> BadRequestError:
    mistyped = next((problem for problem in problems if problem.is_type), None)
    if mistyped is not None:
        return ValidationFailedError(
            f'Body contains incorrect JSON type for field "{mistyped.path}"', param=mistyped.path
        )
    kind = MissingFieldError if problems[0].is_missing else ValidationFailedError
    return kind("; ".join(map(str, problems[:_MAX_TOLD])), param=problems[0].path or None)


def _unknown(schema: Schema, body: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield where there are members that a schema does not define."""
    for name, value in body.items():
        if value is None:
            continue
        field, where = schema.fields.get(name), f"{path}{printable(name)}"
        if field is None:
            yield where
        elif isinstance(field, fields.List) and isinstance(field.inner, fields.Nested):
            for index, item in enumerate(value if isinstance(value, list) else ()):
                if isinstance(item, Mapping):
                    yield from _unknown(field.inner.schema, item, f"{where}[{index}].")
