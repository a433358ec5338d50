"""Who sends a request, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from caesar_server.web.access.keys import ApiVersion, KeyLimits

#: What a caller may who shows no key, where none is asked for.
NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    :param account: whose the key is; empty where no keys are configured.
    :param key_id: the key's public name; empty likewise.
    :param api_version: the version that the key is pinned to, or None.
    :param cli_shapes: see :func:`caesar_server.web.access.auth.speaks_cli_shapes`.
    """

    account: str = ""
    key_id: str = ""
    api_version: ApiVersion | None = None
    limits: KeyLimits = NO_LIMITS
    cli_shapes: bool = False


#: Whoever is not asked for a key.
ANYBODY = Caller()
