"""Research jobs in the agents family."""

from __future__ import annotations

from typing import Any

from flask import Response, jsonify, request

from caesar_server.blueprints.research.agents.asked import asked_flag
from caesar_server.blueprints.research.agents.highlights import highlights
from caesar_server.blueprints.research.events import event_stream
from caesar_server.blueprints.research.found import nothing_here, own_job, read_view
from caesar_server.blueprints.research.jobs import begin
from caesar_server.blueprints.research.rendering.folding import query_of
from caesar_server.blueprints.research.rendering.objects import (
    created_object,
    result_object,
    sound,
    status_of,
)
from caesar_server.blueprints.research.schemas import load_agent_research, load_agent_update
from caesar_server.blueprints.research.sources import asked_format, source_text, stored_source
from caesar_server.blueprints.research.updates import note_update
from caesar_server.contract.events import ResultFound
from caesar_server.store.base import Job
from caesar_server.web.access.repeats import fingerprint
from caesar_server.web.bodies import read_json_object
from caesar_server.web.incoming import sole_values
from caesar_server.web.limiting.limits import open_stream
from caesar_server.web.limiting.quotas import quota_of_caller, standing_headers
from caesar_server.web.services import services


def create_agent_research() -> Response:
    """``POST /agents/research``: begin a job; with ``stream=true`` follow its progress at once."""
    streamed = asked_flag("stream")
    body = read_json_object(request)
    call = load_agent_research(body, refuse_unknown=_refuses_unknown())
    quota = quota_of_caller()
    # before there is a job: nobody would learn its id if there is no room for the stream
    place = open_stream() if streamed else None
    job, warning = begin(call, quota, known_by=fingerprint(request, body))
    if place is None:
        response = jsonify(created_object(job, warning))
    else:
        response = event_stream(job, place=place)
        # no event says which job it is until the last one does
        response.headers["Content-Location"] = f"/agents/research/{job.id}"
    response.headers.update(standing_headers(quota))
    return response


def retrieve_agent_research(job_id: str) -> Response:
    """``GET /agents/research/{id}``: how a job stands, and its answer."""
    view = read_view(own_job(job_id))
    body: dict[str, Any] = {
        "status": status_of(view.job),
        "query": sound(query_of(view.job.request)),
        "content": None if view.content is None else sound(view.content),
    }
    if view.error is not None:
        body["error"] = sound(view.error.message)
    return jsonify(body)


def list_agent_results(job_id: str) -> Response:
    """``GET /agents/research/{id}/results``: what was found, the cited ones first."""
    cited_only = asked_flag("citations_only")
    results = read_view(own_job(job_id)).results
    return jsonify(
        [
            _shown(result)
            for result in results
            if result.citation_index is not None or not cited_only
        ]
    )


def retrieve_agent_result(job_id: str, result_id: str) -> Response:
    """``GET /agents/research/{id}/results/{result_id}``: one result, with what is asked for of it.

    Without a ``format`` there is no content, nor if nothing was stored.
    """
    wanted = asked_format(sole_values(request.args, "format"))
    with_highlights = asked_flag("with_highlights")
    job = own_job(job_id)
    result = _result(job, result_id)
    body = _shown(result)
    del body["id"]
    stored = stored_source(job, result.id) if wanted or with_highlights else None
    if with_highlights:
        text = source_text(stored, "markdown")
        found = [] if text is None else highlights(text, query_of(job.request))
        body["highlights"] = [sound(passage) for passage in found]
    if wanted and (text := source_text(stored, wanted)) is not None:
        body["content"] = sound(text)
    return jsonify(body)


def _result(job: Job, result_id: str) -> ResultFound:
    """Return a result of a job.

    :param result_id: from the end of a path, where a slash need not be the id's.
    :raises NotFoundError: if there is none of this id.
    """
    found = {one.id: one for one in read_view(job).results}
    result = found.get(result_id) or found.get(result_id.removesuffix("/"))
    if result is None:
        raise nothing_here()
    return result


def create_agent_update(job_id: str) -> Response:
    """``POST /agents/research/{id}/updates``: steer a running job."""
    job = own_job(job_id)
    call = load_agent_update(read_json_object(request), refuse_unknown=_refuses_unknown())
    return jsonify({"created_at": note_update(job, call.content)["created_at"]})


def _shown(result: ResultFound) -> dict[str, Any]:
    return {name: value for name, value in result_object(result).items() if name != "score"}


def _refuses_unknown() -> bool:
    return services().settings.unknown_fields == "reject"
