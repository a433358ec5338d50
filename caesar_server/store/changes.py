"""How one who watches a store hears that it has changed."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Changes(ABC):
    """Tells one watcher that something in the store may have changed, in whatever process."""

    @abstractmethod
    def wait(self, timeout_s: float) -> bool:
        """Block until something may have changed since the last call, or the time is up.

        A change by another process is noticed within 100 ms.  May say True for nothing; after a
        lost connection it does.  One thread at a time.

        :return: whether to look again.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make a :meth:`wait` that blocks return True; safe from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds, and make :meth:`wait` return."""
