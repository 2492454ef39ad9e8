"""BAL's Figure 2 as tables, words and pictures, from rows of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from papers.bal import methods
from papers.bal.methods import NO_PRIVACY, PIPELINE, PURE_SULQ, SULQ, TREE, TREE_ROUNDS
from papers.harness.rows import Row, number, numbers, places, where
from papers.harness.views import View, aligned, plot_quartiles, short
from privsketch.models.drawing.axes import INK, PALETTE, figure_of

_STYLES = {
    NO_PRIVACY: (INK, "-", "o"),
    TREE: (PALETTE[0], "-", "s"),
    TREE_ROUNDS: (PALETTE[0], "--", "s"),
    SULQ: (PALETTE[1], "--", "^"),
    PURE_SULQ: (PALETTE[1], "-", "^"),
    PIPELINE: (PALETTE[2], "--", "D"),
    methods.PURE_PIPELINE: (PALETTE[2], "-", "D"),
}


def table(found: Sequence[Row]) -> str:
    """RSSE of every method: the median of the runs and their quartiles."""
    blocks = []
    for data in _names(found):
        own = _measured(found, data)
        axis = _axis(own)
        shown = places(own, axis)
        first = own[0]
        fixed = (
            f"k = {first['k']}" if axis == "epsilon" else f"epsilon = {number(first, 'epsilon'):g}"
        )
        head = f"{data}, {first['records']} x {first['columns']}, {fixed}: RSSE"
        lines = []
        for method in _STYLES:
            rows = {number(row, axis): row for row in where(own, method=method)}
            if rows:
                cells = [_cell(rows[place]) if place in rows else "-" for place in shown]
                lines.append([_label(method), *cells])
        plain = [where(own, method=NO_PRIVACY, **{axis: place})[0] for place in shown]
        costs = [f"{cost:.3g}" for cost in numbers(plain, "objective")]
        lines.append(["objective without privacy", *costs])
        headings = [f"{axis} = {place:g}" for place in shown]
        blocks.append(aligned([head, *headings], lines))
    return "\n\n".join(blocks)


def comparison(found: Sequence[Row]) -> str:
    """Compare the numbers with the paper's, in sentences."""
    words = [
        "The paper reports its method close to k-means without privacy and below SuLQ at every "
        "number of clusters and epsilon, by more the more columns there are."
    ]
    for data in _names(found):
        own = _measured(found, data)
        parts = [f"{data}: RSSE {_range(own, TREE)} for {TREE} (pure)"]
        parts += [
            f"{_range(own, method)} for {method}"
            for method in (TREE_ROUNDS, PURE_SULQ, SULQ, methods.PURE_PIPELINE, PIPELINE)
            if where(own, method=method)
        ]
        words.append(
            "; ".join(parts)
            + f". Of two pure methods, {TREE} has the smaller median than {PURE_SULQ} in "
            + f"{_wins(own, TREE, PURE_SULQ)}; with delta, {TREE_ROUNDS} than {SULQ} in "
            + f"{_wins(own, TREE_ROUNDS, SULQ)}; {PIPELINE} than all of them in "
            + f"{_wins(own, PIPELINE, TREE, TREE_ROUNDS, SULQ, PURE_SULQ)}."
        )
    notes = {(str(row["method"]), str(row["note"])) for row in found if row["note"]}
    words += [f"Not run: {method}, {note}." for method, note in sorted(notes)]
    return "\n".join(words)


def figure(found: Sequence[Row]) -> Any:
    """Draw the objective as in Figure 2, a panel for each data set; bands are quartiles."""
    names = _names(found)
    made, axes = figure_of(4.6 * len(names) + 2.2, 3.8, 1, len(names))
    for axis, data in zip(axes[0], names, strict=True):
        own = _measured(found, data)
        column = _axis(own)
        for method, (color, style, marker) in _STYLES.items():
            rows = sorted(where(own, method=method), key=lambda row: number(row, column))
            if rows:
                look = {"linestyle": style, "marker": marker, "label": _label(method)}
                plot_quartiles(axis, rows, column, "objective", color=color, **look)
        if column == "k":
            sizes = places(own, column)
            axis.set_xscale("log", base=2)
            axis.set_xticks(sizes, [f"{size:g}" for size in sizes])
            axis.minorticks_off()
            axis.set_xlabel("k")
        else:
            axis.set_xlim(0, None)
            axis.set_xlabel("epsilon")
        axis.set_ylim(0, None)
        axis.set_title(f"{data} (d = {own[0]['columns']})", fontsize=9)
    axes[0, 0].set_ylabel("k-means objective")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return made


def _names(found: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["data"]) for row in found))


def _measured(found: Sequence[Row], data: str) -> list[Row]:
    """Rows of a data set that have numbers."""
    return [row for row in where(found, data=data) if not math.isnan(number(row, "objective"))]


def _axis(own: Sequence[Row]) -> str:
    """Return the name of the varying parameter: epsilon in panel (d), k elsewhere."""
    return "epsilon" if len(places(own, "epsilon")) > 1 else "k"


def _label(method: str) -> str:
    needs = method in (TREE_ROUNDS, SULQ, PIPELINE)
    return f"{method}, delta = 1e{math.log10(methods.DELTA):.0f}" if needs else method


def _cell(row: Row) -> str:
    middle, low, high = (short(number(row, f"rsse{end}")) for end in ("", "_low", "_high"))
    return f"{middle} ({low}-{high})"


def _range(own: Sequence[Row], method: str) -> str:
    """Smallest and largest median."""
    medians = places(where(own, method=method), "rsse")
    return f"{short(medians[0])} to {short(medians[-1])}" if medians else "no numbers"


def _wins(own: Sequence[Row], method: str, *others: str) -> str:
    """In how many cells a method has the smallest median."""
    axis = _axis(own)
    medians = {(str(row["method"]), number(row, axis)): number(row, "rsse") for row in own}
    measured = [place for name, place in medians if name == method]
    wins = sum(
        all(
            medians[method, place] < medians[other, place]
            for other in others
            if (other, place) in medians
        )
        for place in measured
    )
    return f"{wins} of {len(measured)} cells"


SYNTHETIC, IMAGES, BY_EPSILON = (
    View(f"Figure 2 {shows}", table, comparison, figure)
    for shows in (
        "(a): k-means objective of 64 Gaussians against k",
        "(b, c): k-means objective of images against k",
        "(d): k-means objective of images against epsilon",
    )
)
