"""``x-request-id`` on every response, so that a caller's report finds its log line."""

from __future__ import annotations

import random
import re
from functools import cached_property

from flask import Flask, Response

from caesar_server.web.incoming import incoming

_SANE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_BITS = 128


def register(app: Flask) -> None:
    """Give each request of ``app`` an id: the caller's own if it is sane, else a new one."""
    ids = _Ids()

    @app.before_request
    def take_request_id() -> None:
        request = incoming()
        given = request.environ.get("HTTP_X_REQUEST_ID")
        is_sane = given is not None and _SANE.fullmatch(given)
        request.request_id = given if is_sane else ids.new()

    @app.after_request
    def show_request_id(response: Response) -> Response:
        response.headers["x-request-id"] = incoming().request_id or ids.new()
        return response


class _Ids:
    """Ids that are never the same again; they open nothing, so they may be guessed.

    Asked for each of them, the kernel takes the interpreter away from the thread.
    """

    @cached_property
    def _chance(self) -> random.Random:
        # with the first request, so after the fork: else two workers gave the same ids
        return random.Random()

    def new(self) -> str:
        """Return the next one."""
        return f"{self._chance.getrandbits(_BITS):032x}"
