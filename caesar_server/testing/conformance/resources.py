"""The threads and descriptors that a backend holds, found by looking before and after."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Resources:
    """What this process holds.

    :param descriptors: number and target; empty where there is no ``/proc``.
    """

    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[str, str]]

    @classmethod
    def now(cls) -> Resources:
        """Return those of this moment."""
        return cls(frozenset(threading.enumerate()), frozenset(_descriptors()))


def left_since(before: Resources, *, wait_s: float = 2.0) -> str:
    """Return in words what has been added since, and is still there after a while; else nothing.

    :param wait_s: real seconds that threads and sockets may take to go away.
    """
    if not _added(before):
        return ""
    gc.collect()  # what nobody refers to any more is not left, only not yet swept up
    until = time.monotonic() + wait_s
    while (left := _added(before)) and time.monotonic() < until:
        # A thread can be waited for; a descriptor goes when its owner does.
        threading.Event().wait(0.01)
    return left


def _added(before: Resources) -> str:
    now = Resources.now()
    threads = sorted(f"the thread {thread.name!r}" for thread in now.threads - before.threads)
    files = sorted(
        f"the descriptor of {target}" for _, target in now.descriptors - before.descriptors
    )
    return ", ".join(threads + files)


def _descriptors() -> list[tuple[str, str]]:
    if not _DESCRIPTORS.exists():
        return []
    found = []
    for entry in _DESCRIPTORS.iterdir():
        try:
            found.append((entry.name, str(entry.readlink())))
        except OSError:
            continue  # the descriptor that listed the directory is closed again
    return found
