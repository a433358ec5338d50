"""Jobs, their requests, records and checkpoints, and leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_Id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "caesar_jobs",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("backend", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("timeout_s", sa.Double),
        sa.Column("detached", sa.Boolean, nullable=False),
        sa.Column("durable", sa.Boolean, nullable=False),
        sa.Column("fingerprint", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("released", sa.Integer, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("checkpoint_seq", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.Column("error_code", sa.Text),
    )
    _make_indices()
    for table in ("caesar_requests", "caesar_checkpoints"):
        op.create_table(
            table,
            sa.Column("job_id", _Id, primary_key=True),
            sa.Column("body", sa.LargeBinary, nullable=False),
        )
    op.create_table(
        "caesar_records",
        sa.Column("job_id", _Id, primary_key=True),
        sa.Column("last_seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "caesar_leases",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("boot_id", sa.Text, nullable=False),
        sa.Column("begins_at", sa.Double, nullable=False),
        sa.Column("ends_at", sa.Double, nullable=False),
    )


def _make_indices() -> None:
    for name, *columns in (
        ("moment", "created_at", "id"),
        ("account", "account", "created_at", "id"),
        ("status", "status", "created_at", "id"),
        ("account_status", "account", "status", "created_at", "id"),
        ("backend", "backend", "created_at", "id"),
    ):
        op.create_index(f"caesar_jobs_by_{name}", "caesar_jobs", columns)
    for name, where, *columns in (
        (
            "by_fingerprint",
            "fingerprint IS NOT NULL",
            "account",
            "fingerprint",
            "created_at",
            "id",
        ),
        (
            "unfinished",
            "finished_at IS NULL",
            "created_at",
            "id",
            "owner",
            "detached",
            "backend",
            "finished_at",
        ),
        ("finished", "finished_at IS NOT NULL", "finished_at", "id"),
    ):
        op.create_index(
            f"caesar_jobs_{name}",
            "caesar_jobs",
            columns,
            sqlite_where=sa.text(where),
            postgresql_where=sa.text(where),
        )


def downgrade() -> None:
    """Drop the tables, with all jobs."""
    for table in ("leases", "records", "checkpoints", "requests", "jobs"):
        op.drop_table(f"caesar_{table}")
