"""The keys that a server knows, which may change while it runs."""

from __future__ import annotations

import hmac
import logging
import mmap
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from caesar_server.contract.context import Clock
from caesar_server.errors import SettingsError
from caesar_server.settings import Settings, is_loopback
from caesar_server.web.access.key_file import Stamp, read_key_file, stamp_of
from caesar_server.web.access.keys import MAX_KEY_LENGTH, Key, given_keys

logger = logging.getLogger(__name__)

#: Seconds between two looks at the file.
_LOOK_EVERY_S = 1.0
_NO_DIGEST = bytes(32)
#: In place of the stamp of a file that cannot even be looked at.
_HIDDEN: Stamp = (-1, -1, -1, -1)


@dataclass(frozen=True, slots=True)
class _Known:
    """The keys at one moment, by the SHA-256 of each.

    :param stamp: of the file that they were read from, or that could not be read; None for no file.
    """

    by_digest: Mapping[bytes, Key]
    stamp: Stamp | None = None


class Latch:
    """Off at first; once set it stays so, in each process that is forked after it was made.

    A worker that takes another's place learns from it that keys were asked for: their file may be
    gone by then, and the server would be open to all.
    """

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def set(self) -> None:
        self._byte[0] = 1

    def is_set(self) -> bool:
        return self._byte[0] == 1


class Keyring:
    """Finds keys; reads their file again when it changes, at most once a second.

    A file that has become unreadable leaves the keys as they were, and the log says why.  A server
    that asks for keys never stops to do so: not when its last key is revoked, nor when the file is
    gone.  Safe from any thread.  Starts none.

    :param path: None for no file; it need not be there yet.
    :param given: keys from the settings.  Of a key that is in the file too, the file's word counts.
    :param required: whether callers must show a key whatever is found; None is not yet.
    """

    def __init__(
        self,
        path: Path | None,
        given: tuple[Key, ...],
        clock: Clock,
        required: Latch | None = None,
    ) -> None:
        self._path = path
        self._given = given
        self._clock = clock
        self._lock = threading.Lock()
        self._next_look = -1.0
        self._required = Latch() if required is None else required
        if given:
            self._required.set()
        self._known = _Known(_by_digest(given))
        self._refresh()
        if self._required.is_set() and path is not None and self._known == _Known({}):
            logger.error("keys_file: %s is not there; no API key is valid until it is", path)

    @classmethod
    def of(cls, settings: Settings, clock: Clock, required: Latch | None = None) -> Keyring:
        """Return the keys that ``settings`` name.

        A file that cannot be read is told in the log, and nobody has a valid key then.  Where other
        machines can reach the server and ``insecure`` is off, keys are asked for in any case.

        :param required: of the server whose worker this is.
        :raises SettingsError: if a key of the setting ``api_keys`` can be none.
        """
        path = None if settings.keys_file is None else Path(settings.keys_file)
        required = Latch() if required is None else required
        if not settings.insecure and not is_loopback(settings.host):
            required.set()
        return cls(path, given_keys(settings.api_keys), clock, required)

    @property
    def required(self) -> bool:
        """Whether callers must show a key: a file of keys was seen, or the settings have some."""
        self._refresh()
        return self._required.is_set()

    def find(self, key: str) -> Key | None:
        """Return what is known of a key; None if it is unknown, expired or revoked.

        How long it takes says nothing of how much of a key was right.

        :param key: as the caller sent it.
        """
        self._refresh()
        if not key.isascii() or len(key) > MAX_KEY_LENGTH:
            return None
        digest = sha256(key.encode("ascii")).digest()
        found = self._known.by_digest.get(digest)
        stored = _NO_DIGEST if found is None else bytes.fromhex(found.sha256)
        if not hmac.compare_digest(stored, digest) or found is None:
            return None
        return found if found.status(self._clock.time()) == "active" else None

    def _refresh(self) -> None:
        if self._path is None or self._clock.monotonic() < self._next_look:
            return
        # Whoever finds another thread at it goes on with the keys that are there.
        if self._lock.acquire(blocking=False):
            try:
                self._look(self._path)
            finally:
                self._next_look = self._clock.monotonic() + _LOOK_EVERY_S
                self._lock.release()

    def _look(self, path: Path) -> None:
        """Take over what is in the file if it is another one than before."""
        before = self._known
        try:
            stamp = stamp_of(path)
        except OSError as error:
            # A folder that may not be entered: whether there are keys is not known, so ask.
            if before.stamp != _HIDDEN:
                self._keep(_HIDDEN, f"keys_file: {path} cannot be read: {error.strerror}")
            return
        if stamp == before.stamp:
            return
        try:
            found = read_key_file(path)
        except SettingsError as error:
            self._keep(stamp, str(error))
            return
        if found is None:
            self._keep(None, f"keys_file: {path} is gone")
            return
        keys, stamp = found
        self._known = _Known(_by_digest((*self._given, *keys)), stamp)
        self._required.set()
        logger.info("read %d API keys from %s", len(keys), path)

    def _keep(self, stamp: Stamp | None, reason: str) -> None:
        """Go on with the keys that are known."""
        self._known = _Known(self._known.by_digest, stamp)
        self._required.set()
        logger.error("%s; the API keys are as they were before", reason)


def _by_digest(keys: tuple[Key, ...]) -> Mapping[bytes, Key]:
    return {bytes.fromhex(key.sha256): key for key in keys}


def configured_keys(settings: Settings) -> tuple[Key, ...] | None:
    """Return all keys that ``settings`` name, or None if callers need none.

    :raises SettingsError: if one of them, or their file, cannot be used.
    """
    given = given_keys(settings.api_keys)
    found = None if settings.keys_file is None else read_key_file(Path(settings.keys_file))
    if found is None:
        return given or None
    return tuple(_by_digest((*given, *found[0])).values())
