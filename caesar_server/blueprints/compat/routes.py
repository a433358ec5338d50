"""The views of the OpenAI-compatible surface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from flask import Blueprint, Response, jsonify, request

from caesar_server.blueprints.compat.answer import Answer, Piece
from caesar_server.blueprints.compat.chunks import ChatWire, CompletionWire, Envelope, Wire
from caesar_server.blueprints.compat.schemas import (
    Call,
    CallLoader,
    ChatSchema,
    CompletionSchema,
    load_call,
)
from caesar_server.contract.backend import Model
from caesar_server.contract.events import Event, Failed, Started
from caesar_server.contract.request import ChatRequest, CompletionRequest
from caesar_server.errors import ModelNotFoundError, ValidationFailedError
from caesar_server.jobs.runner import new_job
from caesar_server.registry import ResolvedBackend
from caesar_server.store.base import Job
from caesar_server.web.access.auth import caller
from caesar_server.web.access.forwarding import forwarded_parts
from caesar_server.web.access.limits import open_stream
from caesar_server.web.bodies import read_json_object
from caesar_server.web.errors import AnswerError
from caesar_server.web.gone import client_socket
from caesar_server.web.observing.answered_by import started_headers
from caesar_server.web.services import Services, services
from caesar_server.web.streaming import stream_response

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
    call: Call[CompletionRequest] = load_call(
        _COMPLETION,
        read_json_object(request),
        refuse_unknown=parts.settings.unknown_fields == "reject",
    )
    prompts = len(call.request.prompts)
    if prompts > parts.settings.max_prompts:
        raise ValidationFailedError(
            f"prompt: expected at most {parts.settings.max_prompts} prompts, got {prompts}",
            param="prompt",
        )
    return _answer(parts, call, CompletionWire)


def create_chat_completion() -> Response:
    """``POST /compat/chat/completions``: the answer to a chat, as JSON or as a stream."""
    parts = services()
    call: Call[ChatRequest] = load_call(
        _CHAT,
        read_json_object(request),
        refuse_unknown=parts.settings.unknown_fields == "reject",
    )
    for index, message in enumerate(call.request.messages):
        for part in message.parts:
            if part.file_id is not None:
                raise ValidationFailedError(
                    f"messages[{index}].content: unknown file {part.file_id[:100]!r}",
                    param=f"messages[{index}].content",
                )
    return _answer(parts, call, ChatWire)


def list_models() -> Response:
    """``GET /compat/models``: what may be given as ``model``."""
    models = services().registry.models()
    return jsonify({"object": "list", "data": [_model_object(model) for model in models]})


def retrieve_model(model_id: str) -> Response:
    """``GET /compat/models/{id}``; ids may contain slashes."""
    for model in services().registry.models():
        if model.id == model_id:
            return jsonify(_model_object(model))
    raise ModelNotFoundError(f"The model {model_id[:100]!r} does not exist", param="model")


def _model_object(model: Model) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
    }


def _answer(
    parts: Services, call: Call[CompletionRequest] | Call[ChatRequest], wire_class: type[Wire]
) -> Response:
    """Run the job of a call and answer with it."""
    _check_limits(parts, call)
    resolved, fitted = parts.runner.prepare(call.model, call.request)
    job = new_job(
        fitted,
        model=call.model,
        resolved=resolved,
        created_at=parts.clock.time(),
        timeout_s=parts.settings.request_timeout_s,
        account=caller().account,
    )
    wire = wire_class(
        Envelope(
            id=job.id,
            created=int(job.created_at),
            model=call.model,
            include_usage=call.include_usage,
            show_progress=parts.settings.stream_progress,
        )
    )
    answer = Answer(call.request, resolved.backend.capabilities, parts.settings.compat_usage)
    if call.stream:
        return _stream(parts, job, resolved, answer, wire)
    headers: dict[str, str] = {}
    response = jsonify(wire.fold(_pieces(parts, job, answer, headers), fitted.choices))
    response.headers.extend(headers)
    return response


def _check_limits(parts: Services, call: Call[CompletionRequest] | Call[ChatRequest]) -> None:
    choices, limit = call.request.choices, parts.settings.max_choices
    if choices > limit:
        raise ValidationFailedError(
            f"n: expected at most {limit} choices in all (prompts times n), got {choices}",
            param="n",
        )
    if call.request.parameters.collection_ids:
        raise ValidationFailedError(
            "metadata.collection_ids: unknown collection "
            f"{call.request.parameters.collection_ids[0][:100]!r}",
            param="metadata.collection_ids",
        )


def _pieces(parts: Services, job: Job, answer: Answer, headers: dict[str, str]) -> Iterator[Piece]:
    """Run ``job`` in this thread and yield its pieces; a client that leaves cancels it.

    :param headers: gets what the backend wants to be told in the response's.
    :raises AnswerError: if it fails.
    """
    started = False
    forwarded = forwarded_parts(request, parts.settings)
    with ExitStack() as watching:
        for record in parts.runner.run_inline(job, forwarded=forwarded):
            if record.seq == 1:
                # Not before: a client that has left already would cancel a job that is not there.
                watching.callback(
                    parts.watch.watch(
                        client_socket(request.environ), lambda: parts.runner.cancel(job.id)
                    )
                )
            if isinstance(record.event, Failed):
                raise AnswerError(record.event.error, started=started)
            started = started or record.seq > 1
            if isinstance(record.event, Started):
                headers |= started_headers([record.event])
            yield from answer.pieces(record.event)


def _stream(
    parts: Services, job: Job, resolved: ResolvedBackend, answer: Answer, wire: Wire
) -> Response:
    def to_chunks(event: Event) -> list[Mapping[str, Any]]:
        return [chunk for piece in answer.pieces(event) for chunk in wire.chunks(piece)]

    place = open_stream()
    response = stream_response(
        parts.runner.follow(
            job,
            resolved.backend.capabilities,
            forwarded=forwarded_parts(request, parts.settings),
        ),
        to_chunks,
        watch=lambda left: parts.watch.watch(client_socket(request.environ), left),
        on_end=place.give_back,
        first_event_wait_s=parts.settings.first_event_wait_s,
        heartbeat_s=parts.settings.heartbeat_s,
    )
    place.kept = True
    return response
