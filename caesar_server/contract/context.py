"""What a run may use of the server: cancellation, time, files, checkpoints, other backends."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from logging import Logger, LoggerAdapter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:  # request and events do not need the context, only its signatures need them
    from caesar_server.contract.events import Event
    from caesar_server.contract.request import Request


class Clock(Protocol):
    """Time as a value that tests can turn by hand.  Safe to use from any thread."""

    def time(self) -> float:
        """Return Unix seconds."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Block until ``event`` is set (True) or ``timeout_s`` of this clock pass (False)."""


@dataclass(frozen=True, slots=True)
class Update:
    """Steering that the caller sent to the running job (``POST /research/{id}/updates``)."""

    id: str
    content: str
    file_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An uploaded file.

    :param path: where its bytes are, for reading only, until the run ends.
    """

    id: str
    name: str
    content_type: str
    size: int
    path: Path


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Allow-listed parts of the caller's HTTP request, never stored: not for durable backends.

    :param headers: names in lower case.
    :param api_key: the caller's own bearer token, or None.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)


class Metrics(Protocol):
    """Numbers for the operator; names and labels are fixed words, never text of a request."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add ``amount`` (0 or more) to the counter ``name``."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Note one ``value`` (a duration in seconds, a size) of the distribution ``name``."""


BackendLogger: TypeAlias = Logger | LoggerAdapter[Logger]


class Context(Protocol):
    """One run's view of the server.

    Made by the server for each run and valid until the run ends.  Everything here may be called
    from any thread.
    """

    @property
    def job_id(self) -> str:
        """The job's UUID."""

    @property
    def attempt(self) -> int:
        """1 for the first run of the job, 2 after the first takeover, and so on."""

    @property
    def cancelled(self) -> bool:
        """Whether to stop: somebody cancelled, the client left, or the deadline has passed."""

    def raise_if_cancelled(self) -> None:
        """Return at once, or raise.

        :raises Cancelled: if :attr:`cancelled`.
        """

    def on_cancel(self, callback: Callable[[], object]) -> AbstractContextManager[None]:
        """Call ``callback`` once when the run is cancelled, from the thread that notices it.

        For calls that block and cannot poll::

            with context.on_cancel(sock.close):
                sock.recv(4096)

        It is called at once, in this thread, if the run is cancelled already, and no more after the
        ``with`` block, whose end waits for a call that is under way: so it must not wait for a lock
        that the block holds.  What it raises is logged.

        :raises TypeError: if ``callback`` cannot be called, as what ``sock.close()`` returns.
        """

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than the run lives.

        :raises Cancelled: as soon as the run is cancelled.
        """

    @property
    def deadline(self) -> float | None:
        """When the run must be over, on ``clock.monotonic()``, or None."""

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the deadline, never below 0, or None."""

    def updates(self) -> Sequence[Update]:
        """Return the updates that came since the last call, oldest first."""

    @property
    def files(self) -> Mapping[str, StoredFile]:
        """The request's files by id."""

    @property
    def collections(self) -> Mapping[str, Sequence[StoredFile]]:
        """The files of the request's collections by collection id."""

    @property
    def logger(self) -> BackendLogger:
        """A logger that adds the job id."""

    @property
    def metrics(self) -> Metrics:
        """The operator's numbers."""

    @property
    def forwarded(self) -> Forwarded:
        """What the operator allows to be passed on of the caller's HTTP request."""

    @property
    def clock(self) -> Clock:
        """The time to use, so that tests can turn it."""

    @property
    def random(self) -> random.Random:
        """Chance to use: seeded by the request's ``seed`` where it has one."""

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Store all events yielded so far together with ``state`` (JSON values), in one step.

        A durable backend yields a ``ContentDelta`` only after a checkpoint that holds the whole
        text; after a takeover ``run`` starts again with ``restored`` and repeats the text, of which
        the server skips what is already stored.

        :raises Cancelled: if another process has taken the job over.
        :raises TypeError: if ``state`` is no mapping.
        """

    @property
    def restored(self) -> Mapping[str, Any] | None:
        """The last checkpoint of an earlier attempt, or None."""

    def call(self, model: str, request: Request) -> Iterator[Event]:
        """Run another configured backend in this thread and yield its events.

        It shares deadline and cancellation, is no job of its own, and its ``UsageCounted`` events
        are added to this run's usage by the server: do not yield them again.

        :param model: a name as a client would give it.
        :raises InvalidRequestError: if the chain of calls would come back to a backend that is
            already in it, or the backend cannot take the request.
        :raises BackendError: if the call fails.
        """
