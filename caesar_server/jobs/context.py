"""The context of one run: the server's side of :class:`caesar_server.contract.Context`."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, Protocol

from caesar_server.contract.context import (
    BackendLogger,
    Clock,
    Forwarded,
    Metrics,
    StoredFile,
    Update,
)
from caesar_server.contract.errors import BackendError
from caesar_server.contract.events import Event, UsageCounted
from caesar_server.contract.request import Request
from caesar_server.jobs.cancellation import Cancellation, Reason
from caesar_server.jobs.clock import SystemClock
from caesar_server.jobs.running.values import shown
from caesar_server.store.base import Job, Record


class NoMetrics:
    """Forgets every number."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Forget it."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Forget it."""


class Tally(Protocol):
    """Follows one run, from the threads that work on it."""

    def add(self, records: Sequence[Record]) -> None:
        """Note records, before anybody else sees them."""

    def end(self) -> None:
        """Note that the run is over, perhaps without a terminal record."""

    def named(self) -> AbstractContextManager[None]:
        """Let what this thread logs inside the block name the run and the request behind it."""


class Observer(Protocol):
    """Watches all runs, for the operator's numbers and log.  Safe from any thread; never raises."""

    def begin(self, job: Job) -> Tally:
        """Note that a run begins; called in the thread that asked for it."""

    def metrics(self, backend: str) -> Metrics:
        """Return what the backend of this name counts with."""


class NoTally:
    """Follows nothing."""

    def add(self, records: Sequence[Record]) -> None:
        """Forget them."""

    def end(self) -> None:
        """Forget it."""

    def named(self) -> AbstractContextManager[None]:
        """Change nothing."""
        return nullcontext()


class NoObserver:
    """Watches nothing."""

    def begin(self, job: Job) -> Tally:
        """Return what follows nothing."""
        return NoTally()

    def metrics(self, backend: str) -> Metrics:
        """Return what forgets every number."""
        return NoMetrics()


def _too_late(state: Mapping[str, Any]) -> None:
    """Store nothing.

    :raises RuntimeError: always.
    """
    raise RuntimeError("context.checkpoint() came after the end of run()")


class Caller(Protocol):
    """Runs another backend on behalf of a run; see :mod:`caesar_server.jobs.calls`."""

    def __call__(self, model: str, request: Request, context: RunContext) -> Iterator[Event]:
        """Yield the events of the called backend."""


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


