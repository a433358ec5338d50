"""Headers and addresses as they may be shown: whatever lets somebody in is hidden."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote_plus

#: Stands for what is hidden.
MASK = "***"

_SECRET = frozenset(
    {
        "api-key",
        "authorization",
        "cookie",
        "ocp-apim-subscription-key",
        "proxy-authorization",
        "set-cookie",
        "x-amz-security-token",
        "x-api-key",
        "x-auth-token",
        "x-csrf-token",
        "x-goog-api-key",
    }
)
#: Names with one of these words in them are hidden, too: somebody's own ``x-acme-token``.
_SECRET_WORDS = frozenset({"apikey", "credential", "key", "password", "secret", "token"})
#: They have such a word in their name and are no secret.
_KNOWN = frozenset({"idempotency-key", "sec-websocket-key"})


def masked(headers: Mapping[str, str]) -> dict[str, str]:
    """Return ``headers`` with the secret values hidden; the scheme of an authorization stays.

    >>> masked({"authorization": "Bearer abc", "x-team": "blue"})
    {'authorization': 'Bearer ***', 'x-team': 'blue'}
    """
    return {name: _mask(value) if is_secret(name) else value for name, value in headers.items()}


def masked_query(path: str) -> str:
    """Return a path as a client sent it, with the secret values in its query hidden.

    >>> masked_query("/v1/models?api_key=abc&after=3")
    '/v1/models?api_key=***&after=3'
    """
    before, mark, query = path.partition("?")
    return before + mark + "&".join(map(_masked_parameter, query.split("&"))) if mark else path


def _masked_parameter(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    # api_key and apiKey are as secret as api-key
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", "-", unquote_plus(name))
    return f"{name}={MASK}" if equals and is_secret(words) else parameter


def is_secret(name: str) -> bool:
    """Return whether the header of this name is hidden, in any case of its letters."""
    name = name.lower()
    if name in _KNOWN:
        return False
    return name in _SECRET or not _SECRET_WORDS.isdisjoint(name.split("-"))


def _mask(value: str) -> str:
    scheme, space, rest = value.partition(" ")
    # a cookie may have a space, too: only what looks like a scheme is shown
    return f"{scheme} {MASK}" if space and rest and scheme.isalpha() else MASK
