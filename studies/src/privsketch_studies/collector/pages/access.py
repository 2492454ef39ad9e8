"""Access to the pages: session cookies, and checks of the origin of forms.

A browser sends a cookie with every request, whichever page made it. A form is therefore accepted
only if the browser names this collector as its origin, and if it has the session's CSRF token.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from privsketch_studies.collector.members import (
    SESSION_SECONDS,
    form_token,
    is_form_token,
    member_of_session,
)
from privsketch_studies.collector.web.access import Client, RateLimits, collector_of, limit_body
from privsketch_studies.collector.web.limits import MAX_SMALL, FileStart
from privsketch_studies.errors import CollectorError

_MAX_TEXT = 16 * 1024  # bytes of a form besides its files
_MAX_FIELDS = 12
_MAX_FILES = 2
Starts = Mapping[str, tuple[bytes, ...]]
_ADDRESS = re.compile(r"/[A-Za-z0-9_.-][A-Za-z0-9/_.-]{0,300}", re.ASCII)


@dataclass(frozen=True)
class Visit(Client):
    """Signed-in member, with the id of the session."""

    session: str

    @property
    def csrf_token(self) -> str:
        """CSRF token of the session, a hidden field of every form."""
        return form_token(self.session)


def cookie_name(request: Request) -> str:
    """Return the cookie's name; browsers send a __Host- cookie to this host only, over TLS."""
    return "__Host-privsketch" if request.url.scheme == "https" else "privsketch"


def set_cookie(request: Request, response: Response, session: str | None) -> None:
    """Set the session cookie of a browser; None deletes it."""
    name, is_secure = cookie_name(request), request.url.scheme == "https"
    if session is None:
        response.delete_cookie(name, secure=is_secure, httponly=True, samesite="strict")
    else:
        response.set_cookie(
            name,
            session,
            max_age=SESSION_SECONDS,
            secure=is_secure,
            httponly=True,
            samesite="strict",
        )


async def current_visit(request: Request) -> Visit:
    """Return the visit that a request belongs to; refuse requests without a session."""
    session = request.cookies.get(cookie_name(request))
    collector = collector_of(request)
    member = await run_in_threadpool(member_of_session, collector.store, session)
    limits: RateLimits = request.app.state.limits
    limits.count_member(member.name)
    return Visit(collector, member, session or "")


CurrentVisit = Annotated[Visit, Depends(current_visit)]


def require_same_origin(request: Request) -> None:
    """Refuse a form that comes from a page of another site."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        is_ours = site == "same-origin"
    else:
        origin = urlsplit(request.headers.get("origin", ""))
        is_ours = bool(origin.netloc) and origin.netloc == request.headers.get("host")
    if not is_ours:
        raise CollectorError("this form does not come from a page of this collector", "role")


class _FileParser(MultiPartParser):
    """Parser of forms that stops at the first bytes of a file that is none of ours.

    Files stay in memory, for which an upload has reserved what it needs, and never get to a disk.
    """

    spool_max_size = sys.maxsize

    def __init__(self, request: Request, starts: Starts) -> None:
        limits = {"max_files": _MAX_FILES, "max_fields": _MAX_FIELDS}
        super().__init__(request.headers, request.stream(), **limits)
        self._starts = starts
        self._start = FileStart()

    def on_headers_finished(self) -> None:
        """Begin a part: a file must be one that the form has a field for."""
        super().on_headers_finished()
        part = self._current_part
        self._start = FileStart()
        if part.file is not None:
            if part.field_name not in self._starts:
                raise CollectorError("the form has a file in a field that takes none", "kind")
            self._start = FileStart(self._starts[part.field_name])

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """Check the first bytes of a file before any of it is stored."""
        self._start.check(data[start:end])
        super().on_part_data(data, start, end)


async def read_form(
    request: Request, visit: Visit | None, n_file_bytes: int = 0, starts: Starts | None = None
) -> FormData:
    """Read a form; refuse it unless a page of this session sent it.

    `starts` has the first bytes that files may have, by the fields of the form.
    """
    require_same_origin(request)
    max_bytes = n_file_bytes + _MAX_TEXT if n_file_bytes else MAX_SMALL
    limit_body(request, max_bytes, "0", visit.member if visit and n_file_bytes else None)
    if request.headers.get("content-type", "").startswith("multipart/"):
        try:
            form = await _FileParser(request, starts or {}).parse()
        except MultiPartException:
            raise CollectorError("the form cannot be read", "content") from None
    else:
        form = await request.form(max_fields=_MAX_FIELDS)
    if visit is not None and not is_form_token(visit.session, text_of(form, "form")):
        raise CollectorError("this form is from another session; load the page again", "role")
    return form


def text_of(form: FormData, name: str) -> str:
    """Return the text of a field; an empty text if there is no such field."""
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


async def file_of(form: FormData, name: str) -> bytes | None:
    """Return the bytes of a file in a form; None if no file was chosen."""
    value = form.get(name)
    if not isinstance(value, UploadFile):
        return None
    data = await value.read()
    return data if data or value.filename else None


def local_address(text: str) -> str:
    """Return the path to redirect to: `text` if it is one of this collector, else the start."""
    return text if _ADDRESS.fullmatch(text) else "/"
