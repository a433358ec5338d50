"""How watchers of a store in memory are told."""

from __future__ import annotations

import threading
from collections.abc import Callable

from caesar_server.store.changes import Changes


class MemoryChanges(Changes):
    """Is woken by each change of a :class:`caesar_server.store.memory.MemoryStore`."""

    def __init__(self, forget: Callable[[MemoryChanges], None]) -> None:
        """:param forget: told at :meth:`close`."""
        self._forget = forget
        self._changed = threading.Event()
        self._closed = False

    def wait(self, timeout_s: float) -> bool:
        """Block until something has changed since the last call, or the time is up."""
        changed = self._changed.wait(timeout_s)
        if not self._closed:
            self._changed.clear()
        return changed

    def wake(self) -> None:
        """Make a :meth:`wait` that blocks return True."""
        self._changed.set()

    def close(self) -> None:
        """Hear of nothing any more, and make :meth:`wait` return."""
        self._closed = True
        self._changed.set()
        self._forget(self)


class MemoryWatchers:
    """Those who watch one store; needs the store's lock, :meth:`wake` excepted."""

    def __init__(self) -> None:
        self._watchers: tuple[MemoryChanges, ...] = ()

    def add(self, watcher: MemoryChanges) -> None:
        """Tell this one too from now on."""
        self._watchers += (watcher,)

    def remove(self, watcher: MemoryChanges) -> None:
        """Tell this one no more."""
        self._watchers = tuple(one for one in self._watchers if one is not watcher)

    def wake(self) -> None:
        """Tell each of them."""
        for watcher in self._watchers:
            watcher.wake()


class MemoryChanging:
    """Blocks that change what is stored: those that watch hear of each, unless it raises.

    :param lock: the store's; held in the block.
    """

    __slots__ = ("_lock", "_watchers")

    def __init__(self, lock: threading.Lock, watchers: MemoryWatchers) -> None:
        self._lock = lock
        self._watchers = watchers

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: object, *_: object) -> None:
        self._lock.release()
        if kind is None:
            self._watchers.wake()
