"""Members of a collector: who they are, what they may do in a study, and how they prove it.

A token is 32 random bytes, shown once; only its SHA-256 is kept, which is enough for secrets that
nobody can guess. A role is a member's in one study. Who is no member of a study cannot tell it
from one that does not exist.

An owner makes members of its own studies, may revoke the tokens of those that it made, and renew
them as long as they have no role in a study of somebody else.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection, RowMapping, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from privsketch._base.errors import ParameterError, require_one_of
from privsketch.signing.documents import alike, checked_name
from privsketch.signing.keys import PublicKey
from privsketch_studies.collector.events import (
    GAVE_ROLES,
    MADE_MEMBER,
    RENEWED,
    REVOKED,
    TOOK_ROLES,
    add_event,
    hold_chain,
    now,
)
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import COLLECTOR, members, roles
from privsketch_studies.errors import CollectorError

ROLES = ("owner", "site", "teller", "reader")
MAX_NAME = 100
_PREFIX = "psk_"  # so that scanners of repositories find tokens that were lost there
_TOKEN = re.compile(r"psk_[A-Za-z0-9_-]{43}", re.ASCII)


@dataclass(frozen=True)
class Member:
    """Somebody who may use a collector.

    `key` is what signs their files, where it is known; `roles` are those in each of their studies.
    """

    name: str
    makes_studies: bool
    made_by: str | None
    key: PublicKey | None
    is_revoked: bool
    roles: dict[str, tuple[str, ...]]
    token_hash: str | None = field(repr=False, default=None)

    def roles_in(self, study: str) -> tuple[str, ...]:
        """Their roles in a study."""
        return self.roles.get(study, ())

    def require_role(self, study: str, *allowed: str) -> None:
        """Refuse whoever has none of these roles in a study; any is enough if none is named."""
        own = self.roles_in(study)
        if not own:
            raise no_access()
        if allowed and not set(own) & set(allowed):
            raise CollectorError(f"this is for members in the role {' or '.join(allowed)}", "role")


def no_access() -> CollectorError:
    """The same for studies that are somebody else's and for those that do not exist."""
    return CollectorError("no study of this name, or no role of yours in it", "role")


def makers_only() -> CollectorError:
    """What a member hears who may not make studies."""
    return CollectorError("this is for members who may make studies", "role")


def member_name(name: object) -> str:
    """A name that can stand in a list, in an address and in a file's name."""
    text = checked_name(name)
    if len(text) > MAX_NAME or text.startswith("."):
        raise ParameterError(
            "name", name, f"expected at most {MAX_NAME} characters, the first of them no dot"
        )
    return text


def new_token() -> str:
    """A token that nobody has."""
    return _PREFIX + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


# Made once: SQLAlchemy takes as long to build such a statement as to run it.
_WITH_ROLES = (
    select(members, roles.c.study, roles.c.role)
    .outerjoin(roles, roles.c.member == members.c.name)
    .order_by(roles.c.study, roles.c.role)
)
_BY_TOKEN = _WITH_ROLES.where(members.c.token_hash == bindparam("token_hash"))
_BY_NAME = _WITH_ROLES.where(members.c.name == bindparam("member"))


def authenticate(store: Store, token: str | None) -> Member:
    """Whose token it is; an error if it is nobody's, or was revoked."""
    if token is not None and _TOKEN.fullmatch(token):
        with store.reading() as connection:
            rows = connection.execute(_BY_TOKEN, {"token_hash": token_hash(token)})
            found = _from_rows(rows.mappings().all())
        if found is not None and not found.is_revoked:
            return found
    raise CollectorError("no valid token", "token")


def find_member(store: Store, name: str) -> Member:
    """A member by name; an error if there is none."""
    with store.reading() as connection:
        return member_in(connection, name)


def member_in(connection: Connection, name: str) -> Member:
    """The same within a transaction."""
    # PostgreSQL has no texts with zeros in them, and SQLite none with halves of characters.
    is_text = "\0" not in name and name.isprintable()
    rows = connection.execute(_BY_NAME, {"member": name}).mappings().all() if is_text else ()
    found = _from_rows(rows)
    if found is None:
        raise CollectorError("no member of this name", "unknown")
    return found


