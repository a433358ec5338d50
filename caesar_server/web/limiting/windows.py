"""Requests a minute of each key, counted by this process alone."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

#: How long a request counts.
WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Window:
    """How a key stands.

    :param limit: requests allowed in any 60 seconds.
    :param remaining: how many more are allowed now.
    :param reset_s: seconds until one more than that is; 0 if none is counted.
    :param allowed: whether the request just counted was within the limit.
    """

    limit: int
    remaining: int
    reset_s: float
    allowed: bool = True


class Windows:
    """Counts requests in a window that moves with time, exactly, from any thread.

    By a clock that nobody sets: with the time of day, a clock put back by an hour would refuse
    every key with a limit for that hour.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._counted: dict[str, deque[float]] = {}

    def ask(self, key_id: str, per_minute: int, *, count: bool) -> Window:
        """Return how a key stands; with ``count`` after a request, unless it is one too many."""
        with self._lock:
            now = self._monotonic()
            counted = self._counted.setdefault(key_id, deque())
            while counted and counted[0] <= now - WINDOW_S:
                counted.popleft()
            allowed = not count or len(counted) < per_minute
            if count and allowed:
                counted.append(now)
            reset_s = counted[0] + WINDOW_S - now if counted else 0.0
            return Window(per_minute, max(per_minute - len(counted), 0), reset_s, allowed)
