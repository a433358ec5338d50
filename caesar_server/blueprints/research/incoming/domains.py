"""Domains whose pages are to be left out."""

from __future__ import annotations

import re
from typing import Any

from marshmallow import ValidationError

from caesar_server.web.fields import Text, means, wrong

#: As JSON Schema has it, so that the API description tells exactly what is taken.
PATTERN = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$"
MAX_LENGTH = 253
#: Of a longer text nobody need be told which domain it may have meant.
_MOST_GUESSED = 2000

_DOMAIN = re.compile(PATTERN)


class Domain(Text):
    """A domain such as ``example.com``, in ASCII.  Returns it in lower case, without a last dot."""

    def __init__(self, **kw: Any) -> None:
        schema = means(
            "A domain; its subdomains are meant too.",
            pattern=PATTERN,
            maxLength=MAX_LENGTH,
            examples=["example.com"],
        )
        super().__init__(metadata=schema, **kw)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kw: Any) -> str:
        text = super()._deserialize(value, attr, data, **kw)
        if not _is_domain(text):
            raise _refusal(text)
        return text.strip().rstrip(".").lower()


def _is_domain(text: str) -> bool:
    return len(text) <= MAX_LENGTH and _DOMAIN.search(text) is not None


def _refusal(text: str) -> ValidationError:
    """Return the error for what is no domain, with the one that was probably meant."""
    error = wrong("a domain such as example.com", text)
    meant = _domain_in(text)
    return error if meant is None else ValidationError(f"{error.messages[0]}; write {meant}")


def _domain_in(text: str) -> str | None:
    """Return the domain in a URL, in a wildcard or in a name that is not in ASCII, or None."""
    if len(text) > _MOST_GUESSED:
        return None  # IDNA takes time by the square of the length
    place = text.strip().partition("://")[2] or text.strip()
    host = re.split(r"[/?#\\]", place, maxsplit=1)[0].rpartition("@")[2].partition(":")[0]
    host = host.removeprefix("*.").strip(".").lower()
    if len(host) > MAX_LENGTH:
        return None
    try:
        ascii_host = host.encode("idna").decode()
    except UnicodeError:  # an empty label, or one that is too long
        return None
    return ascii_host if _is_domain(ascii_host) else None
