"""The views of the OpenAI-compatible surface."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

from flask import Blueprint, Response, jsonify

from caesar_server.blueprints.compat.rendering.answer import Answer
from caesar_server.blueprints.compat.rendering.chunks import (
    ChatWire,
    CompletionWire,
    Envelope,
    Wire,
)
from caesar_server.blueprints.compat.rendering.frames import Frames
from caesar_server.blueprints.compat.schemas import (
    Call,
    CallLoader,
    ChatSchema,
    CompletionSchema,
    load_call,
)
from caesar_server.contract.backend import Backend, Model
from caesar_server.contract.events import ContentDelta, Event, Failed, Started
from caesar_server.contract.request import ChatRequest, CompletionRequest, Request
from caesar_server.errors import CANCELLED, ModelNotFoundError, ValidationFailedError
from caesar_server.jobs.following.follower import Follower, Following
from caesar_server.jobs.runner import new_job
from caesar_server.registry import ResolvedBackend
from caesar_server.store.base import Job, Record
from caesar_server.web.access.auth import caller
from caesar_server.web.access.repeats import fingerprint, is_repeat
from caesar_server.web.bodies import read_json_object
from caesar_server.web.errors import AnswerError
from caesar_server.web.fields import MAX_ITEMS
from caesar_server.web.framework.responses import json_response
from caesar_server.web.gone import client_socket
from caesar_server.web.incoming import incoming
from caesar_server.web.limiting.limits import open_stream
from caesar_server.web.limiting.quotas import quota_of_caller
from caesar_server.web.observing.answered_by import started_headers
from caesar_server.web.services import Services, services
from caesar_server.web.streaming import OpenAIFraming, stream_response

#: Where the surface is found: the hosted service's path, and what clients make of a base URL.
PREFIXES = ("/compat", "/v1", "/compat/v1")

# Making a schema copies all its fields; loading with it changes nothing in it.
_COMPLETION = CallLoader(CompletionSchema)
_CHAT = CallLoader(ChatSchema)


def create_blueprint(prefix: str) -> Blueprint:
    """Return the surface for one of :data:`PREFIXES`."""
    name = prefix.strip("/").replace("/", "_")
    blueprint = Blueprint(name, __name__, url_prefix=prefix)
    blueprint.post("/completions")(create_completion)
    blueprint.post("/chat/completions")(create_chat_completion)
    blueprint.get("/models")(list_models)
    blueprint.get("/models/<path:model_id>")(retrieve_model)
    return blueprint


def create_completion() -> Response:
    """``POST /compat/completions``: a text completion, as JSON or as a stream."""
    parts = services()
    body = read_json_object(incoming())
    call: Call[CompletionRequest] = load_call(
        _COMPLETION,
        body,
        refuse_unknown=parts.settings.unknown_fields == "reject",
    )
    prompts = len(call.request.prompts)
    if prompts > parts.settings.max_prompts:
        raise ValidationFailedError(
            f"prompt: expected at most {parts.settings.max_prompts} prompts, got {prompts}",
            param="prompt",
        )
    return _answer(parts, call, body, CompletionWire)


def create_chat_completion() -> Response:
    """``POST /compat/chat/completions``: the answer to a chat, as JSON or as a stream."""
    parts = services()
    body = read_json_object(incoming())
    call: Call[ChatRequest] = load_call(
        _CHAT,
        body,
        refuse_unknown=parts.settings.unknown_fields == "reject",
    )
    _check_files(parts, call.request)
    return _answer(parts, call, body, ChatWire)


def list_models() -> Response:
    """``GET /compat/models``: what may be given as ``model``."""
    models = services().registry.models()
    return jsonify({"object": "list", "data": [_model_object(model) for model in models]})


def retrieve_model(model_id: str) -> Response:
    """``GET /compat/models/{id}``; ids may contain slashes."""
    # one at the end of the path is none of the id, as with all paths
    model_id = model_id.removesuffix("/")
    model = services().registry.model(model_id)
    if model is None:
        raise ModelNotFoundError(f"The model {model_id[:100]!r} does not exist", param="model")
    return jsonify(_model_object(model))


def _model_object(model: Model) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
    }


def _answer(
    parts: Services,
    call: Call[CompletionRequest] | Call[ChatRequest],
    body: Mapping[str, Any],
    wire_class: type[Wire],
) -> Response:
    """Answer a call with the records of its job.

    :param body: as it was sent.
    """
    account = caller().account
    _check_limits(parts, call, account)
    resolved, fitted = parts.runner.prepare(call.model, call.request, account=account)
    job, is_new = _job(parts, call, body, resolved, fitted, account)
    wire = wire_class(
        Envelope(
            id=job.id,
            created=int(job.created_at),
            model=call.model,
            include_usage=call.include_usage,
            show_progress=parts.settings.stream_progress,
        )
    )
    able, usage = resolved.backend.capabilities, parts.settings.compat_usage
    answer = Answer(call.request, able, usage, job.id)
    if call.stream:
        return _stream(parts, job, resolved.backend, answer, wire, is_new=is_new)
    headers: dict[str, str] = {}
    if job.detached:
        records = _stored_records(parts, job, is_new=is_new)
    else:
        records = _inline_records(parts, job, resolved.backend)
    # also if it cannot be rendered: the run must not outlive its request
    with closing(records):
        rendered = wire.fold(answer.pieces(_events(records, headers)), fitted.choices)
    return json_response(rendered, headers)


def _job(
    parts: Services,
    call: Call[CompletionRequest] | Call[ChatRequest],
    body: Mapping[str, Any],
    resolved: ResolvedBackend,
    fitted: Request,
    account: str,
) -> tuple[Job, bool]:
    """Return the job that answers a call, and whether it is a new one.

    A request that a client sends again is answered by the job that it began, if that goes on
    without its client.
    """
    known_by = None
    if resolved.backend.capabilities.durable:
        asked = incoming()
        known_by = fingerprint(asked, body)
        if is_repeat(asked):
            job = parts.runner.repeated(account, known_by)
            if job is not None:
                return job, False
    stamp = parts.stamp()
    job = new_job(
        fitted,
        id=stamp.id,
        model=call.model,
        resolved=resolved,
        created_at=stamp.created_at,
        timeout_s=parts.settings.request_timeout_s,
        account=account,
        fingerprint=known_by,
    )
    return job, True


def _check_limits(
    parts: Services, call: Call[CompletionRequest] | Call[ChatRequest], account: str
) -> None:
    choices, limit = call.request.choices, parts.settings.max_choices
    if choices > limit:
        raise ValidationFailedError(
            f"n: expected at most {limit} choices in all (prompts times n), got {choices}",
            param="n",
        )
    if collection_ids := call.request.parameters.collection_ids:
        parts.files.check(
            account, collection_ids=collection_ids, collections_param="metadata.collection_ids"
        )


def _check_files(parts: Services, asked: ChatRequest) -> None:
    """Refuse file parts whose ids are not the caller's."""
    named = [
        (part.file_id, f"messages[{index}].content[{place}].file")
        for index, message in enumerate(asked.messages)
        for place, part in enumerate(message.parts)
        if part.file_id is not None
    ]
    if not named:
        return
    if len(named) > MAX_ITEMS:
        raise ValidationFailedError(
            f"messages: expected at most {MAX_ITEMS} files, got {len(named)}", param="messages"
        )
    parts.files.check(
        caller().account,
        [file_id for file_id, _ in named],
        file_params=[param for _, param in named],
    )


