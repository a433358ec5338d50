"""A version of the API as a value: how its bodies differ from the server's own form of them.

The server's own form is in the words of version 2025-11-27 and holds more than any version shows.
A version turns the bodies that its clients send into that form, and objects in that form into what
its clients are shown.  Nothing else in the server knows how versions differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
#: Takes the name of a body and the body; returns a new body and leaves the given one as it is.
#: A name that it does not know is a body in which the version has nothing of its own.
Translate: TypeAlias = Callable[[str, Mapping[str, Any]], Json]

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the API.

    Names of requests are ``research`` (the body of its creation), ``update`` and
    ``result_content_query`` (the query parameters, as an object); names of answers are ``created``,
    ``research`` and ``result``.

    :param date: its name, ``YYYY-MM-DD``.
    :param request: from what a client sent to the server's own form.  The body was not checked
        yet: any of its values may be of any JSON type.
    :param response: from the server's own form to what a client is shown.
    """

    date: str
    request: Translate
    response: Translate

    def __post_init__(self) -> None:
        if not _DATE.fullmatch(self.date):
            raise ValueError(f"an API version is named by a date YYYY-MM-DD, not {self.date!r}")


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that a server speaks.

    :param known: at least one, the oldest first; :meth:`of` brings them into this order.
    """

    known: tuple[Version, ...]

    @classmethod
    def of(cls, versions: Iterable[Version]) -> Versions:
        """Return these versions, the oldest first.

        :raises ValueError: if there is none, or two have the same date.
        """
        known = tuple(sorted(versions, key=lambda version: version.date))
        dates = [version.date for version in known]
        if not known or len(set(dates)) != len(dates):
            raise ValueError(f"expected at least one API version of each date once, got {dates}")
        return cls(known)

    @property
    def dates(self) -> tuple[str, ...]:
        """Their dates, the oldest first."""
        return tuple(version.date for version in self.known)

    @property
    def newest(self) -> Version:
        """The newest one."""
        return self.known[-1]

    def find(self, date: str | None) -> Version | None:
        """Return the version of a date, or None if it is not known."""
        return next((version for version in self.known if version.date == date), None)
