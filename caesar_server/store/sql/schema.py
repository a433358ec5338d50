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
REVISION = "0003"

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
    Column("kind", Text, nullable=False, server_default="completion"),
    Column("api_version", Text),
    Column("parent_id", _Id),
    Column("session_id", _Id),
    Column("loops", BigInteger, nullable=False, server_default="0"),
)
_unfinished = jobs.c.finished_at.is_(None)
_finished = jobs.c.finished_at.is_not(None)
Index("caesar_jobs_by_moment", jobs.c.created_at, jobs.c.id)
Index("caesar_jobs_by_account", jobs.c.account, jobs.c.created_at, jobs.c.id)
Index(
    "caesar_jobs_by_account_kind",
    jobs.c.account,
    jobs.c.kind,
    jobs.c.created_at,
    jobs.c.id,
)
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
#: What the limits of an account are about.
Index(
    "caesar_jobs_unfinished_by_account",
    jobs.c.account,
    jobs.c.kind,
    # always NULL, likewise
    jobs.c.finished_at,
    sqlite_where=_unfinished,
    postgresql_where=_unfinished,
)
Index(
    "caesar_jobs_by_parent",
    jobs.c.parent_id,
    jobs.c.created_at,
    jobs.c.id,
    sqlite_where=jobs.c.parent_id.is_not(None),
    postgresql_where=jobs.c.parent_id.is_not(None),
)
Index(
    "caesar_jobs_by_session",
    jobs.c.session_id,
    unique=True,
    sqlite_where=jobs.c.session_id.is_not(None),
    postgresql_where=jobs.c.session_id.is_not(None),
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

#: In ``caesar_records.bulk``: all of a row's events are of ``BULK_EVENTS``, or some may be, as in
#: rows of before revision 0002.  Nearly all rows hold none and say NULL.
BULK_ONLY = "only"
BULK_MAYBE = "maybe"

#: One row a batch: the records ``first_seq`` to ``last_seq``.
records = Table(
    "caesar_records",
    metadata,
    Column("job_id", _Id, primary_key=True),
    Column("last_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("bulk", Text, server_default=BULK_MAYBE),
)
#: So that rows are chosen by ``bulk`` without a look at what they hold: in SQLite the column lies
#: behind the body, perhaps megabytes away.
Index(
    "caesar_records_bulk",
    records.c.job_id,
    records.c.last_seq,
    records.c.bulk,
    sqlite_where=records.c.bulk.is_not(None),
    postgresql_where=records.c.bulk.is_not(None),
)

#: What was sent to running jobs; numbers rise within a job.
updates = Table(
    "caesar_updates",
    metadata,
    Column("job_id", _Id, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("id", _Id, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

#: Reasoning loops of the jobs of an account that were completed in a month (``YYYY-MM``, UTC).
usage = Table(
    "caesar_usage",
    metadata,
    Column("account", Text, primary_key=True),
    Column("month", Text, primary_key=True),
    Column("loops", BigInteger, nullable=False),
)

#: Names and the like stand in a body, for the reason that requests do.
files = Table(
    "caesar_files",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("account", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("collection_id", _Id),
    Column("body", LargeBinary, nullable=False),
)
Index("caesar_files_by_account", files.c.account, files.c.created_at, files.c.id)
#: From this one the sizes are summed up too.
Index("caesar_files_by_bytes", files.c.account, files.c.sha256, files.c.size)
Index("caesar_files_by_key", files.c.key)
Index(
    "caesar_files_by_collection",
    files.c.collection_id,
    files.c.created_at,
    files.c.id,
    sqlite_where=files.c.collection_id.is_not(None),
    postgresql_where=files.c.collection_id.is_not(None),
)

collections = Table(
    "caesar_collections",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("account", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
Index(
    "caesar_collections_by_account",
    collections.c.account,
    collections.c.created_at,
    collections.c.id,
)

sessions = Table(
    "caesar_sessions",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("account", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
Index("caesar_sessions_by_moment", sessions.c.created_at)

#: Valid from ``begins_at`` to ``ends_at`` on the clock of ``boot_id``.  ``backends`` is a JSON list
#: of those whose jobs the process would claim; one of before revision 0003 leaves it NULL.
leases = Table(
    "caesar_leases",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("boot_id", Text, nullable=False),
    Column("begins_at", Double, nullable=False),
    Column("ends_at", Double, nullable=False),
    Column("backends", Text),
)

#: Which migration was the last one; Alembic's own table, under a name that no other has.
VERSION_TABLE = "caesar_revision"
