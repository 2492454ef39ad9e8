"""A chain of events: each has the digest of the one before, so that no event can be altered.

This module needs no database, because members check the chains that they have pulled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from privsketch._base.errors import FileError
from privsketch._base.formats import canonical_json

_LABEL = b"privsketch event v1\0"
START = "0" * 64  # previous digest of the first event


@dataclass(frozen=True)
class Event:
    """Event of a study or of the collector.

    `number` counts the events of a chain from 1. `at` is the time in milliseconds since 1970, UTC.
    `member` acted; without one, it was someone at the collector's machine. `act` is the kind of
    the event, and `facts` are its details. `previous` and `digest` are the SHA-256 of the event
    before and of this one.
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
    """Return the SHA-256 of all fields of an event, in hex."""
    content = {"study": study, "number": number, "at": at, "member": member}
    content |= {"act": act, "facts": facts, "previous": previous}
    return hashlib.sha256(_LABEL + canonical_json(content)).hexdigest()


def require_chain(
    study: str, chain: Iterable[Event], *, previous: str = START, after: int = 0
) -> str:
    """Return the last digest of a chain; refuse a chain that is not intact."""
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
