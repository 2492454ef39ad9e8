"""Pages from templates: everything that people wrote is escaped, nothing is loaded from elsewhere.

The policy of every page allows one style sheet of the package, pictures within the page, and forms
that go back here; no script at all. Styles of a report are one more sheet, named by its digest.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from privsketch import __version__
from privsketch.pages.report.rendering import STYLE
from privsketch_studies.collector.pages import words
from privsketch_studies.collector.pages.access import Visit
from privsketch_studies.collector.pages.sheets import policy_digest

_FOLDER = Path(__file__).parent
_POLICY = (
    "default-src 'none'; style-src 'self'{sheet}; img-src 'self' data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)


@cache
def templates() -> Environment:
    """Where pages come from."""
    found = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"time": words.time_text, "size": words.size_text}
    found.globals |= {
        "words": words,
        "version": __version__,
        "style": f"/style.css?{style_digest()[:16]}",
        "several": words.several,
    }
    return found


@cache
def style_sheet() -> str:
    """The looks of reports, and those of pages around them."""
    own = (_FOLDER / "style.css").read_text(encoding="utf-8")
    return f"{STYLE}\nsvg *{{stroke-linejoin:round;stroke-linecap:butt}}\n{own}"


@cache
def style_digest() -> str:
    """What the sheet is called, so that browsers may keep it."""
    return hashlib.sha256(style_sheet().encode("utf-8")).hexdigest()


def page(
    request: Request,
    template: str,
    visit: Visit | None,
    *,
    status: int = 200,
    sheet: str = "",
    **values: Any,
) -> HTMLResponse:
    """A page, with the policy that it needs and no more."""
    done = words.DONE.get(request.query_params.get("done", ""))
    text = (
        templates()
        .get_template(template)
        .render(
            {
                "visit": visit,
                "member": None if visit is None else visit.member,
                "path": request.url.path,
                "done": done,
                "sheet": sheet,
                "refresh": None,
                **values,
            }
        )
    )
    policy = _POLICY.format(sheet=f" {policy_digest(sheet)}" if sheet else "")
    # Without a referrer browsers do not say where a form comes from, either.
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "same-origin"}
    return HTMLResponse(text, status, headers=headers)


def download(data: bytes, name: str, kind: str = "application/octet-stream") -> Response:
    """A file to keep, under a name that no browser misreads."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
    named = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
    return Response(
        data,
        media_type=kind,
        headers={"Content-Disposition": named, "Content-Security-Policy": policy},
    )
