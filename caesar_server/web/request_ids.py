"""``x-request-id`` on every response, so that a caller's report finds its log line."""

from __future__ import annotations

import re
import uuid

from flask import Flask, Response, g, request

_SANE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


def register(app: Flask) -> None:
    """Give each request of ``app`` an id: the caller's own if it is sane, else a new one."""

    @app.before_request
    def take_request_id() -> None:
        given = request.headers.get("x-request-id", "")
        g.request_id = given if _SANE.fullmatch(given) else uuid.uuid4().hex

    @app.after_request
    def show_request_id(response: Response) -> Response:
        response.headers["x-request-id"] = g.get("request_id") or uuid.uuid4().hex
        return response
