"""Who asks: the token of a request, how often its member has asked, and its study."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from privsketch_studies.collector.collector import Collector
from privsketch_studies.collector.members import Member, authenticate
from privsketch_studies.collector.settings import Settings
from privsketch_studies.collector.web.limits import Buckets, Gate, Room, too_large
from privsketch_studies.errors import CollectorError

_BEARER = HTTPBearer(auto_error=False, description="The token that you were given.")
_NETWORK_BITS = 64
StudyName = Annotated[str, Path(pattern=r"^[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?$", max_length=60)]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the bytes.")]


class Often:
    """How often members, and strangers at an address, may ask."""

    def __init__(self, settings: Settings) -> None:
        self._members = Buckets(settings.member_rate, settings.member_burst)
        self._strangers = Buckets(settings.failure_rate, settings.failure_burst)

    def count_failure(self, address: str) -> None:
        """Somebody had no valid token; refuse to say so if that happens too often."""
        self._require(self._strangers.take(_place(address)))

    def count_member(self, name: str) -> None:
        """Refuse a member who asks too often."""
        self._require(self._members.take(name))

    @staticmethod
    def _require(wait: float) -> None:
        if wait > 0:
            raise CollectorError(f"too many requests; wait {wait:.0f} seconds or more", "often")


def _place(address: str) -> str:
    """Where somebody is: an address, or the network that one connection has of the newer ones."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
    return str(found)


def collector_of(request: Request) -> Collector:
    """The collector that serves a request."""
    found = request.app.state.collector
    if not isinstance(found, Collector):
        raise CollectorError("no collector", "storage")
    return found


async def asking(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
) -> Member:
    """Whose token a request has."""
    often: Often = request.app.state.often
    address = "" if request.client is None else request.client.host
    token = None if credentials is None else credentials.credentials
    try:
        member = await run_in_threadpool(authenticate, collector_of(request).store, token)
    except CollectorError as error:
        # Members are let in from whatever address: others there may be strangers.
        if error.refusal == "token":
            often.count_failure(address)
        raise
    often.count_member(member.name)
    return member


Asking = Annotated[Member, Depends(asking)]
Here = Annotated[Collector, Depends(collector_of)]


async def read_file_body(request: Request, member: Member, max_bytes: int) -> bytes:
    """All bytes of a file in a body, none of which is read if they are said to be too many."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/octet-stream":
        raise CollectorError("files are of type application/octet-stream", "kind")
    stated = request.headers.get("content-length", str(max_bytes))
    if not (stated.isascii() and stated.isdigit()) or int(stated) > max_bytes:
        raise too_large(max_bytes)
    gate: Gate = request.scope["privsketch.gate"]
    room: Room = request.app.state.room
    gate.at_end.append(room.take(member.name, int(stated)))
    gate.max_bytes = max_bytes
    return await request.body()
