"""What all plots share: colours, type, and figures as inline SVG, drawn with matplotlib.

What a report says that depends on the kind of model; the page around it is the same.
"""

from __future__ import annotations

import colorsys
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from privsketch._typing import Floats
from privsketch.sketching.sketch import Sketch

PALETTE = (
    "#3366cc",
    "#dc6a1e",
    "#2a9d5c",
    "#b8338f",
    "#7a5cc4",
    "#c9a227",
    "#1d9bb2",
    "#c23b3b",
    "#6b8e23",
    "#8c5a3c",
)
INK, FAINT = "#24292f", "#d0d7de"
_STYLE = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9.0,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}
NO_PLOTS = '<div class="note">Plots need matplotlib: pip install "privsketch[plot]".</div>'


def label(name: str) -> str:
    """A column's name as plot text: not too long, and never read as a formula."""
    short = name if len(name) <= 18 else name[:8] + "…" + name[-8:]
    return short.replace("$", r"\$")


def cluster_colors(n_clusters: int) -> list[str]:
    """One colour per cluster, the same in every plot and table."""
    if n_clusters <= len(PALETTE):
        return list(PALETTE[:n_clusters])
    # Steps of the golden angle around the circle keep neighbours apart.
    tones = [(k * 0.618033988749895 % 1.0, 0.42 + 0.16 * (k % 3) / 2) for k in range(n_clusters)]
    parts = [colorsys.hls_to_rgb(hue, light, 0.6) for hue, light in tones]
    return ["#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in parts]


def figure_of(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """A figure of this size in inches, and its axes, (rows, columns)."""
    import matplotlib
    import matplotlib.figure  # no backend: a figure saved as SVG needs none

    with matplotlib.rc_context(_STYLE):
        figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)


def svg_of(figure: Any, name: str, title: str) -> str:
    """The figure as an <svg> element whose ids do not collide with another plot's."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a browser has the glyphs a font lacks
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


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


def part_table(
    noun: str, weights: Floats, names: Sequence[str], cells: Sequence[Sequence[str]]
) -> str:
    """One row for every part: its colour, its share, and a cell of HTML under every name."""
    colors = cluster_colors(len(weights))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = []
    for k, (weight, row) in enumerate(zip(weights, cells, strict=True)):
        dot = f'<span class="dot" style="background:{colors[k]}"></span>{k + 1}'
        numbers = "".join(f"<td>{cell}</td>" for cell in row)
        rows.append(f"<tr><td>{dot}</td><td>{weight:.1%}</td>{numbers}</tr>")
    return (
        f'<div class="scroll"><table><tr><th>{noun}</th><th>share</th>{head}</tr>'
        f"{''.join(rows)}</table></div>"
    )
