"""Pages from templates: all text is escaped, and nothing is loaded from other sites.

The policy of every page allows the style sheet of the package, pictures within the page, and forms
that go to this collector. The styles of a report are one more sheet, which the policy names by its
digest. So is the only script, on pages with a field for files: it reads a file before the browser
sends it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from privsketch import __version__
from privsketch.pages.report.rendering import STYLE_SHEET, count_text
from privsketch_studies.collector.pages import words
from privsketch_studies.collector.pages.access import Visit, local_address

_FOLDER = Path(__file__).parent
_POLICY = (
    "default-src 'none'; style-src 'self'{sheet};{script} img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_STUDY_PATH = re.compile(r"(/studies/[a-z0-9-]{1,60})(/.*)?", re.ASCII)
_REFUSAL_TITLES = {
    "role": "You have no access",
    "unknown": "Not found",
    "address": "Not found",
    "conflict": "A different upload exists",
    "size": "Too large",
    "kind": "Not a file of this study",
    "content": "Refused",
    "closed": "Not possible now",
    "often": "Too many requests",
    "storage": "The store does not answer",
}


@cache
def templates() -> Environment:
    """Return the environment of the templates."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"time": words.time_text, "size": words.size_text}
    environment.globals |= {
        "words": words,
        "version": __version__,
        "style": f"/style.css?{style_digest()[:16]}",
        "count_text": count_text,
    }
    return environment


@cache
def style_sheet() -> str:
    """Return the style sheet of reports and of the pages around them."""
    page_styles = (_FOLDER / "style.css").read_text(encoding="utf-8")
    return f"{STYLE_SHEET}\nsvg *{{stroke-linejoin:round;stroke-linecap:butt}}\n{page_styles}"


@cache
def style_digest() -> str:
    """Return the digest of the style sheet; its address has it, so that browsers may cache it."""
    return hashlib.sha256(style_sheet().encode("utf-8")).hexdigest()


@cache
def upload_script() -> str:
    """Return the script that looks at files before they are sent."""
    return (_FOLDER / "upload.js").read_text(encoding="utf-8")


def _hash_source(text: str) -> str:
    """Return the digest of a sheet or a script, as a policy writes it."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def page(
    request: Request,
    template: str,
    visit: Visit | None,
    *,
    status: int = 200,
    sheet: str = "",
    **values: Any,
) -> HTMLResponse:
    """Render a page, with the strictest policy that shows it."""
    script = upload_script() if values.get("fields") else ""
    context = {
        "visit": visit,
        "member": None if visit is None else visit.member,
        "path": request.url.path,
        "done": words.DONE.get(request.query_params.get("done", "")),
        "sheet": sheet,
        "script": Markup(script),  # noqa: S704 (a file of this package)
        "refresh": None,
        **values,
    }
    text = templates().get_template(template).render(context)
    policy = _POLICY.format(
        sheet=f" {_hash_source(sheet)}" if sheet else "",
        script=f" script-src {_hash_source(script)};" if script else "",
    )
    # A browser that sends no referrer does not send the origin of a form, either.
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"}
    return HTMLResponse(text, status, headers=headers)


def download(data: bytes, name: str, kind: str = "application/octet-stream") -> Response:
    """Return a file to download, under a name that all browsers read alike."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
    named = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
    return Response(
        data,
        media_type=kind,
        headers={"Content-Disposition": named, "Content-Security-Policy": policy},
    )


def wants_page(request: Request) -> bool:
    """Whether a browser asks for a page, and not a program for JSON."""
    is_api = request.url.path.startswith("/api/")
    return not is_api and "text/html" in request.headers.get("accept", "")


def refused_page(request: Request, status: int, refusal: str, message: str) -> Response:
    """Return the page of a refusal, with a link back; without a session, go to the sign-in page."""
    path = request.url.path
    if refusal == "token":
        address = local_address(path) if request.method == "GET" else "/"
        return RedirectResponse(f"/sign-in?next={quote(address)}", 303)
    match = _STUDY_PATH.fullmatch(path) if refusal != "role" else None
    text = message[:1].upper() + message[1:]
    return page(
        request,
        "refused.html",
        None,
        status=status,
        title=_REFUSAL_TITLES.get(refusal, "Refused"),
        message=text + ("" if text.endswith(".") else "."),
        back=match.group(1) if match else "/",
        is_study=match is not None,
    )
