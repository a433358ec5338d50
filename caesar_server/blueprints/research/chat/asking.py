"""Taking a follow-up question in: it becomes a job, which goes on without its client."""

from __future__ import annotations

from dataclasses import replace

from flask import Response, request

from caesar_server.blueprints.research.chat.background import follow_up_request
from caesar_server.blueprints.research.chat.framing import ChatFraming
from caesar_server.blueprints.research.chat.messages import Message
from caesar_server.blueprints.research.found import nothing_here, own_job
from caesar_server.blueprints.research.rendering.objects import status_of
from caesar_server.blueprints.research.schemas import load_chat
from caesar_server.errors import ValidationFailedError
from caesar_server.jobs.runner import new_job
from caesar_server.store.base import Job, UnknownJobError
from caesar_server.web.access.auth import caller
from caesar_server.web.access.repeats import fingerprint, is_repeat
from caesar_server.web.bodies import read_json_object
from caesar_server.web.gone import client_socket
from caesar_server.web.incoming import incoming
from caesar_server.web.limiting.limits import open_stream
from caesar_server.web.limiting.places import Place
from caesar_server.web.services import services
from caesar_server.web.streaming import stream_response


def ask(job_id: str) -> Message:
    """Begin to answer the question in the current request's body; return the answer's message.

    Follow-ups count against no limit of the account.

    :raises NotFoundError: if there is no such job, or it is another account's.
    :raises BadRequestError: if the body is not as it should be.
    :raises ValidationFailedError: if the job is not completed.
    :raises InvalidRequestError: if its backend cannot take follow-ups in any form.
    """
    parts, parent = services(), own_job(job_id)
    body = read_json_object(request)
    call = load_chat(body, refuse_unknown=parts.settings.unknown_fields == "reject")
    _check_completed(parent)
    known_by = fingerprint(request, body)
    if parts.attach_repeats and is_repeat(request):
        repeated = parts.runner.repeated(caller().account, known_by)
        if repeated is not None:
            return Message(repeated)
    asked = follow_up_request(parent, call)
    # What it becomes for the backend is made anew when it runs.
    resolved, _ = parts.runner.prepare(parent.model, asked)
    stamp = parts.stamp()
    job = new_job(
        replace(asked, model=resolved.model),
        id=stamp.id,
        model=parent.model,
        resolved=resolved,
        created_at=stamp.created_at,
        timeout_s=parts.settings.research_timeout_s,
        account=parent.account,
        fingerprint=known_by,
        detached=True,
        parent_id=parent.id,
    )
    try:
        parts.runner.submit(job, forwarded=parts.forwarded(request)).leave()
    except UnknownJobError:
        raise nothing_here() from None  # deleted meanwhile
    incoming().begun = True
    return Message(job)


def answer_stream(message: Message, place: Place | None = None) -> Response:
    """Return the stream of an answer, from its beginning, whether it is complete or not.

    :param place: of the current request, if it is counted as a stream already.
    """
    parts = services()
    place = place or open_stream()
    response = stream_response(
        parts.runner.follow_stored(message.job),
        ChatFraming(message),
        watch=lambda left: parts.watch.watch(client_socket(request.environ), left),
        on_end=place.give_back,
        first_event_wait_s=None,
        heartbeat_s=parts.settings.heartbeat_s,
    )
    place.kept = True
    return response


def _check_completed(parent: Job) -> None:
    if parent.status == "completed":
        return
    if parent.status == "failed":
        raise ValidationFailedError(
            "The job has failed: there is no answer to ask about; begin another job"
        )
    raise ValidationFailedError(
        f"The job is not completed but {status_of(parent)}: ask about its answer once there is one"
    )
