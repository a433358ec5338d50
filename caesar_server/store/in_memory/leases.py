"""Leases of owners, as a store in memory keeps them."""

from __future__ import annotations

from collections.abc import Callable


class MemoryLeases:
    """When each owner's lease runs out; needs the store's lock.

    :param monotonic: seconds from an arbitrary start; never goes back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ends: dict[str, float] = {}

    def renew(self, owner: str, lease_s: float) -> None:
        """Begin a lease, or prolong it; forget those that have run out."""
        now = self._monotonic()
        for gone in [name for name, ends in self._ends.items() if ends <= now]:
            del self._ends[gone]
        self._ends[owner] = now + lease_s

    def retire(self, owner: str) -> None:
        """End a lease at once."""
        self._ends.pop(owner, None)

    def hold(self, owner: str | None) -> bool:
        """Return whether somebody is the owner and has a lease."""
        return owner is not None and self._ends.get(owner, 0.0) > self._monotonic()

    def clear(self) -> None:
        """Forget everything."""
        self._ends.clear()
