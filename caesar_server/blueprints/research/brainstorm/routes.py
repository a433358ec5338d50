"""``POST /research/brainstorm``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from flask import Response, jsonify, request

from caesar_server.blueprints.research.brainstorm.questions import (
    Question,
    told_questions,
    usual_questions,
)
from caesar_server.blueprints.research.rendering.objects import sound
from caesar_server.blueprints.research.schemas import load_brainstorm
from caesar_server.contract.events import Completed, Failed
from caesar_server.contract.request import BrainstormRequest
from caesar_server.jobs.runner import new_job
from caesar_server.registry import GENERIC_MODEL
from caesar_server.store.base import Job
from caesar_server.store.owned.base import OwnedSession
from caesar_server.web.access.auth import caller, speaks_cli_shapes
from caesar_server.web.bodies import read_json_object
from caesar_server.web.errors import AnswerError
from caesar_server.web.gone import client_socket
from caesar_server.web.incoming import incoming
from caesar_server.web.services import Services, Stamp, services
from caesar_server.web.timestamps import timestamp


def create_brainstorm() -> Response:
    """``POST /research/brainstorm``: what to clear up before a job."""
    parts = services()
    call = load_brainstorm(
        read_json_object(request), refuse_unknown=parts.settings.unknown_fields == "reject"
    )
    stamp = parts.stamp()
    session = OwnedSession(
        id=stamp.id,
        account=caller().account,
        created_at=stamp.created_at,
        query=call.query,
        questions=tuple(_questions(parts, call.query, stamp)),
    )
    parts.store.owned.add_session(session)
    return jsonify(_shown(session, as_map=speaks_cli_shapes()))


def _questions(parts: Services, query: str, stamp: Stamp) -> Sequence[Question]:
    """Return the default backend's questions, or the server's own."""
    resolved = parts.registry.resolve(GENERIC_MODEL)
    if "brainstorm" not in resolved.backend.capabilities.accepts:
        return usual_questions(query)
    resolved, fitted = parts.runner.prepare(GENERIC_MODEL, BrainstormRequest(query=query))
    job = new_job(
        fitted,
        id=stamp.id,
        model=GENERIC_MODEL,
        resolved=resolved,
        created_at=stamp.created_at,
        timeout_s=parts.settings.request_timeout_s,
        account=caller().account,
        detached=False,
    )
    with contextlib.ExitStack() as watching:
        records = parts.runner.run_inline(job, forwarded=parts.forwarded(request))
        watching.enter_context(contextlib.closing(records))
        for record in records:
            if record.seq == 1:
                # Not before: a client that has left already would cancel a job that is not there.
                watching.callback(_cancel_when_left(parts, job))
                incoming().begun = True
            if isinstance(record.event, Failed):
                raise AnswerError(record.event.error, started=record.seq > 2)
            if isinstance(record.event, Completed):
                return told_questions(record.event.details)
    return ()


def _cancel_when_left(parts: Services, job: Job) -> Callable[[], None]:
    return parts.watch.watch(client_socket(request.environ), lambda: parts.runner.cancel(job.id))


def _shown(session: OwnedSession, *, as_map: bool) -> dict[str, Any]:
    """Return a session that was just made.

    :param as_map: options as the public command line client reads them, ``{"0": text}``; otherwise
        as the documentation has them.
    """
    return {
        "id": session.id,
        "query": sound(session.query),
        "status": "ready",
        "created_at": timestamp(session.created_at),
        "questions": [
            {
                "id": question["id"],
                "question": sound(question["question"]),
                "options": _options([*map(sound, question["options"])], as_map=as_map),
            }
            for question in session.questions
        ],
    }


def _options(texts: Sequence[str], *, as_map: bool) -> Any:
    if as_map:
        return {str(key): text for key, text in enumerate(texts)}
    return [{"key": str(key), "text": text} for key, text in enumerate(texts)]
