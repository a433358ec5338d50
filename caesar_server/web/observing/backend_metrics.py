"""What backends count through ``context.metrics``, kept within bounds.

A number lives as long as the process, once for each set of label values.  A plugin that puts text
of a request into a label would fill the memory of this server and of the one that collects.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram

logger = logging.getLogger(__name__)

MAX_NAMES = 50
MAX_SERIES = 100
MAX_LABELS = 4
MAX_VALUE_CHARS = 64
OTHER = "other"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_RESERVED_LABELS = frozenset({"le", "quantile", "name", "amount", "value"})
#: For what is no duration: sizes and numbers of things.
_DECADES = tuple(10.0**power for power in range(10))
_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)

_Kind: TypeAlias = Literal["counter", "histogram"]
_Labels: TypeAlias = tuple[str, ...]


class BackendMetrics:
    """The numbers of one backend: ``caesar_backend_BACKEND_NAME``.  Safe from any thread.

    A metric has the kind and the label names of its first use.  What does not fit is dropped, and
    sets of label values beyond :data:`MAX_SERIES` are counted as ``other``: each with one warning,
    for a number must not break an answer.  Names that end in ``_s`` or ``_seconds`` are taken for
    durations.
    """

    def __init__(self, backend: str, registry: CollectorRegistry) -> None:
        self._backend = backend
        self._prefix = "caesar_backend_" + re.sub(r"[^a-zA-Z0-9_]", "_", backend)
        self._registry = registry
        self._lock = threading.Lock()
        self._families: dict[str, tuple[_Kind, _Labels, Any]] = {}
        self._series: dict[tuple[_Kind, str, tuple[tuple[str, str], ...]], Any] = {}
        self._warned: set[str] = set()

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add ``amount`` (0 or more) to the counter ``name``."""
        if not (math.isfinite(amount) and amount >= 0):
            self._warn(name, "an amount that is not 0 or more was dropped")
            return
        counter: Counter | None = self._one("counter", name, labels)
        if counter is not None:
            counter.inc(amount)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Note one ``value`` of the distribution ``name``."""
        if not math.isfinite(value):
            self._warn(name, "a value that is no number was dropped")
            return
        histogram: Histogram | None = self._one("histogram", name, labels)
        if histogram is not None:
            histogram.observe(value)

    def _one(self, kind: _Kind, name: str, labels: Mapping[str, str]) -> Any:
        """Return what counts for these labels, or None if it is dropped."""
        key = kind, name, tuple(labels.items())
        found = self._series.get(key)
        if found is not None:
            return found
        with self._lock:
            return self._make(kind, name, labels)

    def _make(self, kind: _Kind, name: str, labels: Mapping[str, str]) -> Any:
        family = self._family(kind, name, tuple(sorted(labels)))
        if family is None:
            return None
        values = {key: str(value)[:MAX_VALUE_CHARS] for key, value in sorted(labels.items())}
        key = kind, name, tuple(labels.items())
        if len(self._series) >= MAX_SERIES and labels:
            self._warn(name, f"more than {MAX_SERIES} sets of label values: counted as {OTHER!r}")
            return family.labels(**dict.fromkeys(values, OTHER))
        made = family.labels(**values) if values else family
        self._series[key] = made
        return made

    def _family(self, kind: _Kind, name: str, labels: _Labels) -> Any:
        known = self._families.get(name)
        if known is not None:
            if known[:2] == (kind, labels):
                return known[2]
            self._warn(name, f"was a {known[0]} with the labels {known[1]} at first; dropped")
            return None
        if (fault := self._fault(name, labels)) is not None:
            self._warn(name, f"{fault}; dropped")
            return None
        made = self._new_family(kind, name, labels)
        if made is not None:
            self._families[name] = kind, labels, made
        return made

    def _fault(self, name: str, labels: _Labels) -> str | None:
        if not _NAME.fullmatch(name):
            return "a name is lower-case letters, digits and underscores, at most 60"
        if len(labels) > MAX_LABELS:
            return f"more than {MAX_LABELS} labels"
        if bad := [label for label in labels if _bad_label(label)]:
            return f"labels with names that are not possible: {bad}"
        if len(self._families) >= MAX_NAMES:
            return f"more than {MAX_NAMES} names"
        return None

    def _new_family(self, kind: _Kind, name: str, labels: _Labels) -> Any:
        from prometheus_client import Counter, Histogram

        full, text = f"{self._prefix}_{name}", f"Counted by the backend {self._backend}."
        try:
            if kind == "counter":
                return Counter(full, text, labels, registry=self._registry)
            is_time = name.endswith(("_s", "_seconds"))
            buckets = _SECONDS if is_time else _DECADES
            return Histogram(full, text, labels, registry=self._registry, buckets=buckets)
        except ValueError as error:
            # Two names may be one for Prometheus: of the backends a-b and a_b, or x and x_total.
            self._warn(name, f"{error}; dropped")
            return None

    def _warn(self, name: str, what: str) -> None:
        """Say it once for each name; of names there may be any number."""
        if name in self._warned or len(self._warned) >= MAX_NAMES:
            return
        self._warned.add(name)
        logger.warning("backend %s, metric %.80s: %s", self._backend, name, what)


def _bad_label(label: str) -> bool:
    return not _NAME.fullmatch(label) or label in _RESERVED_LABELS
