"""Which of many jobs and records a reader wants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from caesar_server.contract.events import Status
from caesar_server.contract.request import RequestKind
from caesar_server.store.base import BULK_EVENTS, Job, Record


def chosen_jobs(
    jobs: Iterable[Job],
    *,
    account: str | None,
    statuses: Collection[Status] | None,
    backend: str | None,
    kinds: Collection[RequestKind] | None,
    parent_id: str | None,
) -> Iterator[Job]:
    """Yield the jobs that fit what is not None."""
    return (
        job
        for job in jobs
        if (account is None or job.account == account)
        and (statuses is None or job.status in statuses)
        and (backend is None or job.backend == backend)
        and (kinds is None or job.kind in kinds)
        and (parent_id is None or job.parent_id == parent_id)
    )


def chosen_records(
    records: Sequence[Record], first: int, limit: int | None, bulk: bool | None
) -> Sequence[Record]:
    """Return the records from place ``first`` on, of one kind if ``bulk`` is not None."""
    if bulk is None:
        return tuple(records[first : None if limit is None else first + limit])
    of_the_kind = (
        record
        for record in islice(records, first, None)
        if isinstance(record.event, BULK_EVENTS) == bulk
    )
    return tuple(islice(of_the_kind, limit))
