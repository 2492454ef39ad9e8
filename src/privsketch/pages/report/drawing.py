"""Figures as inline SVG, which follows the page into the dark.

What a report says that depends on the kind of model; the page around it is the same.
"""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass
from html import escape
from typing import Any

from privsketch.models.drawing.axes import FAINT, INK, STYLE
from privsketch.sketching.sketch import Sketch

# What of a plot follows the page into the dark.
_BY_STYLE = {INK: "var(--ink)", FAINT: "var(--faint)"}
NO_PLOTS = '<div class="note">Plots need matplotlib: pip install "privsketch[plot]".</div>'


def svg_of(figure: Any, name: str, title: str) -> str:
    """The figure as an <svg> element whose ids do not collide with another plot's."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a browser has the glyphs a font lacks
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)


def plot_of(figure: Any, name: str, title: str) -> str:
    """The figure as a part of a page, whose style has a say in its colours."""
    svg = svg_of(figure, name, title)
    for color, variable in _BY_STYLE.items():
        svg = svg.replace(color, variable)
    return svg


def beside(svgs: list[str]) -> str:
    """Plots beside each other, as many as the page has room for."""
    return f'<div class="plots">{"".join(svgs)}</div>'


@dataclass(frozen=True)
class Content:
    """The parts of a page that a kind of model has of its own.

    Attributes
    ----------
    title : str
    cards : list of (str, str)
        A number, and what it is, as HTML.
    notes : str
        HTML: concerns, or that there are none.
    sections : list of str
        HTML: tables and plots.
    public_fact : str
        An example of what a private model reveals all the same.
    """

    title: str
    cards: list[tuple[str, str]]
    notes: str
    sections: list[str]
    public_fact: str


def notes_of(concerns: tuple[str, ...], otherwise: str) -> str:
    """Concerns as warnings; `otherwise`, which is HTML, if there are none."""
    if not concerns:
        return f'<div class="note">{otherwise}</div>'
    return "".join(f'<div class="note warn">Careful: {escape(text)}.</div>' for text in concerns)


def record_card(n_records: float, sketch: Sketch) -> tuple[str, str]:
    """The number of records, and how it is known."""
    if sketch.exact_count is not None:
        return f"{sketch.exact_count:,}", "records, a public number"
    return f"{n_records:,.0f}", "records, as the fit sees them"
