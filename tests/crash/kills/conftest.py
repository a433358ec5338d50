"""Load on a farm while its processes are killed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class KillsUnderLoad:
    """Clients that act, each one time after the other, while points are armed one by one.

    :param farm: whose processes reach the points.
    """

    def __init__(self, farm: Any) -> None:
        self._farm = farm
        self._lock = threading.Lock()
        self._points: deque[str] = deque()
        self._armed: str | None = None
        self._begun = 0

    def run(
        self,
        points: Iterable[str],
        act: Callable[[int], T],
        *,
        clients: int,
        times: int,
        most: int | None = None,
    ) -> list[T]:
        """Return what came of the acts, once there were enough and each point was reached.

        :param points: in the order in which they are armed.
        :param act: what a client does; given a number from 1 on.
        :param times: how many acts are enough.
        :param most: how many there may be until the last point is reached; None: ten times as many.
        """
        self._points = deque(points)
        most = most or 10 * times

        def client() -> list[T]:
            return [act(number) for number in iter(lambda: self._next(times, most), None)]

        with ThreadPoolExecutor(clients, thread_name_prefix="test-client") as pool:
            running = [pool.submit(client) for _ in range(clients)]
            return [done for one in running for done in one.result()]

    def _next(self, times: int, most: int) -> int | None:
        """Return the next number, or None if there were enough."""
        with self._lock:
            if self._armed is None or not self._farm.is_armed(self._armed):
                self._armed = self._points.popleft() if self._points else None
                if self._armed is not None:
                    self._farm.arm(self._armed)
            if self._begun >= times and self._armed is None:
                return None
            assert self._begun < most, f"nobody reaches {self._armed}"
            self._begun += 1
            return self._begun


@pytest.fixture
def kills(farm: Any) -> KillsUnderLoad:
    """Kills of the farm's processes, under load."""
    return KillsUnderLoad(farm)
