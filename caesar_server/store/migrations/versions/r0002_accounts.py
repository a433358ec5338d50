"""Kinds of jobs, follow-ups, updates, what accounts consumed; files, collections and sessions."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_Id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
#: Requests that are read at once; each may be megabytes.
_AT_ONCE = 100


def upgrade() -> None:
    """Add columns and tables, and tell each job's kind from its request."""
    for column in (
        sa.Column("kind", sa.Text, nullable=False, server_default="completion"),
        sa.Column("api_version", sa.Text),
        sa.Column("parent_id", _Id),
        sa.Column("session_id", _Id),
        sa.Column("loops", sa.BigInteger, nullable=False, server_default="0"),
    ):
        op.add_column("caesar_jobs", column)
    _fill_kinds(op.get_bind())
    _make_indices_of_jobs()
    # rows that are there may hold anything
    op.add_column("caesar_records", sa.Column("bulk", sa.Text, server_default="maybe"))
    _make_partial("caesar_records", "bulk", "bulk IS NOT NULL", "job_id", "last_seq", "bulk")
    _make_tables_of_jobs()
    _make_files()
    _make_collections_and_sessions()


def _fill_kinds(connection: sa.Connection) -> None:
    requests = sa.table("caesar_requests", sa.column("job_id", _Id), sa.column("body"))
    jobs = sa.table("caesar_jobs", sa.column("id", _Id), sa.column("kind"))
    page = sa.select(requests).order_by(requests.c.job_id).limit(_AT_ONCE)
    put = (
        sa.update(jobs)
        .where(jobs.c.id == sa.bindparam("job_id"))
        .values(kind=sa.bindparam("its_kind"))
    )
    rows = connection.execute(page).all()
    while rows:
        kinds = [(row.job_id, _kind(row.body)) for row in rows]
        # the others have the column's default
        told = [{"job_id": id, "its_kind": kind} for id, kind in kinds if kind != "completion"]
        if told:
            connection.execute(put, told)
        rows = connection.execute(page.where(requests.c.job_id > rows[-1].job_id)).all()


def _kind(body: bytes) -> str:
    """Return what kind of request a body holds; one that cannot be read counts as the first."""
    try:
        kind = json.loads(body)["request"]["type"]
    except (ValueError, LookupError, TypeError):
        return "completion"
    return kind if isinstance(kind, str) else "completion"


def _make_indices_of_jobs() -> None:
    columns = ["account", "kind", "created_at", "id"]
    op.create_index("caesar_jobs_by_account_kind", "caesar_jobs", columns)
    unfinished = "finished_at IS NULL"
    _make_partial(
        "caesar_jobs", "unfinished_by_account", unfinished, "account", "kind", "finished_at"
    )
    parent = "parent_id IS NOT NULL"
    _make_partial("caesar_jobs", "by_parent", parent, "parent_id", "created_at", "id")
    session = "session_id IS NOT NULL"
    _make_partial("caesar_jobs", "by_session", session, "session_id", unique=True)


def _make_partial(table: str, name: str, where: str, *columns: str, unique: bool = False) -> None:
    op.create_index(
        f"{table}_{name}",
        table,
        columns,
        unique=unique,
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )


def _make_tables_of_jobs() -> None:
    op.create_table(
        "caesar_updates",
        sa.Column("job_id", _Id, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", _Id, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "caesar_usage",
        sa.Column("account", sa.Text, primary_key=True),
        sa.Column("month", sa.Text, primary_key=True),
        sa.Column("loops", sa.BigInteger, nullable=False),
    )


def _make_files() -> None:
    op.create_table(
        "caesar_files",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("collection_id", _Id),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    for name, *columns in (
        ("account", "account", "created_at", "id"),
        ("bytes", "account", "sha256", "size"),
        ("key", "key"),
    ):
        op.create_index(f"caesar_files_by_{name}", "caesar_files", columns)
    where = "collection_id IS NOT NULL"
    _make_partial("caesar_files", "by_collection", where, "collection_id", "created_at", "id")


def _make_collections_and_sessions() -> None:
    op.create_table(
        "caesar_collections",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    columns = ["account", "created_at", "id"]
    op.create_index("caesar_collections_by_account", "caesar_collections", columns)
    op.create_table(
        "caesar_sessions",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("caesar_sessions_by_moment", "caesar_sessions", ["created_at"])


def downgrade() -> None:
    """Drop what was added, with all files, collections, sessions, updates and counts."""
    for table in ("sessions", "collections", "files", "usage", "updates"):
        op.drop_table(f"caesar_{table}")
    op.drop_index("caesar_records_bulk", "caesar_records")
    op.drop_column("caesar_records", "bulk")
    for index in ("by_session", "by_parent", "unfinished_by_account", "by_account_kind"):
        op.drop_index(f"caesar_jobs_{index}", "caesar_jobs")
    for column in ("loops", "session_id", "parent_id", "api_version", "kind"):
        op.drop_column("caesar_jobs", column)
