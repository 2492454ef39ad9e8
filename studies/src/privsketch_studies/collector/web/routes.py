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
from privsketch_studies.collector.progress import progress_of
from privsketch_studies.collector.web.access import Asking, Digest, Here, StudyName, read_file_body
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


public = APIRouter(tags=["service"])
api = APIRouter(prefix="/api/v1")


@public.get("/health", responses={503: refusals()[503]})
def health(here: Here) -> Health:
    """Check that the collector and its store answer."""
    here.require_store()
    return Health(is_well=True, version=__version__)


@public.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Counts."},
        503: refusals()[503],
    },
)
def metrics(here: Here) -> Response:
    """Return counts over all studies, in the format of Prometheus."""
    counts = here.counts()
    lines = [
        f"privsketch_{name.removeprefix('n_')} {value}\n" for name, value in vars(counts).items()
    ]
    return Response("".join(lines), media_type="text/plain; version=0.0.4")


@api.get("/me", responses=refusals(), tags=["members"])
async def me(member: Asking) -> OwnProfile:
    """Return the profile of the member with this token."""
    return OwnProfile.of(member)


# ---------------------------------------------------------------- studies


@api.get("/studies", responses=refusals(), tags=["studies"])
async def studies_of_member(member: Asking, here: Here) -> list[StudySummary]:
    """List the studies in which you have a role."""
    own = await run_in_threadpool(studies.list_studies, here.store, member)
    return [StudySummary.of(study, member) for study in own]


@api.put(
    "/studies/{study}",
    status_code=201,
    responses=refusals(409),
    openapi_extra=_FILE_BODY,
    tags=["studies"],
)
async def make_study(
    request: Request,
    study: StudyName,
    member: Asking,
    here: Here,
    title: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    sealed: bool = False,
    last_day: Annotated[date | None, Query(description="Last day of uploads, UTC.")] = None,
) -> StudyDetail:
    """Make a study that you own. The body is a design file."""
    if not member.makes_studies:
        raise members.makers_only()
    data = await read_file_body(request, member, MAX_DESIGN)

    def work() -> StudyDetail:
        made = studies.make_study(
            here.store,
            study,
            data,
            owner=member.name,
            title=title,
            sealed=sealed,
            last_day=last_day,
            by=member,
        )
        again = members.find_member(here.store, member.name)
        return StudyDetail.with_progress(made, progress_of(here.store, made), again)

    return await run_in_threadpool(work)


@api.get("/studies/{study}", responses=refusals(), tags=["studies"])
async def study_of_member(study: StudyName, member: Asking, here: Here) -> StudyDetail:
    """Return a study with its progress and your next steps."""
    member.require_role(study)

    def work() -> StudyDetail:
        found = studies.find_study(here.store, study)
        return StudyDetail.with_progress(found, progress_of(here.store, found), member)

    return await run_in_threadpool(work)


@api.get(
    "/studies/{study}/design",
    response_class=Response,
    responses={**refusals(), **_file_answer("The design file.")},
    tags=["studies"],
)
async def design_of_study(study: StudyName, member: Asking, here: Here) -> Response:
    """Return the design file of a study."""
    member.require_role(study)
    found = await run_in_threadpool(studies.find_study, here.store, study)
    return Response(found.design_bytes, media_type=_FILE)


@api.post("/studies/{study}/close", responses=refusals(409), tags=["studies"])
async def close_study(study: StudyName, member: Asking, here: Here) -> StudyDetail:
    """Close an open study, as its owner; it takes no more sketches."""
    member.require_role(study, "owner")

    def work() -> StudyDetail:
        found = studies.close_study(here.store, study, by=member)
        return StudyDetail.with_progress(found, progress_of(here.store, found), member)

    return await run_in_threadpool(work)


