"""Studies of a collector: how they are made, found and closed.

A study has a design, and a name that is part of addresses. An open study takes one sketch of each
site until it is closed or its last day is over. A sealed study takes the files of a sealed study;
its state follows from these files (`collector/mailbox`), and is not stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from privsketch._base.errors import FileError, ParameterError
from privsketch.design.recipe import Design
from privsketch.design.validity import require_private
from privsketch_studies.collector.events import (
    CLOSED_STUDY,
    MADE_STUDY,
    add_event,
    begin_chain,
    lock_chain,
    now,
)
from privsketch_studies.collector.members import (
    Member,
    actor,
    makers_only,
    member_in,
    no_access,
    recheck_role,
)
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import COLLECTOR, roles, studies
from privsketch_studies.errors import CollectorError

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,58}[a-z0-9])?", re.ASCII)
MAX_TITLE = 200
_BY_NAME = select(studies).where(studies.c.name == bindparam("study"))
OPEN, CLOSED = "open", "closed"


@dataclass(frozen=True)
class Study:
    """Study of a collector.

    `last_day` is the last day of uploads, UTC. Times are milliseconds since 1970.
    """

    name: str
    title: str
    design: Design
    design_bytes: bytes
    is_sealed: bool
    last_day: date | None
    made_at: int
    closed_at: int | None

    def is_over(self) -> bool:
        """Whether an open study takes no more sketches."""
        today = datetime.now(UTC).date()
        return self.closed_at is not None or (self.last_day is not None and today > self.last_day)

    @property
    def state(self) -> str:
        """State of an open study: "open" or "closed"."""
        return CLOSED if self.is_over() else OPEN


def study_name(name: object) -> str:
    """Return the name of a study; refuse one that does not fit in an address."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ParameterError(
            "name",
            name,
            "expected 1 to 60 lower-case letters, digits and hyphens, no hyphen at the ends",
        )
    return name


def make_study(
    store: Store,
    name: str,
    design: bytes,
    *,
    owner: str,
    title: str | None = None,
    sealed: bool = False,
    last_day: date | None = None,
    by: Member | None = None,
) -> Study:
    """Make a study from a design file.

    `by` is a member who may make studies, and is its owner; None is someone at the machine.
    """
    name = study_name(name)
    text = name if title is None else title
    if not 1 <= len(text) <= MAX_TITLE or not text.isprintable() or not text.strip():
        raise ParameterError("title", title, f"expected one line of 1 to {MAX_TITLE} characters")
    if sealed and last_day is not None:
        raise ParameterError("last_day: that of a sealed study stands in its own file")
    if by is not None and not by.makes_studies:
        raise makers_only()
    require_private(design_of(design), "a collector")
    fingerprint = design_of(design).fingerprint
    if design_of(design).to_bytes() != design:
        raise FileError("design: not as privsketch writes it; the file was altered")
    day = None if last_day is None else last_day.isoformat()
    try:
        with store.writing() as connection:
            member = member_in(connection, owner)
            if by is not None and (
                member.is_revoked or not member.makes_studies or member.token_hash != by.token_hash
            ):
                raise CollectorError("no valid token", "token")
            begin_chain(connection, name)
            facts: dict[str, Any] = {"title": text, "last_day": day}
            row = {**facts, "name": name, "design": design, "fingerprint": fingerprint}
            row |= {"is_sealed": sealed, "made_at": now()}
            connection.execute(insert(studies).values(row))
            connection.execute(insert(roles).values(study=name, member=owner, role="owner"))
            facts |= {"design": fingerprint, "owner": owner}
            add_event(connection, name, actor(by), MADE_STUDY, sealed=sealed, **facts)
            add_event(connection, COLLECTOR, actor(by), MADE_STUDY, study=name)
            return study_in(connection, name)
    except IntegrityError:
        raise CollectorError("a study has this name already", "conflict") from None


def find_study(store: Store, name: str) -> Study:
    """Return a study by name; refuse an unknown name."""
    with store.reading() as connection:
        return study_in(connection, name)


def study_in(connection: Connection, name: str) -> Study:
    """Return a study by name within a transaction; refuse an unknown name."""
    row = connection.execute(_BY_NAME, {"study": name}).mappings().first()
    if row is None:
        raise no_access()
    return _from_row(row)


def list_studies(store: Store, member: Member | None = None) -> list[Study]:
    """Return the studies in which a member has a role; all studies for None."""
    query = select(studies).order_by(studies.c.name)
    if member is not None:
        query = query.where(studies.c.name.in_(list(member.roles)))
    with store.reading() as connection:
        return [_from_row(row) for row in connection.execute(query).mappings()]


def close_study(store: Store, name: str, *, by: Member | None = None) -> Study:
    """Close an open study, which takes no more sketches; a closed one stays as it is."""
    with store.writing() as connection:
        lock_chain(connection, name)
        if by is not None:
            recheck_role(connection, by, name, "owner")
        study = study_in(connection, name)
        if study.is_sealed:
            raise CollectorError("a sealed study is closed by its closed list", "conflict")
        if study.closed_at is None:
            event = add_event(connection, name, actor(by), CLOSED_STUDY)
            connection.execute(
                update(studies).where(studies.c.name == name).values(closed_at=event.at)
            )
        return study_in(connection, name)


def parse_day(text: str) -> date:
    """Return the day that a text like 2026-12-31 stands for."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ParameterError("last_day", text, "expected a date, like 2026-12-31") from None


@lru_cache(maxsize=64)
def design_of(data: bytes) -> Design:
    """Read a design; the same bytes give the same object, with what it has computed."""
    return Design.from_bytes(data)


def _from_row(row: RowMapping) -> Study:
    return Study(
        row["name"],
        row["title"],
        design_of(row["design"]),
        row["design"],
        row["is_sealed"],
        None if row["last_day"] is None else date.fromisoformat(row["last_day"]),
        row["made_at"],
        row["closed_at"],
    )
