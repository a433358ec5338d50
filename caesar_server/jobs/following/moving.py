"""How a run's records come into the feed of the client who waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from caesar_server.contract.events import Completed, Failed
from caesar_server.jobs.following.feed import Feed
from caesar_server.store.base import Record


def move(batches: Iterable[Sequence[Record]], feed: Feed) -> None:
    """Move records into a feed until the last one, even if nobody reads them.

    :param batches: those that came together; an empty one tells nothing.
    """
    queued: Sequence[Record] = ()
    for batch in batches:
        if not batch:
            continue
        if batch[-1].seq == 1:
            # nobody is shown it by itself: it goes with what comes next
            queued = batch
            continue
        if _is_last(batch[-1]):
            feed.put(queued)
            feed.end(batch[-1])
        else:
            feed.put([*queued, *batch] if queued else batch)
        queued = ()


def move_at_once(
    batches: Iterable[Sequence[Record]], feed: Feed, most: int
) -> Sequence[Record] | None:
    """Move records into a feed until the last one, as long as nothing has to be waited for.

    :param batches: those that came together; an empty one says that the next takes its time.
    :param feed: an empty one.
    :param most: so many are moved besides the last one; no more than the feed has room for.
    :return: what waits to be moved before the rest of ``batches``; None if that was all.
    """
    queued: Sequence[Record] = ()
    for batch in batches:
        if not batch:
            return queued
        records = [*queued, *batch]
        if _is_last(batch[-1]):
            feed.put(queued)
            feed.end(batch[-1])
        elif len(records) > most:
            return records
        elif batch[-1].seq == 1:
            queued = batch
        else:
            feed.put(records)
            queued = ()
            most -= len(records)
    feed.end()
    return None


def _is_last(record: Record) -> bool:
    kind = type(record.event)
    return kind is Completed or kind is Failed
