"""The page and the picture of a comparison: verdicts, differences, and shares of clusters."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import numpy as np

from privsketch._base.formats import write_file
from privsketch.models.drawing.axes import INK, figure_of
from privsketch.pages.comparison.result import Comparison, center_text, shortened
from privsketch.pages.report.rendering import render, svg_of

_DARK_TEXT = "#1f2328"  # on light cells; unlike INK, it stays in dark mode
_ALARM, _DIFFERS, _ALIKE = "#dc6a1e", "#3366cc", "#8c959f"
MAX_DRAWN_SOURCES = 40  # in a picture, those that differ most: it stays as high as a page
_ROW_HEIGHT = 0.3  # inches for each source


def comparison_page(comparison: Comparison) -> str:
    """Return the comparison as HTML text."""
    plot = None
    if find_spec("matplotlib") is not None:
        title = "Differences of the sources, and their shares of clusters"
        plot = svg_of(picture_of(comparison, 8.6, 0.9), "sources", title)
    clusters = comparison.clusters
    return render(
        "comparison.html",
        title="Comparison of sources",
        comparison=comparison,
        insecure=comparison.design.insecure,
        plot=plot,
        centers=None
        if clusters is None
        else [center_text(comparison.design, center) for center in clusters.centers],
    )


def save_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the page to a file."""
    write_file(path, comparison_page(comparison).encode("utf-8"))


def drawn_sources(comparison: Comparison) -> list[int]:
    """Return the numbers of the sources in the picture, in their order."""
    order = sorted(range(len(comparison.sources)), key=lambda s: -comparison.sources[s].difference)
    return sorted(order[:MAX_DRAWN_SOURCES])


def draw_differences(comparison: Comparison, axis: Any) -> None:
    """Draw a bar for each source: how much it differs from the others."""
    shown = [comparison.sources[s] for s in drawn_sources(comparison)]
    sizes = [100 * item.difference if item.differs else 0.0 for item in shown]
    colors = [_ALARM if item.is_alarm else _DIFFERS if item.differs else _ALIKE for item in shown]
    rows = np.arange(len(shown))
    axis.barh(rows, sizes, color=colors, height=0.6)
    for row, (item, size) in enumerate(zip(shown, sizes, strict=True)):
        if item.is_alarm:
            text = f"alarm: {item.words()}"
        else:
            text = "" if item.differs else "like the others"
        axis.text(size + 1, row, _plain(text, 34), va="center", fontsize=8, color=INK)
    axis.set_yticks(rows, [_plain(item.source, 22) for item in shown])
    axis.set_xlim(0, max(*sizes, 10.0) * 1.6)
    axis.invert_yaxis()
    axis.set_xlabel("difference from the others, % of the features' size")


def draw_shares(comparison: Comparison, axis: Any) -> None:
    """Draw shares of clusters as shades; a star marks a cluster that only one source has."""
    clusters = comparison.clusters
    if clusters is None:
        axis.set_axis_off()
        return
    sources = drawn_sources(comparison)
    shares = clusters.shares[sources]
    axis.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for row, line in enumerate(shares):
        for column, share in enumerate(line):
            if shares.shape[1] <= 12:
                color = "white" if share > 0.55 else _DARK_TEXT
                mark = "*" if (column, sources[row]) in clusters.alone else ""
                text = f"{100 * share:.0f}{mark}"
                axis.text(column, row, text, ha="center", va="center", fontsize=8, color=color)
    axis.set_yticks(range(len(sources)), [""] * len(sources))
    axis.set_xticks(range(shares.shape[1]), [str(c + 1) for c in range(shares.shape[1])])
    axis.set_xlabel("share of cluster, % (* only here)")


def picture_of(comparison: Comparison, width: float = 8.0, margin: float = 1.2) -> Any:
    """Return a matplotlib figure of both, `width` inches wide, with `margin` inches around rows."""
    n_rows = len(drawn_sources(comparison))
    figure, axes = figure_of(width, margin + _ROW_HEIGHT * max(n_rows, 3), 1, 2)
    first, second = axes[0]
    draw_differences(comparison, first)
    draw_shares(comparison, second)
    return figure


def _plain(text: str, longest: int) -> str:
    """Return text that is not too long and that matplotlib never reads as a formula."""
    return shortened(text, longest).replace("$", r"\$")
