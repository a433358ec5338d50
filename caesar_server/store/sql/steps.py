"""The steps that write, each a function of a connection within a transaction.

A step that cannot be done raises before it has written: others in the same transaction stand.

``again`` says that an earlier try may have been committed, though its connection was lost before
that was heard: a step that finds its own work then counts as done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, delete, func, null, select, update

from caesar_server.store.base import FencedError, Job, Record, UnknownJobError
from caesar_server.store.outcome import Outcome, follow_on, outcome_of
from caesar_server.store.owned.base import SessionUsedError
from caesar_server.store.quotas import Quota
from caesar_server.store.sql import accounts, queries
from caesar_server.store.sql.connecting.prepared import Prepared
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.rows import is_id
from caesar_server.store.sql.schema import checkpoints, jobs, records, requests, updates
from caesar_server.store.unreadable import UnreadableRecordError
from caesar_server.store.updates import JobEndedError

#: Ids in one statement; databases bound the number of its parameters.
_IDS_AT_ONCE = 500

_THIS = jobs.c.id == bindparam("id_")
_MINE = and_(_THIS, jobs.c.attempt == bindparam("attempt_"), jobs.c.owner.is_not(None))
_CLAIM = (
    update(jobs)
    .where(_THIS, jobs.c.finished_at.is_(None))
    .values(attempt=jobs.c.attempt + 1, owner=bindparam("owner_"))
)
_CLAIM_AS_SEEN = _CLAIM.where(jobs.c.attempt == bindparam("attempt_"))
_RELEASE = (
    update(jobs)
    .where(_MINE)
    .values(owner=null(), released=jobs.c.released + bindparam("forgiven_"))
)
#: The fence: whatever an attempt writes begins with one of these two.
_MOVED = (
    update(jobs)
    .where(_MINE, jobs.c.last_seq == bindparam("old_"))
    .values(
        last_seq=bindparam("new_"),
        checkpoint_seq=func.coalesce(
            bindparam("checkpoint_seq_", type_=jobs.c.last_seq.type), jobs.c.checkpoint_seq
        ),
    )
)
_MOVED_LOOPS = _MOVED.values(
    loops=func.coalesce(
        bindparam("consumed_", type_=jobs.c.loops.type),
        case((jobs.c.loops < bindparam("loops_"), bindparam("loops_")), else_=jobs.c.loops),
    )
)
_ADVANCE, _ADVANCE_LOOPS = Prepared(_MOVED), Prepared(_MOVED_LOOPS)
_ADVANCE_STATUS = Prepared(
    _MOVED_LOOPS.values(
        status=bindparam("status_"),
        finished_at=bindparam("finished_at_"),
        error_code=bindparam("error_code_"),
        owner=case((bindparam("ended_"), null()), else_=jobs.c.owner),
    )
)
_SEEN = update(jobs).where(_MINE).values(attempt=jobs.c.attempt)
_KEEP = update(jobs).where(_MINE).values(checkpoint_seq=jobs.c.last_seq)
_REQUEST_CANCEL = (
    update(jobs).where(_THIS, jobs.c.finished_at.is_(None)).values(cancel_requested=True)
)
_ADD_REQUEST = Prepared(requests.insert(), requests.columns.keys())
_ADD_RECORDS = Prepared(records.insert(), records.columns.keys())
_STATE = select(
    jobs.c.attempt, jobs.c.owner, jobs.c.last_seq, jobs.c.released, jobs.c.finished_at
).where(_THIS)
#: Held against removal alone: it may still be written.
_PARENT = select(jobs.c.id).where(_THIS).with_for_update(read=True, key_share=True)
_FOLLOW_UPS = (
    select(jobs.c.id)
    .where(jobs.c.parent_id.in_(bindparam("ids_", expanding=True)))
    .order_by(jobs.c.id)
)
_FINISHED = select(jobs.c.finished_at).where(_THIS).with_for_update()


def create(
    connection: Connection,
    database: Database,
    row: dict[str, Any],
    body: bytes,
    quota: Quota | None,
    rows: Sequence[dict[str, Any]] = (),
    *,
    again: bool,
) -> None:
    """Add a job and its request.

    :param quota: what its account, which is locked, may have.
    :param rows: of the records that it has already.
    :raises UnknownJobError: if it follows up a job that does not exist.
    :raises QuotaExceededError: if it has as much.
    :raises SessionUsedError: if another job has used its session up.
    :raises ValueError: if its id exists.
    """
    _hold_parent(connection, row["parent_id"])
    if quota is not None:
        # what was stored already is not to be counted against itself
        if again and _is_as_created(connection, row):
            return
        quota.check(accounts.standing(connection, row["account"], quota.month))
    if _adding_job(database.insert).run(connection, row) != 1:
        if again and _is_as_created(connection, row):
            return
        session_id = row["session_id"]
        if session_id is not None and _state(connection, row["id"]) is None:
            raise SessionUsedError(f"session {session_id} is used up")
        raise ValueError(f"job {row['id']} exists")
    _ADD_REQUEST.run(connection, {"job_id": row["id"], "body": body})
    if rows:
        _ADD_RECORDS.run(connection, *rows)


@cache
def _adding_job(insert: Callable[..., Any]) -> Prepared:
    return Prepared(insert(jobs).on_conflict_do_nothing(), jobs.columns.keys())


def _hold_parent(connection: Connection, parent_id: str | None) -> None:
    """Keep the job that is followed up from being removed before the transaction is over.

    If its removal has begun elsewhere, this waits for it.

    :raises UnknownJobError: if it does not exist.
    """
    if parent_id is None:
        return
    if not is_id(parent_id) or connection.execute(_PARENT, {"id_": parent_id}).first() is None:
        raise UnknownJobError(parent_id)


def uncreate(connection: Connection, row: dict[str, Any]) -> None:
    """Remove a job that nobody was told of, unless somebody runs it already."""
    if _is_as_created(connection, row):
        delete_jobs(connection, [row["id"]])


def _is_as_created(connection: Connection, row: dict[str, Any]) -> bool:
    state = _state(connection, row["id"])
    return state is not None and (state.attempt, state.owner, state.last_seq) == (
        row["attempt"],
        row["owner"],
        row["last_seq"],
    )


def claim(connection: Connection, job_id: str, owner: str, attempt: int | None) -> Job:
    """Make ``owner`` the job's and return it.

    :raises UnknownJobError: if it does not exist.
    :raises UnreadableRecordError: if it cannot be read.
    :raises FencedError: if it has ended, or ``attempt`` is not its attempt any more.
    """
    # before it is written: who cannot read it must not have it
    queries.job(connection, job_id)
    values = {"id_": job_id, "owner_": owner}
    if attempt is None:
        claimed = connection.execute(_CLAIM, values)
    else:
        claimed = connection.execute(_CLAIM_AS_SEEN, {**values, "attempt_": attempt})
    if claimed.rowcount != 1:
        state = _known(connection, job_id)
        ended = state.finished_at is not None
        raise FencedError(
            f"job {job_id} " + ("has ended" if ended else f"is at attempt {state.attempt}")
        )
    return queries.job(connection, job_id)


def claim_next(
    connection: Connection,
    database: Database,
    owner: str,
    backends: Collection[str],
    below: int | None,
    leave_out: Callable[[UnreadableRecordError], None],
) -> Job | None:
    """Claim the oldest job that nobody runs, or return None.

    :param leave_out: told of each job that is passed over, for it cannot be read.
    """
    free = queries.free(database, backends, below).limit(1)
    if database.skips_locked:
        free = free.with_for_update(skip_locked=True, of=jobs)
    passed: list[str] = []
    while True:
        chosen = free.where(jobs.c.id.not_in(passed)) if passed else free
        job_id: str | None = connection.execute(chosen).scalar()
        if job_id is None:
            return None
        try:
            job = queries.job(connection, job_id)
        except UnreadableRecordError as error:
            leave_out(error)
            passed.append(job_id)
            continue
        connection.execute(_CLAIM, {"id_": job_id, "owner_": owner})
        return job.changed(attempt=job.attempt + 1, owner=owner)


def has_claimed(connection: Connection, job: Job) -> bool:
    """Return whether the claim that returned ``job`` was committed and holds."""
    state = _state(connection, job.id)
    return state is not None and (state.attempt, state.owner) == (job.attempt, job.owner)


def unclaim(connection: Connection, job: Job) -> None:
    """Give back a claim that nobody was told of, if it was made."""
    if has_claimed(connection, job):
        connection.execute(_RELEASE, {"id_": job.id, "attempt_": job.attempt, "forgiven_": 1})


def release(
    connection: Connection, job_id: str, attempt: int, forgiven: bool, *, again: bool
) -> None:
    """Take the job's owner away.

    :raises UnknownJobError: if it does not exist.
    :raises FencedError: if ``attempt`` is not its attempt any more or is over.
    """
    values = {"id_": job_id, "attempt_": attempt, "forgiven_": int(forgiven)}
    if connection.execute(_RELEASE, values).rowcount != 1:
        state = _known(connection, job_id)
        given_back = state.owner is None and state.finished_at is None
        if not (again and given_back and state.attempt == attempt):
            raise _fenced(job_id, state)


def append(
    connection: Connection,
    database: Database,
    fence: dict[str, Any],
    rows: Sequence[dict[str, Any]],
    outcome: Outcome,
    checkpoint: bytes | None,
    *,
    again: bool,
) -> None:
    """Move the job on, and add rows of records and the checkpoint.

    :param fence: the values of the fence.
    :raises UnknownJobError: if the job does not exist.
    :raises FencedError: if the attempt or the numbers are not the job's.
    """
    statement, values = _advance(fence, outcome)
    job_id = fence["id_"]
    if statement.run(connection, values) != 1:
        state = _known(connection, job_id)
        if again and (state.attempt, state.last_seq) == (fence["attempt_"], fence["new_"]):
            return
        raise _fenced(job_id, state)
    if rows:
        _ADD_RECORDS.run(connection, *rows)
    if checkpoint is not None:
        _put_checkpoint(connection, database, job_id, checkpoint)
    if outcome.finished_at is not None and _may_have_consumed(outcome, fence["old_"]):
        accounts.add_usage(connection, database, job_id, outcome.finished_at)


def is_whole(job: Job, attempt: int, records: Sequence[Record]) -> bool:
    """Return whether these records are all that comes of a new job, and no account uses loops."""
    outcome = outcome_of(records)
    fits = job.attempt == attempt and job.last_seq == 0 and follow_on(1, records)
    return outcome.ended and fits and not _may_have_consumed(outcome, 0)


def _may_have_consumed(outcome: Outcome, old_seq: int) -> bool:
    """Return whether it is worth a look: most jobs have no loops, and many end in one append."""
    if outcome.status != "completed":
        return False
    return old_seq > 0 or outcome.loops > 0 if outcome.consumed is None else outcome.consumed > 0


def _advance(fence: dict[str, Any], outcome: Outcome) -> tuple[Prepared, dict[str, Any]]:
    """Return the statement that moves a job on, and its values."""
    loops = {"loops_": outcome.loops, "consumed_": outcome.consumed}
    if outcome.status is not None:
        changes = {
            "status_": outcome.status,
            "finished_at_": outcome.finished_at,
            "error_code_": outcome.error_code,
            "ended_": outcome.ended,
        }
        return _ADVANCE_STATUS, {**fence, **loops, **changes}
    return (_ADVANCE_LOOPS, {**fence, **loops}) if outcome.loops else (_ADVANCE, fence)


def keep(
    connection: Connection, database: Database, fence: dict[str, Any], checkpoint: bytes | None
) -> None:
    """Store a checkpoint without records; without one only see whether that would be allowed.

    :raises UnknownJobError: if the job does not exist.
    :raises FencedError: if the attempt is not the job's.
    """
    job_id = fence["id_"]
    if connection.execute(_KEEP if checkpoint else _SEEN, fence).rowcount != 1:
        raise _fenced(job_id, _known(connection, job_id))
    if checkpoint is not None:
        _put_checkpoint(connection, database, job_id, checkpoint)


def _put_checkpoint(
    connection: Connection, database: Database, job_id: str, checkpoint: bytes
) -> None:
    adding = database.insert(checkpoints)
    connection.execute(
        adding.on_conflict_do_update(
            index_elements=[checkpoints.c.job_id], set_={"body": adding.excluded.body}
        ),
        {"job_id": job_id, "body": checkpoint},
    )


def request_cancel(connection: Connection, job_id: str) -> Job:
    """Mark the job unless it has ended, and return it.

    :raises UnknownJobError: if it does not exist.
    """
    connection.execute(_REQUEST_CANCEL, {"id_": job_id})
    return queries.job(connection, job_id)


def add_update(connection: Connection, row: dict[str, Any], *, again: bool) -> None:
    """Add an update to a job that has not ended.

    :raises UnknownJobError: if the job does not exist.
    :raises JobEndedError: if it has ended.
    """
    job_id = row["job_id"]
    # locked: it can neither end nor be removed before the update is there
    job = connection.execute(_FINISHED, {"id_": job_id}).one_or_none()
    own = updates.c.job_id == job_id
    if again and connection.execute(select(own).where(own, updates.c.id == row["id"])).first():
        return
    if job is None:
        raise UnknownJobError(job_id)
    if job.finished_at is not None:
        raise JobEndedError(f"job {job_id} has ended")
    last = connection.execute(select(func.max(updates.c.number)).where(own)).scalar() or 0
    connection.execute(updates.insert(), {**row, "number": last + 1})


def delete_jobs(connection: Connection, ids: Collection[str]) -> int:
    """Remove jobs, what follows them up and all that belongs to them; return how many there were.

    The follow-ups are looked for once their job is removed: whoever would add another one waits for
    this transaction, and then finds no job.
    """
    gone, going = 0, list(ids)
    while going:
        some, going = going[:_IDS_AT_ONCE], going[_IDS_AT_ONCE:]
        gone += _delete_alone(connection, some)
        going += connection.execute(_FOLLOW_UPS, {"ids_": some}).scalars()
    return gone


def _delete_alone(connection: Connection, ids: Sequence[str]) -> int:
    accounts.remove_sessions(connection, ids)
    # the job first: whoever appends holds its row, and finds none afterwards
    gone = connection.execute(delete(jobs).where(jobs.c.id.in_(ids))).rowcount
    for table in (records, checkpoints, requests, updates):
        connection.execute(delete(table).where(table.c.job_id.in_(ids)))
    return gone


def _state(connection: Connection, job_id: str) -> Any:
    """Return the row of :data:`_STATE`, or None."""
    return connection.execute(_STATE, {"id_": job_id}).one_or_none()


def _known(connection: Connection, job_id: str) -> Any:
    state = _state(connection, job_id)
    if state is None:
        raise UnknownJobError(job_id)
    return state


def _fenced(job_id: str, state: Any) -> FencedError:
    return FencedError(
        f"job {job_id} is at attempt {state.attempt}, seq {state.last_seq}, owner {state.owner}"
    )