class RunContext:
    """See :class:`caesar_server.contract.Context` for what each member promises.

    :param job_id: the job's UUID.
    :param attempt: 1 for the first run.
    :param clock: the time to use.
    :param timeout_s: seconds from now until the deadline, or None for no deadline.
    :param max_answer_chars: how long the text of the run, and of each call, may be; None: any.
    :param seed: seeds :attr:`random`; None takes chance from the system.
    :param metrics: what the backend counts with.
    :param metrics_of: what the backends that it calls count with, by name; None: the same.
    :param chain: the backends that are already at work in this run, outermost first.
    """

    def __init__(
        self,
        job_id: str,
        *,
        attempt: int = 1,
        clock: Clock | None = None,
        timeout_s: float | None = None,
        max_answer_chars: int | None = None,
        seed: int | None = None,
        restored: Mapping[str, Any] | None = None,
        files: Mapping[str, StoredFile] | None = None,
        collections: Mapping[str, Sequence[StoredFile]] | None = None,
        forwarded: Forwarded | None = None,
        metrics: Metrics | None = None,
        metrics_of: Callable[[str], Metrics] | None = None,
        updates: Callable[[], Sequence[Update]] | None = None,
        save_checkpoint: Callable[[Mapping[str, Any]], None] | None = None,
        caller: Caller | None = None,
        cancellation: Cancellation | None = None,
        chain: tuple[str, ...] = (),
        called_usage: list[UsageCounted] | None = None,
    ) -> None:
        self.job_id = job_id
        self.attempt = attempt
        self.clock: Clock = clock or SystemClock()
        self._monotonic = self.clock.monotonic
        self.deadline = None if timeout_s is None else self.clock.monotonic() + timeout_s
        self.max_answer_chars = max_answer_chars
        self._seed = seed
        self.restored = restored
        self.files: Mapping[str, StoredFile] = {} if files is None else files
        self.collections: Mapping[str, Sequence[StoredFile]] = (
            {} if collections is None else collections
        )
        self.forwarded = forwarded or Forwarded()
        self.metrics: Metrics = metrics or NoMetrics()
        self._metrics_of = metrics_of
        self.cancellation = cancellation or Cancellation()
        self.chain = chain
        #: Whether this is a call from another run, whose usage that run reports.
        self.nested = False
        self.called_usage: list[UsageCounted] = [] if called_usage is None else called_usage
        self._updates = updates or tuple
        self._save_checkpoint = save_checkpoint
        self._caller = caller

    @property
    def cancelled(self) -> bool:
        """Whether to stop; also true as soon as the deadline has passed."""
        if self.cancellation.reason is not None:
            return True
        if self.deadline is not None and self.clock.monotonic() >= self.deadline:
            self.cancel("deadline")
            return True
        return False

    @cached_property
    def logger(self) -> BackendLogger:
        """Logs with the job's id; made on first use."""
        return _JobLogger(logging.getLogger("caesar_server.backend"), {"job_id": self.job_id})

    @cached_property
    def random(self) -> random.Random:
        """Chance to use, seeded by the request's seed where it has one; made on first use."""
        return random.Random(self._seed)

    def cancel(self, reason: Reason = "cancelled") -> None:
        """Ask the run to stop.  The first reason stays; safe from any thread."""
        self.cancellation.cancel(reason)

    def raise_if_cancelled(self) -> None:
        """Return at once, or raise :class:`~caesar_server.contract.Cancelled`."""
        # asked once or twice an event, so it is said here what ``cancelled`` says
        deadline = self.deadline
        if self.cancellation.reason is None and (deadline is None or self._monotonic() < deadline):
            return
        if self.cancelled:
            self.cancellation.raise_if_cancelled()

    def on_cancel(self, callback: Callable[[], object]) -> AbstractContextManager[None]:
        """Call ``callback`` once when the run is cancelled, while the block lasts.

        :raises TypeError: if it is none: what ``close()`` returns in place of ``close``, say, which
            nobody would miss before the first cancel.
        """
        if not callable(callback):
            raise TypeError(
                f"context.on_cancel: expected a function to call, got {shown(callback)}; "
                "give it sock.close, say, and not sock.close()"
            )
        return self.cancellation.on_cancel(callback)

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than the run lives."""
        left = self.remaining_s
        if left is None or seconds < left:
            self.clock.wait(self.cancellation.event, seconds)
        elif not self.clock.wait(self.cancellation.event, left):
            # Said here, since the clock may wake a rounding error before the deadline.
            self.cancel("deadline")
        self.raise_if_cancelled()

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the deadline, never below 0, or None."""
        return None if self.deadline is None else max(0.0, self.deadline - self.clock.monotonic())

    def updates(self) -> Sequence[Update]:
        """Return the updates that came since the last call."""
        return self._updates()

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Store all events so far together with ``state``.

        :raises TypeError: if ``state`` is no mapping: None would be as if nothing were stored.
        """
        if not isinstance(state, Mapping):
            raise TypeError(
                f"context.checkpoint: expected a mapping, such as a dict, got {shown(state)}"
            )
        self.raise_if_cancelled()
        if self._save_checkpoint is not None:
            self._save_checkpoint(state)

    def end(self) -> None:
        """Let go of what the run had: a thread that it left behind gets no more of it.

        Otherwise run and context know each other, and wait for the garbage collector.
        """
        self._updates, self._save_checkpoint = tuple, _too_late

    def call(self, model: str, request: Request) -> Iterator[Event]:
        """Run another configured backend in this thread and yield its events."""
        if self._caller is None:
            raise BackendError("this run cannot call other backends: it runs outside a server")
        return self._caller(model, request, self)

    def child(self, name: str, seed: int | None) -> RunContext:
        """Return the context of a call to the backend ``name``: same job, deadline and cancel.

        Files are the job's; the called run has no checkpoints and sees no updates.
        """
        called = RunContext(
            self.job_id,
            attempt=self.attempt,
            clock=self.clock,
            max_answer_chars=self.max_answer_chars,
            seed=seed,
            files=self.files,
            collections=self.collections,
            forwarded=self.forwarded,
            metrics=self.metrics if self._metrics_of is None else self._metrics_of(name),
            metrics_of=self._metrics_of,
            caller=self._caller,
            cancellation=self.cancellation,
            chain=(*self.chain, name),
            called_usage=self.called_usage,
        )
        called.deadline = self.deadline
        called.nested = True
        return called
