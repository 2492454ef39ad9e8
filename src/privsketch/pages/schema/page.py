"""The pages around the form for a schema: no script, nothing from other places, one style sheet."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsketch import __version__
from privsketch.facts.guesses import guesses_in, marked_fields
from privsketch.pages.report.rendering import STYLE_SHEET
from privsketch.pages.schema import form

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent / "templates"
_STYLES = f"{STYLE_SHEET}\n{(_FOLDER / 'form.css').read_text(encoding='utf-8')}"
_DIGEST = base64.b64encode(hashlib.sha256(_STYLES.encode()).digest()).decode()
# What a browser may do with these pages.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; img-src data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "style": Markup(_STYLES),  # noqa: S704 (files of this package)
        "version": __version__,
        "form": form,
    }
    return environment


def form_page(
    name: str,
    content: Mapping[str, Any],
    texts: form.Texts,
    errors: Mapping[str, str],
    *,
    token: str,
) -> str:
    """Return the page with the form; `name` is that of the file, `token` goes with what is sent."""
    marked = {
        f"{index}.{field}" if field in ("kind", "missing", "fill") else f"{index}.{kind}.{field}"
        for index, column in enumerate(content["columns"])
        for kind in [column.get("kind")]
        for field in marked_fields(column)
    }
    return _environment().get_template("form.html").render(
        name=name,
        columns=content["columns"],
        texts=texts,
        errors=errors,
        marked=marked | set(marked_fields(dict(content))),
        n_guesses=sum(map(len, guesses_in(dict(content)).values())),
        token=token,
    )  # fmt: skip


def note_page(title: str, *texts: str) -> str:
    """Return a page that says something and has no form."""
    return _environment().get_template("note.html").render(title=title, texts=texts)
