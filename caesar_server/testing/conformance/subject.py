"""The backend under test.  Every call to it has a time limit, so that the suite never hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from caesar_server.contract import (
    Backend,
    BackendError,
    Capabilities,
    Event,
    Request,
)
from caesar_server.contract.options import parse_options
from caesar_server.jobs.context import Caller, RunContext
from caesar_server.testing.conformance.answer import Run
from caesar_server.testing.conformance.driver import Driver, Given, Stop
from caesar_server.testing.conformance.questions import plain_requests

T = TypeVar("T")


class Hang(Exception):
    """A call did not return in time; its thread cannot be ended and goes on."""


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
        driver = Driver(backend, request, timeout_s, stop, given, self._call_other)
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
