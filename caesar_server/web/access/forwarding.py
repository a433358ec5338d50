"""What backends may see of the caller's HTTP request."""

from __future__ import annotations

from flask import Request

from caesar_server.contract.context import Forwarded
from caesar_server.errors import InvalidKeyError, MissingKeyError
from caesar_server.settings import Settings
from caesar_server.web.access.auth import caller
from caesar_server.web.access.header import bearer_key

#: In the setting ``forward_headers`` it stands for the caller's own key.
AUTHORIZATION = "authorization"


def forwarded_parts(request: Request, settings: Settings) -> Forwarded:
    """Return the headers that the setting ``forward_headers`` lists, and the caller's key.

    The key only if ``authorization`` is listed, and never one of this server's own: the service
    behind a backend could use it here.
    """
    headers: dict[str, str] = {}
    api_key: str | None = None
    for name in map(str.lower, settings.forward_headers):
        if name == AUTHORIZATION:
            api_key = None if caller().key_id else _key(request)
        elif (value := request.headers.get(name)) is not None:
            headers[name] = value
    return Forwarded(headers, api_key)


def _key(request: Request) -> str | None:
    try:
        return bearer_key(request.headers.get("Authorization"))
    except (InvalidKeyError, MissingKeyError):
        return None
