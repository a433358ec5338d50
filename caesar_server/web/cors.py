"""Which web pages may call the server from a browser: none, unless ``cors_origins`` lists them.

Own code and no extension: the protocol is these two hooks.  Pages send their key in a header that
they set themselves, so credentials (cookies) are never allowed.
"""

from __future__ import annotations

from flask import Flask, Response, request

from caesar_server.settings import Settings, check_origins

#: What a page may read besides the few headers that browsers show by themselves.
EXPOSED_HEADERS = (
    "x-request-id",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
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
    if not origins:
        return

    @app.before_request
    def answer_preflight() -> Response | None:
        wanted = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or wanted is None or _allowed(origins) is None:
            return None
        response = Response(status=204)
        response.headers["Access-Control-Allow-Methods"] = "GET, POST, DELETE"
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


def _allowed(origins: frozenset[str]) -> str | None:
    """Return what to allow the page that sent the current request, or None."""
    origin = request.headers.get("Origin")
    if origin is None:
        return None
    if _ANY in origins:
        return _ANY
    return origin if origin in origins else None
