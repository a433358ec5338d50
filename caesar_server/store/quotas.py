"""What an account may have, and what it has."""

from __future__ import annotations

import calendar
import time
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from caesar_server.contract.request import RequestKind

#: What the limits of an account are about: follow-ups and brainstorms are free.
LIMITED_KINDS: Set[RequestKind] = frozenset({"completion", "chat", "research"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an account has.

    :param jobs_in_progress: jobs of :data:`LIMITED_KINDS` that have not ended.
    :param loops: reasoning loops of its completed jobs in one month.  What was deleted since
        counts on.
    """

    jobs_in_progress: int
    loops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What an account may have for another job to be taken in.

    :param month: ``YYYY-MM`` (UTC), the one whose loops count.
    :param jobs_in_progress: with so many the account has no room for another; None: no limit.
    :param loops: once so many were consumed there are no more jobs; None: no limit.
    """

    month: str
    jobs_in_progress: int | None = None
    loops: int | None = None

    def exceeded(self, standing: Standing) -> Literal["jobs_in_progress", "loops"] | None:
        """Return what there is no room for, or None.

        What lasts longer is told first.
        """
        if self.loops is not None and standing.loops >= self.loops:
            return "loops"
        if self.jobs_in_progress is not None and standing.jobs_in_progress >= self.jobs_in_progress:
            return "jobs_in_progress"
        return None

    def check(self, standing: Standing) -> None:
        """Return if there is room for another job.

        :raises QuotaExceededError: otherwise.
        """
        limit = self.exceeded(standing)
        if limit is not None:
            raise QuotaExceededError(limit, standing)


class QuotaExceededError(Exception):
    """The account has no room for another job.

    :param limit: what of it.
    :param standing: how the account stood in that step.
    """

    def __init__(self, limit: Literal["jobs_in_progress", "loops"], standing: Standing) -> None:
        super().__init__(f"the account's {limit} are used up: {standing}")
        self.limit = limit
        self.standing = standing


def month_of(moment: float) -> str:
    """Return the month of a moment, in UTC.

    :param moment: Unix seconds.

    >>> month_of(1_764_547_199)
    '2025-11'
    """
    return time.strftime("%Y-%m", time.gmtime(moment))


def month_end(moment: float) -> float:
    """Return when the month of a moment is over, in Unix seconds.

    >>> month_end(1_764_547_199) - 1_764_547_199
    1.0
    """
    year, month = time.gmtime(moment)[:2]
    return float(calendar.timegm((year + month // 12, month % 12 + 1, 1, 0, 0, 0)))
