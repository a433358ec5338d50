"""How many threads may read at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Lets so many threads in at once, the others in the order in which they came.

    Nobody is turned away: whoever is inside must come out by itself.

    :param places: for how many threads there is room; at least 1.
    """

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._free = places
        #: Those who wait; a place that becomes free is handed to the first of them.
        self._turns: deque[threading.Event] = deque()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Wait for a place, and hold it within the block."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Event()
            self._turns.append(turn)
        try:
            turn.wait()
        except BaseException:  # a signal's, in the main thread
            self._give_up(turn)
            raise

    def _leave(self) -> None:
        with self._lock:
            if self._turns:
                self._turns.popleft().set()
            else:
                self._free += 1

    def _give_up(self, turn: threading.Event) -> None:
        with self._lock:
            waits = turn in self._turns
            if waits:
                self._turns.remove(turn)
        if not waits:
            self._leave()
