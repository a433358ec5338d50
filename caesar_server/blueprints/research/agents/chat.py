"""Follow-up questions in the agents family."""

from __future__ import annotations

from flask import Response, jsonify

from caesar_server.blueprints.research.agents.asked import asked_flag
from caesar_server.blueprints.research.chat.asking import answer_stream, ask
from caesar_server.blueprints.research.chat.messages import own_message, read_message
from caesar_server.blueprints.research.chat.routes import message_response, own_answer
from caesar_server.web.limiting.limits import open_stream

_BEGUN = ("id", "content", "status", "error_message", "results")
_POLLED = ("status", "content", "results")


def create_agent_chat(job_id: str) -> Response:
    """``POST /agents/research/{id}/chat``: ask about a job; with ``stream=true`` hear at once."""
    # before there is a job: nobody would learn its id if there is no room for the stream
    place = open_stream() if asked_flag("stream") else None
    message = ask(job_id)
    if place is not None:
        return answer_stream(message, place)
    shown = read_message(message)
    return jsonify({name: shown[name] for name in _BEGUN})


def retrieve_agent_chat_message(job_id: str, message_id: str) -> tuple[Response, int]:
    """``GET /agents/research/{id}/chat/{message_id}``: a message; 202 while it is written."""
    return message_response(own_message(job_id, message_id), *_POLLED)


def stream_agent_chat_message(job_id: str, message_id: str) -> Response:
    """``GET /agents/research/{id}/chat/{message_id}/stream``: an answer, while it is written."""
    return answer_stream(own_answer(job_id, message_id))
