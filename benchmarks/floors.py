"""What the server is measured against: the same answers, written by hand.

Each is a WSGI app that gunicorn can load, such as ``floors:view``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flask import Flask, Response, jsonify, request

#: A stream's words, and with its finish chunk so many frames and ``[DONE]``.
WORDS = 200
_IDENTITY = {
    "id": "9c6f8b1a-2a4f-4a35-86b9-0d0b5e25d5e5",
    "created": 1700000000,
    "model": "echo",
}


def _body(text: str) -> dict[str, Any]:
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    return {**_IDENTITY, "object": "text_completion", "choices": [choice], "usage": usage}


_BARE = json.dumps(_body("To be, or not to be")).encode()


def bare(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer with the same bytes whatever is asked: what the host alone costs."""
    environ["wsgi.input"].read()
    start_response(
        "200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(_BARE)))]
    )
    return [_BARE]


def _frames(text: str) -> Iterator[bytes]:
    for word in text.split():
        choice = {"text": word + " ", "index": 0, "logprobs": None, "finish_reason": None}
        chunk = {**_IDENTITY, "object": "text_completion", "choices": [choice]}
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _make_view() -> Flask:
    app = Flask(__name__)

    @app.post("/compat/completions")
    def create_completion() -> Response:
        body = request.get_json()
        if body.get("stream"):
            return Response(_frames(body["prompt"]), mimetype="text/event-stream")
        return jsonify(_body(body["prompt"]))

    return app


#: A Flask view as one writes it in five minutes: no checks, one write a chunk.
view = _make_view()
