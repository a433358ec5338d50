"""API keys as values: what is stored of one, and how one is made.

A key is 32 random bytes, so its SHA-256 is as good as a password hash and costs a microsecond.
Only that is stored: who reads the file cannot call the server.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.web.api_version.known import known_versions

#: What a key may be pinned to, the oldest first.
API_VERSIONS = known_versions().dates
NEWEST_VERSION = API_VERSIONS[-1]
# msgspec refuses what is none of them; to a type checker they are not known.
if TYPE_CHECKING:
    ApiVersion: TypeAlias = str
else:
    ApiVersion = Literal[API_VERSIONS]

#: Whose a key is if nobody says otherwise, and those of the setting ``api_keys`` always.
DEFAULT_ACCOUNT = "default"
#: Only a habit, by which people and secret scanners recognise a key; any string can be one.
KEY_PREFIX = "csk-"
#: In the setting ``api_keys``: the SHA-256 of a key stands in place of the key.
DIGEST_PREFIX = "sha256:"
#: The least length of a key that somebody made up.
MIN_GIVEN_LENGTH = 16
#: The greatest length of a key; nothing longer is looked up.
MAX_KEY_LENGTH = 1024
#: The greatest length of an account and of a name.
MAX_LABEL_LENGTH = 200

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
_Label: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=MAX_LABEL_LENGTH)
]
_Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
_VISIBLE_ASCII = re.compile(r"[!-~]+")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class KeyLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key may do; None is no limit of its own.

    :param requests_per_minute: POST requests in any 60 seconds.
    :param streams: streams open at once.
    :param jobs_in_progress: jobs of the account that are not done.
    :param loops_per_month: reasoning loops of the account's completed jobs.
    """

    requests_per_minute: _Count | None = None
    streams: _Count | None = None
    jobs_in_progress: _Count | None = None
    loops_per_month: _Count | None = None


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is stored of a key.

    :param id: its public name, by which it is listed and revoked.
    :param sha256: of the key, in lower-case hexadecimal.
    :param account: whose it is; several keys may be of one account.
    :param name: what its owner calls it.
    :param api_version: the version that its requests speak unless they name one.
    :param cli_shapes: its requests get the shapes of the public Go command line client, see
        :func:`caesar_server.web.access.auth.speaks_cli_shapes`.
    :param created_at: None for a key of the setting ``api_keys``.
    :param expires_at: the first moment at which it is not valid any more, or None.
    :param revoked_at: when it was revoked, or None.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    account: Annotated[_Label, msgspec.Meta(min_length=1)]
    name: _Label = ""
    api_version: ApiVersion = NEWEST_VERSION
    limits: KeyLimits = KeyLimits()
    cli_shapes: bool = False
    created_at: _Moment | None = None
    expires_at: _Moment | None = None
    revoked_at: _Moment | None = None

    def __repr__(self) -> str:
        # without the hash: that of a key which somebody made up can be guessed
        return f"<Key {self.id} of {self.account!r}>"

    def status(self, now_s: float) -> Literal["active", "expired", "revoked"]:
        """Return how the key stands at a moment.

        :param now_s: Unix seconds.
        """
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at.timestamp() <= now_s:
            return "expired"
        return "active"


def effective_limits(limits: KeyLimits, settings: Settings) -> KeyLimits:
    """Return the limits of a key, with those of the settings where it has none of its own.

    A 0 of the settings is no limit.
    """
    return KeyLimits(
        requests_per_minute=limits.requests_per_minute or settings.key_requests_per_minute,
        streams=limits.streams or settings.key_streams,
        jobs_in_progress=limits.jobs_in_progress or settings.account_jobs_in_progress or None,
        loops_per_month=limits.loops_per_month or settings.account_loops_per_month or None,
    )


def generate_key() -> str:
    """Return a new key: 32 random bytes in URL-safe base64, behind ``csk-``."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def generate_id(taken: Iterable[str] = ()) -> str:
    """Return a public name that is not among ``taken``."""
    names = set(taken)
    while True:
        if (name := f"key-{secrets.token_hex(4)}") not in names:
            return name


def hash_key(key: str) -> str:
    """Return what is stored of a key.

    >>> hash_key("csk-example")[:8]
    '6ec4f670'
    """
    return hashlib.sha256(key.encode()).hexdigest()


def given_keys(values: Iterable[str]) -> tuple[Key, ...]:
    """Return the keys of the setting ``api_keys``.

    :param values: each a key in clear, or ``sha256:`` and its hash.
    :raises SettingsError: if one of them can be no key; none is quoted.
    """
    keys: dict[str, Key] = {}
    problems: list[str] = []
    for number, value in enumerate(values, 1):
        digest = value.removeprefix(DIGEST_PREFIX).lower()
        if not value.startswith(DIGEST_PREFIX):
            if problem := _unfit(value):
                problems.append(f"api_keys: number {number} {problem}")
                continue
            digest = hash_key(value)
        elif not _DIGEST.fullmatch(digest):
            problems.append(f"api_keys: number {number} has no 64 hexadecimal digits after sha256:")
            continue
        keys[digest] = Key(id=f"given-{digest[:8]}", sha256=digest, account=DEFAULT_ACCOUNT)
    if problems:
        raise SettingsError(problems)
    return tuple(keys.values())


def _unfit(key: str) -> str | None:
    """Return what is wrong with a key that somebody made up, or None."""
    if not _VISIBLE_ASCII.fullmatch(key):
        return "has characters that no HTTP client can send: take visible ASCII, without spaces"
    if not MIN_GIVEN_LENGTH <= len(key) <= MAX_KEY_LENGTH:
        return (
            f"has {len(key)} characters, expected {MIN_GIVEN_LENGTH} to {MAX_KEY_LENGTH}: "
            "caesar-server keys create makes one that cannot be guessed"
        )
    return None
