"""Routes of the API; each calls one function of the collector."""

from __future__ import annotations

import base64
import binascii
from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from privsketch import __version__
from privsketch._base.errors import SignatureError
from privsketch.signing.keys import PublicKey
from privsketch_studies.collector import events, members, studies, uploads
from privsketch_studies.collector.chain import Event
from privsketch_studies.collector.kinds import json_start
from privsketch_studies.collector.web.access import (
    CurrentCollector,
    CurrentMember,
    Digest,
    StudyAccess,
    StudyName,
    read_file_body,
)
from privsketch_studies.collector.web.schemas import (
    ErrorAnswer,
    Health,
    IssuedToken,
    MemberView,
    NewMember,
    OwnProfile,
    SetAsideRequest,
    StudyDetail,
    StudySummary,
)

SIGNATURE_HEADER = "Privsketch-Signature"
_FILE = "application/octet-stream"
MAX_DESIGN = 8 * 2**20  # bytes: enough for a design of thousands of columns with labels
_DESCRIPTIONS = {
    401: "The token is missing or not valid.",
    403: "The member has no access, or there is no such study.",
    404: "Not found.",
    408: "The body took too long.",
    409: "A different upload exists.",
    413: "The body is too large.",
    415: "The body has an unsupported type, or is compressed.",
    422: "The content is not valid.",
    423: "The study is closed, or not open yet.",
    429: "Too many requests.",
    503: "The store does not answer.",
}
_COMMON = (401, 403, 408, 413, 415, 422, 429, 503)


def refusals(*more: int) -> dict[int | str, dict[str, Any]]:
    """Return the refusals of a route for OpenAPI."""
    return {
        status: {"model": ErrorAnswer, "description": _DESCRIPTIONS[status]}
        for status in sorted({*_COMMON, *more})
    }


