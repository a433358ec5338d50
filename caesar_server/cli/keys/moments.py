"""Moments as people write and read them on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_PERIOD = re.compile(r"(\d{1,5})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the moment that a text names, in UTC.

    >>> parse_moment("30d", datetime(2026, 1, 1, tzinfo=UTC)).isoformat()
    '2026-01-31T00:00:00+00:00'

    :param text: a period from now (``30d``, ``12h``, ``2w``, ``90m``), a date, which stands for its
        first moment in UTC, or a date with time in ISO 8601, in UTC unless it says otherwise.
    :raises ValueError: if it is none of these.
    """
    if period := _PERIOD.fullmatch(text):
        return now + timedelta(**{_UNITS[period[2]]: int(period[1])})
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def format_moment(moment: datetime | None) -> str:
    """Return a moment to the second, in UTC; ``-`` for none."""
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
