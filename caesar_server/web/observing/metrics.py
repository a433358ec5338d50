"""The numbers of one app, as Prometheus reads them.

prometheus-client decides when it is first imported whether numbers live in the process or in files
that the worker processes of a server share (see
:mod:`caesar_server.web.observing.shared.sharing`).  So it is imported here only when an app is
made, which is after that was settled.
"""

from __future__ import annotations

import logging
import platform
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from caesar_server import __version__
from caesar_server.contract.events import EVENT_TYPES
from caesar_server.web.error_reference import error_rows
from caesar_server.web.observing.backlog import Backlog
from caesar_server.web.observing.shared.sharing import SharedNumbers

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Metric

    from caesar_server.web.observing.histogram import BulkHistogram

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


class _Request(NamedTuple):
    """A request that has ended."""

    surface: str
    endpoint: str
    status: int
    duration_s: float


class RunEnd(NamedTuple):
    """A run that has ended.

    :param outcome: completed, failed, cancelled, deadline, shutdown or lost.
    :param duration_s: from its start, in seconds.
    :param first_after_s: when its backend gave its first sign, or None.
    :param events: how many there were, by type.
    """

    backend: str
    outcome: str
    duration_s: float
    first_after_s: float | None
    events: Sequence[tuple[str, int]]
    prompt_tokens: int
    completion_tokens: int


class _Change(NamedTuple):
    """Something began, or ended.

    :param name: of the gauge.
    """

    name: str
    by: int


_Fact: TypeAlias = _Request | RunEnd | _Change
_ONE_RUN_MORE, _ONE_RUN_LESS = _Change(RUNNING.name, 1), _Change(RUNNING.name, -1)
_ONE_STREAM_MORE = _Change(OPEN_STREAMS.name, 1)
_ONE_STREAM_LESS = _Change(OPEN_STREAMS.name, -1)


class ServerMetrics:
    """The numbers of one app.  Safe from any thread.

    Two apps of one process have numbers of their own, except where worker processes share theirs.
    What happens is counted in batches: before anybody reads, and where processes share their
    numbers, ``later``, so that the others see it.

    :param later: calls a function in a moment, from another thread.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        import prometheus_client
        from prometheus_client import values

        from caesar_server.web.observing.shared.reserving import reserve_numbers

        reserve_numbers()
        self.registry: CollectorRegistry = prometheus_client.CollectorRegistry()
        self._shared = bool(values.ValueClass._multiprocess)
        self._facts: Backlog[_Fact] = Backlog(self._count, later if self._shared else None)
        # the first, so whoever reads finds the others up to date
        self.registry.register(_Settling(self._facts.settle))
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
        self._gauges = {family.name: self._gauge(family) for family in (OPEN_STREAMS, RUNNING)}
        self._gauge(BUILD).labels(__version__, platform.python_version()).set(1)

    def request_ended(self, surface: str, endpoint: str, status: int, duration_s: float) -> None:
        """Count a request."""
        self._facts.add(_Request(surface, endpoint, status, duration_s))

    def refused(self, code: str) -> None:
        """Count a request that was answered with an error and nothing else."""
        self._refusals(self._known(code)).inc()

    def failed(self, code: str) -> None:
        """Count an answer that failed."""
        self._errors(self._known(code)).inc()

    def stream_opened(self) -> None:
        """Count a stream that is sent from now on."""
        self._facts.add(_ONE_STREAM_MORE)

    def stream_closed(self) -> None:
        """Count it no more."""
        self._facts.add(_ONE_STREAM_LESS)

    def run_began(self) -> None:
        """Count a run among those under way; :meth:`run_left` takes it out again."""
        self._facts.add(_ONE_RUN_MORE)

    def run_left(self, end: RunEnd | None) -> None:
        """Count a run no more as one under way.

        :param end: how it ended; None: it never began.
        """
        self._facts.add(_ONE_RUN_LESS if end is None else end)

    def close(self) -> None:
        """Count what has happened; from now on everything is counted where it happens."""
        self._facts.close()

    def _count(self, facts: Sequence[_Fact]) -> None:
        """Count a batch: one step for each number that it changes, however many facts there are."""
        changes: defaultdict[str, int] = defaultdict(int)
        requests: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
        runs: defaultdict[str, list[RunEnd]] = defaultdict(list)
        for fact in facts:
            if type(fact) is _Change:
                changes[fact.name] += fact.by
            elif type(fact) is _Request:
                requests[fact[:3]].append(fact.duration_s)
            elif type(fact) is RunEnd:
                changes[RUNNING.name] -= 1
                runs[fact.backend].append(fact)
        for name, by in changes.items():
            if by:
                self._gauges[name].inc(by)
        for (surface, endpoint, status), durations in requests.items():
            self._requests(surface, endpoint, str(status)).inc(len(durations))
            self._request_duration(surface, endpoint).observe_all(durations)
        for backend, ends in runs.items():
            self._count_runs(backend, ends)

    def _count_runs(self, backend: str, runs: Sequence[RunEnd]) -> None:
        """Count runs of one backend."""
        for outcome, count in Tally([one.outcome for one in runs]).items():
            self._runs(backend, outcome).inc(count)
        self._run_duration(backend).observe_all([one.duration_s for one in runs])
        first = [one.first_after_s for one in runs if one.first_after_s is not None]
        if first:
            self._first_event(backend).observe_all(first)
        events: defaultdict[str, int] = defaultdict(int)
        for one in runs:
            for name, count in one.events:
                events[name] += count
        for name, count in events.items():
            self._events(name if name in EVENT_TYPES else OTHER).inc(count)
        prompt = sum([one.prompt_tokens for one in runs])
        completion = sum([one.completion_tokens for one in runs])
        if prompt or completion:
            self._tokens(backend, "prompt").inc(prompt)
            self._tokens(backend, "completion").inc(completion)

    def exposition(self, accept: str | None) -> tuple[bytes, str]:
        """Return all numbers as text, and its content type.

        :param accept: the caller's ``Accept`` header, which chooses the form.
        """
        from prometheus_client.exposition import choose_encoder

        self._facts.settle()
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

    def _histogram(self, family: Family) -> BulkHistogram:
        from caesar_server.web.observing.histogram import BulkHistogram

        return BulkHistogram(
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


class _Settling:
    """Has no numbers of its own; comes before those that have."""

    def __init__(self, settle: Callable[[], None]) -> None:
        self._settle = settle

    def describe(self) -> Iterable[Metric]:
        """Return nothing, and count nothing: asked once, when it is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Count what has happened; return nothing."""
        self._settle()
        return ()


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
