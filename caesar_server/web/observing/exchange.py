"""What is known of one HTTP request while it is answered: for its log line and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from caesar_server.store.base import Job

#: How a run ended; ``lost``: another process has it now, or nobody said.
RunOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "deadline", "shutdown", "lost"]
#: How a request ended: as its run did, or without one.
Outcome: TypeAlias = RunOutcome | Literal["client_gone", "refused"]


class Run(Protocol):
    """The run behind an answer.

    :ivar outcome: None while it goes on.
    :ivar code: machine word of the error that it ended with, or None.
    :ivar upstream: which of the backend's servers answered, or None.
    """

    job: Job
    upstream: str | None
    outcome: RunOutcome | None
    code: str | None

    @property
    def events(self) -> int:
        """How many there were so far."""


@dataclass(slots=True)
class Exchange:
    """One request and its response.  Written by the threads that answer it, read at its end.

    :param surface: the family of URLs, such as ``compat``.
    :param endpoint: the view's name, never the path: ``other`` where there is none.
    :param code: machine word of the error in the response, or None.
    :param account: whose key it was; empty where none is asked for.
    :param key_id: which one.
    :param run: the job's run, if one began.
    :param client_left: whether the client is known to be gone.
    """

    request_id: str | None = None
    surface: str = "other"
    endpoint: str = "other"
    code: str | None = None
    account: str = ""
    key_id: str = ""
    run: Run | None = None
    client_left: bool = False


#: The request that this thread is answering, or working for.
_current: ContextVar[Exchange | None] = ContextVar("caesar_exchange", default=None)


def current_exchange() -> Exchange | None:
    """Return the request that the calling thread works for, or None."""
    return _current.get()


def enter(exchange: Exchange | None) -> None:
    """Say which request this thread works for from now on."""
    _current.set(exchange)


@contextmanager
def working_for(exchange: Exchange | None) -> Iterator[None]:
    """Say which request this thread works for inside the block."""
    token = _current.set(exchange)
    try:
        yield
    finally:
        _current.reset(token)


def note_code(code: str) -> None:
    """Note the error that the current request is answered with."""
    exchange = _current.get()
    if exchange is not None:
        exchange.code = code


def noting_departure(callback: Callable[[], None]) -> Callable[[], None]:
    """Return ``callback``, to be called from any thread when the current request's client leaves.

    It also notes that, which a cancelled job does not tell.
    """
    exchange = _current.get()

    def left() -> None:
        if exchange is not None:
            exchange.client_left = True
        callback()

    return left
