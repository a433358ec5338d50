"""``/research/{id}/chat``: follow-up questions about a completed job."""

from __future__ import annotations

import logging
from typing import Any

from flask import Blueprint, Response, jsonify

from caesar_server.blueprints.research.chat.asking import answer_stream, ask
from caesar_server.blueprints.research.chat.messages import (
    MOST_CHARACTERS,
    Message,
    characters,
    newest_follow_ups,
    own_message,
    question_object,
    read_message,
)
from caesar_server.blueprints.research.found import nothing_here, own_job
from caesar_server.errors import NotFoundError
from caesar_server.store.unreadable import UnreadableRecordError
from caesar_server.web.access.auth import speaks_cli_shapes

logger = logging.getLogger(__name__)


def add_routes(blueprint: Blueprint) -> None:
    """Let a blueprint answer the URLs of chats."""
    chat = "/research/<job:job_id>/chat"
    blueprint.post(chat)(create_research_chat)
    blueprint.get(chat)(list_research_chat)
    blueprint.get(f"{chat}/<id:message_id>")(retrieve_research_chat_message)
    blueprint.get(f"{chat}/<id:message_id>/stream")(stream_research_chat_message)


def create_research_chat(job_id: str) -> Response:
    """``POST /research/{id}/chat``: ask about a completed job."""
    return jsonify(read_message(ask(job_id)))


def list_research_chat(job_id: str) -> Response:
    """``GET /research/{id}/chat``: the newest messages about a job, the newest first."""
    messages: list[dict[str, Any]] = []
    left = MOST_CHARACTERS
    for job in newest_follow_ups(own_job(job_id)):
        try:
            answer = read_message(Message(job))
        except NotFoundError:
            continue  # forgotten just now
        except UnreadableRecordError:
            logger.exception("message %s is left out of a chat", job.id)
            continue
        shown = answer, question_object(Message(job, asked=True))
        messages += shown
        left -= sum(map(characters, shown))
        if left <= 0:
            break
    return jsonify(messages if speaks_cli_shapes() else {"data": messages})


def retrieve_research_chat_message(job_id: str, message_id: str) -> tuple[Response, int]:
    """``GET /research/{id}/chat/{message_id}``: a message; 202 while it is being written."""
    return message_response(own_message(job_id, message_id))


def stream_research_chat_message(job_id: str, message_id: str) -> Response:
    """``GET /research/{id}/chat/{message_id}/stream``: an answer, while it is being written."""
    return answer_stream(own_answer(job_id, message_id))


def own_answer(job_id: str, message_id: str) -> Message:
    """Return an assistant's message about a job of the caller's.

    :raises NotFoundError: if there is none: a user's message is none to be streamed.
    """
    message = own_message(job_id, message_id)
    if message.asked:
        raise nothing_here()
    return message


def message_response(message: Message, *fields: str) -> tuple[Response, int]:
    """Return a message as it stands, with 202 while it is being written.

    :param fields: those to show; none: all.
    """
    shown = read_message(message)
    status = 202 if shown["status"] == "processing" else 200
    return jsonify({name: shown[name] for name in fields} if fields else shown), status
