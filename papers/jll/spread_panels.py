"""JLL Figure 4 as a table, words and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from papers.harness.rows import Row, number, numbers, places, where
from papers.harness.views import View, aligned, side_by_side
from papers.jll.spread import CURVES, DIM, printed_scale
from privsketch.models.drawing.axes import INK, PALETTE

_NAMES = {
    ("element", "paper"): "element-wise, paper",
    ("row", "paper"): "row-wise, paper",
    ("row", "union"): "row-wise, union bound",
    ("element", "auto"): "element-wise, ours",
    ("row", "auto"): "row-wise, ours",
}
_COLORS = (PALETTE[0], PALETTE[1], PALETTE[7], PALETTE[0], PALETTE[1])


def table(found: Sequence[Row]) -> str:
    """Tabulate standard deviations by number of components, as printed and as measured."""
    shown = [k for k in places(found, "k") if k in (2, 3, 5, 10, 20, 50)]
    headings = ["standard deviation", *(f"k = {k:g}" for k in shown)]
    lines = []
    for protect, calibration in CURVES:
        own = [_row(found, k, protect, calibration) for k in shown]
        for words, column in (("as Figure 4", "paper_formula"), ("measured", "measured")):
            name = f"{_NAMES[protect, calibration]}: {words}"
            lines.append([name, *(f"{value:.3f}" for value in numbers(own, column))])
    return aligned(headings, lines)


def comparison(found: Sequence[Row]) -> str:
    """State the results in sentences."""
    paper = where(found, calibration="paper")
    exact = max(
        abs(number(row, "noise_std") / math.sqrt(2) / printed_scale(str(row["protect"]), k) - 1)
        for row, k in ((row, int(row["k"])) for row in paper)
    )
    off = max(abs(number(row, "measured") / number(row, "right_formula") - 1) for row in found)
    factor = max(number(row, "measured") / number(row, "paper_formula") for row in paper)
    largest = max(int(row["k"]) for row in found)
    ours, theirs, union = (
        number(_row(found, largest, "row", name), "noise_std")
        for name in ("auto", "paper", "union")
    )
    return (
        f"Our noise with the paper's scales follows its formula to {exact:.0e}. The formula is not "
        "that of released numbers: its 1 has to be d / k. The measured spread around the centre of "
        f"a cluster is up to {factor:.1f} times the printed one, and within {off:.0%} of "
        f"sqrt(d / k + 2 b^2), d = {DIM}, matrices being random. Clusters stay 4 apart on "
        f"average, so that more components help at first. At k = {largest} rows need noise of "
        f"standard deviation {ours:.2f} (ours, delta = 1e-6) where the paper has {theirs:.2f} "
        f"and its bound with that delta {union:.2f}."
    )


def figure(found: Sequence[Row]) -> Any:
    """As printed on the left, what is released on the right."""
    titles = [
        "as printed: sqrt(1 + noise variance)",
        f"released, d = {DIM}: sqrt(d/k + noise variance), dots measured",
    ]
    across = "k, released numbers per record"
    made, (left, right) = side_by_side(9.4, 3.6, titles, across=across, up="standard deviation")
    sizes = places(found, "k")
    for (protect, calibration), color in zip(CURVES, _COLORS, strict=True):
        own = [_row(found, k, protect, calibration) for k in sizes]
        style = "-" if calibration == "paper" else "--"
        for axis, column in ((left, "paper_formula"), (right, "right_formula")):
            label = _NAMES[protect, calibration]
            axis.plot(sizes, numbers(own, column), style, color=color, label=label, linewidth=1.6)
        values = numbers(own, "measured")
        right.plot(sizes, values, "o", color=color, markersize=2.5, alpha=0.6, lw=0)
    right.axhline(2.0, color=INK, linewidth=0.8, linestyle=":")
    right.annotate(
        "half the distance of the centres",
        (0.98, 1.9),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="top",
        fontsize=7.5,
        color=INK,
    )
    for axis in (left, right):
        axis.set_ylim(0, 11)
    left.legend(frameon=False, fontsize=8)
    return made


def _row(found: Sequence[Row], k: float, protect: str, calibration: str) -> Row:
    return where(found, k=k, protect=protect, calibration=calibration)[0]


FIGURE4 = View(
    "Figure 4: standard deviation of released numbers against k", table, comparison, figure
)
