"""Checks of a store: chains are intact, and rows agree with the events.

Events are replayed, and every row of studies, roles, members and uploads is compared with the
result; bytes and signatures of uploads are checked again. Hashes of tokens are in no event. A chain
that was rewritten as a whole, with all rows, is detected by members who have pulled it before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from privsketch._base.errors import FileError, PrivsketchError
from privsketch._base.formats import document_content, fingerprint
from privsketch.signing.keys import PublicKey
from privsketch.signing.signature import Signature
from privsketch_studies.collector import events as acts
from privsketch_studies.collector.chain import START, Event, require_chain
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import (
    COLLECTOR,
    chains,
    claims,
    events,
    members,
    roles,
    studies,
    uploads,
)


@dataclass(frozen=True)
class Verified:
    """Numbers of chains, events and uploads that a check has covered."""

    n_chains: int
    n_events: int
    n_uploads: int


@dataclass
class _Expected:
    """Rows that follow from the events of one chain."""

    study: dict[str, Any] = field(default_factory=dict)
    roles: set[tuple[str, str]] = field(default_factory=set)
    uploads: dict[str, dict[str, Any]] = field(default_factory=dict)
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    studies: set[str] = field(default_factory=set)

    def follow(self, chain: str, event: Event) -> None:
        """Apply an event."""
        facts, act = event.facts, event.act
        if chain == COLLECTOR:
            self._follow_collector(event)
        elif act == acts.MADE_STUDY:
            names = ("title", "design", "sealed", "last_day")
            self.study = {name: facts.get(name) for name in names} | {"closed_at": None}
            self.roles.add((str(facts.get("owner")), "owner"))
        elif act == acts.CLOSED_STUDY:
            self.study["closed_at"] = event.at
        elif act == acts.GAVE_ROLES:
            self.roles |= {(facts["member"], role) for role in facts["roles"]}
        elif act == acts.TOOK_ROLES:
            self.roles -= {(facts["member"], role) for role in facts["roles"]}
        elif act == acts.UPLOADED:
            fields = {"number": event.number, "at": event.at, "member": event.member}
            fields |= {name: facts.get(name) for name in ("kind", "whose", "n_bytes", "signer")}
            self.uploads[str(facts.get("digest"))] = {**fields, "aside_at": None, "because": None}
        elif act == acts.SET_ASIDE:
            fields = {"aside_at": event.at, "because": facts.get("because")}
            self.uploads[str(facts.get("digest"))] |= fields

    def _follow_collector(self, event: Event) -> None:
        facts, act = event.facts, event.act
        name = str(facts.get("member"))
        if act == acts.MADE_MEMBER:
            fields = {"makes": facts.get("makes"), "key": facts.get("key")}
            self.members[name] = {**fields, "made_by": event.member, "is_revoked": False}
        elif act in (acts.RENEWED, acts.REVOKED):
            self.members[name]["is_revoked"] = act == acts.REVOKED
        elif act == acts.MADE_STUDY:
            self.studies.add(str(facts.get("study")))


def verify_store(store: Store) -> Verified:
    """Check that all chains are intact and that all rows agree with them."""
    n_events = n_uploads = 0
    with store.reading() as connection:
        ends = connection.execute(select(chains)).mappings().all()
        names = {str(end["study"]) for end in ends} - {COLLECTOR}
        rows = set(connection.execute(select(studies.c.name)).scalars())
        for end in ends:
            chain = str(end["study"])
            expected, n_seen = _replayed(connection, end)
            n_events += n_seen
            if chain == COLLECTOR:
                _require_equal(names, expected.studies, "the collector", "studies")
                _require_equal(rows, expected.studies, "the collector", "studies")
                _require_members(connection, expected)
            else:
                _require_study(connection, chain, expected)
                n_uploads += _require_uploads(connection, chain, expected)
        if COLLECTOR not in {str(end["study"]) for end in ends}:
            raise FileError("events of the collector: there are none")
    return Verified(len(ends), n_events, n_uploads)


def _replayed(connection: Connection, end: Mapping[Any, Any]) -> tuple[_Expected, int]:
    """Return the rows that follow from a chain, and its length; refuse one that is not intact."""
    chain, expected, n_seen, previous = str(end["study"]), _Expected(), 0, START
    query = select(events).where(events.c.study == chain).order_by(events.c.number)
    for row in connection.execution_options(yield_per=500).execute(query).mappings():
        event = acts.event_of(row)
        previous = require_chain(chain, [event], previous=previous, after=n_seen)
        n_seen += 1
        try:
            expected.follow(chain, event)
        except (KeyError, TypeError):
            raise FileError(
                f"events of {chain or 'the collector'}: number {n_seen} does not follow"
            ) from None
    if (n_seen, previous) != (end["n_events"], end["head"]):
        raise FileError(f"events of {chain or 'the collector'}: the end was cut off")
    return expected, n_seen


def _require_study(connection: Connection, name: str, expected: _Expected) -> None:
    """Refuse a study whose rows disagree with its events."""
    row = connection.execute(select(studies).where(studies.c.name == name)).mappings().first()
    if row is None:
        raise FileError(f"study {name}: missing")
    design = fingerprint(document_content(row["design"], "design", f"study {name}"))
    is_now = {"title": row["title"], "design": design, "sealed": row["is_sealed"]}
    is_now |= {"last_day": row["last_day"], "closed_at": row["closed_at"]}
    _require_equal(is_now, expected.study, f"study {name}", "its facts")
    _require_equal(row["fingerprint"], design, f"study {name}", "its design")
    query = select(roles.c.member, roles.c.role).where(roles.c.study == name)
    current = {(str(row.member), str(row.role)) for row in connection.execute(query)}
    _require_equal(current, expected.roles, f"study {name}", "roles")


def _require_members(connection: Connection, expected: _Expected) -> None:
    """Refuse rows of members that disagree with the events."""
    current = {}
    for row in connection.execute(select(members)).mappings():
        try:
            key = None if row["key"] is None else PublicKey.from_bytes(row["key"]).fingerprint
        except PrivsketchError:
            raise FileError("members: a key was altered") from None
        is_now = {"makes": row["makes_studies"], "key": key, "made_by": row["made_by"]}
        current[row["name"]] = {**is_now, "is_revoked": row["revoked_at"] is not None}
        if row["revoked_at"] is not None and row["token_hash"] is not None:
            raise FileError("members: a revoked token is present")
    _require_equal(current, expected.members, "the collector", "members")


def _require_uploads(connection: Connection, study: str, expected: _Expected) -> int:
    """Return the number of uploads; refuse any that disagrees with its event."""
    query = select(claims.c.digest, func.count()).where(claims.c.study == study)
    claimed = {str(row[0]): int(row[1]) for row in connection.execute(query.group_by("digest"))}
    waiting = dict(expected.uploads)
    rows = select(uploads).where(uploads.c.study == study)
    for row in connection.execution_options(yield_per=50).execute(rows).mappings():
        digest, content = str(row["digest"]), row["content"]
        what = f"study {study}: upload {digest[:16]}"
        if hashlib.sha256(content).hexdigest() != digest or len(content) != row["n_bytes"]:
            raise FileError(f"{what}: its bytes were altered")
        names = ("number", "at", "member", "kind", "whose", "n_bytes", "signer", "aside_at")
        is_now = {name: row[name] for name in names} | {"because": row["aside_because"]}
        if waiting.pop(digest, None) != is_now:
            raise FileError(f"{what}: it has no event, or another")
        if (claimed.get(digest, 0) > 0) != (row["aside_at"] is None):
            raise FileError(f"{what}: whether it counts was altered")
        if row["signature"] is not None or (row["kind"] == "sketch" and row["signer"] is not None):
            _require_signed(row, what)
    if waiting:
        raise FileError(f"study {study}: upload {next(iter(waiting))[:16]} is missing")
    return len(expected.uploads)


def _require_signed(row: Mapping[Any, Any], what: str) -> None:
    try:
        signature = Signature.from_bytes(row["signature"] or b"")
    except PrivsketchError:
        raise FileError(f"{what}: its signature was altered") from None
    if not signature.fits(row["content"]) or signature.fingerprint != row["signer"]:
        raise FileError(f"{what}: its signature was altered")


def _require_equal(current: object, expected: object, owner: str, what: str) -> None:
    if current != expected:
        raise FileError(f"{owner}: {what} disagree with the events; rows were altered")
