"""A chain of events: each names the one before, so that nothing in between can be altered.

Nothing here needs a database: members check chains that they have pulled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from privsketch._base.errors import FileError
from privsketch._base.formats import canonical_json

_LABEL = b"privsketch event v1\0"
START = "0" * 64  # what the first event of a chain names


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    Attributes
    ----------
    number : int
        From 1 on, without gaps.
    at : int
        Milliseconds since 1970, UTC.
    member : str or None
        Who did it; None is somebody at the machine itself.
    act : str
        What was done, in a word or two.
    facts : dict
        About what, as plain JSON values.
    previous, digest : str
        That of the event before, and its own.
    """

    number: int
    at: int
    member: str | None
    act: str
    facts: dict[str, Any]
    previous: str
    digest: str


def digest_of(
    study: str,
    number: int,
    at: int,
    member: str | None,
    act: str,
    facts: dict[str, Any],
    previous: str,
) -> str:
    """SHA-256 of everything an event says, in hex."""
    told = {"study": study, "number": number, "at": at, "member": member}
    told |= {"act": act, "facts": facts, "previous": previous}
    return hashlib.sha256(_LABEL + canonical_json(told)).hexdigest()


def require_chain(
    study: str, chain: Iterable[Event], *, previous: str = START, after: int = 0
) -> str:
    """The digest at the end of a chain; an error unless every event names the one before."""
    for event in chain:
        digest = digest_of(
            study, event.number, event.at, event.member, event.act, event.facts, previous
        )
        if (event.number, event.previous, event.digest) != (after + 1, previous, digest):
            raise FileError(
                f"events of {study or 'the collector'}: number {after + 1} is missing or altered"
            )
        previous, after = digest, event.number
    return previous
