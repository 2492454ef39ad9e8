"""Members of a collector: their roles in studies, their tokens and their sessions.

A token has 32 random bytes and is shown once. The store has only its SHA-256, which is enough for
secrets that cannot be guessed. A role belongs to one study. To someone without a role in it, a
study looks the same as one that does not exist.

An owner adds members to its own studies. It may revoke the tokens of members that it added, and
renew them as long as they have no role in a study of another owner.

A session at the pages is a random id in a cookie, of which the store has a hash. It belongs to the
token that began it, and ends with it: to renew or revoke a token ends all its sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

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
    lock_chain,
    now,
)
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import COLLECTOR, members, roles, sessions
from privsketch_studies.errors import CollectorError

ROLES = ("owner", "site", "teller", "reader")
MAX_MEMBER_NAME = 100
_TOKEN = re.compile(r"psk_[A-Za-z0-9_-]{43}", re.ASCII)
SESSION_SECONDS = 12 * 3600  # a working day
_MAX_SESSIONS = 20  # of a member; the oldest one ends
_MAX_SESSION_ID = 100  # characters


@dataclass(frozen=True)
class Member:
    """Member of a collector.

    `key` verifies the signatures of their files, if it is known. `roles` has their roles by study.
    """

    name: str
    makes_studies: bool
    made_by: str | None
    key: PublicKey | None
    is_revoked: bool
    roles: dict[str, tuple[str, ...]]
    token_hash: str | None = field(repr=False, default=None)

    def roles_in(self, study: str) -> tuple[str, ...]:
        """Return the roles of the member in a study."""
        return self.roles.get(study, ())

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the member's key; None if no key is known."""
        return None if self.key is None else self.key.fingerprint

    def require_role(self, study: str, *allowed: str) -> None:
        """Refuse a member without one of these roles in a study; without any, if none is named."""
        roles = self.roles_in(study)
        if not roles:
            raise no_access()
        if allowed and not set(roles) & set(allowed):
            raise CollectorError(f"this is for members in the role {' or '.join(allowed)}", "role")


def no_access() -> CollectorError:
    """Return the error for a study without a role and for a study that does not exist."""
    return CollectorError("no study of this name, or no role of yours in it", "role")


def makers_only() -> CollectorError:
    """Return the error for a member who may not make studies."""
    return CollectorError("this is for members who may make studies", "role")


def actor(by: Member | None) -> str | None:
    """Return the name that an event has for who acts; None is someone at the machine itself."""
    return None if by is None else by.name


def member_name(name: object) -> str:
    """Return a member's name; refuse one that does not fit in a list, an address or a file name."""
    text = checked_name(name)
    if len(text) > MAX_MEMBER_NAME or text.startswith("."):
        raise ParameterError(
            "name", name, f"expected at most {MAX_MEMBER_NAME} characters, the first of them no dot"
        )
    return text


def new_token() -> str:
    """Return a new random token; scanners of repositories recognise its first letters."""
    return "psk_" + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """Return the hash of a token, as the store has it."""
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
    """Return the member with this token; refuse an unknown or revoked token."""
    if token is not None and _TOKEN.fullmatch(token):
        with store.reading() as connection:
            rows = connection.execute(_BY_TOKEN, {"token_hash": token_hash(token)})
            member = _from_rows(rows.mappings().all())
        if member is not None and not member.is_revoked:
            return member
    raise CollectorError("no valid token", "token")


def find_member(store: Store, name: str) -> Member:
    """Return a member by name; refuse an unknown name."""
    with store.reading() as connection:
        return member_in(connection, name)


def member_in(connection: Connection, name: str) -> Member:
    """Return a member by name within a transaction; refuse an unknown name."""
    # PostgreSQL takes no text with a zero byte, and SQLite no text with half a character.
    is_text = "\0" not in name and name.isprintable()
    rows = connection.execute(_BY_NAME, {"member": name}).mappings().all() if is_text else ()
    member = _from_rows(rows)
    if member is None:
        raise CollectorError("no member of this name", "unknown")
    return member


def list_members(store: Store) -> list[Member]:
    """Return all members of the collector."""
    with store.reading() as connection:
        query = _WITH_ROLES.order_by(None).order_by(members.c.name, roles.c.study, roles.c.role)
        rows = connection.execute(query).mappings().all()
    groups = [list(group) for _, group in groupby(rows, key=itemgetter("name"))]
    return [member for group in groups if (member := _from_rows(group)) is not None]


