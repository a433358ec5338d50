"""The journal of one scope."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from caesar_server.mock.clock import Machine
from caesar_server.mock.journal.book import Limits, OpenBook, Totals
from caesar_server.mock.journal.entry import Entry
from caesar_server.mock.journal.explain import explain, explain_unused
from caesar_server.mock.journal.filters import EVERYTHING, EntryFilter
from caesar_server.mock.journal.recording import Recording
from caesar_server.mock.model.call import Call
from caesar_server.mock.model.rule import Rule


class NotReachedError(TimeoutError):
    """Fewer entries came in time than somebody waited for.

    :param found: those that did.
    """

    def __init__(self, message: str, found: tuple[Entry, ...]) -> None:
        super().__init__(message)
        self.found = found


class Journal:
    """Keeps the last exchanges, bounded by their number and their size.  Safe from any thread.

    :param limits: how much is kept.
    :param monotonic: seconds of the scope's clock, for the times in entries.
    :param wall_time: Unix seconds of the scope's clock.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_time: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits or Limits()
        self._monotonic = monotonic
        self._wall_time = wall_time
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._book = self._new_book()

    def open(self, call: Call) -> Recording:
        """Begin the entry of a call; it is visible from now on."""
        return self._book.open(call, at=self._wall_time(), monotonic=self._monotonic)

    def entries(self, wanted: EntryFilter = EVERYTHING) -> tuple[Entry, ...]:
        """Return the entries that ``wanted`` takes, the oldest first, as they stand now."""
        # Conditions may be anybody's functions: they are not called with the lock held.
        entries = (recording.entry() for recording in self._book.recordings())
        return tuple(entry for entry in entries if wanted.matches(entry))

    def entry(self, id: str) -> Entry | None:
        """Return the newest entry of a call, or None if there is none (any more)."""
        for recording in reversed(self._book.recordings()):
            if recording.call.id == id:
                return recording.entry()
        return None

    def attempts(self, wanted: EntryFilter = EVERYTHING) -> tuple[tuple[Entry, ...], ...]:
        """Return the entries grouped: each call of a client with its retries, in order."""
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries(wanted):
            groups.setdefault(entry.group, []).append(entry)
        return tuple(tuple(group) for group in groups.values())

    def wait_for(
        self,
        n: int = 1,
        timeout_s: float = 5.0,
        wanted: EntryFilter = EVERYTHING,
        *,
        ended: bool = False,
    ) -> tuple[Entry, ...]:
        """Wait until at least ``n`` entries are there, and return all that are.

        :param timeout_s: by the machine's clock, also where the scope's is turned by hand.
        :param ended: whether only exchanges that are over count.
        :raises NotReachedError: if time is up; says what came instead.
        """
        deadline = Machine.monotonic() + timeout_s
        met: dict[Recording, bool] = {}
        while True:
            with self._lock:
                book, changes = self._book, self._book.changes
            found = _found(book.recordings(), wanted, met, ended=ended)
            if len(found) >= n:
                return found
            left_s = deadline - Machine.monotonic()
            if left_s <= 0:
                expected = f"at least {n} " + ("finished " if ended else "")
                raise NotReachedError(self.explain(wanted, expected, len(found)), found)
            with self._news:
                if self._book is book and book.changes == changes:
                    book.waiting += 1
                    self._news.wait(left_s)
                    book.waiting -= 1

    def explain(self, wanted: EntryFilter, expected: str, got: int) -> str:
        """Return why a check of the journal failed, for people.

        :param expected: how many were expected: ``exactly 3``, ``at least 1``.
        :param got: how many there were.
        """
        return explain(self.entries(), wanted, expected, got, self.totals().dropped)

    def explain_unused(self, rule: Rule) -> str:
        """Return why a rule was not used (more often), for people."""
        return explain_unused(self.entries(), rule, self.totals().dropped)

    def totals(self) -> Totals:
        """Return what was counted since the last reset."""
        return self._book.totals()

    def reset(self) -> None:
        """Forget everything.  What goes on is not written down any more, and never counted."""
        with self._news:
            self._book = self._new_book()
            self._news.notify_all()

    def _new_book(self) -> OpenBook:
        return OpenBook(self._limits, self._news, self._lock)


def _found(
    recordings: list[Recording], wanted: EntryFilter, met: dict[Recording, bool], *, ended: bool
) -> tuple[Entry, ...]:
    """Return the entries that count; ``met`` keeps what conditions said, which is for good."""
    found = []
    for recording in recordings:
        entry = recording.entry()
        if ended and entry.ended is None:
            continue
        if recording not in met:
            met[recording] = wanted.matches_call(entry)
        if met[recording] and wanted.matches_outcome(entry):
            found.append(entry)
    return tuple(found)
