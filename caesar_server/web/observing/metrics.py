"""The numbers of one app, as Prometheus reads them.

prometheus-client decides when it is first imported whether numbers live in the process or in files
that the worker processes of a server share (see :mod:`caesar_server.web.observing.sharing`).  So it
is imported here only when an app is made, which is after that was settled.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from caesar_server import __version__
from caesar_server.contract.events import EVENT_TYPES
from caesar_server.web.error_reference import error_rows
from caesar_server.web.observing.sharing import SharedNumbers

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

logger = logging.getLogger(__name__)

OTHER = "other"
#: Upper bounds in seconds: from an echo to the longest run of a request.
DURATION_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)


@dataclass(frozen=True, slots=True)
class Family:
    """What one metric is.

    :param name: as it is exported, a counter's with ``_total``; a histogram's gets ``_bucket``,
        ``_sum`` and ``_count``.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: tuple[str, ...] = ()


REQUESTS = Family(
    "counter",
    "caesar_requests_total",
    "HTTP requests that have ended.",
    ("surface", "endpoint", "status"),
)
REQUEST_DURATION = Family(
    "histogram",
    "caesar_request_duration_seconds",
    "From the request to the last byte of its response.",
    ("surface", "endpoint"),
)
FIRST_EVENT = Family(
    "histogram",
    "caesar_time_to_first_event_seconds",
    "From the start of a run to its backend's first event.",
    ("backend",),
)
OPEN_STREAMS = Family("gauge", "caesar_open_streams", "Streams that are being sent.")
EVENTS = Family("counter", "caesar_events_total", "Events of the runs that have ended.", ("type",))
RUNS = Family(
    "counter",
    "caesar_runs_total",
    "Runs that have ended: completed, failed, cancelled, deadline, shutdown or lost.",
    ("backend", "outcome"),
)
RUN_DURATION = Family(
    "histogram",
    "caesar_run_duration_seconds",
    "From the start of a run to its last event.",
    ("backend",),
)
REFUSALS = Family(
    "counter",
    "caesar_refusals_total",
    "Requests that were answered with an error before a backend began, by the error's code.",
    ("code",),
)
ERRORS = Family(
    "counter",
    "caesar_errors_total",
    "Answers that failed, by the error's code; those that were cancelled do not count.",
    ("code",),
)
RUNNING = Family("gauge", "caesar_running_jobs", "Runs under way.")
TOKENS = Family(
    "counter",
    "caesar_tokens_total",
    "Tokens that backends report: of prompts and of completions.",
    ("backend", "kind"),
)
BUILD = Family("gauge", "caesar_build_info", "Always 1.", ("version", "python"))

#: Everything that is exported, but for what backends count themselves.
FAMILIES = (
    *(REQUESTS, REQUEST_DURATION, FIRST_EVENT, OPEN_STREAMS, EVENTS, RUNS),
    *(RUN_DURATION, REFUSALS, ERRORS, RUNNING, TOKENS, BUILD),
)


class ServerMetrics:
    """The numbers of one app.  Safe from any thread.

    Two apps of one process have numbers of their own, except where worker processes share theirs.
    """

    def __init__(self) -> None:
        import prometheus_client
        from prometheus_client import values

        from caesar_server.web.observing.reserving import reserve_numbers

        reserve_numbers()
        self.registry: CollectorRegistry = prometheus_client.CollectorRegistry()
        self._shared = bool(values.ValueClass._multiprocess)
        self._codes = frozenset(row.code for row in error_rows())
        # Looking a child up again costs more than counting with it.
        self._requests = cache(self._counter(REQUESTS).labels)
        self._request_duration = cache(self._histogram(REQUEST_DURATION).labels)
        self._first_event = cache(self._histogram(FIRST_EVENT).labels)
        self._events = cache(self._counter(EVENTS).labels)
        self._runs = cache(self._counter(RUNS).labels)
        self._run_duration = cache(self._histogram(RUN_DURATION).labels)
        self._refusals = cache(self._counter(REFUSALS).labels)
        self._errors = cache(self._counter(ERRORS).labels)
        self._tokens = cache(self._counter(TOKENS).labels)
        self.open_streams = self._gauge(OPEN_STREAMS)
        self.running = self._gauge(RUNNING)
        self._gauge(BUILD).labels(__version__, platform.python_version()).set(1)

    def request_ended(self, surface: str, endpoint: str, status: int, duration_s: float) -> None:
        """Count a request."""
        self._requests(surface, endpoint, str(status)).inc()
        self._request_duration(surface, endpoint).observe(duration_s)

    def refused(self, code: str) -> None:
        """Count a request that was answered with an error and nothing else."""
        self._refusals(self._known(code)).inc()

    def failed(self, code: str) -> None:
        """Count an answer that failed."""
        self._errors(self._known(code)).inc()

    def first_event(self, backend: str, after_s: float) -> None:
        """Note when a run's backend gave its first sign."""
        self._first_event(backend).observe(after_s)

    def run_ended(
        self, backend: str, outcome: str, duration_s: float, events: Mapping[str, int]
    ) -> None:
        """Count a run and its events.

        :param events: how many by type.
        """
        self._runs(backend, outcome).inc()
        self._run_duration(backend).observe(duration_s)
        for name, count in events.items():
            self._events(name if name in EVENT_TYPES else OTHER).inc(count)

    def tokens(self, backend: str, prompt: int, completion: int) -> None:
        """Count the tokens of a run."""
        self._tokens(backend, "prompt").inc(prompt)
        self._tokens(backend, "completion").inc(completion)

    def exposition(self, accept: str | None) -> tuple[bytes, str]:
        """Return all numbers as text, and its content type.

        :param accept: the caller's ``Accept`` header, which chooses the form.
        """
        from prometheus_client.exposition import choose_encoder

        found, content_type = choose_encoder(accept or "")
        encode: Any = found  # takes anything that has collect(), which older versions do not say
        return encode(
            SharedNumbers() if self._shared else _WithoutBirth(self.registry)
        ), content_type

    def _known(self, code: str) -> str:
        return code if code in self._codes else OTHER

    def _counter(self, family: Family) -> Counter:
        from prometheus_client import Counter

        return Counter(family.name, family.help, family.labels, registry=self.registry)

    def _histogram(self, family: Family) -> Histogram:
        from prometheus_client import Histogram

        return Histogram(
            family.name,
            family.help,
            family.labels,
            registry=self.registry,
            buckets=DURATION_BUCKETS,
        )

    def _gauge(self, family: Family) -> Gauge:
        from prometheus_client import Gauge

        # The sum over the living processes; what a dead one had open is closed.
        mode: Literal["livesum", "livemax"] = "livemax" if family is BUILD else "livesum"
        return Gauge(
            family.name,
            family.help,
            family.labels,
            registry=self.registry,
            multiprocess_mode=mode,
        )


class _WithoutBirth:
    """A registry without the ``_created`` series, which shared numbers do not have."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric


def exported_names(families: Sequence[Family] = FAMILIES) -> frozenset[str]:
    """Return the names of all series as Prometheus stores them."""
    names: set[str] = set()
    for family in families:
        if family.kind == "histogram":
            names |= {f"{family.name}_{suffix}" for suffix in ("bucket", "sum", "count")}
        else:
            names.add(family.name)
    return frozenset(names)
