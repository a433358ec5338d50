"""Leases say which backends their processes have."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; processes of earlier versions go on without it."""
    op.add_column("caesar_leases", sa.Column("backends", sa.Text))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("caesar_leases", "backends")
