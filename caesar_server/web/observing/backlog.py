"""What has happened and is not counted yet.

To count a fact where it happens costs as much as the check of a request: it takes some twenty
numbers of prometheus-client, each under a lock that all of them share, and in files where several
processes do so.  A batch of facts takes hardly more steps than one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_Fact = TypeVar("_Fact")

#: As many facts wait at most, or they would take more and more memory.
MOST = 1024


class Backlog(Generic[_Fact]):
    """Facts that are counted later, all in one step.  Safe from any thread.

    :param count: counts facts, in the order in which they happened; never called by two threads at
        a time.
    :param later: calls a function in a moment, from another thread; None: whoever wants to know
        calls :meth:`settle` first.
    """

    def __init__(
        self,
        count: Callable[[Sequence[_Fact]], None],
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._count = count
        self._later = later
        self._facts: deque[_Fact] = deque()
        self._is_due = later is None
        self._most = MOST
        self._settling = threading.Lock()

    def add(self, fact: _Fact) -> None:
        """Note that something has happened."""
        facts, later = self._facts, self._later
        facts.append(fact)
        if later is not None and not self._is_due:
            self._is_due = True
            later(self.settle)
        elif len(facts) >= self._most:
            self.settle()

    def settle(self) -> None:
        """Count what has happened so far; it is counted when this returns."""
        with self._settling:
            # Before the look at what is there: what is added afterwards asks for its own time.
            self._is_due = self._later is None
            facts = self._facts
            batch = [facts.popleft() for _ in range(len(facts))]
            if batch:
                self._count(batch)

    def close(self) -> None:
        """Count what has happened, and from now on each fact where it happens."""
        self._later, self._most = None, 1
        self.settle()
