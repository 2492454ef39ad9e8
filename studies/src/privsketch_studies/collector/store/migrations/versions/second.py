"""The table of sessions at the pages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "sessions",
        sa.Column("session_hash", sa.String(64), primary_key=True),
        sa.Column("member", sa.String(100), sa.ForeignKey("members.name"), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("ends_at", sa.BigInteger, nullable=False),
        sa.Index("sessions_of_member", "member"),
    )
