"""A store against its events: chains are whole, and rows are what events say they are.

Events are replayed, and every row of studies, roles, members and uploads is compared with what they
lead to; bytes and signatures of uploads are looked at again. Hashes of tokens are in no event.
Whoever rewrites a whole chain with all rows is found out by those who have pulled it before.
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
    """What a check of a store has seen, in numbers."""

    n_chains: int
    n_events: int
    n_uploads: int


@dataclass
class _Told:
    """What the events of one chain lead to."""

    study: dict[str, Any] = field(default_factory=dict)
    roles: set[tuple[str, str]] = field(default_factory=set)
    uploads: dict[str, dict[str, Any]] = field(default_factory=dict)
    members: dict[str, dict[str, Any]] = field(default_factory=dict)
    studies: set[str] = field(default_factory=set)

    def follow(self, chain: str, event: Event) -> None:
        """What one event changes."""
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
            told = {"number": event.number, "at": event.at, "member": event.member}
            told |= {name: facts.get(name) for name in ("kind", "whose", "n_bytes", "signer")}
            self.uploads[str(facts.get("digest"))] = {**told, "aside_at": None, "because": None}
        elif act == acts.SET_ASIDE:
            told = {"aside_at": event.at, "because": facts.get("because")}
            self.uploads[str(facts.get("digest"))] |= told

    def _follow_collector(self, event: Event) -> None:
        facts, act = event.facts, event.act
        name = str(facts.get("member"))
        if act == acts.MADE_MEMBER:
            told = {"makes": facts.get("makes"), "key": facts.get("key")}
            self.members[name] = {**told, "made_by": event.member, "is_revoked": False}
        elif act in (acts.RENEWED, acts.REVOKED):
            self.members[name]["is_revoked"] = act == acts.REVOKED
        elif act == acts.MADE_STUDY:
            self.studies.add(str(facts.get("study")))


def verify_store(store: Store) -> Verified:
    """Check all chains, and that all rows are what events tell; an error if not."""
    n_events = n_uploads = 0
    with store.reading() as connection:
        ends = connection.execute(select(chains)).mappings().all()
        names = {str(end["study"]) for end in ends} - {COLLECTOR}
        found = set(connection.execute(select(studies.c.name)).scalars())
        for end in ends:
            chain = str(end["study"])
            told, seen = _replayed(connection, end)
            n_events += seen
            if chain == COLLECTOR:
                _require_equal(names, told.studies, "the collector", "studies")
                _require_equal(found, told.studies, "the collector", "studies")
                _require_members(connection, told)
            else:
                _require_study(connection, chain, told)
                n_uploads += _require_uploads(connection, chain, told)
        if COLLECTOR not in {str(end["study"]) for end in ends}:
            raise FileError("events of the collector: there are none")
    return Verified(len(ends), n_events, n_uploads)


def _replayed(connection: Connection, end: Mapping[Any, Any]) -> tuple[_Told, int]:
    """What a chain leads to, and how many events it has; an error unless it is whole."""
    chain, told, seen, previous = str(end["study"]), _Told(), 0, START
    query = select(events).where(events.c.study == chain).order_by(events.c.number)
    for row in connection.execution_options(yield_per=500).execute(query).mappings():
        event = acts.event_of(row)
        previous = require_chain(chain, [event], previous=previous, after=seen)
        seen += 1
        try:
            told.follow(chain, event)
        except (KeyError, TypeError):
            raise FileError(
                f"events of {chain or 'the collector'}: number {seen} does not follow"
            ) from None
    if (seen, previous) != (end["n_events"], end["head"]):
        raise FileError(f"events of {chain or 'the collector'}: the end was cut off")
    return told, seen


def _require_study(connection: Connection, name: str, told: _Told) -> None:
    """A study with its roles is what its events say."""
    row = connection.execute(select(studies).where(studies.c.name == name)).mappings().first()
    if row is None:
        raise FileError(f"study {name}: it is missing")
    design = fingerprint(document_content(row["design"], "design", f"study {name}"))
    is_now = {"title": row["title"], "design": design, "sealed": row["is_sealed"]}
    is_now |= {"last_day": row["last_day"], "closed_at": row["closed_at"]}
    _require_equal(is_now, told.study, f"study {name}", "its facts")
    _require_equal(row["fingerprint"], design, f"study {name}", "its design")
    own = select(roles.c.member, roles.c.role).where(roles.c.study == name)
    there = {(str(one.member), str(one.role)) for one in connection.execute(own)}
    _require_equal(there, told.roles, f"study {name}", "roles")


def _require_members(connection: Connection, told: _Told) -> None:
    """Members are those whom events tell of."""
    there = {}
    for row in connection.execute(select(members)).mappings():
        try:
            key = None if row["key"] is None else PublicKey.from_bytes(row["key"]).fingerprint
        except PrivsketchError:
            raise FileError("members: a key was altered") from None
        is_now = {"makes": row["makes_studies"], "key": key, "made_by": row["made_by"]}
        there[row["name"]] = {**is_now, "is_revoked": row["revoked_at"] is not None}
        if row["revoked_at"] is not None and row["token_hash"] is not None:
            raise FileError("members: a token that was revoked is there")
    _require_equal(there, told.members, "the collector", "members")


def _require_uploads(connection: Connection, study: str, told: _Told) -> int:
    """Uploads are the bytes which events tell of; how many there are."""
    query = select(claims.c.digest, func.count()).where(claims.c.study == study)
    claimed = {str(row[0]): int(row[1]) for row in connection.execute(query.group_by("digest"))}
    waiting = dict(told.uploads)
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
    return len(told.uploads)


def _require_signed(row: Mapping[Any, Any], what: str) -> None:
    try:
        found = Signature.from_bytes(row["signature"] or b"")
    except PrivsketchError:
        raise FileError(f"{what}: its signature was altered") from None
    if not found.fits(row["content"]) or found.fingerprint != row["signer"]:
        raise FileError(f"{what}: its signature was altered")


def _require_equal(there: object, told: object, whose: str, what: str) -> None:
    if there != told:
        raise FileError(f"{whose}: {what} are not what events tell; rows were altered")
