"""Which ``Host`` headers are answered.

A server without keys on a loopback address is open to every program of the machine, and a web page
could reach it by pointing a name of its own at 127.0.0.1 (DNS rebinding).  Its requests carry that
name in ``Host``: so only loopback names are answered there, and only callers on this machine.

HTTP/1.0 has no ``Host``, and programs that look whether the server is there (HAProxy's checks) send
none.  They are answered: a browser always sends one, and speaks a later HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, partial

from flask import Flask

from caesar_server.errors import ForbiddenHostError
from caesar_server.settings import Settings, check_allowed_hosts, is_loopback
from caesar_server.web.access.keyring import Keyring
from caesar_server.web.incoming import incoming

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^][:/@?#\s]+)(?::[0-9]{1,5})?")
#: So many callers and names are remembered with what became of them.
_REMEMBERED = 64
#: HTTP/1.0, as gunicorn and granian call it.
_HOSTLESS = ("HTTP/1.0", "HTTP/1")
_LOOPBACK_NAMES = ("localhost", ".localhost", "127.0.0.1", "[::1]")


def answered_hosts(settings: Settings) -> tuple[str, ...] | None:
    """Return the names to answer, or None for all."""
    if is_loopback(settings.host):
        return (*_LOOPBACK_NAMES, settings.host, *settings.allowed_hosts)
    return settings.allowed_hosts or None


def is_answered(header: str, answered: Iterable[str]) -> bool:
    """Return whether a ``Host`` header names one of ``answered``; its port does not matter.

    :param answered: names and addresses (IPv6 in brackets); ``.example`` stands for every name that
        ends so.
    """
    name = _name(header)
    return any(
        name.endswith(known) if known.startswith(".") else name == known
        for known in map(str.lower, answered)
    )


def _name(header: str) -> str:
    """Return the name in a ``Host`` header without port and final dot; empty if it is malformed."""
    found = _HOST.fullmatch(header.strip().lower())
    return found[1].removesuffix(".") if found else ""


def _check_caller(settings: Settings, address: str | None) -> None:
    """Refuse a caller from outside where the setting says that there can be none.

    It has been contradicted then: by a gunicorn's own ``--bind``, or a port that a container opens.

    :param address: of the connection's other end; None or empty for a Unix socket.
    :raises ForbiddenHostError: if the server is meant for this machine and the caller is elsewhere.
    """
    if not address or not is_loopback(settings.host):
        return
    if not is_loopback(address.removeprefix("::ffff:")):
        raise ForbiddenHostError(
            "This server asks for no API key and is for callers on its own machine; the operator "
            "can make keys, or set host to the address that it listens on"
        )


def register(app: Flask, settings: Settings, keyring: Keyring) -> None:
    """Make ``app`` refuse requests for other hosts.

    Once callers must show a key, only ``allowed_hosts`` is left of this: a web page has no key.

    :raises SettingsError: if one of these is no name of a host.
    """
    check_allowed_hosts(settings)
    answered = answered_hosts(settings)
    if answered is None:
        return
    # The same few of each come again and again.
    check_caller = lru_cache(_REMEMBERED)(partial(_check_caller, settings))
    may_answer = lru_cache(_REMEMBERED)(partial(is_answered, answered=answered))

    @app.before_request
    def check_host() -> None:
        environ = incoming().environ
        if not keyring.required:
            check_caller(environ.get("REMOTE_ADDR"))
        elif not settings.allowed_hosts:
            return
        host = environ.get("HTTP_HOST", "")
        if not may_answer(host) and (host or environ.get("SERVER_PROTOCOL") not in _HOSTLESS):
            raise ForbiddenHostError(
                f"Host {host[:100]!r} is not answered here; "
                "the operator can add it to the setting allowed_hosts"
            )