@api.get("/studies/{study}/events", responses=refusals(), tags=["studies"])
async def events_of_study(
    study: StudyName,
    member: Asking,
    here: Here,
    after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> list[Event]:
    """List the events of a study: a chain in which each event has the digest of the one before."""
    member.require_role(study)
    return await run_in_threadpool(events.events_of, here.store, study, after=after, n_events=limit)


@api.get(
    "/studies/{study}/total",
    response_class=Response,
    responses={**refusals(404), **_file_answer("The total, a sketch file.")},
    tags=["studies"],
)
async def total_of_study(study: StudyName, member: Asking, here: Here) -> Response:
    """Return the exact sum of all sketches, or of the tallies of a sealed study."""
    member.require_role(study)
    total = await run_in_threadpool(here.totals.of, member, study)
    data = await run_in_threadpool(total.sketch.to_bytes)
    return Response(data, media_type=_FILE)


# ---------------------------------------------------------------- uploads


@api.post(
    "/studies/{study}/uploads",
    status_code=201,
    responses={
        200: {
            "model": uploads.Acknowledgement,
            "description": "The collector already has this file.",
        },
        **refusals(409, 423),
    },
    openapi_extra=_FILE_BODY,
    tags=["uploads"],
)
async def hand_in(
    request: Request,
    response: Response,
    study: StudyName,
    member: Asking,
    here: Here,
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
    """Upload a sketch, or a file of a sealed study. It is stored once, before the answer."""
    member.require_role(study)

    def allowed() -> int:
        found = studies.find_study(here.store, study)
        return uploads.max_bytes(here.store, member, found)

    data = await read_file_body(request, member, await run_in_threadpool(allowed))
    signed = None if signature is None else _decoded(signature)
    receipt = await run_in_threadpool(uploads.submit, here.store, member, study, data, signed)
    response.status_code = 201 if receipt.is_new else 200
    return receipt


@api.get("/studies/{study}/uploads", responses=refusals(), tags=["uploads"])
async def uploads_of_study(
    study: StudyName, member: Asking, here: Here, aside: bool = False
) -> list[uploads.Upload]:
    """List the uploads that count; with `aside`, also those that were set aside."""
    member.require_role(study)
    return await run_in_threadpool(uploads.list_uploads, here.store, study, aside=aside)


@api.get(
    "/studies/{study}/uploads/{digest}",
    response_class=Response,
    responses={**refusals(404), **_file_answer("The file.")},
    tags=["uploads"],
)
async def upload_of_study(study: StudyName, digest: Digest, member: Asking, here: Here) -> Response:
    """Return an upload. Only owners, readers and its own member may have a sketch."""
    _, data, signature = await run_in_threadpool(
        uploads.read_upload, here.store, member, study, digest
    )
    headers = {}
    if signature is not None:
        headers[SIGNATURE_HEADER] = base64.b64encode(signature).decode("ascii")
    return Response(data, media_type=_FILE, headers=headers)


@api.post(
    "/studies/{study}/uploads/{digest}/set-aside",
    status_code=204,
    responses=refusals(404, 423),
    tags=["uploads"],
)
async def set_aside(
    study: StudyName, digest: Digest, why: SetAsideRequest, member: Asking, here: Here
) -> None:
    """Set an upload aside, as an owner; it no longer counts, and its member may upload another."""
    member.require_role(study, "owner")
    await run_in_threadpool(uploads.set_aside, here.store, study, digest, why.because, by=member)


# ---------------------------------------------------------------- members

MemberName = Annotated[str, Path(min_length=1, max_length=100)]


@api.get("/studies/{study}/members", responses=refusals(), tags=["members"])
async def members_of_study(study: StudyName, member: Asking, here: Here) -> list[MemberView]:
    """List the members of a study."""
    member.require_role(study)
    people = await run_in_threadpool(members.members_of, here.store, study)
    return [MemberView.of(person, study) for person in people]


@api.post(
    "/studies/{study}/members", status_code=201, responses=refusals(404, 409), tags=["members"]
)
async def add_member(study: StudyName, new: NewMember, member: Asking, here: Here) -> IssuedToken:
    """Add a member to a study, as its owner. The token cannot be shown again."""
    member.require_role(study, "owner")

    def work() -> IssuedToken:
        if new.is_known:
            members.give_roles(here.store, new.name, study, new.roles, by=member)
            return IssuedToken(name=new.name, token=None)
        key = None
        if new.key is not None:
            key = PublicKey.from_bytes(new.key.encode("utf-8", "replace"))
        token = members.add_member(
            here.store, new.name, study=study, as_roles=new.roles, key=key, by=member
        )
        return IssuedToken(name=new.name, token=token)

    return await run_in_threadpool(work)


@api.delete(
    "/studies/{study}/members/{name}",
    status_code=204,
    responses=refusals(404, 409),
    tags=["members"],
)
async def take_roles(study: StudyName, name: MemberName, member: Asking, here: Here) -> None:
    """Remove all roles of a member in a study, as its owner; uploads stay."""
    member.require_role(study, "owner")
    await run_in_threadpool(members.take_roles, here.store, name, study, by=member)


@api.post("/members/{name}/token", responses=refusals(), tags=["members"])
async def renew_token(name: MemberName, member: Asking, here: Here) -> IssuedToken:
    """Replace the token of a member that you added."""
    token = await run_in_threadpool(members.renew_token, here.store, name, by=member)
    return IssuedToken(name=name, token=token)


@api.delete("/members/{name}/token", status_code=204, responses=refusals(), tags=["members"])
async def revoke_token(name: MemberName, member: Asking, here: Here) -> None:
    """Revoke the token of a member that you added."""
    await run_in_threadpool(members.revoke_token, here.store, name, by=member)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SignatureError(f"{SIGNATURE_HEADER}: not base64") from None
