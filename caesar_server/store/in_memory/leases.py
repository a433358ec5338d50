"""Leases of owners, as a store in memory keeps them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from caesar_server.store.base import Job


class MemoryLeases:
    """When each owner's lease runs out; needs the store's lock.

    :param monotonic: seconds from an arbitrary start; never goes back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ends: dict[str, float] = {}
        self._backends: dict[str, Collection[str] | None] = {}

    def renew(self, owner: str, lease_s: float, backends: Collection[str] | None) -> None:
        """Begin a lease, or prolong it; forget those that have run out."""
        now = self._monotonic()
        for gone in [name for name, ends in self._ends.items() if ends <= now]:
            self.retire(gone)
        self._ends[owner], self._backends[owner] = now + lease_s, backends

    def retire(self, owner: str) -> None:
        """End a lease at once."""
        self._ends.pop(owner, None)
        self._backends.pop(owner, None)

    def hold(self, owner: str | None) -> bool:
        """Return whether somebody is the owner and has a lease."""
        return owner is not None and self._ends.get(owner, 0.0) > self._monotonic()

    def free(
        self, jobs: Iterable[Job], wanted: Callable[[str], bool], below: int | None = None
    ) -> Iterator[Job]:
        """Yield those detached jobs that nobody runs and whose backend is wanted.

        :param below: attempts that count, of which they have fewer; None: any number.
        """
        for job in jobs:
            if below is not None and job.attempt - job.released >= below:
                continue
            if job.detached and wanted(job.backend) and not self.hold(job.owner):
                yield job

    def may_have(self, backend: str) -> bool:
        """Return whether somebody has a lease and this backend, or does not tell what it has."""
        return any(
            (names is None or backend in names) and self.hold(owner)
            for owner, names in self._backends.items()
        )

    def clear(self) -> None:
        """Forget everything."""
        self._ends.clear()
        self._backends.clear()
