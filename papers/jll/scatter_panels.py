"""JLL Figures 1 and 2 as tables, words and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.harness.rows import Row, number, numbers, where
from papers.harness.views import View, aligned, side_by_side
from papers.jll.scatter import PANELS
from papers.jll.setting import BOUND, DISTANCE
from privsketch._base.types import Floats
from privsketch.models.drawing.axes import FAINT, PALETTE, figure_of

_TITLES = {
    "element": f"element-wise, changes up to {BOUND:g}",
    "row": f"row-wise, changes up to {BOUND:g}",
    "whole record": "a whole record hidden (not in the paper)",
}


def record_table(found: Sequence[Row]) -> str:
    """Centres and widths of the two clusters that are shown."""
    return aligned(
        ["cluster", "records", "centre", "width along each axis"], _summary(found, ("x", "y", "z"))
    )


def record_comparison(found: Sequence[Row]) -> str:
    """State what the figure shows."""
    return (
        f"The paper shows two round clusters of width 1 whose centres are {DISTANCE:g} apart. "
        f"Those shown here, {len(found)} of 10,000 records, have centres "
        f"{_distance(found, ('x', 'y', 'z')):.2f} apart. They are the paper's own records as far "
        "as its Table 1 can tell."
    )


def record_figure(found: Sequence[Row]) -> Any:
    """Scatter plot in three dimensions."""
    import matplotlib

    figure, _ = figure_of(5.8, 4.4)
    figure.clear()
    with matplotlib.rc_context({"grid.color": FAINT, "grid.linewidth": 0.6}):
        axis = figure.add_subplot(projection="3d")
    for cluster in (0, 1):
        points = _points(where(found, cluster=cluster), ("x", "y", "z"))
        axis.scatter(
            *points.T, s=11, color=PALETTE[cluster], alpha=0.6, linewidths=0, depthshade=False
        )
    axis.view_init(elev=18, azim=-62)
    axis.set_box_aspect((1.35, 1, 1), zoom=1.12)
    for name, pane in (("x", axis.xaxis), ("y", axis.yaxis), ("z", axis.zaxis)):
        pane.set_pane_color((0.96, 0.97, 0.98, 1.0))
        pane.set_tick_params(labelsize=8, pad=0)
        getattr(axis, f"set_{name}label")(f"column {'xyz'.index(name) + 1}", fontsize=9, labelpad=0)
    return figure


def release_table(found: Sequence[Row]) -> str:
    """Centres and widths after each release."""
    lines = []
    for protect, _, _ in PANELS:
        panel = where(found, protect=protect)
        std = number(panel[0], "noise_std")
        lines += [[protect, f"{std:.3f}", *line] for line in _summary(panel, ("x", "y"))]
    return aligned(
        ["protected", "noise std", "cluster", "records", "centre", "width along each axis"], lines
    )


def release_comparison(found: Sequence[Row]) -> str:
    """State what the figure shows."""
    apart = {
        protect: _distance(where(found, protect=protect), ("x", "y")) for protect, _, _ in PANELS
    }
    return (
        "As in the paper, clusters become ellipses that still are apart: element-wise by "
        f"{apart['element']:.2f}, row-wise by {apart['row']:.2f}, more than the 4 of the "
        "records, since the paper's matrix happens to stretch that direction. The ellipses are the "
        "work of the matrix, not of the noise as the caption says: noise is the same along every "
        "axis. The third panel is what hiding a whole record needs: "
        f"noise of standard deviation {_noise(found, 'whole record'):.1f} instead of "
        f"{_noise(found, 'row'):.2f}."
    )


def release_figure(found: Sequence[Row]) -> Any:
    """Scatter plots side by side."""
    titles = [_TITLES[protect] for protect, _, _ in PANELS]
    figure, axes = side_by_side(10.2, 3.6, titles, across="projection 1", up="projection 2")
    for axis, (protect, _, _) in zip(axes, PANELS, strict=True):
        panel = where(found, protect=protect)
        for cluster in (0, 1):
            points = _points(where(panel, cluster=cluster), ("x", "y"))
            axis.scatter(*points.T, s=8, color=PALETTE[cluster], alpha=0.5, linewidths=0)
        every = _points(panel, ("x", "y"))
        edge = float(np.abs(every - every.mean(axis=0)).max()) * 1.05
        for limits, middle in zip((axis.set_xlim, axis.set_ylim), every.mean(axis=0), strict=True):
            limits(middle - edge, middle + edge)
        axis.set_aspect("equal")
    return figure


def _points(found: Sequence[Row], names: Sequence[str]) -> Floats:
    return np.array([numbers(found, name) for name in names]).T


def _distance(found: Sequence[Row], names: Sequence[str]) -> float:
    first, second = (
        _points(where(found, cluster=cluster), names).mean(axis=0) for cluster in (0, 1)
    )
    return float(np.linalg.norm(first - second))


def _noise(found: Sequence[Row], protect: str) -> float:
    return number(where(found, protect=protect)[0], "noise_std")


def _summary(found: Sequence[Row], names: Sequence[str]) -> list[list[str]]:
    lines = []
    for cluster in (0, 1):
        points = _points(where(found, cluster=cluster), names)
        centre = ", ".join(f"{value:.2f}" for value in points.mean(axis=0))
        widths = ", ".join(f"{value:.2f}" for value in points.std(axis=0))
        lines.append([f"{cluster + 1}", f"{len(points)}", f"({centre})", f"({widths})"])
    return lines


FIGURE1 = View(
    "Figure 1: the records in three dimensions", record_table, record_comparison, record_figure
)
FIGURE2 = View(
    "Figure 2: two projections of them, element-wise and row-wise private",
    release_table,
    release_comparison,
    release_figure,
)
