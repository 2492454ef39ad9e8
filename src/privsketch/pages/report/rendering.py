"""Rendering of pages: Jinja templates with autoescape, the style sheet, and plots as inline SVG.

Templates escape every value. The exceptions are marked as `Markup` here and nowhere else: the
style sheet, and SVG that matplotlib wrote, which escapes the text in it.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsketch import __version__
from privsketch._base.errors import ParameterError
from privsketch._base.formats import count_text as count_text
from privsketch.facts.budget import number_text
from privsketch.facts.domain import Domain
from privsketch.models.drawing import axes
from privsketch.sketching.sketch import Sketch

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_FOLDER = Path(__file__).parent / "templates"
_RULES, _FOLDING = (
    (_FOLDER / name).read_text(encoding="utf-8").strip() for name in ("style.css", "folding.css")
)
# Tables of class "folding" always fold, those of class "parts" on phones.
_FOLDING_ON_PHONES = _FOLDING.replace(".folding", ".parts")
STYLE_SHEET = f"{_RULES}\n{_FOLDING}\n@media (max-width:640px) {{\n{_FOLDING_ON_PHONES}\n}}"
# Plot colours that the page replaces in dark mode.
_CSS_VARIABLES = {axes.INK: "var(--ink)", axes.FAINT: "var(--faint)"}


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
    environment.filters |= {
        "number": number_text,
        "factor": lambda epsilon: f"{math.exp(epsilon):.3g}",
    }
    environment.globals |= {
        "style": Markup(STYLE_SHEET),  # noqa: S704 (files of this package)
        "version": __version__,
    }
    return environment


def render(template: str, **values: Any) -> str:
    """Return a template rendered with these values."""
    return _environment().get_template(template).render(values)


def render_macro(template: str, macro: str, *values: Any) -> Markup:
    """Return the HTML of one macro of a template, called with these values."""
    html: Markup = getattr(_environment().get_template(template).module, macro)(*values)
    return html


@dataclass(frozen=True, eq=False)
class Content:
    """The parts of a page that depend on the kind of model.

    Attributes
    ----------
    template : str
        Name of the template.
    noun : str
        What the page shows; its title says whether that is private.
    cards : list of three (str, str)
        Headline numbers with their labels.
    remark : str
        Sentence that is shown if there are no concerns.
    public_fact : str
        Example of a fact that even a private model reveals.
    values : dict
        Tables and plots, by their names in the template.
    """

    template: str
    noun: str
    cards: list[tuple[str, str]]
    remark: str
    public_fact: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Plots:
    """Plots under one heading; `is_row` puts as many side by side as fit, `note` is below them."""

    heading: str
    svgs: tuple[Markup, ...]
    is_row: bool = False
    note: str = ""


def svg_of(figure: Any, name: str, title: str) -> Markup:
    """Return a figure as an `<svg>` element that follows the page's colours.

    `name` prefixes all ids of the element, so that two plots on a page never share one.
    """
    import matplotlib
    from markupsafe import Markup

    buffer = io.StringIO()
    with (
        matplotlib.rc_context({**axes.RC_PARAMS, "svg.hashsalt": name}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", UserWarning)  # browsers have glyphs that a font lacks
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    for color, variable in _CSS_VARIABLES.items():
        svg = svg.replace(color, variable)
    return Markup(svg)  # noqa: S704 (matplotlib escapes the text of figures)


def require_own_sketch(model: Any, sketch: Sketch | None) -> None:
    """Refuse a sketch of another design than that of the model."""
    if sketch is not None and model.design_fingerprint != sketch.design.fingerprint:
        raise ParameterError("report: the model was learned from a sketch of another design")


def model_domain(model: Any, sketch: Sketch | None) -> Domain | None:
    """Return the domain of the records that a model was learned from; None if unknown."""
    if sketch is not None:
        return sketch.design.domain
    return getattr(model, "domain", None) if model.schema is None else model.schema.box


def record_card(model: Any, sketch: Sketch | None) -> tuple[str, str]:
    """Return the number of records, and whether it is public or estimated."""
    if sketch is not None and sketch.exact_count is not None:
        return f"{sketch.exact_count:,}", "records (public)"
    return f"{model.n_records:,.0f}", "records (estimated)"
