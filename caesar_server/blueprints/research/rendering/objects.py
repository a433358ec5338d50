"""From a job to the objects of the native API, in the server's own form of them.

A version of the API turns that form into what its clients are shown; see
:mod:`caesar_server.web.api_version.version`.
"""

from __future__ import annotations

import math
from typing import Any

from caesar_server.blueprints.research.rendering.folding import JobView, query_of
from caesar_server.contract.events import ResultFound, Status
from caesar_server.contract.text import WholeCharacters
from caesar_server.store.base import Job
from caesar_server.web.timestamps import timestamp


def research_object(view: JobView, now: float) -> dict[str, Any]:
    """Return the object of ``GET /research/{id}``.

    ``completed_at`` is there once the job has ended, ``error`` only if it failed: some clients take
    any object with that key for a failure.

    :param now: Unix seconds: until when a job runs that has not ended.
    """
    job = view.job
    body: dict[str, Any] = {
        "id": job.id,
        "created_at": timestamp(job.created_at),
        "status": status_of(job),
        "query": sound(query_of(job.request)),
        "reasoning_loops_consumed": job.loops,
        "running_time": running_time(job, now),
        "results": [result_object(result) for result in view.results],
        "content": _sound_or_none(view.content),
        "transformed_content": _sound_or_none(view.transformed),
    }
    if job.finished_at is not None:
        body["completed_at"] = timestamp(job.finished_at)
    if view.error is not None:
        body["error"] = sound(view.error.message)
    return body


def status_of(job: Job) -> Status:
    """Return how a job stands.

    One that ends with its client never waits, but what it does is stored at its end.
    """
    if job.detached or job.status != "queued":
        return job.status
    return "researching"


def result_object(result: ResultFound) -> dict[str, Any]:
    """Return a result: ``score`` is a number or None, ``citation_index`` absent if uncited."""
    body: dict[str, Any] = {
        "id": sound(result.id),
        "title": sound(result.title),
        "url": sound(result.url),
    }
    if result.citation_index is not None:
        body["citation_index"] = result.citation_index
    score = result.score
    # JSON has no NaN and no infinity
    body["score"] = score if score is not None and math.isfinite(score) else None
    return body


def created_object(job: Job, warning: str | None = None) -> dict[str, Any]:
    """Return the answer to ``POST /research``.

    Its status is ``queued`` whatever the job is doing by now, as documented.

    :param warning: what the caller should know though the job was taken in.
    """
    body: dict[str, Any] = {"id": job.id, "status": "queued"}
    if warning is not None:
        body["warning"] = sound(warning)
    return body


def running_time(job: Job, now: float) -> int:
    """Return for how many whole seconds the job has been under way, at least 0.

    :param now: Unix seconds.
    """
    end = now if job.finished_at is None else job.finished_at
    # The clock may have been set back since.
    return max(0, int(end - job.created_at))


def sound(text: str) -> str:
    """Return ``text`` as every reader of JSON takes it.

    Two halves of a surrogate pair become the character that they stand for, one alone becomes
    U+FFFD: JSON can escape it, but strict readers refuse it.

    >>> sound("a" + chr(0xD83D) + chr(0xDE00)) == "a" + chr(0x1F600)
    True
    """
    whole = WholeCharacters()
    return whole.feed(text) + whole.finish()


def _sound_or_none(text: str | None) -> str | None:
    return None if text is None else sound(text)