_FILE_BODY = {
    "requestBody": {
        "required": True,
        "content": {_FILE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def _file_answer(description: str) -> dict[int | str, dict[str, Any]]:
    return {
        200: {
            "description": description,
            "content": {_FILE: {"schema": {"type": "string", "format": "binary"}}},
        }
    }


_STUDIES = "/api/v1/studies"
service = APIRouter(tags=["service"])
all_studies = APIRouter(prefix=_STUDIES, tags=["studies"], responses=refusals())
all_uploads = APIRouter(
    prefix=f"{_STUDIES}/{{study}}/uploads", tags=["uploads"], responses=refusals()
)
all_members = APIRouter(prefix="/api/v1", tags=["members"], responses=refusals())
routers = (service, all_studies, all_uploads, all_members)


@service.get("/health", responses={503: refusals()[503]})
def check_health(collector: CurrentCollector) -> Health:
    """Check that the collector and its store answer."""
    collector.require_store()
    return Health(is_well=True, version=__version__)


@service.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Counts."},
        503: refusals()[503],
    },
)
def read_metrics(collector: CurrentCollector) -> Response:
    """Return counts over all studies, in the format of Prometheus."""
    counts = collector.counts()
    lines = [
        f"privsketch_{name.removeprefix('n_')} {value}\n" for name, value in vars(counts).items()
    ]
    return Response("".join(lines), media_type="text/plain; version=0.0.4")


@all_members.get("/me")
async def read_profile(member: CurrentMember) -> OwnProfile:
    """Return the profile of the member with this token."""
    return OwnProfile.of(member)


# ---------------------------------------------------------------- studies


@all_studies.get("")
def list_studies(member: CurrentMember, collector: CurrentCollector) -> list[StudySummary]:
    """List the studies in which you have a role."""
    own = studies.list_studies(collector.store, member)
    return [StudySummary.of(study, member) for study in own]


@all_studies.put("/{study}", status_code=201, responses=refusals(409), openapi_extra=_FILE_BODY)
async def create_study(
    request: Request,
    study: StudyName,
    member: CurrentMember,
    collector: CurrentCollector,
    title: Annotated[
        str | None,
        Query(min_length=1, max_length=200, description="One line for people; else the name."),
    ] = None,
    sealed: Annotated[bool, Query(description="Whether only the total becomes known.")] = False,
    last_day: Annotated[
        date | None, Query(description="Last day of uploads to an open study, UTC.")
    ] = None,
) -> StudyDetail:
    """Create a study that you own. The body is a design file."""
    if not member.makes_studies:
        raise members.makers_only()
    data = await read_file_body(request, member, MAX_DESIGN, (json_start("design"),))

    def work() -> StudyDetail:
        created = studies.make_study(
            collector.store,
            study,
            data,
            owner=member.name,
            title=title,
            sealed=sealed,
            last_day=last_day,
            by=member,
        )
        owner = members.find_member(collector.store, member.name)  # now with a role
        return StudyDetail.of_study(collector.store, created, owner)

    return await run_in_threadpool(work)


@all_studies.get("/{study}")
def read_study(access: StudyAccess) -> StudyDetail:
    """Return a study with its progress and your next steps."""
    found = studies.find_study(access.store, access.study)
    return StudyDetail.of_study(access.store, found, access.member)


@all_studies.get(
    "/{study}/design", response_class=Response, responses=_file_answer("The design file.")
)
def read_design(access: StudyAccess) -> Response:
    """Return the design file of a study."""
    return Response(studies.find_study(access.store, access.study).design_bytes, media_type=_FILE)


@all_studies.post("/{study}/close", responses=refusals(409))
def close_study(access: StudyAccess) -> StudyDetail:
    """Close an open study, as its owner; it takes no more sketches."""
    access.require_owner()
    closed = studies.close_study(access.store, access.study, by=access.member)
    return StudyDetail.of_study(access.store, closed, access.member)


@all_studies.get("/{study}/events")
def list_events(
    access: StudyAccess,
    after: Annotated[
        int, Query(ge=0, lt=2**31, description="Number of the last event to leave out.")
    ] = 0,
    limit: Annotated[
        int, Query(ge=1, le=1000, description="Largest number of events to return.")
    ] = 1000,
) -> list[Event]:
    """List the events of a study: a chain in which each event has the digest of the one before."""
    return events.events_of(access.store, access.study, after=after, n_events=limit)


@all_studies.get(
    "/{study}/total",
    response_class=Response,
    responses={**refusals(404), **_file_answer("The total, a sketch file.")},
)
def read_total(access: StudyAccess) -> Response:
    """Return the exact sum of all sketches, or of the tallies of a sealed study."""
    total = access.collector.totals.of(access.member, access.study)
    return Response(total.sketch.to_bytes(), media_type=_FILE)


# ---------------------------------------------------------------- uploads


@all_uploads.post(
    "",
    status_code=201,
    responses={
        200: {
            "model": uploads.Acknowledgement,
            "description": "The collector already has this file.",
        },
        **refusals(409, 423),
    },
    openapi_extra=_FILE_BODY,
)
async def upload_file(
    request: Request,
    response: Response,
    access: StudyAccess,
    signature: Annotated[
        str | None,
        Header(
            alias=SIGNATURE_HEADER,
            max_length=4000,
            pattern=r"^[A-Za-z0-9+/=]*$",
            description="Content of the .sig file of a sketch, in base64.",
        ),
    ] = None,
) -> uploads.Acknowledgement:
    """Upload a sketch, or a file of a sealed study. It is on disk before the answer."""
    limits = await run_in_threadpool(uploads.limits, access.store, access.member, access.study)
    data = await read_file_body(request, access.member, *limits)
    signed = None if signature is None else _decoded(signature)
    receipt = await run_in_threadpool(
        uploads.submit, access.store, access.member, access.study, data, signed
    )
    response.status_code = 201 if receipt.is_new else 200
    return receipt


@all_uploads.get("")
def list_uploads(
    access: StudyAccess,
    aside: Annotated[bool, Query(description="Include uploads that were set aside.")] = False,
) -> list[uploads.Upload]:
    """List the uploads of a study, in their order."""
    return uploads.list_uploads(access.store, access.study, with_set_aside=aside)


@all_uploads.get(
    "/{digest}", response_class=Response, responses={**refusals(404), **_file_answer("The file.")}
)
def download_upload(digest: Digest, access: StudyAccess) -> Response:
    """Return the file of an upload.

    Owners, readers and the member who uploaded it may download a sketch. All members may download
    the files of a sealed study.
    """
    _, data, signature = uploads.read_upload(access.store, access.member, access.study, digest)
    headers = {}
    if signature is not None:
        headers[SIGNATURE_HEADER] = base64.b64encode(signature).decode("ascii")
    return Response(data, media_type=_FILE, headers=headers)


@all_uploads.post("/{digest}/set-aside", status_code=204, responses=refusals(404, 423))
def set_upload_aside(digest: Digest, reason: SetAsideRequest, access: StudyAccess) -> None:
    """Set an upload aside, as an owner; it no longer counts, and its member may upload another."""
    access.require_owner()
    uploads.set_aside(access.store, access.study, digest, reason.because, by=access.member)


# ---------------------------------------------------------------- members

MemberName = Annotated[
    str, Path(min_length=1, max_length=100, description="Name of the member to change.")
]


@all_members.get("/studies/{study}/members")
def list_members(access: StudyAccess) -> list[MemberView]:
    """List the members of a study."""
    people = members.members_of(access.store, access.study)
    return [MemberView.of(person, access.study) for person in people]


@all_members.post("/studies/{study}/members", status_code=201, responses=refusals(404, 409))
def add_member(new: NewMember, access: StudyAccess) -> IssuedToken:
    """Add a member to a study, as its owner. The token cannot be shown again."""
    access.require_owner()
    if new.is_known:
        members.give_roles(access.store, new.name, access.study, new.roles, by=access.member)
        return IssuedToken(name=new.name, token=None)
    key = None
    if new.key is not None:
        key = PublicKey.from_bytes(new.key.encode("utf-8", "replace"))
    token = members.add_member(
        access.store, new.name, study=access.study, as_roles=new.roles, key=key, by=access.member
    )
    return IssuedToken(name=new.name, token=token)


@all_members.delete(
    "/studies/{study}/members/{name}", status_code=204, responses=refusals(404, 409)
)
def remove_roles(name: MemberName, access: StudyAccess) -> None:
    """Remove all roles of a member in a study, as its owner; uploads stay."""
    access.require_owner()
    members.take_roles(access.store, name, access.study, by=access.member)


@all_members.post("/members/{name}/token")
def renew_token(
    name: MemberName, member: CurrentMember, collector: CurrentCollector
) -> IssuedToken:
    """Replace the token of a member that you added."""
    return IssuedToken(name=name, token=members.renew_token(collector.store, name, by=member))


@all_members.delete("/members/{name}/token", status_code=204)
def revoke_token(name: MemberName, member: CurrentMember, collector: CurrentCollector) -> None:
    """Revoke the token of a member that you added."""
    members.revoke_token(collector.store, name, by=member)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SignatureError(f"{SIGNATURE_HEADER}: not base64") from None
