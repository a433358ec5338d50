"""What settings must not be together."""

from __future__ import annotations

import ipaddress
import re

from caesar_server.errors import SettingsError
from caesar_server.settings.definition import Settings

# one name, or with a dot before it all below it
_HOST_NAME = re.compile(r"\[[0-9a-f:.]+\]|\.?[^][:/@?#*\s.]+(\.[^][:/@?#*\s.]+)*", re.IGNORECASE)
# what browsers send as Origin: no path, no final slash, nothing in capitals
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach ``host``.

    True for 127.0.0.0/8, ``::1`` (also in brackets) and ``localhost``; False for other names, which
    may mean any address.
    """
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def check_host(settings: Settings) -> None:
    """Refuse a ``host`` that is more than a host: a URL, a path, one with a port.

    :raises SettingsError: saying what belongs there.
    """
    host = settings.host
    if not host.lower().startswith("unix:") and "/" not in host and _has_no_port(host):
        return
    raise SettingsError(
        [
            f"host: {host!r} is no address; expected one alone, such as 127.0.0.1 or ::1, or a "
            "host's name: the port is a setting of its own, and only a gunicorn of your own "
            'listens on a Unix socket (in the manual: "Your own gunicorn")'
        ]
    )


def _has_no_port(host: str) -> bool:
    try:
        return ":" not in host or ipaddress.ip_address(host.strip("[]")).version == 6
    except ValueError:
        return False


def check_exposure(settings: Settings, *, has_keys: bool) -> None:
    """Refuse to be reachable from other machines unless that is wanted.

    :param has_keys: whether callers must show an API key.
    :raises SettingsError: if ``host`` is not loopback, there are no keys and ``insecure`` is off.
    """
    if not has_keys and not settings.insecure and not is_loopback(settings.host):
        raise SettingsError(
            [
                f"host: {settings.host!r} can be reached from other machines, and this server has "
                "no API keys to ask for; make one with caesar-server keys create, listen on "
                "127.0.0.1 behind a proxy that checks its callers, or allow it with --insecure "
                "(insecure = true)"
            ]
        )


def check_origins(settings: Settings) -> None:
    """Refuse ``cors_origins`` that no browser would send.

    :raises SettingsError: naming each of them.
    """
    problems = [
        f"cors_origins: {origin!r} is no origin; expected SCHEME://HOST or SCHEME://HOST:PORT in "
        'small letters and without a path, or "*"'
        for origin in settings.cors_origins
        if origin != "*" and not _ORIGIN.fullmatch(origin)
    ]
    if problems:
        raise SettingsError(problems)


def check_allowed_hosts(settings: Settings) -> None:
    """Refuse ``allowed_hosts`` that no ``Host`` header would ever be found equal to.

    :raises SettingsError: naming each of them.
    """
    problems = [
        f"allowed_hosts: {name!r} is no name of a host; expected one alone, such as "
        "api.example or [::1], or .example for all names below it: without scheme, port, path and "
        "final dot, and in ASCII (xn--...); "
        "with API keys and an empty list every name is answered"
        for name in settings.allowed_hosts
        if not (name.isascii() and _HOST_NAME.fullmatch(name))
    ]
    if problems:
        raise SettingsError(problems)
