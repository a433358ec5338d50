"""The tables, as the newest migration leaves them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

#: The revision that this version of the server works with.
REVISION = "0001"

metadata = MetaData()

#: Compared byte by byte, whatever the database's language: pages are cut by it.
_Id = Text().with_variant(Text(collation="C"), "postgresql")

#: One narrow row a job: it is written anew with each batch of records, so what is large stands
#: elsewhere.
jobs = Table(
    "caesar_jobs",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("account", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("timeout_s", Double),
    Column("detached", Boolean, nullable=False),
    Column("durable", Boolean, nullable=False),
    Column("fingerprint", Text),
    Column("attempt", Integer, nullable=False),
    Column("released", Integer, nullable=False),
    Column("owner", Text),
    Column("cancel_requested", Boolean, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("checkpoint_seq", BigInteger, nullable=False),
    Column("finished_at", Double),
    Column("error_code", Text),
)
_unfinished = jobs.c.finished_at.is_(None)
_finished = jobs.c.finished_at.is_not(None)
Index("caesar_jobs_by_moment", jobs.c.created_at, jobs.c.id)
Index("caesar_jobs_by_account", jobs.c.account, jobs.c.created_at, jobs.c.id)
Index("caesar_jobs_by_status", jobs.c.status, jobs.c.created_at, jobs.c.id)
Index(
    "caesar_jobs_by_account_status",
    jobs.c.account,
    jobs.c.status,
    jobs.c.created_at,
    jobs.c.id,
)
Index("caesar_jobs_by_backend", jobs.c.backend, jobs.c.created_at, jobs.c.id)
Index(
    "caesar_jobs_by_fingerprint",
    jobs.c.account,
    jobs.c.fingerprint,
    jobs.c.created_at,
    jobs.c.id,
    sqlite_where=jobs.c.fingerprint.is_not(None),
    postgresql_where=jobs.c.fingerprint.is_not(None),
)
#: What waits or runs is always little, however many jobs are stored; and this index alone tells
#: what may be claimed.
Index(
    "caesar_jobs_unfinished",
    jobs.c.created_at,
    jobs.c.id,
    jobs.c.owner,
    jobs.c.detached,
    jobs.c.backend,
    # always NULL; without it SQLite would look into each row
    jobs.c.finished_at,
    sqlite_where=_unfinished,
    postgresql_where=_unfinished,
)
Index(
    "caesar_jobs_finished",
    jobs.c.finished_at,
    jobs.c.id,
    sqlite_where=_finished,
    postgresql_where=_finished,
)

#: The request, and the names that the client chose: a client may send what is no text for a
#: database, such as a NUL or half a character.
requests = Table(
    "caesar_requests",
    metadata,
    Column("job_id", _Id, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

checkpoints = Table(
    "caesar_checkpoints",
    metadata,
    Column("job_id", _Id, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

#: One row a batch: the records ``first_seq`` to ``last_seq``.
records = Table(
    "caesar_records",
    metadata,
    Column("job_id", _Id, primary_key=True),
    Column("last_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

#: Valid from ``begins_at`` to ``ends_at`` on the clock of ``boot_id``.
leases = Table(
    "caesar_leases",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("boot_id", Text, nullable=False),
    Column("begins_at", Double, nullable=False),
    Column("ends_at", Double, nullable=False),
)

#: Which migration was the last one; Alembic's own table, under a name that no other has.
VERSION_TABLE = "caesar_revision"
