"""What plots share: colours, figures, axes in the units of a table, and coloured tables."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Date, Number
from privsketch.facts.units import short_names

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
INK, FAINT, GREY = "#24292f", "#d0d7de", "#8c959f"
RC_PARAMS = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9.0,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}
LEGEND = {"frameon": False, "fontsize": 8, "labelcolor": INK}
ABOVE = {**LEGEND, "loc": "lower right", "bbox_to_anchor": (1, 1)}  # a legend above the axis
_MAX_OPACITY = 0.6  # of a colour, so that text on it is readable
_MAX_UNIT_TICKS = 5  # labels of years or thousands that fit beside each other on a small axis


def label(name: str) -> str:
    """Return a column's name as plot text: shortened, and without formulas."""
    return labels([name])[0]


def labels(names: Sequence[str]) -> list[str]:
    """Return names of columns as plot texts, which stay different."""
    return [name.replace("$", r"\$") for name in short_names(names, 18, "…")]


def cluster_colors(n_clusters: int) -> list[str]:
    """Return one colour per cluster, the same in every plot and table."""
    if n_clusters <= len(PALETTE):
        return list(PALETTE[:n_clusters])
    # Steps of the golden angle around the circle keep neighbours apart.
    tones = [(k * 0.618033988749895 % 1.0, 0.42 + 0.16 * (k % 3) / 2) for k in range(n_clusters)]
    parts = [colorsys.hls_to_rgb(hue, light, 0.6) for hue, light in tones]
    return ["#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in parts]


def axis_of(width: float, height: float) -> tuple[Any, Any]:
    """Return a figure of this size in inches, and its only axis."""
    figure, axes = figure_of(width, height)
    return figure, axes[0, 0]


def figure_of(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure of this size in inches, and its axes, (rows, columns)."""
    import matplotlib
    import matplotlib.figure  # no backend: a figure saved as SVG needs none

    with matplotlib.rc_context(RC_PARAMS):
        figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)


def plot_axis(ax: Any, width: float, height: float) -> Any:
    """Return the axis to draw on: `ax`, or that of a new figure, which notebooks show."""
    if ax is not None:
        return ax
    try:
        import matplotlib
        import matplotlib.pyplot as plt
    except ImportError:
        raise ParameterError(
            "plot: plots need matplotlib; pip install 'privsketch[plot]'"
        ) from None
    with matplotlib.rc_context(RC_PARAMS):
        return plt.subplots(figsize=(width, height), layout="constrained")[1]


def _unit_ticks(column: Column) -> tuple[Floats, list[str]]:
    """Return coordinates of a few round values of a number or a date, and their texts."""
    if isinstance(column, Date):
        first, last = (datetime.fromisoformat(day) for day in (column.first, column.last))
        years = range(first.year, last.year + 1)
        step = max(1, -(-len(years) // _MAX_UNIT_TICKS))
        days = [datetime(year, 1, 1) for year in years[::step]]
        days = [day for day in days if first <= day <= last]
        texts = [str(day.year) for day in days]
        if len(days) < 2:
            days, texts = [first, last], [column.first, column.last]
        values = np.array([column.value_of(day.isoformat()) for day in days])
    elif isinstance(column, Number):
        values = _round_values(column)
        texts = [f"{value:,.12g}" for value in values]
    else:
        raise ParameterError(f"column {column.name!r}: a {column.KIND} has no axis")
    return column.encode(values)[0], texts


def _round_values(column: Number) -> Floats:
    from matplotlib.ticker import MaxNLocator

    if column.scale == "linear":
        values = np.asarray(MaxNLocator(_MAX_UNIT_TICKS).tick_values(column.low, column.high))
    else:
        top = math.floor(math.log10(column.high))
        values = 10.0 ** np.arange(top - 2 if column.low == 0 else top - 12, top + 1)
        values = np.append(values, 0.0)
    return np.sort(values[(values >= column.low) & (values <= column.high)])


def set_axis(axis: Any, which: str, column: Column) -> None:
    """Show the public bounds of a column along an axis, "x" or "y", in its units."""
    positions, texts = _unit_ticks(column)
    getattr(axis, f"set_{which}lim")(-1.04 * column.weight, 1.04 * column.weight)
    getattr(axis, f"set_{which}ticks")(positions, texts)
    unit = f", {column.unit}" if isinstance(column, Number) and column.unit else ""
    getattr(axis, f"set_{which}label")(label(column.name) + label(unit))


def heat_size(n_rows: int, n_columns: int) -> tuple[float, float]:
    """Return width and height in inches at which texts fit into cells."""
    return 2.0 + 0.85 * n_columns, 0.8 + 0.27 * n_rows


def draw_heat(
    axis: Any,
    names: Sequence[str],
    heads: Sequence[str],
    texts: Sequence[Sequence[str]],
    tones: Floats,
) -> None:
    """Draw rows of texts with tones (n_rows, n_columns) from -1 to 1; NaN means no colour."""
    from matplotlib.colors import to_rgb

    strength = np.clip(np.nan_to_num(tones), -1.0, 1.0)
    cells = np.empty((*strength.shape, 4))
    cells[..., :3] = np.where(strength[..., None] >= 0, to_rgb(PALETTE[0]), to_rgb(PALETTE[1]))
    cells[..., 3] = _MAX_OPACITY * np.abs(strength)
    axis.imshow(cells, aspect="auto", interpolation="nearest")
    for down, row in enumerate(texts):
        for across, text in enumerate(row):
            axis.text(across, down, label(text), ha="center", va="center", color=INK, fontsize=8)
    axis.set_yticks(range(len(names)), labels(names))
    axis.set_xticks(range(len(heads)), labels(heads))
    axis.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
