"""What one journal holds between two resets."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from caesar_server.mock.journal.recording import Recording
from caesar_server.mock.model.call import Call


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept.

    :param entries: at least 1.
    :param total_bytes: of all entries together, by a rough estimate; the newest is always kept.
    :param frame_bytes: of one answer's body; later frames are only counted.
    """

    entries: int = 1000
    total_bytes: int = 32 * 1024 * 1024
    frame_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Totals:
    """What was counted since the journal was last emptied, entries that are gone included.

    :param requests: exchanges that began.
    :param dropped: exchanges that are not kept any more.
    :param faults: kind -> how often it happened.
    :param ended: how -> how many exchanges ended so.
    """

    requests: int = 0
    dropped: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)


class OpenBook:
    """The recordings and what is counted of them.

    :param news: whose lock guards everything; told when something may interest who waits.
    """

    def __init__(self, limits: Limits, news: threading.Condition, lock: threading.RLock) -> None:
        self.lock = lock
        #: Counts what happened, but for frames.
        self.changes = 0
        #: So many threads wait for news: as a rule none, and to wake none costs something, too.
        self.waiting = 0
        self._limits = limits
        self._news = news
        #: By number, the oldest first.
        self._recordings: dict[int, Recording] = {}
        self._bytes = 0
        self._opened = 0
        self._dropped = 0
        self._faults: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()

    def open(self, call: Call, *, at: float, monotonic: Callable[[], float]) -> Recording:
        """Add the recording of a call."""
        with self.lock:
            self._opened += 1
            recording = Recording(
                call,
                self,
                number=self._opened,
                group=self._group(call),
                at=at,
                monotonic=monotonic,
                max_frame_bytes=self._limits.frame_bytes,
            )
            self._recordings[recording.number] = recording
            self._bytes += recording.size
            self._make_room()
            self.noted()
            return recording

    def recordings(self) -> list[Recording]:
        """Return those that are kept, the oldest first."""
        with self.lock:
            return list(self._recordings.values())

    def totals(self) -> Totals:
        """Return what was counted."""
        with self.lock:
            return Totals(self._opened, self._dropped, dict(self._faults), dict(self._ended))

    def grew(self, recording: Recording, size: int) -> None:
        """Make room: a recording takes so many bytes more.  The lock is held."""
        recording.size += size
        if recording.number in self._recordings:
            self._bytes += size
            self._make_room()

    def noted(self, *, fault: str | None = None, ended: str | None = None) -> None:
        """Count a fault or an end, and wake who waits.  The lock is held."""
        self.changes += 1
        if fault is not None:
            self._faults[fault] += 1
        if ended is not None:
            self._ended[ended] += 1
        if self.waiting:
            self._news.notify_all()

    def _make_room(self) -> None:
        while len(self._recordings) > self._limits.entries or (
            self._bytes > self._limits.total_bytes and len(self._recordings) > 1
        ):
            oldest = self._recordings.pop(next(iter(self._recordings)))
            self._bytes -= oldest.size
            self._dropped += 1

    def _group(self, call: Call) -> str:
        """Return the id of the first attempt that ``call`` goes on with, or its own.

        Clients number their attempts but do not name the call: the attempt before is the newest
        equal one that was not answered well and that nothing goes on with yet.
        """
        if call.attempt > 1:
            for recording in reversed(self._recordings.values()):
                if _precedes(recording, call):
                    recording.continued = True
                    return recording.group
        return call.id


def _precedes(earlier: Recording, call: Call) -> bool:
    before = earlier.call
    return (
        before.attempt == call.attempt - 1
        and not earlier.continued
        and (before.method, before.path, before.api_key) == (call.method, call.path, call.api_key)
        and before.content == call.content
        and not earlier.succeeded
    )