def list_members(store: Store) -> list[Member]:
    """All members of the collector."""
    with store.reading() as connection:
        query = _WITH_ROLES.order_by(None).order_by(members.c.name, roles.c.study, roles.c.role)
        rows = connection.execute(query).mappings().all()
    groups = [list(group) for _, group in groupby(rows, key=itemgetter("name"))]
    return [member for group in groups if (member := _from_rows(group)) is not None]


def members_of(store: Store, study: str) -> list[Member]:
    """Who has a role in a study, by name; what they may do elsewhere is not told."""
    with store.reading() as connection:
        query = (
            select(members, roles.c.role)
            .join(roles, roles.c.member == members.c.name)
            .where(roles.c.study == study)
            .order_by(members.c.name, roles.c.role)
        )
        found: dict[str, tuple[RowMapping, list[str]]] = {}
        for row in connection.execute(query).mappings():
            found.setdefault(row["name"], (row, []))[1].append(row["role"])
    return [_made(row, {study: tuple(own)}) for row, own in found.values()]


def has_members(store: Store) -> bool:
    """Whether anybody can use the collector at all."""
    with store.reading() as connection:
        return connection.execute(select(members.c.name).limit(1)).first() is not None


def add_member(
    store: Store,
    name: str,
    *,
    study: str | None = None,
    as_roles: Collection[str] = (),
    key: PublicKey | None = None,
    makes_studies: bool = False,
    by: Member | None = None,
) -> str:
    """Make a member, with roles in a study if one is named; the token, which is told this once.

    `by` is an owner of the study; None is somebody at the machine itself.
    """
    name = member_name(name)
    chosen = _checked_roles(study, as_roles)
    if by is not None and (study is None or makes_studies):
        raise CollectorError("owners add members of their own studies", "role")
    if key is not None and key.for_study:
        raise ParameterError("key: expected a long-lived key, not one for a study")
    token = new_token()
    try:
        with store.writing() as connection:
            if study is not None:
                _require_owner(connection, study, by)
            connection.execute(
                insert(members).values(
                    name=name,
                    alike=alike(name)[:200],
                    token_hash=token_hash(token),
                    key=None if key is None else key.to_bytes(),
                    makes_studies=makes_studies,
                    made_by=None if by is None else by.name,
                    made_at=now(),
                )
            )
            actor = None if by is None else by.name
            facts = {"member": name, "key": None if key is None else key.fingerprint}
            add_event(connection, COLLECTOR, actor, MADE_MEMBER, makes=makes_studies, **facts)
            if study is not None:
                _give(connection, study, name, chosen, actor)
    except IntegrityError:
        raise CollectorError(
            "a member has this name, or one that reads alike", "conflict"
        ) from None
    return token


def give_roles(
    store: Store, name: str, study: str, as_roles: Collection[str], *, by: Member | None = None
) -> None:
    """Give a member roles in a study; those that they have stay."""
    chosen = _checked_roles(study, as_roles)
    with store.writing() as connection:
        _require_owner(connection, study, by)
        member = member_in(connection, name)
        fresh = [role for role in chosen if role not in member.roles_in(study)]
        _give(connection, study, name, fresh, None if by is None else by.name)


def take_roles(store: Store, name: str, study: str, *, by: Member | None = None) -> None:
    """Take all roles of a member in a study; what they have handed in stays."""
    with store.writing() as connection:
        _require_owner(connection, study, by)
        own = member_in(connection, name).roles_in(study)
        if not own:
            raise CollectorError("no member of this name", "unknown")
        others = select(roles.c.member).where(
            roles.c.study == study, roles.c.role == "owner", roles.c.member != name
        )
        if "owner" in own and connection.execute(others).first() is None:
            raise CollectorError("the last owner of a study stays", "conflict")
        connection.execute(delete(roles).where(roles.c.study == study, roles.c.member == name))
        actor = None if by is None else by.name
        add_event(connection, study, actor, TOOK_ROLES, member=name, roles=list(own))


