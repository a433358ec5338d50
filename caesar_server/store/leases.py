"""Which processes live and which backends they have, and what waits for one that nobody has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unclaimable:
    """A detached job that nobody runs and that no living process could claim.

    :param backend: which none of them has.
    :param attempt: the job's; a claim for it fails once somebody else has claimed the job.
    """

    id: str
    backend: str
    attempt: int


class Leases(ABC):
    """The part of a store that knows who lives.

    A process that runs jobs renews a *lease* under its name, the owner.  Once that has run out
    anybody may claim them, which fences the earlier attempt.  No change of the time moves a lease.
    """

    @abstractmethod
    def renew(self, owner: str, lease_s: float, backends: Collection[str] | None = None) -> None:
        """Begin a lease, or prolong it to ``lease_s`` seconds from now.

        :param backends: those whose jobs the process would claim, as of now; None: it does not
            tell, so it may be any.
        """

    @abstractmethod
    def retire(self, owner: str) -> None:
        """End a lease at once: what it still holds may be claimed."""

    @abstractmethod
    def unclaimable(self, *, limit: int = 10_000) -> Sequence[Unclaimable]:
        """Return detached jobs that nobody runs and whose backend no lease names, the oldest first.

        There are none while a process lives that does not tell its backends.
        """
