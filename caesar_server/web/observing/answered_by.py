"""Response headers from what a backend tells in ``Started``: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from caesar_server.contract.events import Event, Started

#: Says which of a backend's servers answered.
UPSTREAM = "x-caesar-upstream"
_MAX_HEADERS = 32
_MAX_CHARS = 1000
# A backend must not reach what browsers, proxies and this server itself go by.
_NAME = re.compile(r"(?:x|openai)-[a-z0-9][a-z0-9-]{0,63}")
_OWN = frozenset({UPSTREAM, "x-request-id", "x-should-retry", "x-accel-buffering"})
_FORBIDDEN = re.compile(r"x-(?:accel|frame|forwarded|content-type|xss|sendfile|powered)\b.*")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def started_headers(events: Iterable[Event]) -> dict[str, str]:
    """Return the headers that the first ``Started`` among ``events`` asks for; empty without one.

    Its details may hold ``upstream``, the name of who answered, and ``headers``, of which those are
    taken whose names begin with ``x-`` or ``openai-``.  What is no header's value is left out.
    """
    for event in events:
        if isinstance(event, Started):
            return _headers(event.details)
    return {}


def upstream_of(event: Started) -> str | None:
    """Return who answered, if the backend says so in a word."""
    name = event.details.get("upstream")
    return name if _is_value(name) else None


def _headers(details: Mapping[str, object]) -> dict[str, str]:
    found: dict[str, str] = {}
    name, more = details.get("upstream"), details.get("headers")
    if isinstance(name, str) and _is_value(name):
        found[UPSTREAM] = name
    if isinstance(more, Mapping):
        for key, value in list(more.items())[:_MAX_HEADERS]:
            if _is_name(key) and isinstance(value, str) and _is_value(value):
                found[key] = value
    return found


def _is_name(name: object) -> bool:
    return (
        isinstance(name, str)
        and name not in _OWN
        and _NAME.fullmatch(name) is not None
        and _FORBIDDEN.fullmatch(name) is None
    )


def _is_value(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_CHARS and bool(_VALUE.fullmatch(value))
