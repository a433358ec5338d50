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
        "auth",
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
_SECRET_WORDS = frozenset(
    {
        *("apikey", "credential", "credentials", "jwt", "key", "passphrase", "passwd", "password"),
        *("pwd", "secret", "sig", "signature", "token"),
    }
)
#: They have such a word in their name and are no secret.
_KNOWN = frozenset({"idempotency-key", "sec-websocket-key"})
#: Their values are addresses, which may have secrets in them.
_ADDRESSES = frozenset({"content-location", "location", "referer"})
#: A name in an address, and what ends it; an address within an address is encoded.
_PARAMETER = re.compile(
    r"(?:^|[;?#]|%3b|%26|%3f|%23)(?P<name>(?:(?![;?#=]|%3b|%26|%3f|%23|%3d).)+)(?:=|%3d)",
    re.IGNORECASE | re.DOTALL,
)
#: The part of an address before the host, which may be one within another; the password is the
#: part that a client need not encode, and goes up to the last @.
_USER = re.compile(
    r"(?P<before>(?::|%3a)(?:/|%2f){2}(?:(?![:/@&;?#\s]|%3a|%2f|%40).)*(?::|%3a))"
    r"(?:(?![/&?#\s]|%2f|%3f).)*(?P<at>@|%40)",
    re.IGNORECASE,
)


def masked(headers: Mapping[str, str]) -> dict[str, str]:
    """Return ``headers`` with the secret values hidden; the scheme of an authorization stays.

    >>> masked({"authorization": "Bearer abc", "x-team": "blue"})
    {'authorization': 'Bearer ***', 'x-team': 'blue'}
    """
    return {name: _masked_value(name, value) for name, value in headers.items()}


def masked_address(address: str) -> str:
    """Return a path or URL as it was sent, with the secret values in it hidden.

    These are parameters of query and path, also of an address that is the value of a parameter, and
    the password before a host.

    >>> masked_address("/v1/models;sig=abc?api_key=abc&after=3&url=https://me:abc@host/")
    '/v1/models;sig=***?api_key=***&after=3&url=https://me:***@host/'
    """
    # first, since a password may hold what ends a parameter
    hidden = _USER.sub(rf"\g<before>{MASK}\g<at>", address)
    before, mark, query = hidden.partition("?")
    path = "/".join(map(_masked_part, before.split("/")))
    return path + mark + "&".join(map(_masked_part, query.split("&")))


def _masked_part(part: str) -> str:
    """Return a part of an address without all that follows the first secret name in it.

    Whether a semicolon ends a value, programs do not agree; so it does not end a secret one.
    """
    for found in _PARAMETER.finditer(part):
        # api_key, api.key and apiKey are as secret as api-key
        words = re.sub(r"(?<=[a-z\d])(?=[A-Z])|[\W_]+", "-", unquote_plus(found["name"]))
        if is_secret(words.strip("-")):
            return part[: found.end()] + MASK
    return part


def _masked_value(name: str, value: str) -> str:
    if is_secret(name):
        return _mask(value)
    return masked_address(value) if name.lower() in _ADDRESSES else value


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
