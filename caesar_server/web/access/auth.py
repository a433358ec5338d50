"""The check of the caller's API key, before anything else is done for the request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from flask import Flask, Response, current_app, g, request

from caesar_server.errors import InvalidKeyError
from caesar_server.web.access.header import bearer_key
from caesar_server.web.access.keyring import Keyring
from caesar_server.web.access.keys import ApiVersion, KeyLimits
from caesar_server.web.errors import render_error
from caesar_server.web.services import services

#: What is answered without a key, with all that is below: whether the server runs, and how it is
#: spoken to.
OPEN_PATHS = ("/healthz", "/health", "/readyz", "/openapi.json", "/docs")
#: Tells how much the server is used, so it is open only if the setting ``metrics_public`` says so.
METRICS_PATH = "/metrics"
#: Key of the app's config: paths that, with all below, are the operator's and ask for a key.
OPERATOR_PATHS = "CAESAR_OPERATOR_PATHS"
_NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    :param account: whose the key is; empty where no keys are configured.
    :param key_id: the key's public name; empty likewise.
    :param api_version: the version that the key is pinned to, or None.
    """

    account: str = ""
    key_id: str = ""
    api_version: ApiVersion | None = None
    limits: KeyLimits = _NO_LIMITS


_ANYBODY = Caller()


def caller() -> Caller:
    """Return who sent the current request."""
    return cast(Caller, g.get("caller", _ANYBODY))


def asks_no_key() -> bool:
    """Return whether the current request is for what is open to everybody.

    A path that is not known asks for a key, so that what is added later does too.
    """
    if request.url_rule is None:
        return False
    rule = request.url_rule.rule
    if rule == METRICS_PATH:
        return services().settings.metrics_public
    return _is_below(rule, OPEN_PATHS)


def is_for_operator() -> bool:
    """Return whether the current request must be answered also when the server is full."""
    if request.url_rule is None:
        return False
    rule, paths = request.url_rule.rule, current_app.config.get(OPERATOR_PATHS, ())
    return asks_no_key() or rule == METRICS_PATH or _is_below(rule, paths)


def _is_below(rule: str, paths: Iterable[str]) -> bool:
    return any(rule == path or rule.startswith(f"{path}/") for path in paths)


def register(app: Flask, keyring: Keyring) -> None:
    """Make ``app`` refuse callers without a valid key, once there are keys."""

    @app.before_request
    def check_key() -> None:
        if not keyring.required or asks_no_key():
            return
        key = keyring.find(bearer_key(request.headers.get("Authorization")))
        if key is None:
            raise InvalidKeyError
        g.caller = Caller(key.account, key.id, key.api_version, key.limits)

    @app.errorhandler(InvalidKeyError)
    def ask_for_key(error: InvalidKeyError) -> Response:
        response = render_error(error.info())
        response.headers["WWW-Authenticate"] = "Bearer"
        return response
