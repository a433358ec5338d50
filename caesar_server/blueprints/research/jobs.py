"""Research jobs: create, retrieve, list; cancel and delete as extensions."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from flask import Response, jsonify, request

from caesar_server.blueprints.research.brainstorm.answering import Answered, answered
from caesar_server.blueprints.research.found import (
    RESEARCH_KINDS,
    nothing_here,
    own_job,
    shown,
)
from caesar_server.blueprints.research.models import asked_model
from caesar_server.blueprints.research.rendering.objects import created_object
from caesar_server.blueprints.research.schemas import ResearchCall, load_research
from caesar_server.contract.request import ResearchRequest
from caesar_server.errors import NotFoundError, ValidationFailedError
from caesar_server.jobs.runner import new_job
from caesar_server.store.base import Job, UnknownJobError
from caesar_server.store.owned.base import SessionUsedError
from caesar_server.store.quotas import Quota
from caesar_server.store.unreadable import UnreadableRecordError
from caesar_server.web.access.auth import caller
from caesar_server.web.access.repeats import fingerprint, is_repeat
from caesar_server.web.api_version.negotiation import (
    current_version,
    note_version,
    version_for,
    version_to_remember,
)
from caesar_server.web.bodies import read_json_object
from caesar_server.web.incoming import incoming
from caesar_server.web.limiting.quotas import quota_of_caller, standing_headers
from caesar_server.web.pagination import page_object, page_of
from caesar_server.web.services import services

logger = logging.getLogger(__name__)

#: How long a deleted job's run may take to end; longer than it takes to hear of its cancel.
_END_WITHIN_S = 3.0
#: The same of a run in this process, which hears of it at once: most end within milliseconds.
_OWN_END_WITHIN_S = 0.3
#: So many are cancelled before they go with their job; a job has rarely more that still run.
_MOST_FOLLOW_UPS = 1000


def create_research() -> Response:
    """``POST /research``: begin a job."""
    parts = services()
    body = read_json_object(request)
    version = current_version()
    call = load_research(
        version.request("research", body),
        refuse_unknown=parts.settings.unknown_fields == "reject",
    )
    quota = quota_of_caller()
    job, warning = begin(call, quota, known_by=fingerprint(request, body))
    shown_in = version_for(job.api_version)
    note_version(shown_in)
    response = jsonify(shown_in.response("created", created_object(job, warning)))
    response.headers.update(standing_headers(quota))
    return response


def begin(call: ResearchCall, quota: Quota | None, *, known_by: str) -> tuple[Job, str | None]:
    """Begin a job, or find that of the same request; return it and a warning, if there is one.

    :param known_by: what a repeat of the request is known by.
    :raises ValidationFailedError: if the request names what is not there.
    :raises QuotaExceededError: if the account has no room for a job.
    """
    parts, account = services(), caller().account
    if parts.attach_repeats and is_repeat(request):
        repeated = parts.runner.repeated(account, known_by)
        if repeated is not None:
            return repeated, None
    parts.files.check(
        account, file_ids=call.file_ids, collection_ids=call.parameters.collection_ids
    )
    told = answered(call)
    job = _new_job(call, told, known_by)
    try:
        following = parts.runner.submit(job, quota=quota, forwarded=parts.forwarded(request))
    except SessionUsedError:
        raise ValidationFailedError(
            "brainstorm_session_id: the session has been used; begin a new one with "
            "POST /research/brainstorm",
            param="brainstorm_session_id",
        ) from None
    incoming().begun = True
    following.leave()
    return job, told.warning


def _new_job(call: ResearchCall, told: Answered, known_by: str) -> Job:
    parts = services()
    model, written_by = asked_model(parts.registry, call.model)
    resolved, fitted = parts.runner.prepare(
        model,
        ResearchRequest(
            query=told.query,
            parameters=replace(call.parameters, model=written_by),
            file_ids=call.file_ids,
        ),
        account=caller().account,
    )
    stamp = parts.stamp()
    return new_job(
        fitted,
        id=stamp.id,
        model=model,
        resolved=resolved,
        created_at=stamp.created_at,
        timeout_s=parts.settings.research_timeout_s,
        account=caller().account,
        fingerprint=known_by,
        detached=True,
        api_version=version_to_remember(compute_units=call.old_form),
        session_id=call.session_id,
    )


def list_research() -> Response:
    """``GET /research``: the caller's jobs, the newest first."""
    parts, account = services(), caller().account
    page = page_of(request.args)
    jobs = parts.store.jobs(
        account=account, kinds=RESEARCH_KINDS, offset=page.offset, limit=page.limit + 1
    )
    return jsonify(
        page_object(
            [one for job in jobs[: page.limit] if (one := _shown_if_there(job)) is not None],
            page,
            has_next=len(jobs) > page.limit,
            total=parts.store.count(account, RESEARCH_KINDS),
        )
    )


def _shown_if_there(job: Job) -> dict[str, Any] | None:
    """Return the object of a job; None if it was deleted since, or cannot be read any more."""
    try:
        return shown(job, note=False)
    except NotFoundError:
        return None
    except UnreadableRecordError:
        logger.exception("job %s is left out of a list", job.id)
        return None


def retrieve_research(job_id: str) -> Response:
    """``GET /research/{id}``: a job as it stands."""
    return jsonify(shown(own_job(job_id)))


def cancel_research(job_id: str) -> Response:
    """``POST /research/{id}/cancel``: end a job that is not done; an extension."""
    job = own_job(job_id)
    try:
        services().runner.cancel_stored(job.id)
    except UnknownJobError:
        raise nothing_here() from None
    return jsonify(shown(own_job(job_id)))


def delete_research(job_id: str) -> Response:
    """``DELETE /research/{id}``: cancel and forget a job with its chat; an extension."""
    parts, job = services(), own_job(job_id)
    _end([job, *parts.store.jobs(parent_id=job.id, limit=_MOST_FOLLOW_UPS)])
    # what was asked meanwhile goes along
    parts.store.delete(job.id)
    return jsonify({"id": job.id, "deleted": True})


def _end(jobs: Iterable[Job]) -> None:
    """Cancel jobs, and give their runs some time to end.

    A request to cancel that another process has not seen yet would go with the job, and the run
    would go on for a while.  A run in this process knows of it, and writes nothing for a job that
    is gone.
    """
    runner = services().runner
    cancelled = []
    for job in jobs:
        if job.finished_at is None:
            with contextlib.suppress(UnknownJobError):  # somebody else was quicker
                cancelled.append(runner.cancel_stored(job.id))
    began = time.monotonic()
    for job in cancelled:
        within_s = _OWN_END_WITHIN_S if runner.runs_detached(job.id) else _END_WITHIN_S
        _wait_for_end(job, began + within_s)


def _wait_for_end(job: Job, until: float) -> None:
    follower = services().runner.follow_stored(job, job.last_seq)
    try:
        while job.finished_at is None and not follower.drained:
            if (left_s := until - time.monotonic()) <= 0:
                break
            follower.take(left_s)
    finally:
        follower.leave()
