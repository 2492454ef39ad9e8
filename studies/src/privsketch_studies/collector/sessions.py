"""Sessions of people at the pages: a random id in a cookie, of which the store has a hash.

A session belongs to the token that it began with. It ends by itself, when somebody signs out, and
with that token: whoever renews or revokes it ends all its sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from sqlalchemy import delete, insert, select

from privsketch_studies.collector.events import now
from privsketch_studies.collector.members import Member, authenticate, member_in, token_hash
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import members, sessions
from privsketch_studies.errors import CollectorError

SECONDS = 12 * 3600  # a working day
_MAX_SESSIONS = 20  # of a member; the oldest ends
_MAX_ID = 100  # characters


def begin_session(store: Store, token: str) -> str:
    """The id of a new session of whose token it is; an error if it is nobody's."""
    member = authenticate(store, token)
    session = secrets.token_urlsafe(32)
    at = now()
    with store.writing() as connection:
        connection.execute(delete(sessions).where(sessions.c.ends_at <= at))
        own = (
            select(sessions.c.session_hash)
            .where(sessions.c.member == member.name)
            .order_by(sessions.c.ends_at.desc())
            .offset(_MAX_SESSIONS - 1)
            .limit(1000)
        )
        many = list(connection.execute(own).scalars())
        connection.execute(delete(sessions).where(sessions.c.session_hash.in_(many)))
        connection.execute(
            insert(sessions).values(
                session_hash=_hash(session),
                member=member.name,
                token_hash=token_hash(token),
                ends_at=at + 1000 * SECONDS,
            )
        )
    return session


def member_of_session(store: Store, session: str | None) -> Member:
    """Whose session it is; an error if it has ended, or its token has."""
    if session and len(session) <= _MAX_ID:
        query = (
            select(members.c.name)
            .join(sessions, sessions.c.member == members.c.name)
            .where(sessions.c.session_hash == _hash(session))
            .where(sessions.c.ends_at > now(), sessions.c.token_hash == members.c.token_hash)
        )
        with store.reading() as connection:
            name = connection.execute(query).scalar()
            if name is not None:
                found = member_in(connection, name)
                if not found.is_revoked:
                    return found
    raise CollectorError("not signed in", "token")


def end_session(store: Store, session: str) -> None:
    """End a session; one that there is not has ended."""
    with store.writing() as connection:
        connection.execute(delete(sessions).where(sessions.c.session_hash == _hash(session)))


def form_token(session: str) -> str:
    """What forms of a session carry: nobody can tell it who does not know the session's id."""
    return hmac.digest(session.encode(), b"privsketch form", "sha256").hex()


def fits_form(session: str, given: str) -> bool:
    """Whether a form was made for this session."""
    return hmac.compare_digest(form_token(session).encode(), given.encode("utf-8", "replace"))


def _hash(session: str) -> str:
    return hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()
