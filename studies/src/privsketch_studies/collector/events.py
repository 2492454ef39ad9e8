"""Events in the store: they are added and never changed, each with the digest of the one before.

Each study has a chain of its own, which its members can read and check. Events without a study are
in the chain of the collector. The answer to every upload has the digest of its event, so a client
that keeps answers can detect that the end of a chain was cut off.

Only one transaction at a time writes to a chain: it locks the row of the chain's end. Times never
decrease within a chain, even if clocks do.
"""

from __future__ import annotations

import json
import time
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, insert, select, update

from privsketch._base.errors import FileError
from privsketch._base.formats import canonical_json
from privsketch_studies.collector.chain import START, Event, digest_of, require_chain
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import chains, events
from privsketch_studies.errors import CollectorError

MADE_STUDY, CLOSED_STUDY = "made study", "closed study"
GAVE_ROLES, TOOK_ROLES = "gave roles", "took roles"
UPLOADED, SET_ASIDE = "uploaded", "set aside"
MADE_MEMBER, RENEWED, REVOKED = "made member", "renewed token", "revoked token"
# Built once: SQLAlchemy takes as long to build such a statement as to run it.
_SELECT_END = select(chains).where(chains.c.study == bindparam("chain")).with_for_update()
_INSERT_EVENT = insert(events)
_UPDATE_END = update(chains).where(chains.c.study == bindparam("chain"))


def now() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def lock_chain(connection: Connection, study: str) -> RowMapping | None:
    """Lock a chain until the transaction is over, and return its end; None if there is none.

    Every change of a study locks its chain first, so that changes of one study are serialized.
    """
    return connection.execute(_SELECT_END, {"chain": study}).mappings().first()


def begin_chain(connection: Connection, study: str) -> None:
    """Insert an empty chain."""
    connection.execute(insert(chains).values(study=study, n_events=0, head=START, at=0))


def add_event(
    connection: Connection, study: str, member: str | None, act: str, /, **facts: Any
) -> Event:
    """Add an event to a chain, in the transaction of the change that it records."""
    end = lock_chain(connection, study)
    if end is None:
        raise CollectorError(f"study {study!r} has no chain of events", "storage")
    number, previous = int(end["n_events"]) + 1, str(end["head"])
    at = max(now(), int(end["at"]))
    digest = digest_of(study, number, at, member, act, facts, previous)
    text = canonical_json(facts).decode("ascii")
    row = {"study": study, "number": number, "at": at, "member": member, "act": act}
    connection.execute(
        _INSERT_EVENT, {**row, "facts": text, "previous": previous, "digest": digest}
    )
    connection.execute(_UPDATE_END, {"chain": study, "n_events": number, "head": digest, "at": at})
    return Event(number, at, member, act, facts, previous, digest)


def events_of(
    store: Store, study: str, *, after: int = 0, n_events: int | None = None
) -> list[Event]:
    """Return events of a study, in their order."""
    query = (
        select(events)
        .where(events.c.study == study, events.c.number > after)
        .order_by(events.c.number)
        .limit(n_events)
    )
    with store.reading() as connection:
        return [event_of(row) for row in connection.execute(query).mappings()]


def require_unbroken(store: Store, study: str) -> list[Event]:
    """Return all events of a study; refuse a chain that is altered or cut off."""
    with store.reading() as connection:
        end = connection.execute(select(chains).where(chains.c.study == study)).mappings().one()
        rows = connection.execute(
            select(events).where(events.c.study == study).order_by(events.c.number)
        )
        chain = [event_of(row) for row in rows.mappings()]
    if (len(chain), require_chain(study, chain)) != (end["n_events"], end["head"]):
        raise FileError(f"events of {study}: the end was cut off")
    return chain


def event_of(row: RowMapping) -> Event:
    """Return the event of a row."""
    fields = ("number", "at", "member", "act", "previous", "digest")
    return Event(**{field: row[field] for field in fields}, facts=json.loads(row["facts"]))
