"""What is counted of each run, once, at its end: streams have thousands of events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from caesar_server.contract.context import Metrics
from caesar_server.contract.errors import ErrorInfo
from caesar_server.contract.events import (
    Completed,
    ContentDelta,
    Event,
    Failed,
    Started,
    UsageCounted,
)
from caesar_server.errors import CANCELLED, DEADLINE, SHUTDOWN
from caesar_server.store.base import Job, Record
from caesar_server.web.observing.answered_by import upstream_of
from caesar_server.web.observing.backend_metrics import BackendMetrics
from caesar_server.web.observing.exchange import (
    Exchange,
    RunOutcome,
    current_exchange,
    working_for,
)
from caesar_server.web.observing.metrics import RunEnd, ServerMetrics

#: The ends that the server gives to a run, whatever the backend says.
_ENDS: Mapping[str, RunOutcome] = {
    CANCELLED.code: "cancelled",
    DEADLINE.code: "deadline",
    SHUTDOWN.code: "shutdown",
}


class RunObserver:
    """Watches the runs of one app; see :class:`caesar_server.jobs.context.Observer`.

    :param monotonic: seconds that never go back.
    """

    def __init__(self, metrics: ServerMetrics, monotonic: Callable[[], float]) -> None:
        self._metrics = metrics
        self._monotonic = monotonic
        self._of_backends: dict[str, BackendMetrics] = {}

    def begin(self, job: Job) -> RunTally:
        """Follow a run, and tell the request that asked for it."""
        exchange = current_exchange() or Exchange()
        exchange.run = tally = RunTally(job, exchange, self._metrics, self._monotonic)
        return tally

    def metrics(self, backend: str) -> Metrics:
        """Return what the backend of this name counts with."""
        found = self._of_backends.get(backend)
        if found is None:
            made = BackendMetrics(backend, self._metrics.registry)
            found = self._of_backends.setdefault(backend, made)
        return found


class RunTally:
    """Follows one run; ``events``, ``outcome`` and ``code`` are its request's log line's."""

    __slots__ = (
        *("job", "upstream", "outcome", "code", "_exchange", "_metrics", "_monotonic", "_began"),
        *("_first_after_s", "_texts", "_types", "_prompt_tokens", "_completion_tokens"),
    )

    def __init__(
        self,
        job: Job,
        exchange: Exchange,
        metrics: ServerMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self.job = job
        self._exchange: Exchange | None = exchange
        self.upstream: str | None = None
        self.outcome: RunOutcome | None = None
        self.code: str | None = None
        self._metrics = metrics
        self._monotonic = monotonic
        self._began = monotonic()
        self._first_after_s: float | None = None
        self._texts = 0
        #: How many there were of each type, texts left out.
        self._types: defaultdict[type[Event], int] = defaultdict(int)
        self._prompt_tokens = self._completion_tokens = 0
        metrics.run_began()

    def add(self, records: Sequence[Record]) -> None:
        """Count records; quick, since it is called for each token."""
        if self._first_after_s is None and records[-1].seq > 1:
            self._first_after_s = self._monotonic() - self._began
        for record in records:
            event = record.event
            if type(event) is ContentDelta:
                self._texts += 1
            else:
                self._note(event)

    def _note(self, event: Event) -> None:
        """Count an event that is no text."""
        self._types[type(event)] += 1
        if isinstance(event, UsageCounted):
            self._prompt_tokens += event.prompt_tokens
            self._completion_tokens += event.completion_tokens
        elif isinstance(event, Started):
            self.upstream = upstream_of(event)
        elif isinstance(event, Completed):
            self.outcome = self.outcome or "completed"
        elif isinstance(event, Failed) and self.outcome is None:
            self._fail(event.error)

    @property
    def events(self) -> int:
        """How many there were so far."""
        return self._texts + sum(self._types.values())

    def _counts(self) -> list[tuple[str, int]]:
        """Return how many there were of each type by now."""
        counts = [(kind.type, count) for kind, count in self._types.items()]
        if self._texts:
            counts.append((ContentDelta.type, self._texts))
        return counts

    def _fail(self, error: ErrorInfo) -> None:
        self.code = error.code
        self.outcome = _ENDS.get(error.code, "failed")

    def end(self) -> None:
        """Count the run."""
        self._exchange = None  # it knows this object: no circle of the two may be left behind
        if not self.events:
            self._metrics.run_left(None)
            return
        self.outcome = self.outcome or "lost"
        end = RunEnd(
            self.job.backend,
            self.outcome,
            self._monotonic() - self._began,
            self._first_after_s,
            self._counts(),
            self._prompt_tokens,
            self._completion_tokens,
        )
        self._metrics.run_left(end)
        if self.code is not None and self.outcome != "cancelled":
            self._metrics.failed(self.code)

    def named(self) -> AbstractContextManager[None]:
        """Let what this thread logs inside the block name the run and the request behind it."""
        return working_for(self._exchange)
