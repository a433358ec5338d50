"""From a job's events to the items of ``GET /research/{id}/events``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesar_server.blueprints.research.rendering.objects import sound
from caesar_server.contract.events import ProgressNoted, Status, StatusChanged
from caesar_server.store.base import Job, Record
from caesar_server.web.timestamps import timestamp

#: What is said of a status by which a backend says nothing.
STATUS_MESSAGES: Mapping[Status, str] = {
    "queued": "The job is waiting to be started",
    "searching": "Searching for sources",
    "researching": "Reading the sources",
    "analyzing": "Analyzing what was found",
    "summarizing": "Writing the answer",
    "completed": "The answer is complete",
    "failed": "The job has failed",
}


def waiting_item(job: Job) -> dict[str, Any]:
    """Return the first item of a job, whether it has begun or not."""
    return {"message": STATUS_MESSAGES["queued"], "created_at": timestamp(job.created_at)}


def event_item(record: Record, job: Job) -> dict[str, Any] | None:
    """Return ``message`` and ``created_at`` of an event that is news for a person, else None."""
    match record.event:
        case StatusChanged(status="queued"):
            return waiting_item(job)
        case StatusChanged(status=status, message=message):
            text = message or STATUS_MESSAGES[status]
        case ProgressNoted(message=text):
            pass
        case _:
            return None
    return {"message": sound(text), "created_at": timestamp(record.created_at)}
