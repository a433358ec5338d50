"""What the store takes with 1,000 and with 1,000,000 finished jobs in it.

Run it from the repository's root::

    python benchmarks/stored_jobs.py [--jobs 1000,1000000] [--store postgresql://USER@HOST/DATABASE]

Without ``--store`` it is a new SQLite file in a temporary folder.  A database that is named must
be an empty one: its tables are made before and dropped at the end.

Each line is the median of 200 calls in microseconds; those of a column should not grow with the
number of jobs.  ``prune`` looks for jobs beyond the newest half, and removes none.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import Connection, insert

from caesar_server.contract import Completed, CompletionRequest, ContentDelta
from caesar_server.settings import Settings
from caesar_server.store.base import Job, Record, Store
from caesar_server.store.opening import database_of, open_store, prepare_store
from caesar_server.store.sql.database import Database
from caesar_server.store.sql.revisions import downgrade
from caesar_server.store.sql.rows import job_values, record_rows, request_body
from caesar_server.store.sql.schema import jobs, records, requests

CALLS = 200
AT_ONCE = 5000
ACCOUNTS = 20
RUNNING = 50
EVENTS = [Record(seq, float(seq), ContentDelta("some words ")) for seq in range(1, 20)]


def finished(number: int) -> Job:
    """Return the job with this number."""
    failed = number % 1000 == 0
    return Job(
        id=str(uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)),
        created_at=1e9 + number,
        model="words",
        backend="rare" if number % 500 == 0 else "words",
        request=CompletionRequest(prompts=("p" * 200,)),
        account=f"account{number % ACCOUNTS}",
        status="failed" if failed else "completed",
        fingerprint=str(number),
        attempt=1,
        last_seq=20,
        finished_at=1e9 + number + 0.5,
        error_code="x" if failed else None,
    )


def fill(database: Database, count: int) -> None:
    """Store finished jobs, many at once."""
    engine = database.writing_engine()
    for first in range(0, count, AT_ONCE):
        some = [finished(number) for number in range(first, min(count, first + AT_ONCE))]
        with engine.begin() as connection:
            _add(connection, some)
    with engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE" if database.skips_locked else "SELECT 1")
        connection.commit()
    engine.dispose()


def _add(connection: Connection, some: list[Job]) -> None:
    connection.execute(insert(jobs), [job_values(job) for job in some])
    connection.execute(
        insert(requests), [{"job_id": job.id, "body": request_body(job)} for job in some]
    )
    events = [*EVENTS, Record(20, 20.0, Completed())]
    connection.execute(
        insert(records), [row for job in some for row in record_rows(job.id, events)]
    )


def median_us(call: Callable[[int], object]) -> float:
    """Return what a call takes."""
    took = []
    for number in range(CALLS):
        began = time.perf_counter()
        call(number)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def measured(store: Store, count: int) -> Iterator[tuple[str, float]]:
    """Yield what was called, and how long it took."""
    store.renew("me", 3600)
    for number in range(RUNNING):
        store.create(new(f"running{number}", owner="me", attempt=1))
    middle = finished(count // 2)
    before = (middle.created_at, middle.id)
    rare = {"statuses": ["failed"]}
    yield "job", median_us(lambda n: store.job(finished(n * 7919 % count).id))
    yield "records", median_us(lambda n: store.records(finished(n * 7919 % count).id))
    yield "jobs", median_us(lambda _: store.jobs())
    yield "jobs of a page in the middle", median_us(lambda _: store.jobs(before=before))
    yield "jobs of an account", median_us(lambda n: store.jobs(account=f"account{n % ACCOUNTS}"))
    yield "jobs that failed", median_us(lambda _: store.jobs(**rare))
    yield (
        "jobs of an account that failed",
        median_us(lambda n: store.jobs(account="account0", **rare)),
    )
    yield "jobs that ended", median_us(lambda _: store.jobs(statuses=["completed", "failed"]))
    yield "jobs that run", median_us(lambda _: store.jobs(statuses=["queued", "searching"]))
    yield "jobs of a rare backend", median_us(lambda _: store.jobs(backend="rare"))
    yield "find", median_us(lambda n: store.find(f"account{n % ACCOUNTS}", str(n)))
    yield "find nothing", median_us(lambda n: store.find("account1", f"none{n}"))
    yield (
        "positions of 50",
        median_us(lambda _: store.positions([f"running{n}" for n in range(RUNNING)])),
    )
    yield "waiting", median_us(lambda _: store.waiting(limit=1000))
    yield "cancel_requests", median_us(lambda _: store.cancel_requests("me"))
    yield "lost", median_us(lambda _: store.lost())
    yield "claim_next in vain", median_us(lambda _: store.claim_next("me", ["words"]))
    yield "create", median_us(lambda n: store.create(new(f"new{n}", detached=True)))
    yield "claim_next", median_us(lambda _: store.claim_next("me", ["words"]))
    yield (
        "append 20 and end",
        median_us(lambda n: store.append(f"new{n}", 1, [*EVENTS, Record(20, 2e9, Completed())])),
    )
    yield "renew", median_us(lambda _: store.renew("me", 3600))
    yield "prune", median_us(lambda _: store.prune(finished_before=1.0, keep=2 * count))
    yield "delete", median_us(lambda n: store.delete(f"new{n}"))


def new(id: str, **fields: object) -> Job:
    """Return a job that has not begun."""
    request = CompletionRequest(prompts=("p",))
    values = {"created_at": time.time(), "model": "words", "backend": "words", "request": request}
    return Job(id=id, **{**values, **fields})  # type: ignore[arg-type]


def column(url: str, count: int) -> dict[str, float]:
    """Fill a store, measure it, and drop its tables."""
    settings = Settings(store=url)
    prepare_store(settings)
    database = database_of(settings)
    assert database is not None
    fill(database, count)
    store = open_store(settings)
    try:
        return dict(measured(store, count))
    finally:
        store.close()
        downgrade(database, "base")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default="1000,1000000")
    parser.add_argument("--store")
    given = parser.parse_args()
    counts = [int(count) for count in given.jobs.split(",")]
    columns = []
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            url = given.store or f"sqlite:///{Path(folder) / 'jobs.sqlite3'}"
            columns.append(column(url, count))
    print(f"{'us a call':32}" + "".join(f"{count:>12,}" for count in counts))
    for name in columns[0]:
        print(f"{name:32}" + "".join(f"{values[name]:12.0f}" for values in columns))


if __name__ == "__main__":
    main()
