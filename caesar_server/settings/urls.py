"""URLs that may hold a password."""

from __future__ import annotations

import re

#: What stands before the last @ of the part before the path: user names hold no colon, while a
#: password that was not encoded may hold anything.
_USER_AND_PASSWORD = re.compile(r"(?P<before>^[^:/?#]+://[^:@/?#]*):.*@")
_PASSWORD_PARAMETER = re.compile(r"(?P<before>[?&](?:ssl)?password=)[^&#]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """Return ``url`` with asterisks in the place of its password.

    >>> without_password("postgresql://caesar:secret@db.internal/caesar?sslpassword=x")
    'postgresql://caesar:***@db.internal/caesar?sslpassword=***'
    >>> without_password("sqlite:////var/lib/caesar-server/jobs.sqlite3")
    'sqlite:////var/lib/caesar-server/jobs.sqlite3'
    """
    hidden = _USER_AND_PASSWORD.sub(r"\g<before>:***@", url)
    return _PASSWORD_PARAMETER.sub(r"\g<before>***", hidden)


def has_password(url: str) -> bool:
    """Return whether a URL holds a password."""
    return without_password(url) != url
