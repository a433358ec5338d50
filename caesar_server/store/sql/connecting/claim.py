"""A claim whose outcome may get lost with the connection."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from caesar_server.store.base import Job
from caesar_server.store.sql import steps


class Claim:
    """A claim that remembers what it claimed, in case that nobody hears of it."""

    def __init__(self, claim: Callable[[Connection], Job | None]) -> None:
        self._claim = claim
        self._claimed: Job | None = None

    def run(self, connection: Connection, again: bool) -> Job | None:
        """Claim a job, unless that of an earlier try turns out to be claimed."""
        claimed = self._claimed
        if not (again and claimed is not None and steps.has_claimed(connection, claimed)):
            self._claimed = claimed = self._claim(connection)
        return claimed

    def undo(self, connection: Connection) -> None:
        """Give the job back, if it was claimed."""
        if self._claimed is not None:
            steps.unclaim(connection, self._claimed)
