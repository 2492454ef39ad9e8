"""Dependencies of the API's routes: the member who asks, rate limits, and the body of a file."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from privsketch_studies.collector.collector import Collector, Settings
from privsketch_studies.collector.members import Member, authenticate
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.web.limits import (
    BodyReader,
    FileStart,
    TokenBuckets,
    UploadQuota,
    too_large,
)
from privsketch_studies.errors import CollectorError

_BEARER = HTTPBearer(auto_error=False, description="Token of a member.")
_NETWORK_BITS = 64  # of an IPv6 address: one connection usually has a whole network
StudyName = Annotated[
    str,
    Path(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?$",
        max_length=60,
        description="Name of the study.",
    ),
]
Digest = Annotated[
    str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file, in hex digits.")
]


class RateLimits:
    """Rate limits of members, and of addresses that send no valid token."""

    def __init__(self, settings: Settings) -> None:
        self._members = TokenBuckets(settings.member_rate, settings.member_burst)
        self._addresses = TokenBuckets(settings.failure_rate, settings.failure_burst)

    def count_failure(self, address: str) -> None:
        """Count a request without a valid token; refuse it if there are too many."""
        self._require(self._addresses.take(_network(address)))

    def count_member(self, name: str) -> None:
        """Count a request of a member; refuse it if there are too many."""
        self._require(self._members.take(name))

    @staticmethod
    def _require(wait: float) -> None:
        if wait > 0:
            raise CollectorError(f"too many requests; wait {wait:.0f} seconds or more", "often")


def _network(address: str) -> str:
    """Return an IPv4 address, or the network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))


def collector_of(request: Request) -> Collector:
    """Return the collector that serves a request."""
    collector: Collector = request.app.state.collector
    return collector


async def current_member(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
) -> Member:
    """Return the member whose token a request has; refuse a request without a valid one."""
    limits: RateLimits = request.app.state.limits
    address = "" if request.client is None else request.client.host
    token = None if credentials is None else credentials.credentials
    try:
        member = await run_in_threadpool(authenticate, collector_of(request).store, token)
    except CollectorError as error:
        # Valid tokens are accepted from all addresses: members may share one with attackers.
        if error.refusal == "token":
            limits.count_failure(address)
        raise
    limits.count_member(member.name)
    return member


CurrentMember = Annotated[Member, Depends(current_member)]
CurrentCollector = Annotated[Collector, Depends(collector_of)]


@dataclass(frozen=True)
class Client:
    """Member who sends a request to a collector."""

    collector: Collector
    member: Member

    @property
    def store(self) -> Store:
        """Store of the collector."""
        return self.collector.store


@dataclass(frozen=True)
class Access(Client):
    """Access to a study, for a member who has a role in it."""

    study: str

    def require_owner(self) -> None:
        """Refuse a member who does not own the study."""
        self.member.require_role(self.study, "owner")


async def study_access(
    study: StudyName, member: CurrentMember, collector: CurrentCollector
) -> Access:
    """Return the access to a study; refuse a member who has no role in it."""
    member.require_role(study)
    return Access(collector, member, study)


StudyAccess = Annotated[Access, Depends(study_access)]


async def read_file_body(
    request: Request, member: Member, max_bytes: int, starts: tuple[bytes, ...]
) -> bytes:
    """Return the bytes of a file in a body.

    A body that is stated too large is not read, and reading ends at first bytes other than
    `starts`.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/octet-stream":
        raise CollectorError("expected a file of type application/octet-stream", "kind")
    limit_body(request, max_bytes, str(max_bytes), member).start = FileStart(starts)
    return await request.body()


def limit_body(
    request: Request, max_bytes: int, default_length: str, member: Member | None
) -> BodyReader:
    """Limit the body of a request, and reserve memory for it if a member uploads files.

    A body without a stated length counts as `default_length` bytes.
    """
    length = request.headers.get("content-length", default_length)
    if not (length.isascii() and length.isdigit()) or int(length) > max_bytes:
        raise too_large(max_bytes)
    body: BodyReader = request.scope["privsketch.body"]
    if member is not None:
        quota: UploadQuota = request.app.state.quota
        body.at_end.append(quota.reserve(member.name, int(length)))
    body.max_bytes = max_bytes
    return body
