"""Requests a minute of each key, counted by this process or in a storage that several share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from caesar_server.errors import SettingsError
from caesar_server.settings import Settings
from caesar_server.web.access.keys import Key
from caesar_server.web.limiting.windows import WINDOW_S, Window, Windows

# The library takes a tenth of a second to import, which a server that counts alone need not spend.
if TYPE_CHECKING:
    from limits.strategies import MovingWindowRateLimiter

logger = logging.getLogger(__name__)

_MEMORY = "memory://"
#: Seconds that a request waits for a storage of another machine.
_STORAGE_TIMEOUT_S = 1.0
#: Seconds for which a storage that failed is not asked again, or each request would wait for it.
_ALONE_S = 10.0


class Rates:
    """Counts requests in a window that moves with time: no 60 seconds have more than allowed.

    In memory the count is exact, and this process's own.  Other storages are those of the library
    ``limits``.  While one fails, the process counts in memory too, and the log says so.  A storage
    is made with the first count, never before a fork.  Safe from any thread.

    :param storage: URI as the library has it: ``memory://``, ``redis://HOST:PORT``, ...
    :param monotonic: seconds, for what is counted in memory.
    """

    def __init__(
        self, storage: str = _MEMORY, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._uri = storage
        self._alone = Windows(monotonic)
        self._lock = threading.Lock()
        self._limiter: MovingWindowRateLimiter | None = None
        self._alone_until = 0.0

    def hit(self, key_id: str, per_minute: int) -> Window:
        """Count a request of a key unless that would be one too many."""
        return self._ask(key_id, per_minute, count=True)

    def look(self, key_id: str, per_minute: int) -> Window:
        """Return how a key stands, without counting."""
        return self._ask(key_id, per_minute, count=False)

    def _ask(self, key_id: str, per_minute: int, *, count: bool) -> Window:
        if not is_memory(self._uri) and time.monotonic() >= self._alone_until:
            from limits.errors import StorageError

            try:
                return self._shared(key_id, per_minute, count=count)
            # a parameter in the URI that Redis's client does not know is a TypeError each time
            except (StorageError, TypeError) as error:
                self._alone_until = time.monotonic() + _ALONE_S
                logger.error(
                    "limits_storage failed, this process counts alone for %g s: %r",
                    _ALONE_S,
                    getattr(error, "storage_error", error),
                )
        return self._alone.ask(key_id, per_minute, count=count)

    def _shared(self, key_id: str, per_minute: int, *, count: bool) -> Window:
        from limits import RateLimitItemPerMinute

        with self._lock:
            limiter = self._limiter = self._limiter or open_limiter(self._uri)
        item = RateLimitItemPerMinute(per_minute, namespace="caesar-server")
        allowed = limiter.hit(item, key_id) if count else True
        stats = limiter.get_window_stats(item, key_id)
        remaining = min(max(stats.remaining, 0), per_minute)
        reset_s = 0.0
        if remaining < per_minute:
            # by clocks that may be set, of several machines
            reset_s = min(max(0.0, stats.reset_time - time.time()), WINDOW_S)
        return Window(per_minute, remaining, reset_s, allowed)


def is_memory(uri: str) -> bool:
    """Return whether a storage is a process's own memory."""
    return uri.startswith(_MEMORY)


def open_limiter(uri: str) -> MovingWindowRateLimiter:
    """Return what counts in the storage of a URI; nothing is sent to it yet.

    :raises SettingsError: if there is no storage of this kind, or it has no moving window, or what
        it needs is not installed.  The URI is not quoted: a password may stand in it.
    """
    from limits.errors import ConfigurationError
    from limits.storage import Storage, storage_from_string
    from limits.strategies import MovingWindowRateLimiter

    options: dict[str, Any] = {}
    if uri.startswith(("redis", "valkey")):
        options = {
            "socket_timeout": _STORAGE_TIMEOUT_S,
            "socket_connect_timeout": _STORAGE_TIMEOUT_S,
        }
    scheme = uri.partition("://")[0] if "://" in uri else "the value"
    try:
        storage = storage_from_string(uri, wrap_exceptions=True, **options)
        if not isinstance(storage, Storage):
            raise NotImplementedError
        return MovingWindowRateLimiter(storage)
    except ConfigurationError as error:
        # The library quotes a URI that it does not know, but not one whose package is missing.
        reason = f"cannot be used: {error}"
        if str(error).startswith("unknown"):
            reason = "is no kind of storage; take memory:// or redis://HOST:PORT"
    except NotImplementedError:
        reason = "cannot count in a moving window; take memory:// or redis://HOST:PORT"
    except ValueError:
        reason = "is not followed by a valid HOST:PORT"
    raise SettingsError([f"limits_storage: {scheme} {reason}"])


def check_limits(settings: Settings, keys: Iterable[Key]) -> list[str]:
    """Return what whoever starts the server should know about its limits.

    :raises SettingsError: if ``limits_storage`` cannot be used.
    """
    if not is_memory(settings.limits_storage):
        open_limiter(settings.limits_storage)
        return []
    limited = settings.key_requests_per_minute is not None or any(
        key.limits.requests_per_minute is not None for key in keys
    )
    if settings.workers == 1 or not limited:
        return []
    return [
        f"each of the {settings.workers} workers counts requests per minute alone, so a key may "
        f"send up to {settings.workers} times as many; set limits_storage to count together"
    ]
