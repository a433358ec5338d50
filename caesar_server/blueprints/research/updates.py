"""What callers say to a job while it runs."""

from __future__ import annotations

from typing import Any

from flask import Response, jsonify, request

from caesar_server.blueprints.research.found import nothing_here, own_job
from caesar_server.blueprints.research.rendering.objects import sound
from caesar_server.blueprints.research.schemas import load_update
from caesar_server.contract.context import Update
from caesar_server.errors import ValidationFailedError
from caesar_server.store.base import Job, UnknownJobError
from caesar_server.store.updates import JobEndedError
from caesar_server.web.access.auth import caller
from caesar_server.web.api_version.negotiation import current_version
from caesar_server.web.bodies import read_json_object
from caesar_server.web.services import services
from caesar_server.web.timestamps import timestamp


def create_research_update(job_id: str) -> Response:
    """``POST /research/{id}/updates``: steer a running job."""
    job = own_job(job_id)
    parts = services()
    call = load_update(
        current_version().request("update", read_json_object(request)),
        refuse_unknown=parts.settings.unknown_fields == "reject",
    )
    parts.files.check(caller().account, file_ids=call.file_ids)
    if call.file_ids and not _reads_files(job):
        raise ValidationFailedError(
            f"files: the backend {job.backend!r} reads no files; say what is in them in "
            "update_content",
            param="files",
        )
    return jsonify(note_update(job, call.content, call.file_ids))


def _reads_files(job: Job) -> bool:
    """Return whether the job's backend looks at files, or at least does not mind them."""
    registry = services().registry
    if job.backend not in registry.names:
        return True  # it runs elsewhere, and nobody here knows it
    able = registry.backend_class(job.backend).capabilities
    return able.files or "files" in able.ignores


def note_update(job: Job, content: str, file_ids: tuple[str, ...] = ()) -> dict[str, Any]:
    """Note an update and return its object.

    :raises ValidationFailedError: if the job has ended.
    :raises NotFoundError: if it was deleted meanwhile.
    """
    parts = services()
    stamp = parts.stamp()
    update = Update(id=stamp.id, content=content, file_ids=file_ids)
    try:
        parts.store.add_update(job.id, update, stamp.created_at)
    except JobEndedError:
        raise ValidationFailedError(
            "The job has ended; updates are for jobs that run. Ask a follow-up question with "
            "POST /research/{id}/chat"
        ) from None
    except UnknownJobError:
        raise nothing_here() from None
    return _shown(job, update, stamp.created_at)


def list_research_updates(job_id: str) -> Response:
    """``GET /research/{id}/updates``: what was said to the job, oldest first."""
    job = own_job(job_id)
    found = services().store.updates(job.id)
    return jsonify([_shown(job, one.update, one.created_at) for one in found])


def _shown(job: Job, update: Update, created_at: float) -> dict[str, Any]:
    return current_version().response(
        "update",
        {
            "id": update.id,
            "ask_id": job.id,
            "update_content": sound(update.content),
            "files": list(update.file_ids),
            "created_at": timestamp(created_at),
        },
    )
