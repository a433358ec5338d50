"""Which web pages may call the server from a browser: none, unless ``cors_origins`` lists them.

Own code and no extension: the protocol is these two hooks.  Pages send their key in a header that
they set themselves, so credentials (cookies) are never allowed.
"""

from __future__ import annotations

from flask import Flask, Response, request

from caesar_server.errors import ForbiddenOriginError
from caesar_server.settings import Settings, check_origins
from caesar_server.web.errors import printable
from caesar_server.web.incoming import incoming

#: What a page may read besides the few headers that browsers show by themselves.
EXPOSED_HEADERS = (
    "x-request-id",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    # what a public client of Caesar shows
    "x-ratelimit-remaining",
    "x-ratelimit-limit-jobs",
    "x-ratelimit-remaining-jobs",
    "x-ratelimit-limit-loops",
    "x-ratelimit-remaining-loops",
    "x-ratelimit-reset-loops",
    "api-version",
    # which job a stream is of, and which server was asked
    "content-location",
    "x-caesar-upstream",
    "content-disposition",
    # downloads of a part, or of what is not known yet
    "accept-ranges",
    "content-range",
    "etag",
)
#: For how long a browser may remember the answer to a preflight.
_REMEMBER_S = 600
_ANY = "*"


def register(app: Flask, settings: Settings) -> None:
    """Let pages of ``cors_origins`` call ``app``.

    Must come before the check of keys: a browser sends none with its preflight.

    :raises SettingsError: for what is no origin.
    """
    check_origins(settings)
    origins = frozenset(settings.cors_origins)

    @app.before_request
    def refuse_foreign_forms() -> None:
        # What has a JSON body is asked for by a preflight first; a form any page may send unasked.
        request = incoming()
        if "HTTP_ORIGIN" not in request.environ or request.method != "POST" or request.is_json:
            return
        if _is_foreign(origins):
            raise ForbiddenOriginError(
                f"Pages of {printable(request.headers['Origin'])} may not call this server; "
                "its operator can allow them in cors_origins"
            )

    if not origins:
        return

    @app.before_request
    def answer_preflight() -> Response | None:
        wanted = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or wanted is None or _allowed(origins) is None:
            return None
        response = Response(status=204)
        response.headers["Access-Control-Allow-Methods"] = "GET, POST, PUT, PATCH, DELETE"
        if asked := request.headers.get("Access-Control-Request-Headers"):
            # Whatever it asks for: OpenAI's clients send a dozen of their own.
            response.headers["Access-Control-Allow-Headers"] = asked
        response.headers["Access-Control-Max-Age"] = str(_REMEMBER_S)
        return response

    @app.after_request
    def allow(response: Response) -> Response:
        if _ANY not in origins:
            # also to others, or a cache would give them this page's answer
            response.vary.add("Origin")
        if (origin := _allowed(origins)) is not None:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = ", ".join(EXPOSED_HEADERS)
        return response


def _is_foreign(origins: frozenset[str]) -> bool:
    """Return whether the current request is that of a page of another, unknown origin."""
    origin = request.headers.get("Origin")
    if origin is None or _allowed(origins) is not None:
        return False
    # behind a proxy the scheme may differ, and the host is what counts
    return origin.partition("://")[2] != request.host


def _allowed(origins: frozenset[str]) -> str | None:
    """Return what to allow the page that sent the current request, or None."""
    origin = request.headers.get("Origin")
    if origin is None:
        return None
    if _ANY in origins:
        return _ANY
    return origin if origin in origins else None
