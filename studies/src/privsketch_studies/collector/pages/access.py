"""Who is at the pages: the cookie of a session, and that forms come from these pages.

A cookie is sent along by a browser whoever made the request, so a form counts only if the browser
says that it comes from here, and if it carries what only a page of this session can know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from privsketch_studies.collector.members import Member
from privsketch_studies.collector.sessions import SECONDS, fits_form, form_token, member_of_session
from privsketch_studies.collector.web.access import Often, collector_of
from privsketch_studies.collector.web.limits import MAX_SMALL, Gate, Room
from privsketch_studies.errors import CollectorError

_BESIDE_FILES = 16 * 1024  # bytes of a form that are no file
_MAX_FIELDS = 12
_MAX_FILES = 2
_ADDRESS = re.compile(r"/[A-Za-z0-9_.-][A-Za-z0-9/_.-]{0,300}", re.ASCII)


@dataclass(frozen=True)
class Visit:
    """Somebody who is signed in; `form` is what their forms carry."""

    member: Member
    session: str

    @property
    def form(self) -> str:
        """What forms of this session carry."""
        return form_token(self.session)


def cookie_name(request: Request) -> str:
    """Browsers keep a __Host- cookie from anybody but this host, over TLS."""
    return "__Host-privsketch" if request.url.scheme == "https" else "privsketch"


def set_cookie(request: Request, response: Response, session: str | None) -> None:
    """Give a browser its session; None takes it away."""
    name, is_secure = cookie_name(request), request.url.scheme == "https"
    if session is None:
        response.delete_cookie(name, secure=is_secure, httponly=True, samesite="strict")
    else:
        response.set_cookie(
            name, session, max_age=SECONDS, secure=is_secure, httponly=True, samesite="strict"
        )


async def visiting(request: Request) -> Visit:
    """Whose session a request belongs to."""
    session = request.cookies.get(cookie_name(request))
    member = await run_in_threadpool(member_of_session, collector_of(request).store, session)
    often: Often = request.app.state.often
    often.count_member(member.name)
    return Visit(member, session or "")


Visiting = Annotated[Visit, Depends(visiting)]


def require_here(request: Request) -> None:
    """Refuse a form that comes from a page of somebody else."""
    fetched = request.headers.get("sec-fetch-site")
    if fetched is not None:
        is_ours = fetched == "same-origin"
    else:
        origin = urlsplit(request.headers.get("origin", ""))
        is_ours = bool(origin.netloc) and origin.netloc == request.headers.get("host")
    if not is_ours:
        raise CollectorError("this form does not come from a page of this collector", "role")


async def read_form(request: Request, visit: Visit | None, n_file_bytes: int = 0) -> FormData:
    """A form with its files; refused unless one of our pages sent it."""
    require_here(request)
    max_bytes = n_file_bytes + _BESIDE_FILES if n_file_bytes else MAX_SMALL
    stated = request.headers.get("content-length", "0")
    if not (stated.isascii() and stated.isdigit()) or int(stated) > max_bytes:
        raise CollectorError(f"larger than {max_bytes} bytes, which is the most here", "size")
    gate: Gate = request.scope["privsketch.gate"]
    if visit is not None and n_file_bytes:
        room: Room = request.app.state.room
        gate.at_end.append(room.take(visit.member.name, int(stated)))
    gate.max_bytes = max_bytes
    form = await request.form(max_files=_MAX_FILES, max_fields=_MAX_FIELDS)
    if visit is not None and not fits_form(visit.session, text_of(form, "form")):
        raise CollectorError("this form is from another session; load the page again", "role")
    return form


def text_of(form: FormData, name: str) -> str:
    """What was written into a field; nothing if there is none."""
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


async def file_of(form: FormData, name: str) -> bytes | None:
    """The bytes of a file of a form; None if none was chosen."""
    value = form.get(name)
    if not isinstance(value, UploadFile):
        return None
    data = await value.read()
    return data if data or value.filename else None


def address_within(text: str) -> str:
    """An address of this collector to go on to; the first page for anything else."""
    return text if _ADDRESS.fullmatch(text) else "/"
