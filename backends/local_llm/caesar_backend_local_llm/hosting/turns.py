"""Whose turn it is: the instances of a model, and the queue before them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from caesar_backend_local_llm.engine.instance import Instance
from caesar_server.contract import BackendUnavailableError, Context, RateLimitedError

#: Bounds of what a client that comes too soon is told to wait, in seconds.
_SHORTEST_RETRY_S, _LONGEST_RETRY_S = 0.5, 30.0


@dataclass(eq=False, slots=True)
class _Waiter:
    """One request in the queue.

    :param called: set when it has an instance, or must stop waiting.
    """

    called: threading.Event = field(default_factory=threading.Event)
    instance: Instance | None = None


class Turns:
    """Hands out instances, first come first served.  Safe for threads.

    :param name: the model's, for messages and metrics.
    :param queue: how many requests may wait.
    :param wait_s: how long one may.
    """

    def __init__(
        self, name: str, instances: Sequence[Instance], *, queue: int, wait_s: float
    ) -> None:
        self._name = name
        self._free = list(instances)
        self._count = len(instances)
        self._queue = queue
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()
        #: Mean seconds that an instance was held, recent ones counting more.
        self._held_s = 1.0

    @property
    def busy(self) -> int:
        """How many instances are at work."""
        return self._count - len(self._free)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @contextmanager
    def turn(self, prompt: Sequence[int], context: Context) -> Iterator[Instance]:
        """Hold an instance during the block; a cancel of the run ends what it evaluates.

        :param prompt: its first tokens decide which of several free instances is best.
        :raises RateLimitedError: if the queue is full.
        :raises BackendUnavailableError: if it takes too long.
        :raises Cancelled: if the run is cancelled meanwhile.
        """
        began = context.clock.monotonic()
        instance = self._take(prompt, context)
        held = time.monotonic()
        try:
            waited_s = context.clock.monotonic() - began
            context.metrics.observe("queue_wait_s", waited_s, model=self._name)
            instance.flag.clear()
            with context.on_cancel(instance.flag.set):
                yield instance
        finally:
            self._give_back(instance, time.monotonic() - held)

    def _take(self, prompt: Sequence[int], context: Context) -> Instance:
        context.raise_if_cancelled()
        with self._lock:
            context.metrics.observe("queue_length", len(self._waiting), model=self._name)
            if self._free:
                return self._best_for(prompt)
            if len(self._waiting) >= self._queue:
                raise self._full()
            waiter = _Waiter()
            self._waiting.append(waiter)
        with context.on_cancel(waiter.called.set):
            context.clock.wait(waiter.called, self._wait_s)
        with self._lock:
            if waiter.instance is None:
                position = self._waiting.index(waiter) + 1
                self._waiting.remove(waiter)
        if waiter.instance is not None:
            if context.cancelled:
                self._give_back(waiter.instance)
                context.raise_if_cancelled()
            return waiter.instance
        context.raise_if_cancelled()
        raise BackendUnavailableError(
            f"The model {self._name!r} was busy for {self._wait_s:g} s; the request was number "
            f"{position} in its queue",
            code="queue_timeout",
        )

    def _full(self) -> RateLimitedError:
        waiting = len(self._waiting)
        seconds = self._held_s * (waiting + 1) / self._count
        return RateLimitedError(
            f"The model {self._name!r} is busy: {self._count} at work and {waiting} waiting; "
            f"the request would be number {waiting + 1} in a queue of {self._queue}",
            retry_after_s=round(min(_LONGEST_RETRY_S, max(_SHORTEST_RETRY_S, seconds)), 1),
            code="queue_full",
        )

    def _best_for(self, prompt: Sequence[int]) -> Instance:
        """Take the free instance that knows most of a prompt; of equals the least used."""
        best = max(self._free, key=lambda free: (free.shared_with(prompt), -free.size))
        self._free.remove(best)
        return best

    def _give_back(self, instance: Instance, held_s: float | None = None) -> None:
        with self._lock:
            if held_s is not None:
                self._held_s += (held_s - self._held_s) / 8
            if self._waiting:
                waiter = self._waiting.popleft()
                waiter.instance = instance
                waiter.called.set()
            else:
                self._free.append(instance)
