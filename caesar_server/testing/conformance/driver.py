"""One run of the backend under test, driven as the server would."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from caesar_server.contract import (
    Backend,
    Cancelled,
    Event,
    Request,
    events_of,
)
from caesar_server.contract.context import StoredFile
from caesar_server.jobs.clock import SystemClock
from caesar_server.jobs.context import Caller, RunContext
from caesar_server.testing.conformance.answer import Checkpoint, Run

#: More events than that in one answer to a short question are taken for an endless run.
_EVENTS_MAX = 100_000


class EndlessRun(Exception):
    """A run yields events without end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """When to stop a run before its end, and how.

    :param after_events: so many events are taken before it is stopped.
    :param how: ``close`` closes the iterator, ``cancel`` cancels between two events, and ``thread``
        cancels from another thread while the backend is at work, ``after_s`` seconds later.
    """

    after_events: int
    how: Literal["close", "cancel", "thread"]
    after_s: float = 0.05


@dataclass(frozen=True, slots=True)
class Given:
    """What a run finds in its context.

    :param files: the request's files by id.
    :param restored: the checkpoint of an earlier attempt, or None.
    :param refuse_checkpoints: every checkpoint says that another process has the job now.
    """

    files: Mapping[str, StoredFile] = field(default_factory=dict)
    restored: Mapping[str, Any] | None = None
    refuse_checkpoints: bool = False


class _NotingClock(SystemClock):
    """Notes that a run waits by it."""

    waited = False

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait for ``event``."""
        self.waited = self.waited or timeout_s > 0
        return super().wait(event, timeout_s)


class Driver:
    """Drives one run as the server would, in the thread that calls :meth:`drive`."""

    def __init__(
        self,
        backend: Backend,
        request: Request,
        timeout_s: float | None,
        stop: Stop | None,
        given: Given,
        caller: Caller,
    ) -> None:
        self._backend = backend
        self._request = request
        self._stop = stop
        self._clock = _NotingClock()
        seed = getattr(getattr(request, "sampling", None), "seed", None)
        self._refuse = given.refuse_checkpoints
        self._context = RunContext(
            str(uuid.uuid4()),
            attempt=1 if given.restored is None else 2,
            clock=self._clock,
            timeout_s=timeout_s,
            seed=seed,
            restored=given.restored,
            files=given.files,
            save_checkpoint=self._save_checkpoint,
            caller=caller,
        )
        #: From when the end is measured.
        self._since: float | None = self._context.deadline
        self._events: list[Event] = []
        self._checkpoints: list[Checkpoint] = []
        self._refused_after: int | None = None
        #: Whether it had waited when it said that it would; None if it has not said so.
        self._waited_first: bool | None = None

    def drive(self) -> Run:
        raised: BaseException | None = None
        started = time.monotonic()
        try:
            if self._context.deadline is not None:
                self._clock.call_at(
                    self._context.deadline, lambda: self._context.cancel("deadline")
                )
            self._take_events()
        except BaseException as error:  # noqa: BLE001 - what it is, the rules judge
            raised = error
        ended = time.monotonic()
        self._clock.close()
        since = started if self._since is None else self._since
        return Run(
            self._request,
            tuple(self._events),
            raised,
            max(0.0, ended - since),
            tuple(self._checkpoints),
            self._refused_after,
            self._clock.waited if self._waited_first is None else self._waited_first,
        )

    def give_up(self) -> None:
        """Ask a run that hangs to end, and do not wait for it."""
        self._context.cancel()

    def _save_checkpoint(self, state: Mapping[str, Any]) -> None:
        if self._refuse:
            if self._refused_after is None:
                self._refused_after = len(self._events)
            raise Cancelled
        try:
            back = json.loads(json.dumps(state, allow_nan=False))
        except (TypeError, ValueError) as error:
            self._checkpoints.append(Checkpoint(len(self._events), None, str(error)))
            return
        problem = "" if back == state else f"{state!r} became {back!r}"
        self._checkpoints.append(Checkpoint(len(self._events), back, problem))

    def _take_events(self) -> None:
        if self._left_off():
            return
        returned: object = self._backend.run(self._request, self._context)
        if not isinstance(returned, Iterable):
            raise TypeError(f"it returned {returned!r:.60}, which is no iterator; yield the events")
        events = iter(returned)
        if self._backend.capabilities.immediate:
            self._take_first(events)
        else:
            self._take_rest(events)

    def _take_first(self, events: Iterator[object]) -> None:
        """Take what comes before the run waits; the rest in another thread, as the server may."""
        goes_on = False
        try:
            goes_on = self._take(events)
        finally:
            if not goes_on:
                _close(events)
        if goes_on:
            _in_a_thread(lambda: self._take_rest(events))

    def _take_rest(self, events: Iterator[object]) -> None:
        try:
            while self._take(events):
                pass
        finally:
            _close(events)

    def _take(self, events: Iterator[object]) -> bool:
        """Take what comes; return whether the run has said that it waits, and more may come."""
        for told in events:
            # The server, too, closes the iterator at the first event after a cancel.
            if self._context.cancelled:
                return False
            found = events_of(told)  # type: ignore[arg-type]  # the rules look at what it is
            for event in found:
                self._events.append(event)
                if len(self._events) > _EVENTS_MAX:
                    raise EndlessRun(f"more than {_EVENTS_MAX} events in one run")
                if self._left_off():
                    return False
            if not found:
                if self._waited_first is None:
                    self._waited_first = self._clock.waited
                return True
        return False

    def _left_off(self) -> bool:
        """Stop the run if it is time; whether nothing more is to be taken."""
        stop = self._stop
        if stop is None or stop.after_events != len(self._events):
            return False
        if stop.how == "close":
            return True
        if stop.how == "cancel":
            self._cancel()
        else:
            self._clock.call_at(self._clock.monotonic() + stop.after_s, self._cancel)
        return False

    def _cancel(self) -> None:
        self._since = time.monotonic()
        self._context.cancel()


def _close(events: Iterator[object]) -> None:
    """Close a generator; an iterator that is none has nothing to close."""
    close = getattr(events, "close", None)
    if close is not None:
        close()


def _in_a_thread(work: Callable[[], None]) -> None:
    """Do something in a thread of its own, which ends with the program if it hangs."""
    raised: list[BaseException] = []

    def note() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            raised.append(error)

    thread = threading.Thread(target=note, daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
