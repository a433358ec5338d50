"""Ids as clients write them."""

from __future__ import annotations

import re

_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def plain_id(text: str) -> str:
    """Return an id as it is stored: a UUID in small letters, anything else as it is.

    UUIDs are read without regard to case (RFC 9562, 4): Swift writes them in capitals.

    >>> plain_id("9C6F8B1A-2A4F-4A35-86B9-0D0B5E25D5E5")
    '9c6f8b1a-2a4f-4a35-86b9-0d0b5e25d5e5'
    >>> plain_id("Report-A")
    'Report-A'
    """
    return text.lower() if _UUID.fullmatch(text) else text
