"""Tables of a collector. Primary keys are names and digests, never numbers of the database.

`uploads` has the bytes themselves, so that a row and its bytes are stored together or not at all.
`claims` has a row for everything that a study may have once: a member's sketch, a source, a
holder's ballot. The primary key decides which upload comes first, without a query beforehand.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

METADATA = MetaData()
REVISION = "2"  # revision of the newest migration
COLLECTOR = ""  # name of the chain of events without a study

studies = Table(
    "studies",
    METADATA,
    Column("name", String(60), primary_key=True),
    Column("title", String(200), nullable=False),
    Column("design", LargeBinary, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("is_sealed", Boolean, nullable=False),
    Column("last_day", String(10)),
    Column("made_at", BigInteger, nullable=False),  # milliseconds since 1970, UTC, as all times
    Column("closed_at", BigInteger),
)

members = Table(
    "members",
    METADATA,
    Column("name", String(100), primary_key=True),
    Column("alike", String(200), nullable=False, unique=True),
    Column("token_hash", String(64), unique=True),
    Column("key", LargeBinary),
    Column("makes_studies", Boolean, nullable=False),
    Column("made_by", String(100)),
    Column("made_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
)

roles = Table(
    "roles",
    METADATA,
    Column("study", String(60), ForeignKey("studies.name"), primary_key=True),
    Column("member", String(100), ForeignKey("members.name"), primary_key=True),
    Column("role", String(10), primary_key=True),
    Index("roles_of_member", "member"),
)

uploads = Table(
    "uploads",
    METADATA,
    Column("study", String(60), ForeignKey("studies.name"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("number", Integer, nullable=False),  # of its event
    Column("kind", String(10), nullable=False),
    Column("member", String(100), ForeignKey("members.name"), nullable=False),
    Column("whose", String(400), nullable=False),
    Column("signer", String(32)),
    Column("n_bytes", Integer, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("signature", LargeBinary),
    Column("at", BigInteger, nullable=False),
    Column("aside_at", BigInteger),
    Column("aside_because", String(400)),
    Index("uploads_in_order", "study", "number", unique=True),
)

claims = Table(
    "claims",
    METADATA,
    Column("study", String(60), primary_key=True),
    Column("claim", String(500), primary_key=True),
    Column("digest", String(64), nullable=False),
    ForeignKeyConstraint(["study", "digest"], ["uploads.study", "uploads.digest"]),
)

chains = Table(
    "chains",
    METADATA,
    Column("study", String(60), primary_key=True),
    Column("n_events", Integer, nullable=False),
    Column("head", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
)

events = Table(
    "events",
    METADATA,
    Column("study", String(60), ForeignKey("chains.study"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("member", String(100)),  # None: someone at the machine itself
    Column("act", String(40), nullable=False),
    Column("facts", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
)

sessions = Table(
    "sessions",
    METADATA,
    Column("session_hash", String(64), primary_key=True),
    Column("member", String(100), ForeignKey("members.name"), nullable=False),
    Column("token_hash", String(64), nullable=False),  # of the token that it began with
    Column("ends_at", BigInteger, nullable=False),
    Index("sessions_of_member", "member"),
)