def members_of(store: Store, study: str) -> list[Member]:
    """Return the members of a study by name, without their roles in other studies."""
    with store.reading() as connection:
        query = (
            select(members, roles.c.role)
            .join(roles, roles.c.member == members.c.name)
            .where(roles.c.study == study)
            .order_by(members.c.name, roles.c.role)
        )
        rows = connection.execute(query).mappings().all()
    groups = [list(group) for _, group in groupby(rows, key=itemgetter("name"))]
    return [_from_row(group[0], {study: tuple(row["role"] for row in group)}) for group in groups]


def has_members(store: Store) -> bool:
    """Whether the collector has a member."""
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
    """Add a member, with roles in a study if one is named, and return the token.

    The token cannot be shown again. `by` is an owner of the study; None is someone at the machine.
    """
    name = member_name(name)
    new_roles = _checked_roles(study, as_roles)
    if by is not None and (study is None or makes_studies):
        raise CollectorError("owners add members of their own studies", "role")
    if key is not None and key.for_study:
        raise ParameterError("key: expected a long-lived key, not one for a study")
    token = new_token()
    try:
        with store.writing() as connection:
            if study is not None:
                _require_owner(connection, study, by)
            row: dict[str, Any] = {
                "name": name,
                "alike": alike(name)[:200],
                "token_hash": token_hash(token),
            }
            row |= {"key": None if key is None else key.to_bytes(), "made_at": now()}
            row |= {"makes_studies": makes_studies, "made_by": actor(by)}
            connection.execute(insert(members).values(row))
            facts = {"member": name, "key": None if key is None else key.fingerprint}
            add_event(connection, COLLECTOR, actor(by), MADE_MEMBER, makes=makes_studies, **facts)
            if study is not None:
                _give(connection, study, name, new_roles, by)
    except IntegrityError:
        raise CollectorError(
            "a member has this name, or one that reads alike", "conflict"
        ) from None
    return token


def give_roles(
    store: Store, name: str, study: str, as_roles: Collection[str], *, by: Member | None = None
) -> None:
    """Add roles in a study to those that a member has."""
    named_roles = _checked_roles(study, as_roles)
    with store.writing() as connection:
        _require_owner(connection, study, by)
        member = member_in(connection, name)
        new_roles = [role for role in named_roles if role not in member.roles_in(study)]
        _give(connection, study, name, new_roles, by)


def take_roles(store: Store, name: str, study: str, *, by: Member | None = None) -> None:
    """Remove all roles of a member in a study; their uploads stay."""
    with store.writing() as connection:
        _require_owner(connection, study, by)
        old_roles = member_in(connection, name).roles_in(study)
        if not old_roles:
            raise CollectorError("no member of this name", "unknown")
        other_owners = select(roles.c.member).where(
            roles.c.study == study, roles.c.role == "owner", roles.c.member != name
        )
        if "owner" in old_roles and connection.execute(other_owners).first() is None:
            raise CollectorError("the last owner of a study stays", "conflict")
        connection.execute(delete(roles).where(roles.c.study == study, roles.c.member == name))
        add_event(connection, study, actor(by), TOOK_ROLES, member=name, roles=list(old_roles))


def renew_token(store: Store, name: str, *, by: Member | None = None) -> str:
    """Replace the token of a member and return the new one, which cannot be shown again."""
    token = new_token()
    with store.writing() as connection:
        _require_own(connection, name, by)
        connection.execute(
            update(members)
            .where(members.c.name == name)
            .values(token_hash=token_hash(token), revoked_at=None)
        )
        add_event(connection, COLLECTOR, actor(by), RENEWED, member=name)
    return token


def revoke_token(store: Store, name: str, *, by: Member | None = None) -> None:
    """Revoke the token of a member; their uploads stay."""
    with store.writing() as connection:
        _require_own(connection, name, by, revoking=True)
        connection.execute(
            update(members).where(members.c.name == name).values(token_hash=None, revoked_at=now())
        )
        add_event(connection, COLLECTOR, actor(by), REVOKED, member=name)


def recheck_role(connection: Connection, member: Member, study: str, *allowed: str) -> None:
    """Refuse a member who lost the token, or a role, since the request began."""
    _current(connection, member).require_role(study, *allowed)


def _current(connection: Connection, member: Member) -> Member:
    """Return a member as the store has them now; refuse one whose token has changed."""
    current = member_in(connection, member.name)
    if current.is_revoked or current.token_hash != member.token_hash:
        raise CollectorError("no valid token", "token")
    return current


