"""Responses that are made often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response

from caesar_server.contract.sse import ascii_json


def json_response(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON value as a response of status 200.

    :param headers: further ones.
    """
    response = Response(ascii_json(value) + b"\n", content_type="application/json")
    if headers:
        response.headers.extend(headers)
    return response
