"""A histogram that takes many values in one step.

Importing this module imports prometheus-client: see :mod:`caesar_server.web.observing.metrics`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from prometheus_client import Histogram


class BulkHistogram(Histogram):
    """prometheus-client's, where a value alone takes two steps under the lock of all numbers."""

    def observe_all(self, values: Sequence[float]) -> None:
        """Note each of ``values``; the same numbers come out as with ``observe`` for each.

        :raises ValueError: if the metric has labels and this is none of their children.
        """
        self._raise_if_not_observable()  # type: ignore[no-untyped-call]
        self._sum.inc(sum(values))
        # the last bound is infinity, so each value has its place
        bounds = self._upper_bounds
        for place, count in Counter([bisect_left(bounds, value) for value in values]).items():
            self._buckets[place].inc(count)