def renew_token(store: Store, name: str, *, by: Member | None = None) -> str:
    """A new token for a member, told this once; the old one is worth nothing from now on."""
    token = new_token()
    with store.writing() as connection:
        _require_own(connection, name, by)
        connection.execute(
            update(members)
            .where(members.c.name == name)
            .values(token_hash=token_hash(token), revoked_at=None)
        )
        actor = None if by is None else by.name
        add_event(connection, COLLECTOR, actor, RENEWED, member=name)
    return token


def revoke_token(store: Store, name: str, *, by: Member | None = None) -> None:
    """End what a member's token can do; what was handed in with it stays."""
    with store.writing() as connection:
        _require_own(connection, name, by, revoking=True)
        connection.execute(
            update(members).where(members.c.name == name).values(token_hash=None, revoked_at=now())
        )
        actor = None if by is None else by.name
        add_event(connection, COLLECTOR, actor, REVOKED, member=name)


def require_still(connection: Connection, member: Member, study: str, *allowed: str) -> None:
    """Refuse a member who lost its token, or a role, since the request began."""
    found = member_in(connection, member.name)
    if found.is_revoked or found.token_hash != member.token_hash:
        raise CollectorError("no valid token", "token")
    found.require_role(study, *allowed)


def _checked_roles(study: str | None, as_roles: Collection[str]) -> list[str]:
    if (study is None) != (not as_roles):
        raise ParameterError("role: a role is one in a study, and a member of one needs a role")
    return sorted({require_one_of("role", role, ROLES) for role in as_roles})


def _require_owner(connection: Connection, study: str, by: Member | None) -> None:
    """Refuse whoever does not own a study, and studies that do not exist."""
    if hold_chain(connection, study) is None:
        raise no_access()
    if by is not None:
        require_still(connection, by, study, "owner")


def _require_own(
    connection: Connection, name: str, by: Member | None, *, revoking: bool = False
) -> None:
    """Refuse owners of other studies than all those of a member, and members of somebody else.

    To revoke, having made a member is enough: a role that somebody else gives it must not keep a
    stolen token alive. Whether a member exists is not told to others.
    """
    hold_chain(connection, COLLECTOR)
    if by is None:
        member_in(connection, name)
        return
    owner = member_in(connection, by.name)
    if owner.is_revoked or owner.token_hash != by.token_hash:
        raise CollectorError("no valid token", "token")
    owned = {study for study, own in owner.roles.items() if "owner" in own}
    try:
        member = member_in(connection, name)
        is_own = member.made_by == by.name and (revoking or set(member.roles) <= owned)
    except CollectorError:
        is_own = False
    if not is_own:
        raise CollectorError(
            "you made no such member, or it has roles in studies of others; ask whoever runs "
            "the collector",
            "role",
        )


def _give(
    connection: Connection, study: str, name: str, chosen: Collection[str], actor: str | None
) -> None:
    if chosen:
        rows = [{"study": study, "member": name, "role": role} for role in chosen]
        connection.execute(insert(roles), rows)
        add_event(connection, study, actor, GAVE_ROLES, member=name, roles=list(chosen))


def _from_rows(rows: Sequence[RowMapping]) -> Member | None:
    """A member from rows with one role each; None if there are none."""
    if not rows:
        return None
    own: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if row["study"] is not None:
            own[row["study"]] = (*own.get(row["study"], ()), row["role"])
    return _made(rows[0], own)


def _made(row: RowMapping, own: dict[str, tuple[str, ...]]) -> Member:
    key = None if row["key"] is None else PublicKey.from_bytes(row["key"])
    is_revoked = row["revoked_at"] is not None
    return Member(
        row["name"],
        row["makes_studies"],
        row["made_by"],
        key,
        is_revoked,
        own,
        row["token_hash"],
    )
