"""What the mock knows of Caesar's own routes: which of them ask, and which of them poll.

Paths are as the documentation writes them; see
:func:`~caesar_server.mock.calls.documented_path`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs

#: What paths of Caesar's own API begin with, once they end with a slash.
_ROOTS = ("/research/", "/agents/")
#: Of so many paths it is remembered what they are: nearly all calls of a test have one of a few.
REMEMBERED = 256
#: Steps of a path that are no ids though they stand where one would.
FIXED_STEPS = ("files", "collections", "brainstorm")
_ID = rf"(?!(?:{'|'.join(FIXED_STEPS)})(?:/|\Z))[^/]+"
_PLACE = re.compile(r"\{\w+\}")

_RESEARCH = re.compile(r"(?:/agents)?/research")
_BRAINSTORM = re.compile(r"(?:/agents)?/research/brainstorm")
_CHAT = re.compile(rf"(?:/agents)?/research/{_ID}/chat")
_FOLLOWED = re.compile(rf"(?:/agents)?/research/{_ID}/(?:events|chat/[^/]+/stream)")
_POLLED = re.compile(rf"(?:/agents)?/research/(?:{_ID}|{_ID}/chat/[^/]+)")
#: Fields of ``POST /research`` that are no parameters of how it is done.
_NO_PARAMETERS = frozenset({"query", "content", "model"})
#: What stays until it is deleted.
Made: TypeAlias = Literal["file", "collection", "session"]
_MADE: Mapping[Made, re.Pattern[str]] = {
    "file": re.compile(r"/(?:research|agents)/files"),
    "collection": re.compile(r"/research/collections"),
    "session": _BRAINSTORM,
}


@lru_cache(REMEMBERED)
def is_native(path: str) -> bool:
    """Return whether a path is of Caesar's own API."""
    return f"{path}/".startswith(_ROOTS)


def is_question(path: str) -> bool:
    """Return whether a backend answers what is posted to this path of Caesar's own API."""
    return is_native(path) and any(
        route.fullmatch(path) for route in (_RESEARCH, _BRAINSTORM, _CHAT)
    )


def is_about_chat(path: str) -> bool:
    """Return whether a path is that of follow-up questions, or below it."""
    return _CHAT.match(path) is not None


def begins_job(path: str) -> bool:
    """Return whether what is posted to a path begins a job that others may poll."""
    return is_native(path) and any(route.fullmatch(path) for route in (_RESEARCH, _CHAT))


def kind_made(path: str) -> Made | None:
    """Return what a POST to this path makes that stays until it is deleted."""
    if not is_native(path):
        return None
    return next((kind for kind, route in _MADE.items() if route.fullmatch(path)), None)


def is_list(path: str) -> bool:
    """Return whether a path is that of all jobs."""
    return path == "/research"


def is_poll(path: str, job_id: str) -> bool:
    """Return whether a GET of this path asks how the job stands, and for nothing else."""
    # a UUID is the same in capitals
    return path.lower().endswith(f"/{job_id}") and _POLLED.fullmatch(path) is not None


def asks_stream(method: str, path: str, headers: Mapping[str, str], query: str) -> bool:
    """Return whether a call of Caesar's own API asks for a stream otherwise than by its body.

    :param headers: names in lower case.
    :param query: the URL's.
    """
    if not is_native(path):
        return False
    if method == "GET" and _FOLLOWED.fullmatch(path):
        return path.endswith("/stream") or "text/event-stream" in headers.get("accept", "")
    wanted = parse_qs(query).get("stream", ["false"])
    return wanted[-1].lower() in ("true", "1")


def parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a question to Caesar's own API is to be answered, as its body says.

    ``compute_units``, the old name, is ``reasoning_loops`` too.
    """
    found = {name: value for name, value in fields.items() if name not in _NO_PARAMETERS}
    if "compute_units" in found:
        found.setdefault("reasoning_loops", found["compute_units"])
    return found


def path_pattern(path: str) -> re.Pattern[str] | None:
    """Return what a path with ``{id}`` in it stands for, or None if it has none.

    A name in braces is one step of a path that is an id: not ``files`` in ``/research/files``.
    ``*`` and ``?`` mean what they do in other paths.

    >>> pattern = path_pattern("/research/{id}/events")
    >>> bool(pattern.fullmatch("/research/7/events")), bool(pattern.fullmatch("/research/7"))
    (True, False)
    """
    if _PLACE.search(path) is None:
        return None
    parts = re.split(r"(\{\w+\}|\*|\?)", path)
    special = {"*": ".*", "?": "."}
    return re.compile(
        "".join(
            _ID if _PLACE.fullmatch(part) else special.get(part, re.escape(part)) for part in parts
        )
    )