def _checked_roles(study: str | None, as_roles: Collection[str]) -> list[str]:
    if (study is None) != (not as_roles):
        raise ParameterError("role: a role is one in a study, and a member of one needs a role")
    return sorted({require_one_of("role", role, ROLES) for role in as_roles})


def _require_owner(connection: Connection, study: str, by: Member | None) -> None:
    """Refuse a member who does not own the study, and a study that does not exist."""
    if lock_chain(connection, study) is None:
        raise no_access()
    if by is not None:
        recheck_role(connection, by, study, "owner")


def _require_own(
    connection: Connection, name: str, by: Member | None, *, revoking: bool = False
) -> None:
    """Refuse to change the token of a member that `by` did not add.

    To renew a token, `by` must also own all studies of the member. To revoke one this is not
    needed: a role in another study must not keep a stolen token alive. The error does not reveal
    whether a member exists.
    """
    lock_chain(connection, COLLECTOR)
    if by is None:
        member_in(connection, name)
        return
    roles_by_study = _current(connection, by).roles
    owned = {study for study, by_study in roles_by_study.items() if "owner" in by_study}
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
    connection: Connection, study: str, name: str, new_roles: Collection[str], by: Member | None
) -> None:
    if new_roles:
        rows = [{"study": study, "member": name, "role": role} for role in new_roles]
        connection.execute(insert(roles), rows)
        add_event(connection, study, actor(by), GAVE_ROLES, member=name, roles=list(new_roles))


def _from_rows(rows: Sequence[RowMapping]) -> Member | None:
    """Return the member of these rows, which have one role each; None if there are no rows."""
    if not rows:
        return None
    by_study: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if row["study"] is not None:
            by_study[row["study"]] = (*by_study.get(row["study"], ()), row["role"])
    return _from_row(rows[0], by_study)


def _from_row(row: RowMapping, by_study: dict[str, tuple[str, ...]]) -> Member:
    key = None if row["key"] is None else PublicKey.from_bytes(row["key"])
    name, makes_studies, made_by = row["name"], row["makes_studies"], row["made_by"]
    is_revoked = row["revoked_at"] is not None
    return Member(name, makes_studies, made_by, key, is_revoked, by_study, row["token_hash"])


# ---------------------------------------------------------------- sessions


def begin_session(store: Store, token: str) -> str:
    """Begin a session of the member with this token, and return its id."""
    member = authenticate(store, token)
    session = secrets.token_urlsafe(32)
    at = now()
    with store.writing() as connection:
        connection.execute(delete(sessions).where(sessions.c.ends_at <= at))
        oldest = (
            select(sessions.c.session_hash)
            .where(sessions.c.member == member.name)
            .order_by(sessions.c.ends_at.desc())
            .offset(_MAX_SESSIONS - 1)
            .limit(1000)
        )
        surplus = list(connection.execute(oldest).scalars())
        connection.execute(delete(sessions).where(sessions.c.session_hash.in_(surplus)))
        connection.execute(
            insert(sessions).values(
                session_hash=token_hash(session),
                member=member.name,
                token_hash=token_hash(token),
                ends_at=at + 1000 * SESSION_SECONDS,
            )
        )
    return session


def member_of_session(store: Store, session: str | None) -> Member:
    """Return the member of a session; refuse one that has ended, or whose token was replaced."""
    if session and len(session) <= _MAX_SESSION_ID:
        query = (
            select(members.c.name)
            .join(sessions, sessions.c.member == members.c.name)
            .where(sessions.c.session_hash == token_hash(session))
            .where(sessions.c.ends_at > now(), sessions.c.token_hash == members.c.token_hash)
        )
        with store.reading() as connection:
            name = connection.execute(query).scalar()
            if name is not None:
                member = member_in(connection, name)
                if not member.is_revoked:
                    return member
    raise CollectorError("not signed in", "token")


def end_session(store: Store, session: str) -> None:
    """End a session. Unknown ids are ignored."""
    with store.writing() as connection:
        connection.execute(delete(sessions).where(sessions.c.session_hash == token_hash(session)))


def form_token(session: str) -> str:
    """Return the CSRF token of a session: an HMAC of its id."""
    return hmac.digest(session.encode(), b"privsketch form", "sha256").hex()


def is_form_token(session: str, token: str) -> bool:
    """Whether this is the CSRF token of the session."""
    return hmac.compare_digest(form_token(session).encode(), token.encode("utf-8", "replace"))
