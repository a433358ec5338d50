"""Which ``Host`` headers are answered.

A server without keys on a loopback address is open to every program of the machine, and a web page
could reach it by pointing a name of its own at 127.0.0.1 (DNS rebinding).  Its requests carry that
name in ``Host``: so only loopback names are answered there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from flask import Flask, request

from caesar_server.errors import ForbiddenHostError
from caesar_server.settings import Settings, is_loopback
from caesar_server.web.access.keyring import Keyring

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^][:/@?#\s]+)(?::[0-9]{1,5})?")
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


def register(app: Flask, settings: Settings, keyring: Keyring) -> None:
    """Make ``app`` refuse requests for other hosts.

    Once callers must show a key, only ``allowed_hosts`` is left of this: a web page has no key.
    """
    answered = answered_hosts(settings)
    if answered is None:
        return

    @app.before_request
    def check_host() -> None:
        if keyring.required and not settings.allowed_hosts:
            return
        host = request.headers.get("Host", "")
        if not is_answered(host, answered):
            raise ForbiddenHostError(
                f"Host {host[:100]!r} is not answered here; "
                "the operator can add it to the setting allowed_hosts"
            )
