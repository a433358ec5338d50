"""The backend under test.  Every call to it has a time limit, so that the suite never hangs."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from caesar_server.contract import (
    Backend,
    BackendError,
    Cancelled,
    Capabilities,
    Event,
    Request,
    events_of,
)
from caesar_server.contract.context import StoredFile
from caesar_server.contract.options import parse_options
from caesar_server.jobs.clock import SystemClock
from caesar_server.jobs.context import Caller, RunContext
from caesar_server.testing.conformance.answer import Checkpoint, Run
from caesar_server.testing.conformance.questions import plain_requests

T = TypeVar("T")

#: More events than that in one answer to a short question are taken for an endless run.
_EVENTS_MAX = 100_000


class Hang(Exception):
    """A call did not return in time; its thread cannot be ended and goes on."""


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


_NOTHING = Given()


class Subject:
    """A backend class with its options, and runs of it.

    :param options: as the operator would write them.
    :param call_timeout_s: seconds that any single call may take.
    :param caller: what ``context.call`` does; None: it fails.
    """

    def __init__(
        self,
        backend_class: type[Backend],
        options: Mapping[str, object],
        call_timeout_s: float,
        caller: Caller | None = None,
    ) -> None:
        self.backend_class = backend_class
        self.options = options
        self.call_timeout_s = call_timeout_s
        self.called_others = False
        self._caller = caller
        self._opened: Backend | None = None
        self._runs: dict[str, Run] = {}

    @property
    def capabilities(self) -> Capabilities:
        """What the class says it can do."""
        return self.backend_class.capabilities

    def _call_other(self, model: str, request: Request, context: RunContext) -> Iterator[Event]:
        """Do what ``context.call`` does."""
        if self._caller is None:
            raise BackendError("it calls another backend, and the suite was given no caller")
        self.called_others = True
        return self._caller(model, request, context)

    def call(self, name: str, function: Callable[[], T]) -> T:
        """Return ``function()``, called in another thread; what it raises is raised here.

        :raises Hang: if it takes longer than ``call_timeout_s``.
        """
        result: list[T] = []
        raised: list[BaseException] = []

        def work() -> None:
            try:
                result.append(function())
            except BaseException as error:  # noqa: BLE001 - handed on to the caller's thread
                raised.append(error)

        thread = threading.Thread(target=work, name=f"conformance {name}", daemon=True)
        thread.start()
        thread.join(self.call_timeout_s)
        if thread.is_alive():
            raise Hang(f"{name} did not return within {self.call_timeout_s:g} s")
        if raised and not isinstance(raised[0], Exception):
            # SystemExit, raised by a backend, must not end the program that runs the suite.
            raise RuntimeError(f"{name} raised {raised[0]!r}") from raised[0]
        if raised:
            raise raised[0]
        return result[0]

    def make(self) -> Backend:
        """Return a new instance that is not open."""

        def build() -> Backend:
            schema = self.backend_class.options_schema
            return self.backend_class(parse_options(schema, self.options))

        return self.call("__init__()", build)

    def open(self) -> Backend:
        """Return a new, open instance; the caller closes it."""
        backend = self.make()
        self.call("open()", backend.open)
        return backend

    def open_shared(self) -> None:
        """Open the instance that most rules share."""
        self._opened = self.open()

    @property
    def backend(self) -> Backend:
        """The instance that most rules share."""
        if self._opened is None:
            raise RuntimeError("a rule that uses the backend must need life.opens")
        return self._opened

    def close_shared(self) -> None:
        """Close the shared instance."""
        backend, self._opened = self._opened, None
        if backend is not None:
            self.close(backend)

    def close(self, backend: Backend) -> None:
        """Close an instance."""
        self.call("close()", backend.close)

    def ask(
        self,
        request: Request,
        *,
        backend: Backend | None = None,
        timeout_s: float | None = None,
        stop: Stop | None = None,
        given: Given = _NOTHING,
    ) -> Run:
        """Run ``request`` and return what happened.

        :param backend: another instance than the shared one.
        :param timeout_s: the run's own deadline.
        :param stop: leave off early.
        :param given: what its context holds.
        :raises Hang: if it does not end.
        """
        backend = backend or self.backend
        driver = _Driver(backend, request, timeout_s, stop, given, self._call_other)
        try:
            return self.call(f"run() of a {request.type} request", driver.drive)
        except Hang:
            driver.give_up()
            raise

    def ask_all(self, requests: Sequence[Request]) -> list[Run]:
        """Run all ``requests`` at the same time."""
        runs: dict[int, Run] = {}
        raised: list[BaseException] = []
        backend, together = self.backend, threading.Barrier(len(requests))

        def work(position: int, request: Request) -> None:
            try:
                together.wait()
                runs[position] = self.ask(request, backend=backend)
            except BaseException as error:  # noqa: BLE001 - raised below
                raised.append(error)

        threads = [
            threading.Thread(target=work, args=item, daemon=True) for item in enumerate(requests)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if raised:
            raise raised[0]
        return [runs[position] for position in range(len(requests))]

    def plain(self) -> list[Run]:
        """Return a short run of each kind of request that it accepts; made once."""
        return [self.once(request) for request in plain_requests(self.capabilities)]

    def once(self, request: Request) -> Run:
        """Return the run of ``request`` on the shared instance; made once."""
        key = repr(request)
        if key not in self._runs:
            self._runs[key] = self.ask(request)
        return self._runs[key]


class _NotingClock(SystemClock):
    """Notes that a run waits by it."""

    waited = False

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait for ``event``."""
        self.waited = True
        return super().wait(event, timeout_s)


class _Driver:
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
        try:
            for told in events:
                # The server, too, closes the iterator at the first event after a cancel.
                if self._context.cancelled:
                    return
                if not events_of(told) and self._waited_first is None:
                    self._waited_first = self._clock.waited
                for event in events_of(told):
                    self._events.append(event)
                    if len(self._events) > _EVENTS_MAX:
                        raise EndlessRun(f"more than {_EVENTS_MAX} events in one run")
                    if self._left_off():
                        return
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()

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
