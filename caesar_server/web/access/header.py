"""The ``Authorization`` header, read strictly; pure."""

from __future__ import annotations

import re

from caesar_server.errors import InvalidKeyError, MissingKeyError
from caesar_server.web.access.keys import MAX_KEY_LENGTH

#: Optional whitespace of RFC 9110, section 5.6.3.  ``str.strip()`` would take far more.
_WHITESPACE = " \t"
_KEY = re.compile(rf"[!-+\--~]{{1,{MAX_KEY_LENGTH}}}")


def bearer_key(header: str | None) -> str:
    """Return the key in a header of the form ``Bearer KEY`` (RFC 6750, section 2.1).

    The scheme's case does not matter.  Of a key nothing is asked but that it is one word of visible
    ASCII, without a comma: with one, several headers arrive as a single value.

    :param header: as WSGI has it, one character a byte; None if there is none.
    :raises MissingKeyError: if there is no header, it is empty, or it is of another scheme.
    :raises InvalidKeyError: if what follows ``Bearer`` can be no key.
    """
    scheme, _, rest = (header or "").strip(_WHITESPACE).replace("\t", " ", 1).partition(" ")
    key = rest.strip(_WHITESPACE)
    if scheme.lower() != "bearer" or not key:
        raise MissingKeyError
    if not _KEY.fullmatch(key):
        raise InvalidKeyError
    return key
