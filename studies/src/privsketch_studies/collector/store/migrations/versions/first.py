"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "studies",
        sa.Column("name", sa.String(60), primary_key=True),
        sa.Column("title", sa.String(200), nullable=False),
        sa.Column("design", sa.LargeBinary, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("is_sealed", sa.Boolean, nullable=False),
        sa.Column("last_day", sa.String(10)),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("closed_at", sa.BigInteger),
    )
    op.create_table(
        "members",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("alike", sa.String(200), nullable=False, unique=True),
        sa.Column("token_hash", sa.String(64), unique=True),
        sa.Column("key", sa.LargeBinary),
        sa.Column("makes_studies", sa.Boolean, nullable=False),
        sa.Column("made_by", sa.String(100)),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
    )
    op.create_table(
        "roles",
        sa.Column("study", sa.String(60), sa.ForeignKey("studies.name"), primary_key=True),
        sa.Column("member", sa.String(100), sa.ForeignKey("members.name"), primary_key=True),
        sa.Column("role", sa.String(10), primary_key=True),
    )
    op.create_index("roles_of_member", "roles", ["member"])
    op.create_table(
        "uploads",
        sa.Column("study", sa.String(60), sa.ForeignKey("studies.name"), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("member", sa.String(100), sa.ForeignKey("members.name"), nullable=False),
        sa.Column("whose", sa.String(400), nullable=False),
        sa.Column("signer", sa.String(32)),
        sa.Column("n_bytes", sa.Integer, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("aside_at", sa.BigInteger),
        sa.Column("aside_because", sa.String(400)),
    )
    op.create_index("uploads_in_order", "uploads", ["study", "number"], unique=True)
    op.create_table(
        "claims",
        sa.Column("study", sa.String(60), primary_key=True),
        sa.Column("claim", sa.String(500), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["study", "digest"], ["uploads.study", "uploads.digest"]),
    )
    chains = op.create_table(
        "chains",
        sa.Column("study", sa.String(60), primary_key=True),
        sa.Column("n_events", sa.Integer, nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("study", sa.String(60), sa.ForeignKey("chains.study"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("member", sa.String(100)),
        sa.Column("act", sa.String(40), nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    # The chain of events without a study exists from the start.
    op.bulk_insert(chains, [{"study": "", "n_events": 0, "head": "0" * 64, "at": 0}])
