"""The bounded hand-over of records from the thread that makes them to the one that sends them."""

from __future__ import annotations

import threading
from collections import deque

from caesar_server.store.base import Record


class Feed:
    """A queue of records with one producer and one consumer.

    The producer waits while ``limit`` records lie there; the consumer takes *all that is there* at
    once, so that they can leave in one write.  When the consumer closes the feed the producer never
    waits again: a client that left must not keep a thread.

    :param limit: the most records that wait, at least 1.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: deque[Record] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._closed = False

    def put(self, record: Record) -> bool:
        """Hand a record over, waiting for room; False if nobody will read it any more."""
        with self._changed:
            while len(self._records) >= self._limit and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._records.append(record)
            if len(self._records) == 1:
                self._changed.notify_all()
            return True

    def end(self) -> None:
        """Say that no record will follow."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self, timeout_s: float | None) -> list[Record]:
        """Return all records that are there, waiting up to ``timeout_s`` seconds for the first.

        :param timeout_s: None waits until there is one or the feed has ended.
        :return: an empty list when the time is up or, if :attr:`drained`, at the end.
        """
        with self._changed:
            if not self._records and not self._ended:
                self._changed.wait_for(lambda: self._records or self._ended, timeout_s)
            records = list(self._records)
            self._records.clear()
            if len(records) >= self._limit:
                self._changed.notify_all()
            return records

    def close(self) -> None:
        """Say that nobody reads any more: wakes the producer and drops what lies there."""
        with self._changed:
            self._closed = True
            self._records.clear()
            self._changed.notify_all()

    @property
    def drained(self) -> bool:
        """Whether everything was taken and nothing will follow."""
        with self._changed:
            return self._ended and not self._records
