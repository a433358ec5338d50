"""What finds the views of requests, without looking at the same host name again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flask import Request
from werkzeug.routing import Map, MapAdapter

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

#: So many hosts are remembered: who names which one is up to the clients.
_REMEMBERED = 64


class UrlAdapters:
    """Makes the adapter of each request.  Safe from any thread.

    Werkzeug works out a host's name anew for each request, IDNA and standard ports included, which
    took a twentieth of the time of an answer.

    :param url_map: the routes of the app; matched by path alone, not by host or subdomain.
    """

    def __init__(self, url_map: Map) -> None:
        self._map = url_map
        #: The host as the request has it, and as the adapter does.
        self._names: dict[tuple[str, ...], tuple[str, str]] = {}

    def of(
        self, request: Request, make: Callable[[Request], MapAdapter | None]
    ) -> MapAdapter | None:
        """Return the adapter of ``request``.

        :param make: Flask's own way, for a host that is not known yet.
        :raises HTTPException: what that raises, for a host that is none.
        """
        environ = request.environ
        key = _host_key(environ)
        if key is None:
            return make(request)
        known = self._names.get(key)
        if known is None:
            made = make(request)
            if made is not None and len(self._names) < _REMEMBERED:
                self._names[key] = (request.host, made.server_name)
            return made
        request.host, server_name = known
        return MapAdapter(
            self._map,
            server_name,
            _decoded(environ.get("SCRIPT_NAME", "")) or "/",
            self._map.default_subdomain or "",
            environ["wsgi.url_scheme"],
            _decoded(environ.get("PATH_INFO", "")) or "/",
            environ["REQUEST_METHOD"],
            _decoded(environ.get("QUERY_STRING", "")),
        )


def _host_key(environ: WSGIEnvironment) -> tuple[str, ...] | None:
    """Return what the host's name follows from; None if other things count as well."""
    if "HTTP_UPGRADE" in environ:
        return None  # a websocket's routes are others
    host: str | None = environ.get("HTTP_HOST")
    scheme: str = environ["wsgi.url_scheme"]
    if host is not None:
        return scheme, host
    return scheme, str(environ.get("SERVER_NAME")), str(environ.get("SERVER_PORT"))


def _decoded(value: str) -> str:
    """Return a WSGI string as the text that it stands for (PEP 3333: bytes as Latin-1)."""
    return value if value.isascii() else value.encode("latin1").decode(errors="replace")
