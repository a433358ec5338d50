"""Where keys come from, and that they go nowhere but to their server."""

from __future__ import annotations

import os
from collections.abc import Iterable
from urllib.parse import urlsplit

from caesar_backend_upstream.options import ServerOptions
from caesar_server.contract import BackendError

#: Shorter ones would black out words of every other message.
_SHORTEST = 6
_BLACKED_OUT = "[secret]"


class Key:
    """A key that shows itself to nobody by accident.

    :ivar value: what is sent.
    """

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Key()"


def read_key(name: str, server: ServerOptions) -> Key | None:
    """Return the operator's key for a server; None if there is none.

    :raises BackendError: if the variable or the file that should hold it does not, or if it can be
        no header's value.
    """
    where, value = "api_key", server.api_key
    if server.api_key_env:
        where, value = "api_key_env", os.environ.get(server.api_key_env)
        if not value:
            raise _wrong(name, where, f"the variable {server.api_key_env} is not set")
    elif server.api_key_file:
        where = "api_key_file"
        try:
            value = server.api_key_file.read_text("utf-8").strip()
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise _wrong(name, where, f"{server.api_key_file} cannot be read: {why}") from None
        if not value:
            raise _wrong(name, where, f"{server.api_key_file} is empty")
    if not value:
        return None
    if not is_header_value(value):
        raise _wrong(name, where, "a key is visible ASCII in one line")
    return Key(value)


def is_header_value(text: str) -> bool:
    """Return whether ``text`` can be sent as a header's value as it is."""
    return text.isascii() and text.isprintable() and text == text.strip()


def _wrong(name: str, option: str, problem: str) -> BackendError:
    return BackendError(f"servers.{name}.{option}: {problem}", code="wrong_options")


class Scrubber:
    """Takes secrets out of what others wrote: servers quote the keys that they refuse."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        found = {secret for secret in secrets if secret is not None and len(secret) >= _SHORTEST}
        self._secrets = tuple(sorted(found, key=len, reverse=True))

    def __repr__(self) -> str:
        return "Scrubber()"

    def scrub(self, text: str) -> str:
        """Return ``text`` without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, _BLACKED_OUT)
        return text


def secrets_of(server: ServerOptions, *keys: Key | str | None) -> Iterable[str | None]:
    """Yield all that must not be seen of a server's options, and the keys that are used."""
    yield from (key.value if isinstance(key, Key) else key for key in keys)
    yield from server.headers.values()
    for value in server.headers.values():
        yield value.partition(" ")[2] or None  # Basic and Bearer, without the word
    if server.proxy is not None:
        parts = urlsplit(server.proxy)
        yield parts.password
        yield server.proxy
