"""Version 2025-08-08: ``compute_units``, results with a score, four of the seven statuses.

Its clients read ``score`` of each result as a number from 0 to 1 that is always there, and some
take every status but ``queued``, ``researching``, ``completed`` and ``failed`` for an error.
https://docs.caesar.org/documentation/guides/versioning
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from caesar_server.web.api_version.version import Json, Version

_LATER_STATUSES = frozenset({"searching", "analyzing", "summarizing"})
_LATER_FIELDS = frozenset({"reasoning_loops_consumed", "running_time"})


def request(name: str, body: Mapping[str, Any]) -> Json:
    """Return the body as it is: ``compute_units`` is accepted in every version.

    The query of a result's content has no ``format`` yet: one that is there has no effect.
    """
    if name == "result_content_query":
        return {key: value for key, value in body.items() if key != "format"}
    return dict(body)


def response(name: str, body: Mapping[str, Any]) -> Json:
    """Return the object in the words of this version.

    A result of which no score is known gets one by its place: the first of ``n`` results 1.0, each
    further one ``1/n`` less, so that the last has ``1/n`` and none 0.  A result that is shown alone
    is the first of one.
    """
    match name:
        case "result":
            return _results([body])[0]
        case "research":
            return _research(body)
        case "created":
            return {**body, "status": _status(body["status"])}
        case _:
            return dict(body)


def _research(body: Mapping[str, Any]) -> Json:
    shown = {key: value for key, value in body.items() if key not in _LATER_FIELDS}
    return {
        **shown,
        "status": _status(body["status"]),
        "results": _results(body["results"]),
        "compute_units_consumed": body["reasoning_loops_consumed"],
    }


def _status(status: str) -> str:
    return "researching" if status in _LATER_STATUSES else status


def _results(results: Sequence[Mapping[str, Any]]) -> list[Json]:
    count = len(results)
    return [
        {**result, "score": _score(result.get("score"), (count - place) / count)}
        for place, result in enumerate(results)
    ]


def _score(score: float | None, by_place: float) -> float:
    return by_place if score is None else min(1.0, max(0.0, float(score)))


VERSION = Version("2025-08-08", request, response)
