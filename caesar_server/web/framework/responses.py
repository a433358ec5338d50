"""Responses that are made often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flask import Response

from caesar_server.contract.sse import ascii_json

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

#: With one of these in it a head is not sent as it is.
_ADAPTED = frozenset({"location", "content-location"})


class ReadyResponse(Response):
    """A response that is sent as it stands, if nothing in it depends on the request.

    Werkzeug looks for what does, and puts an iterator around the body; a body of one piece needs
    none, unless somebody waits for its end.
    """

    def get_wsgi_response(
        self, environ: WSGIEnvironment
    ) -> tuple[Iterable[bytes], str, list[tuple[str, str]]]:
        """Return the body, the status and the headers."""
        body: Any = self.response
        if self.status_code != 200 or environ["REQUEST_METHOD"] == "HEAD":
            return super().get_wsgi_response(environ)
        headers = self.headers.to_wsgi_list()
        names = {name.lower() for name, _ in headers}
        if not _ADAPTED.isdisjoint(names):
            return super().get_wsgi_response(environ)
        if self.direct_passthrough and not self.is_sequence:
            return body, self.status, headers
        if self._on_close or "content-length" not in names or not _is_one_piece(body):
            return super().get_wsgi_response(environ)
        return body, self.status, headers


def _is_one_piece(body: object) -> bool:
    return type(body) is list and len(body) == 1 and type(body[0]) is bytes


def json_response(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON value as a response of status 200.

    :param headers: further ones.
    """
    response = ReadyResponse(ascii_json(value) + b"\n", content_type="application/json")
    if headers:
        response.headers.extend(headers)
    return response
