"""Jobs that wait for a backend that no living process has: told of, and ended if that lasts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from caesar_server.contract.errors import ErrorInfo
from caesar_server.errors import BACKEND_GONE
from caesar_server.store.base import Store
from caesar_server.store.leases import Unclaimable
from caesar_server.store.unreadable import UnreadableRecordError

logger = logging.getLogger(__name__)

#: How often such jobs are looked for, in seconds.
_LOOKS_APART_S = 10.0
#: As much counts of the time between two looks: where it was longer, nobody looked.
_COUNTED_S = 2 * _LOOKS_APART_S
#: A process may be away for as long, to be started anew, before it is told of.
_TOLD_AFTER_S = 30.0


class Orphans:
    """Counts for how long each job has waited so.  For the one thread that looks after jobs.

    Only time in which this process could see it counts, and it begins anew once somebody had the
    backend: however long everything stood still, no job fails because of that.

    :param timeout_s: seconds after which a job has failed; 0: never.
    :param end: ends a job, unless somebody has claimed it since its attempt.
    :param monotonic: seconds from an arbitrary start.
    """

    def __init__(
        self,
        store: Store,
        timeout_s: float,
        *,
        end: Callable[[str, int, ErrorInfo], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._end = end
        self._monotonic = monotonic
        self._looked_at: float | None = None
        self._waited_s: dict[str, float] = {}
        self._told: set[str] = set()

    def look(self) -> None:
        """Look for such jobs if it is time; tell of each once, and end those whose time is up.

        :raises StoreError: if the store cannot be used.
        """
        now = self._monotonic()
        passed_s = 0.0 if self._looked_at is None else now - self._looked_at
        if self._looked_at is not None and passed_s < _LOOKS_APART_S:
            return
        found = self._store.unclaimable()
        self._looked_at = now
        self._count(found, min(passed_s, _COUNTED_S))
        for job in found:
            waited_s = self._waited_s[job.id]
            if 0 < self._timeout_s <= waited_s:
                self._give_up(job)
            elif waited_s >= _TOLD_AFTER_S and job.id not in self._told:
                self._told.add(job.id)
                self._tell(job)

    def _count(self, found: Sequence[Unclaimable], passed_s: float) -> None:
        before = self._waited_s
        # whoever is seen for the first time begins with nothing
        self._waited_s = {
            job.id: before[job.id] + passed_s if job.id in before else 0.0 for job in found
        }
        self._told &= self._waited_s.keys()

    def _tell(self, job: Unclaimable) -> None:
        limit = f"; it fails after {self._timeout_s:g} s of that" if self._timeout_s else ""
        logger.warning(
            "job %s waits for the backend %s, which no running process has%s: start one that has "
            "it, or run `caesar-server jobs cancel %s`",
            *(job.id, job.backend, limit, job.id),
        )

    def _give_up(self, job: Unclaimable) -> None:
        try:
            self._end(job.id, job.attempt, BACKEND_GONE)
        except UnreadableRecordError as error:
            # tried again when it has waited as long once more: it does not keep others from theirs
            logger.warning("what nobody can run cannot be ended: %s", error)
            del self._waited_s[job.id]
