"""Moments as the native API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Return a moment as RFC 3339 has it, in UTC, with milliseconds.

    Go's ``time.Time``, ``Date`` of JavaScript and ``datetime.fromisoformat`` read it.

    :param seconds: Unix seconds.

    >>> timestamp(1_757_851_200.25)
    '2025-09-14T12:00:00.250Z'
    """
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    moment = datetime.fromtimestamp(whole, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"
