"""Asks a second server when the first is silent; who begins first, answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeAlias, cast

from caesar_backend_upstream.wire.failures import UpstreamFailure
from caesar_server.contract import Cancelled, Context, Event

#: Makes an attempt's events, in the context that it is given.
Attempt: TypeAlias = Callable[[Context], Generator[Event, None, None]]


class _OwnContext:
    """A run's context whose cancel can also come for one attempt alone."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._left = False
        self._callbacks: dict[object, Callable[[], None]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def raise_if_cancelled(self) -> None:
        if self._left:
            raise Cancelled
        self._context.raise_if_cancelled()

    @contextmanager
    def on_cancel(self, callback: Callable[[], None]) -> Iterator[None]:
        key = object()
        with self._lock:
            now = self._left
            self._callbacks[key] = callback
        if now:
            callback()
        try:
            with self._context.on_cancel(callback):
                yield
        finally:
            with self._lock:
                del self._callbacks[key]

    def leave(self) -> None:
        """Cancel the attempt."""
        with self._lock:
            self._left = True
            for callback in self._callbacks.values():
                callback()


class _Racer:
    """One attempt, up to its first event, in a thread of its own."""

    def __init__(self, attempt: Attempt, context: Context, finish: threading.Condition) -> None:
        self._own = _OwnContext(context)
        self.events = attempt(cast(Context, self._own))
        self.first: Event | None = None
        self.failure: BaseException | None = None
        self._finish = finish
        self._thread = threading.Thread(target=self._run, name="caesar-upstream-race", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return self.first is not None or self.failure is not None

    @property
    def decides(self) -> bool:
        """Whether no other need be waited for: it has begun, or failed as every other would."""
        if self.failure is None:
            return self.first is not None
        return not (isinstance(self.failure, UpstreamFailure) and self.failure.elsewhere)

    def leave(self) -> None:
        """Give the attempt up and wait for its end, which its cancel brings at once."""
        self._own.leave()
        self._thread.join()
        self.events.close()

    def _run(self) -> None:
        first: Event | None = None
        failure: BaseException | None = None
        try:
            first = next(self.events)
        except BaseException as error:  # noqa: BLE001 - raised in the run's own thread
            failure = error
        with self._finish:
            self.first, self.failure = first, failure
            self._finish.notify_all()


def first_to_begin(
    attempts: Sequence[Attempt], context: Context, after_s: float
) -> Generator[Event, None, None]:
    """Return the events of the attempt that begins first; the others are given up.

    The next attempt starts when the one before it has been silent for ``after_s`` seconds, or has
    failed.

    :raises UpstreamFailure: if all of them fail: that of the last.
    """
    finish = threading.Condition()
    racers: list[_Racer] = []
    winner: _Racer | None = None
    try:
        for attempt in attempts:
            racers.append(_Racer(attempt, context, finish))
            winner = _wait(racers, finish, after_s if len(racers) < len(attempts) else None)
            if winner is not None:
                break
    finally:
        for racer in racers:
            if racer is not winner:
                racer.leave()
    if winner is None:
        failure = racers[-1].failure
        assert failure is not None  # noqa: S101 - for the type checker: all have failed
        raise failure
    return _go_on(winner)


def _wait(
    racers: Sequence[_Racer], finish: threading.Condition, timeout_s: float | None
) -> _Racer | None:
    """Return the first that has begun, or None if time is up or all have failed."""
    with finish:
        finish.wait_for(
            lambda: any(racer.decides for racer in racers) or all(racer.done for racer in racers),
            timeout_s,
        )
        for racer in racers:
            if racer.failure is not None and racer.decides:
                raise racer.failure
        return next((racer for racer in racers if racer.first is not None), None)


def _go_on(winner: _Racer) -> Generator[Event, None, None]:
    assert winner.first is not None  # noqa: S101 - for the type checker
    with closing(winner.events) as events:
        yield winner.first
        yield from events