def _inline_records(parts: Services, job: Job, backend: Backend) -> Generator[Record, None, None]:
    """Run ``job`` in this thread and yield its records; a client that leaves cancels it."""
    asked = incoming()
    quota, forwarded = quota_of_caller(), parts.forwarded(asked)
    records = parts.runner.run_inline(job, quota=quota, forwarded=forwarded, backend=backend)
    first = next(records)
    asked.begun = True
    # Not before: a client that has left already would cancel a job that is not there.
    end_watch = parts.watch.watch(client_socket(asked.environ), lambda: parts.runner.cancel(job.id))
    try:
        yield first
        yield from records
    finally:
        end_watch()


def _stored_records(parts: Services, job: Job, *, is_new: bool) -> Generator[Record, None, None]:
    """Yield the records of a job that goes on without its client, as they are stored.

    :raises AnswerError: if the client leaves, or the server cannot read on.
    """
    following = _follow_stored(parts, job, is_new=is_new)
    end_watch = parts.watch.watch(client_socket(incoming().environ), following.leave)
    try:
        while not following.drained:
            for record in following.take(None):
                if following.given_up and isinstance(record.event, Failed):
                    # not its end: a repeat is answered by the same job, and costs nothing
                    raise AnswerError(record.event.error)
                yield record
        if following.left:
            # nobody reads it, but the log tells of it
            raise AnswerError(CANCELLED, started=True)
    finally:
        end_watch()
        following.leave()


def _events(records: Iterator[Record], headers: dict[str, str]) -> Iterator[Event]:
    """Yield the events of an answer.

    :param headers: gets what the backend wants to be told in the response's.
    :raises AnswerError: if the job fails.
    """
    started = False
    for record in records:
        event = record.event
        if type(event) is not ContentDelta:  # what nearly all of them are
            if isinstance(event, Failed):
                raise AnswerError(event.error, started=started)
            if isinstance(event, Started):
                headers |= started_headers([event])
        started = started or record.seq > 1
        yield event


def _follow(parts: Services, job: Job, backend: Backend | None, *, is_new: bool) -> Following:
    if job.detached:
        return _follow_stored(parts, job, is_new=is_new)
    asked = incoming()
    quota, forwarded = quota_of_caller(), parts.forwarded(asked)
    following = parts.runner.follow(job, quota=quota, forwarded=forwarded, backend=backend)
    asked.begun = True
    return following


def _follow_stored(parts: Services, job: Job, *, is_new: bool) -> Follower:
    if not is_new:
        return parts.runner.follow_stored(job)
    follower = parts.runner.submit(job, quota=quota_of_caller())
    incoming().begun = True
    return follower


def _stream(
    parts: Services, job: Job, backend: Backend, answer: Answer, wire: Wire, *, is_new: bool
) -> Response:
    place, connection = open_stream(), client_socket(incoming().environ)
    response = stream_response(
        _follow(parts, job, backend, is_new=is_new),
        OpenAIFraming(Frames(answer, wire).of),
        watch=lambda left: parts.watch.watch(connection, left),
        on_end=place.give_back,
        first_event_wait_s=parts.settings.first_event_wait_s,
        heartbeat_s=parts.settings.heartbeat_s,
    )
    place.kept = True
    return response
