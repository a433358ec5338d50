"""Lists in pages: the query parameters ``page`` and ``limit``, and the envelope of an answer.

https://docs.caesar.org/documentation/reference/pagination
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from werkzeug.datastructures import MultiDict

from caesar_server.errors import ValidationFailedError
from caesar_server.web.description import Json
from caesar_server.web.errors import printable
from caesar_server.web.incoming import sole_values

T = TypeVar("T")

DEFAULT_LIMIT = 10
MAX_LIMIT = 200
#: Above what anybody has; the offset of such a page still is an integer that a database takes.
MAX_PAGE = 10**15

#: The two parameters, for the API description.
PAGE_QUERY: Mapping[str, Json] = {
    "page": {
        "description": "Which page.",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 1},
    },
    "limit": {
        "description": "The most items on it.",
        "schema": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_LIMIT,
            "default": DEFAULT_LIMIT,
        },
    },
}

_INTEGER = re.compile(r"-?[0-9]+")
_MAX_DIGITS = 30
_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list.

    :param page: from 1 to :data:`MAX_PAGE`.
    :param limit: the most items on it, from 1 to :data:`MAX_LIMIT`.
    """

    page: int = 1
    limit: int = DEFAULT_LIMIT

    @property
    def offset(self) -> int:
        """How many items come before the page."""
        return (self.page - 1) * self.limit

    def cut(self, items: Sequence[T]) -> tuple[Sequence[T], bool]:
        """Return the items of the page, and whether another one comes after it.

        :param items: what is found at :attr:`offset`, up to one item more than :attr:`limit`.
        """
        return items[: self.limit], len(items) > self.limit


def page_of(args: MultiDict[str, str]) -> Page:
    """Return the page that a query string asks for.

    :raises ValidationFailedError: if a parameter is no integer, out of range or there twice.
    """
    given = sole_values(args, "page", "limit")
    return Page(
        page=_integer(given, "page", 1, MAX_PAGE),
        limit=_integer(given, "limit", DEFAULT_LIMIT, MAX_LIMIT),
    )


def page_object(
    items: Sequence[Any], page: Page, *, has_next: bool, total: int | None = None
) -> dict[str, Any]:
    """Return the body of a page.

    :param total: items on all pages; None leaves it out.
    """
    pagination: dict[str, Any] = {
        "page": page.page,
        "limit": page.limit,
        "has_next": has_next,
    }
    if total is not None:
        pagination["total"] = total
    return {"data": list(items), "pagination": pagination}


def _integer(given: Mapping[str, str], name: str, default: int, high: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS and 1 <= int(text) <= high:
        return int(text)
    shown = printable(text[:_MAX_SHOWN]) + ("..." if len(text) > _MAX_SHOWN else "")
    raise ValidationFailedError(
        f"{name}: expected an integer from 1 to {high}, got '{shown}'", param=name
    )
