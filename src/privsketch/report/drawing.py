"""What all plots share: colours, type, and figures as inline SVG, drawn with matplotlib."""

from __future__ import annotations

import colorsys
import io
import re
import warnings
from typing import Any

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
