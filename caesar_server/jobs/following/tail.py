"""The end of a job's records, read once for all of its followers in a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from caesar_server.store.base import Record, Store, StoreError

#: Records that are read at once.
PAGE = 256
#: A store that has just failed one follower is not asked for the others so soon.
_ASK_AGAIN_S = 0.5


class Tail:
    """Reads a job's records from the store, and not twice what several followers want.

    What it has read is all there is until somebody calls :meth:`note_news`, which must follow each
    commit.  Safe from any thread.

    :param readers: how many follow the job here; for one alone nothing is kept.
    """

    def __init__(self, store: Store, job_id: str, *, readers: int = 1) -> None:
        self.readers = readers
        self._store = store
        self._job_id = job_id
        self._lock = threading.Lock()
        #: Another object after each commit: what was read before it may not be all.
        self._news = object()
        self._read_at: object | None = None
        self._upto = 0
        #: The last records, up to ``_upto``; or none.
        self._kept: Sequence[Record] = ()
        self._failure: StoreError | None = None
        self._failed_at = 0.0

    def note_news(self) -> None:
        """Say that there may be more; quick."""
        self._news = object()

    def after(self, seq: int) -> list[Record]:
        """Return the records after ``seq``, at most :data:`PAGE` of them.

        :raises UnknownJobError: if the job does not exist.
        :raises UnreadableRecordError: if one of them cannot be read.
        :raises StoreError: if the store cannot be read, or could not a moment ago.
        """
        with self._lock:
            # before the read: what is committed during it may or may not be seen
            news = self._news
            if news is self._read_at:
                if seq >= self._upto:
                    return []
                if self._kept and self._kept[0].seq <= seq + 1:
                    return list(self._kept[seq + 1 - self._kept[0].seq :])
            records = self._read(seq)
            self._note(news, seq, records)
            return records

    def _read(self, seq: int) -> list[Record]:
        if self._failure is not None and time.monotonic() - self._failed_at < _ASK_AGAIN_S:
            raise StoreError(str(self._failure))
        try:
            records = list(self._store.records(self._job_id, seq, limit=PAGE))
        except StoreError as error:
            self._failure, self._failed_at = error, time.monotonic()
            raise
        self._failure = None
        return records

    def _note(self, news: object, seq: int, records: Sequence[Record]) -> None:
        """Keep what was read, if it is all that there is."""
        upto = records[-1].seq if records else seq
        if len(records) >= PAGE or upto < self._upto:
            return
        self._read_at, self._upto = news, upto
        if records:
            self._kept = records if self.readers > 1 else ()
