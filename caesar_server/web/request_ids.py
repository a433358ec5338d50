"""``x-request-id`` on every response, so that a caller's report finds its log line."""

from __future__ import annotations

import re
import secrets

from flask import Flask, Response

from caesar_server.web.incoming import incoming

_SANE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_BYTES = 16


def register(app: Flask) -> None:
    """Give each request of ``app`` an id: the caller's own if it is sane, else a new one."""

    @app.before_request
    def take_request_id() -> None:
        request = incoming()
        given = request.environ.get("HTTP_X_REQUEST_ID")
        is_sane = given is not None and _SANE.fullmatch(given)
        request.request_id = given if is_sane else secrets.token_hex(_BYTES)

    @app.after_request
    def show_request_id(response: Response) -> Response:
        response.headers["x-request-id"] = incoming().request_id or secrets.token_hex(_BYTES)
        return response
