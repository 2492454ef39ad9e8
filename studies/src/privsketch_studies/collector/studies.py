"""Studies: how they are made, how far they are, and what is expected of whom next.

A study has a name that stands in addresses, and a design. Open ones take one sketch of each site
until they are closed or their last day is over. Sealed ones take the files of a sealed study; how
far they are follows from the files that are there (`collector/mailbox`), and nothing else is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache

from sqlalchemy import Connection, RowMapping, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from privsketch._base.errors import FileError, ParameterError
from privsketch.design.recipe import Design
from privsketch_studies.collector.events import (
    CLOSED_STUDY,
    MADE_STUDY,
    add_event,
    begin_chain,
    hold_chain,
    now,
)
from privsketch_studies.collector.members import (
    Member,
    makers_only,
    member_in,
    no_access,
    require_still,
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
    """A study as it was made.

    `last_day` is that of uploads, UTC; `closed_at` in milliseconds since 1970.
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
        """How far an open study is: "open" or "closed"."""
        return CLOSED if self.is_over() else OPEN


def study_name(name: object) -> str:
    """A name that can stand in an address."""
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
    """Make a study of a design file, owned by a member.

    `by` is a member who may make studies, and then its owner; None is somebody at the machine.
    """
    name = study_name(name)
    words = name if title is None else title
    if not 1 <= len(words) <= MAX_TITLE or not words.isprintable() or not words.strip():
        raise ParameterError("title", title, f"expected one line of 1 to {MAX_TITLE} characters")
    if sealed and last_day is not None:
        raise ParameterError("last_day: that of a sealed study stands in its own file")
    if by is not None and not by.makes_studies:
        raise makers_only()
    found = design_of(design)
    if found.to_bytes() != design:
        raise FileError("design: not as privsketch writes it; the file was altered")
    actor = None if by is None else by.name
    try:
        with store.writing() as connection:
            member = member_in(connection, owner)
            if by is not None and (
                member.is_revoked or not member.makes_studies or member.token_hash != by.token_hash
            ):
                raise CollectorError("no valid token", "token")
            begin_chain(connection, name)
            connection.execute(
                insert(studies).values(
                    name=name,
                    title=words,
                    design=design,
                    fingerprint=found.fingerprint,
                    is_sealed=sealed,
                    last_day=None if last_day is None else last_day.isoformat(),
                    made_at=now(),
                )
            )
            connection.execute(insert(roles).values(study=name, member=owner, role="owner"))
            add_event(
                connection,
                name,
                actor,
                MADE_STUDY,
                title=words,
                design=found.fingerprint,
                sealed=sealed,
                last_day=None if last_day is None else last_day.isoformat(),
                owner=owner,
            )
            add_event(connection, COLLECTOR, actor, MADE_STUDY, study=name)
            return study_in(connection, name)
    except IntegrityError:
        raise CollectorError("a study has this name already", "conflict") from None


def find_study(store: Store, name: str) -> Study:
    """A study by name; an error if there is none."""
    with store.reading() as connection:
        return study_in(connection, name)


def study_in(connection: Connection, name: str) -> Study:
    """The same within a transaction."""
    row = connection.execute(_BY_NAME, {"study": name}).mappings().first()
    if row is None:
        raise no_access()
    return _from_row(row)


def list_studies(store: Store, member: Member | None = None) -> list[Study]:
    """Studies in which a member has a role; all of them for None."""
    query = select(studies).order_by(studies.c.name)
    if member is not None:
        query = query.where(studies.c.name.in_(list(member.roles)))
    with store.reading() as connection:
        return [_from_row(row) for row in connection.execute(query).mappings()]


def close_study(store: Store, name: str, *, by: Member | None = None) -> Study:
    """End an open study: no more sketches. Once more changes nothing."""
    with store.writing() as connection:
        hold_chain(connection, name)
        if by is not None:
            require_still(connection, by, name, "owner")
        study = study_in(connection, name)
        if study.is_sealed:
            raise CollectorError("a sealed study is closed by its closed list", "conflict")
        if study.closed_at is None:
            event = add_event(connection, name, None if by is None else by.name, CLOSED_STUDY)
            connection.execute(
                update(studies).where(studies.c.name == name).values(closed_at=event.at)
            )
        return study_in(connection, name)


def parse_day(text: str) -> date:
    """A day as people write it."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ParameterError("last_day", text, "expected a date, like 2026-12-31") from None


@lru_cache(maxsize=64)
def design_of(data: bytes) -> Design:
    """A design from its bytes, with what was computed of it before."""
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
