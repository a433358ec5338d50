"""The check of the caller's API key, before anything else is done for the request."""

from __future__ import annotations

from collections.abc import Iterable

from flask import Flask, Response, current_app

from caesar_server.errors import InvalidKeyError
from caesar_server.web.access.caller import Caller
from caesar_server.web.access.header import bearer_key
from caesar_server.web.access.keyring import Keyring
from caesar_server.web.errors import render_error
from caesar_server.web.incoming import incoming
from caesar_server.web.services import services

#: What is answered without a key, with all that is below: whether the server runs, and how it is
#: spoken to.
OPEN_PATHS = ("/healthz", "/health", "/readyz", "/openapi.json", "/docs")
#: Caesar's ways to get a key or to pay without one.  None of them is here, and who has no key must
#: hear that, not that a key is missing.
ABSENT_PATHS = ("/agents/auth", "/agents/auth/confirm", "/x402/research")
#: Tells how much the server is used, so it is open only if the setting ``metrics_public`` says so.
METRICS_PATH = "/metrics"
#: Key of the app's config: paths that, with all below, are the operator's and ask for a key.
OPERATOR_PATHS = "CAESAR_OPERATOR_PATHS"


def caller() -> Caller:
    """Return who sent the current request."""
    return incoming().caller


def speaks_cli_shapes() -> bool:
    """Return whether the current request gets the two shapes of the public Go command line client.

    It reads the history of a chat as a bare array and the options of a brainstorm's question as
    ``{"0": text}``, which contradicts Caesar's API reference; the setting ``cli_shapes`` is for all
    requests, that of a key for those which show it.
    """
    return caller().cli_shapes or services().settings.cli_shapes


def asks_no_key() -> bool:
    """Return whether the current request is for what is open to everybody.

    A path that is not known asks for a key, so that what is added later does too.
    """
    if (url_rule := incoming().url_rule) is None:
        return False
    rule = url_rule.rule
    if rule == METRICS_PATH:
        return services().settings.metrics_public
    return _is_below(rule, OPEN_PATHS)


def is_for_operator() -> bool:
    """Return whether the current request must be answered also when the server is full."""
    if (url_rule := incoming().url_rule) is None:
        return False
    rule, paths = url_rule.rule, current_app.config.get(OPERATOR_PATHS, ())
    return asks_no_key() or rule == METRICS_PATH or _is_below(rule, paths)


def _is_below(rule: str, paths: Iterable[str]) -> bool:
    return any(rule == path or rule.startswith(f"{path}/") for path in paths)


def register(app: Flask, keyring: Keyring) -> None:
    """Make ``app`` refuse callers without a valid key, once there are keys."""

    @app.before_request
    def check_key() -> None:
        if not keyring.required:
            return
        request = incoming()
        if asks_no_key() or request.path in ABSENT_PATHS:
            return
        key = keyring.find(bearer_key(request.headers.get("Authorization")))
        if key is None:
            raise InvalidKeyError
        request.caller = Caller(key.account, key.id, key.api_version, key.limits, key.cli_shapes)

    @app.errorhandler(InvalidKeyError)
    def ask_for_key(error: InvalidKeyError) -> Response:
        response = render_error(error.info())
        response.headers["WWW-Authenticate"] = "Bearer"
        return response
