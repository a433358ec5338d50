"""``caesar-server`` that reaches named points; called with the arguments of the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from crash_points import reach

from caesar_server.cli import main
from caesar_server.contract import Completed
from caesar_server.jobs.context import RunContext
from caesar_server.store.base import Job, Record
from caesar_server.store.sql import steps
from caesar_server.store.sql.store import SqlStore


def surround(
    place: Any,
    name: str,
    *,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> None:
    """Let a function's call be preceded by one of ``before``, and followed by one of ``after``.

    Both get its arguments, ``after`` its result before them.
    """
    original = getattr(place, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        result = original(*args, **kwargs)
        if after is not None:
            after(result, *args, **kwargs)
        return result

    setattr(place, name, call)


def claiming(*args: Any, **kwargs: Any) -> None:
    # within the transaction, which then ends with the process
    reach("before-the-claim")


def claimed(job: Job | None, *args: Any, **kwargs: Any) -> None:
    if job is not None:
        reach("after-the-claim", job.id)


def creating(store: SqlStore, job: Job, **kwargs: Any) -> None:
    reach("before-creation", job.id)


def created(_: None, store: SqlStore, job: Job, **kwargs: Any) -> None:
    reach("after-creation", job.id)


def written(
    _: None, connection: Any, database: Any, fence: Mapping[str, Any], *args: Any, **kwargs: Any
) -> None:
    # the fence has moved and the rows are there, but nothing is committed
    reach("inside-a-batch", fence["id_"])


def storing(
    done: Future[None],
    store: SqlStore,
    job_id: str,
    attempt: int,
    records: Sequence[Record],
    **kwargs: Any,
) -> None:
    ends = bool(records) and isinstance(records[-1].event, Completed)
    point = "before-the-end-is-told" if ends else "before-announcement"
    # called before the callback that announces, since that is added later
    done.add_done_callback(lambda _: reach(point, job_id))


def checkpointed(_: None, context: RunContext, state: Mapping[str, Sequence[str]]) -> None:
    if "text" in state:
        reach("after-the-checkpoint", context.job_id)


surround(steps, "claim_next", before=claiming)
surround(SqlStore, "claim_next", after=claimed)
surround(SqlStore, "create", before=creating, after=created)
surround(steps, "append", after=written)
surround(SqlStore, "append_soon", after=storing)
surround(RunContext, "checkpoint", after=checkpointed)

if __name__ == "__main__":
    main()
