"""What finds the views of requests, without looking at the same host name again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from flask import Request
from werkzeug.routing import Map, MapAdapter, Rule

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

#: So many hosts are remembered: who names which one is up to the clients.
_REMEMBERED = 64
#: So many ways to write the paths of views are, which are more than views: ``//path`` is one.
_REMEMBERED_VIEWS = 512
_AS_FLASK_ASKS = {"return_rule": True}


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
        self._views = _Views()

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
        return _Adapter(
            self._views,
            self._map,
            server_name,
            _decoded(environ.get("SCRIPT_NAME", "")) or "/",
            self._map.default_subdomain or "",
            environ["wsgi.url_scheme"],
            _decoded(environ.get("PATH_INFO", "")) or "/",
            environ["REQUEST_METHOD"],
            _decoded(environ.get("QUERY_STRING", "")),
        )


#: Method and path to the rule, for rules without a variable part.
_Views: TypeAlias = dict[tuple[str, str], Rule]


class _Adapter(MapAdapter):
    """Finds the same view by the same path but once, where nothing is taken from the path.

    :param views: those that were found, of all adapters of a map.
    """

    def __init__(self, views: _Views, *args: Any) -> None:
        super().__init__(*args)
        self._views = views

    def match(self, *args: Any, **kwargs: Any) -> tuple[Any, Mapping[str, Any]]:
        """Return what the request leads to, as Flask asks for it: its rule and the arguments."""
        if args or kwargs != _AS_FLASK_ASKS:
            return super().match(*args, **kwargs)
        key = self.default_method, self.path_info
        rule = self._views.get(key)
        if rule is not None:
            return rule, {}
        found, arguments = super().match(return_rule=True)
        if not arguments and len(self._views) < _REMEMBERED_VIEWS:
            self._views[key] = found
        return found, arguments


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
