"""What people see when something is refused: a page in words, with a way back."""

from __future__ import annotations

import re
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from privsketch_studies.collector.pages.access import address_within
from privsketch_studies.collector.pages.rendering import page

_STUDY = re.compile(r"(/studies/[a-z0-9-]{1,60})(/.*)?", re.ASCII)
_TITLES = {
    "role": "This is not for you",
    "unknown": "There is nothing here",
    "address": "There is nothing here",
    "conflict": "Something else is there already",
    "size": "Too large",
    "kind": "Not a file of this study",
    "content": "Refused",
    "closed": "Not now",
    "often": "Too often",
    "storage": "The store does not answer",
}


def wants_page(request: Request) -> bool:
    """Whether a person waits for the answer."""
    is_api = request.url.path.startswith("/api/")
    return not is_api and "text/html" in request.headers.get("accept", "")


def refused_page(request: Request, status: int, refusal: str, message: str) -> Response:
    """Why a request was refused; who is not signed in is asked to."""
    path = request.url.path
    found = _STUDY.fullmatch(path)
    if refusal == "token":
        to = address_within(path) if request.method == "GET" else "/"
        return RedirectResponse(f"/sign-in?next={quote(to)}", 303)
    text = message[:1].upper() + message[1:]
    return page(
        request,
        "refused.html",
        None,
        status=status,
        title=_TITLES.get(refusal, "Refused"),
        message=text + ("" if text.endswith(".") else "."),
        back=found.group(1) if found and refusal != "role" else "/",
        is_study=bool(found and refusal != "role"),
    )
