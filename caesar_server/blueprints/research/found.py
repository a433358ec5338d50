"""What a caller may see: jobs of the caller's own account, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import current_app

from caesar_server.blueprints.research.rendering.folding import JobView
from caesar_server.blueprints.research.rendering.objects import research_object
from caesar_server.blueprints.research.rendering.views import Views
from caesar_server.contract.request import RequestKind
from caesar_server.errors import NotFoundError
from caesar_server.store.base import Job, Record, UnknownJobError
from caesar_server.web.access.auth import caller
from caesar_server.web.api_version.negotiation import note_version, version_for
from caesar_server.web.services import services

#: Key of the app's extensions: its :class:`Views`.
VIEWS = "caesar_server.research_views"

#: Jobs that are research to a reader: a text completion and a chat are, with their answer.
RESEARCH_KINDS: Sequence[RequestKind] = ("research", "completion", "chat")


def own_job(job_id: str) -> Job:
    """Return a job of the caller's account, as it stands.

    :raises NotFoundError: if there is none of this id, or it is another account's: which of the two
        is not told.
    """
    parts = services()
    parts.settled(job_id)
    try:
        job = parts.store.job(job_id)
    except UnknownJobError:
        raise nothing_here() from None
    if job.account != caller().account or job.parent_id or job.kind not in RESEARCH_KINDS:
        raise nothing_here()
    return job


def nothing_here() -> NotFoundError:
    """Return the error for what is not there, or not the caller's."""
    return NotFoundError("Resource not found")


def read_view(job: Job) -> JobView:
    """Return what a job has told so far.

    :raises NotFoundError: if it was deleted meanwhile.
    """
    parts = services()

    def read(after_seq: int) -> Sequence[Record]:
        return parts.store.records(job.id, after_seq, bulk=False)

    try:
        # the ids of a mock's jobs come again after each reset
        views = current_app.extensions[VIEWS] if parts.attach_repeats else Views()
        view: JobView = views.of(job, read)
    except UnknownJobError:
        raise nothing_here() from None
    return view


def shown(job: Job, *, note: bool = True) -> dict[str, Any]:
    """Return the object of a job in the version in which it is shown to this caller.

    :param note: the response tells that version; False for one among several objects.
    """
    version = version_for(job.api_version)
    if note:
        note_version(version)
    return version.response("research", research_object(read_view(job), services().clock.time()))
