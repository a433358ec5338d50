"""What a job has read: the content of its results, and its calls to third parties."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flask import Response, jsonify, request

from caesar_server.blueprints.research.found import nothing_here, own_job, read_view
from caesar_server.blueprints.research.rendering.objects import sound
from caesar_server.contract.events import RequestLogged, SourceStored
from caesar_server.errors import ValidationFailedError
from caesar_server.store.base import Job, Record, UnknownJobError
from caesar_server.web.api_version.negotiation import note_version, version_for
from caesar_server.web.incoming import sole_values
from caesar_server.web.services import services

FORMATS = ("raw", "markdown")


def retrieve_result_content(job_id: str, result_id: str) -> Response:
    """``GET /research/{id}/results/{result_id}/content``: what was stored of a source."""
    job = own_job(job_id)
    version = version_for(job.api_version)
    note_version(version)
    query = version.request("result_content_query", sole_values(request.args, "format"))
    wanted = asked_format(query)
    return jsonify({"content": sound(stored_content(job, result_id, wanted or "raw"))})


def asked_format(query: Mapping[str, Any]) -> str | None:
    """Return the format that a query asks for, or None.

    :raises ValidationFailedError: if there is no such format.
    """
    value: str | None = query.get("format")
    if value is not None and value not in FORMATS:
        raise ValidationFailedError(
            f"format: expected raw or markdown, got {value[:50]!r}", param="format"
        )
    return value


def stored_content(job: Job, result_id: str, wanted: str) -> str:
    """Return what was stored of a result, in the wanted format or else in the other one.

    :raises NotFoundError: if there is no such result, or nothing was stored of it.
    """
    text = source_text(stored_source(job, result_id), wanted)
    if text is None:
        raise nothing_here()
    return text


def source_text(found: SourceStored | None, wanted: str) -> str | None:
    """Return what was stored, in the wanted format or else in the other one; None for nothing."""
    texts = () if found is None else (found.raw, found.markdown)
    in_order = texts if wanted == "raw" else reversed(texts)
    return next((text for text in in_order if text is not None), None)


def stored_source(job: Job, result_id: str) -> SourceStored | None:
    """Return the last that was stored of a result, or None."""
    found = None
    for record in bulk_records(job):
        event = record.event
        if isinstance(event, SourceStored) and event.result_id == result_id:
            found = event
    return found


def bulk_records(job: Job) -> Iterable[Record]:
    """Return the records that hold pages and exchanges.

    :raises NotFoundError: if the job was deleted meanwhile.
    """
    try:
        return services().store.records(job.id, bulk=True)
    except UnknownJobError:
        raise nothing_here() from None


def list_http_requests(job_id: str) -> Response:
    """``GET /research/{id}/http_requests``: the calls to third parties."""
    job = own_job(job_id)
    positions = {result.id: index for index, result in enumerate(read_view(job).results)}
    return jsonify(list(_entries(job, bulk_records(job), positions)))


def _entries(
    job: Job, records: Iterable[Record], positions: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield an entry for each call; tries of the same one that follow each other share it.

    :param positions: the place of each result among the job's.
    """
    entry: dict[str, Any] | None = None
    last: RequestLogged | None = None
    for record in records:
        event = record.event
        if not isinstance(event, RequestLogged):
            continue
        if entry is not None and last is not None and _is_same_call(last, event):
            entry["http_logs"].append(_log(job, record.seq, event))
        else:
            if entry is not None:
                yield entry
            entry = _entry(job, event, positions)
            entry["http_logs"].append(_log(job, record.seq, event))
        last = event
    if entry is not None:
        yield entry


def _is_same_call(one: RequestLogged, other: RequestLogged) -> bool:
    return (one.url, one.method, one.provider, one.result_id) == (
        other.url,
        other.method,
        other.provider,
        other.result_id,
    )


def _entry(job: Job, event: RequestLogged, positions: Mapping[str, int]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "ask_id": job.id,
        "url": sound(event.url),
        "http_logs": [],
        "provider": sound(event.provider),
        "provider_display_name": sound(event.provider_display_name or event.provider),
        "provider_icon": sound(event.provider_icon),
    }
    if event.result_id is not None and event.result_id in positions:
        entry["results_index"] = positions[event.result_id]
    return entry


def _log(job: Job, seq: int, event: RequestLogged) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid5(uuid.UUID(job.id), str(seq))),
        "request_url": sound(event.url),
        "request_method": sound(event.method),
        "response_status": event.response_status or 0,
        "duration_ms": event.duration_ms,
        "request_headers": sound(event.request_headers),
        "request_body": sound(event.request_body),
        "response_headers": sound(event.response_headers),
        "response_body": sound(event.response_body),
    }
