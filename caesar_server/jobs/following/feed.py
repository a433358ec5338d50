"""The bounded hand-over of records from the thread that makes them to the one that sends them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from caesar_server.store.base import Record


class Feed:
    """A queue of records with one producer and one consumer.

    The producer waits while ``limit`` records lie there; the consumer takes *all that is there* at
    once, so that they can leave in one write.  When the consumer closes the feed the producer never
    waits again: a client that left must not keep a thread.

    :param limit: the most records that wait, at least 1; the last one always finds room.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: deque[Record] = deque()
        self._changed = threading.Condition()
        #: Whether the consumer waits for a record.  Set before it looks whether there is one, and
        #: read after one was added, so that one of the two sides sees the other: the producer, who
        #: comes here for every token, needs no lock as a rule.
        self._hungry = False
        self._unlimited = False
        self._ended = False
        self._closed = False

    def put(self, records: Sequence[Record]) -> bool:
        """Hand records over, waiting for room; False if nobody will read them any more."""
        while records:
            if len(self._records) >= self._limit:
                with self._changed:
                    self._changed.wait_for(self._has_room)
            if self._closed or self._ended:
                return False
            # only the consumer changes it meanwhile, and makes more room
            room = len(records) if self._unlimited else self._limit - len(self._records)
            self._records.extend(records[:room])
            records = records[room:]
            if self._hungry:
                with self._changed:
                    # told once: until it runs, this thread may add hundreds of records
                    self._hungry = False
                    self._changed.notify_all()
        return True

    def lift_limit(self) -> None:
        """Never let the producer wait again: its run was cancelled and has little left to say."""
        with self._changed:
            self._unlimited = True
            self._changed.notify_all()

    def end(self, last: Record | None = None) -> None:
        """Hand the last record over without waiting, and say that none will follow.

        Only the first call hands one over; what is put later is dropped.
        """
        with self._changed:
            if last is not None and not self._closed and not self._ended:
                self._records.append(last)
            self._ended = True
            self._changed.notify_all()

    def take(self, timeout_s: float | None) -> list[Record]:
        """Return all records that are there, waiting up to ``timeout_s`` seconds for the first.

        :param timeout_s: None waits until there is one or the feed is :attr:`drained`.
        :return: an empty list when the time is up or, if :attr:`drained`, at the end.
        """
        with self._changed:
            try:
                self._changed.wait_for(self._has_news, timeout_s)
            finally:
                self._hungry = False
            if self._closed:
                return []
            # not list() and clear(): one may be added between the two
            records = [self._records.popleft() for _ in range(len(self._records))]
            if len(records) >= self._limit:
                self._changed.notify_all()
            return records

    def close(self) -> None:
        """Say that nobody reads any more: wakes both ends and drops what lies there."""
        with self._changed:
            self._closed = True
            self._records.clear()
            self._changed.notify_all()

    @property
    def drained(self) -> bool:
        """Whether everything was taken and nothing will follow; also true of a closed feed."""
        return self._closed or (self._ended and not self._records)

    def _has_room(self) -> bool:
        return len(self._records) < self._limit or self._unlimited or self._closed or self._ended

    def _has_news(self) -> bool:
        # Before each look: a put() that saw an earlier wait may have taken it back meanwhile.
        self._hungry = True
        return bool(self._records) or self._ended or self._closed
