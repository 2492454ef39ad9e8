"""BAL's Figure 2 as tables, words and pictures, from rows of bal_runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from papers.bal.methods import (
    DELTA,
    NO_PRIVACY,
    PIPELINE,
    PURE_PIPELINE,
    PURE_SULQ,
    SULQ,
    TREE,
    TREE_ROUNDS,
)
from papers.harness.rows import Row, number
from papers.harness.views import View, aligned
from privsketch.report.drawing import INK, PALETTE, figure_of

_STYLES = {
    NO_PRIVACY: (INK, "-", "o"),
    TREE: (PALETTE[0], "-", "s"),
    TREE_ROUNDS: (PALETTE[0], "--", "s"),
    SULQ: (PALETTE[1], "--", "^"),
    PURE_SULQ: (PALETTE[1], "-", "^"),
    PIPELINE: (PALETTE[2], "--", "D"),
    PURE_PIPELINE: (PALETTE[2], "-", "D"),
}


def table(found: Sequence[Row]) -> str:
    """RSSE of every method: the median of the runs and their quartiles."""
    blocks = []
    for data in _names(found):
        own = _measured(found, data)
        axis = _axis(own)
        places = sorted({number(row, axis) for row in own})
        first = own[0]
        fixed = (
            f"k = {first['k']}" if axis == "epsilon" else f"epsilon = {number(first, 'epsilon'):g}"
        )
        head = f"{data}, {first['records']} x {first['columns']}, {fixed}: RSSE"
        lines = []
        for method in _STYLES:
            rows = {number(row, axis): row for row in own if row["method"] == method}
            if rows:
                cells = [_cell(rows[place]) if place in rows else "-" for place in places]
                lines.append([_label(method), *cells])
        plain = [
            next(r for r in own if r["method"] == NO_PRIVACY and number(r, axis) == place)
            for place in places
        ]
        lines.append(
            ["objective without privacy", *(f"{number(r, 'objective'):.3g}" for r in plain)]
        )
        headings = [f"{axis} = {place:g}" for place in places]
        blocks.append(aligned([head, *headings], lines))
    return "\n\n".join(blocks)


def comparison(found: Sequence[Row]) -> str:
    """What the numbers say beside the paper, in sentences."""
    words = [
        "The paper reports its method close to k-means without privacy and below SuLQ at every "
        "number of clusters and epsilon, by more the more columns there are."
    ]
    for data in _names(found):
        own = _measured(found, data)
        parts = [f"{data}: RSSE {_range(own, TREE)} for {TREE} (pure)"]
        parts += [
            f"{_range(own, method)} for {method}"
            for method in (TREE_ROUNDS, PURE_SULQ, SULQ, PURE_PIPELINE, PIPELINE)
            if any(row["method"] == method for row in own)
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
    """The objective as in Figure 2, a panel for each data set; bands are quartiles."""
    names = _names(found)
    made, axes = figure_of(4.6 * len(names) + 2.2, 3.8, 1, len(names))
    for axis, data in zip(axes[0], names, strict=True):
        own = _measured(found, data)
        column = _axis(own)
        for method, (color, style, marker) in _STYLES.items():
            rows = sorted(
                (row for row in own if row["method"] == method), key=lambda r: number(r, column)
            )
            if not rows:
                continue
            places = [number(row, column) for row in rows]
            middle, low, high = (
                [number(row, name) for row in rows]
                for name in ("objective", "objective_low", "objective_high")
            )
            axis.plot(
                places,
                middle,
                style,
                color=color,
                marker=marker,
                markersize=4,
                linewidth=1.5,
                label=_label(method),
            )
            axis.fill_between(places, low, high, color=color, alpha=0.15, linewidth=0)
        places = sorted({number(row, column) for row in own})
        if column == "k":
            axis.set_xscale("log", base=2)
            axis.set_xticks(places, [f"{place:g}" for place in places])
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
    own = [row for row in found if row["data"] == data]
    return [row for row in own if not math.isnan(number(row, "objective"))]


def _axis(own: Sequence[Row]) -> str:
    """What varies: epsilon in panel (d), k elsewhere."""
    return "epsilon" if len({number(row, "epsilon") for row in own}) > 1 else "k"


def _label(method: str) -> str:
    needs = method in (TREE_ROUNDS, SULQ, PIPELINE)
    return f"{method}, delta = 1e{math.log10(DELTA):.0f}" if needs else method


def _cell(row: Row) -> str:
    return f"{_short(row, 'rsse')} ({_short(row, 'rsse_low')}-{_short(row, 'rsse_high')})"


def _short(row: Row, name: str) -> str:
    value = number(row, name)
    return f"{value:.3f}" if value < 2 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _range(own: Sequence[Row], method: str) -> str:
    """Smallest and largest median."""
    rows = sorted(
        (row for row in own if row["method"] == method), key=lambda row: number(row, "rsse")
    )
    return f"{_short(rows[0], 'rsse')} to {_short(rows[-1], 'rsse')}" if rows else "no numbers"


def _wins(own: Sequence[Row], method: str, *others: str) -> str:
    """In how many cells a method has the smallest median."""
    axis = _axis(own)
    medians = {(str(row["method"]), number(row, axis)): number(row, "rsse") for row in own}
    places = [place for name, place in medians if name == method]
    wins = sum(
        all(
            medians[method, place] < medians[other, place]
            for other in others
            if (other, place) in medians
        )
        for place in places
    )
    return f"{wins} of {len(places)} cells"


SYNTHETIC, IMAGES, BY_EPSILON = (
    View(f"Figure 2 {shows}", table, comparison, figure)
    for shows in (
        "(a): k-means objective of 64 Gaussians against k",
        "(b, c): k-means objective of images against k",
        "(d): k-means objective of images against epsilon",
    )
)
