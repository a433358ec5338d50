"""Which scope a request is for: its path, a header or its API key says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from caesar_server.errors import InvalidKeyError
from caesar_server.mock.scopes import Scopes
from caesar_server.web.access.header import bearer_key

#: A base URL that ends with this and a name is that scope's.
PREFIX = "/t/"
SCOPE_HEADER = "X-Caesar-Mock-Scope"
#: Of the WSGI environ: the name in the path.
_PATH_SCOPE_KEY = "caesar_server.mock.path_scope"


def take_prefix(environ: dict[str, Any]) -> None:
    """Take ``/t/NAME`` off the path of a WSGI request, if it begins so, and remember the name.

    What is taken goes to ``SCRIPT_NAME``, where URLs that are made of the path find it.
    """
    path: str = environ.get("PATH_INFO", "")
    if not path.startswith(PREFIX):
        return
    name, slash, rest = path.removeprefix(PREFIX).partition("/")
    if not name:
        return
    environ["SCRIPT_NAME"] = f"{environ.get('SCRIPT_NAME', '')}{PREFIX}{name}"
    environ["PATH_INFO"] = slash + rest or "/"
    # WSGI gives the bytes as Latin-1
    environ[_PATH_SCOPE_KEY] = name.encode("latin-1").decode("utf-8", "replace")


def scope_prefix(name: str) -> str:
    """Return what a base URL of the scope ends with; ``""`` for the default scope.

    >>> scope_prefix("team a")
    '/t/team%20a'
    """
    return PREFIX + quote(name, safe="") if name else ""


def asked_scope(environ: Mapping[str, Any]) -> str | None:
    """Return the name of the scope that path or header of a request ask for, or None."""
    name: str | None = environ.get(_PATH_SCOPE_KEY)
    header: str | None = environ.get("HTTP_X_CAESAR_MOCK_SCOPE")
    if name is None and header is not None:
        name = header.encode("latin-1").decode("utf-8", "replace")
    return name


def scope_name(environ: Mapping[str, Any], key: str | None, scopes: Scopes) -> str:
    """Return the name of the scope that a request is for.

    That of its path, else of its header, else its API key if that is the name of a scope that
    exists, else the default scope's ``""``.

    :param key: see :func:`api_key`.
    """
    name = asked_scope(environ)
    if name is not None:
        return name
    return key if key is not None and scopes.find(key) is not None else ""


def api_key(environ: Mapping[str, Any]) -> str | None:
    """Return the bearer token of a request, or None if it has none."""
    header = environ.get("HTTP_AUTHORIZATION")
    if header is None:
        return None
    try:
        return bearer_key(header)
    except InvalidKeyError:
        return None
