"""What tables, words and pictures of all papers share."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from papers.harness.rows import Row, numbers
from privsketch.models.drawing.axes import figure_of

_PIXELS_PER_INCH = 160
_COLOURS = 256


@dataclass(frozen=True)
class View:
    """How rows are shown: as a table beside the paper's numbers, in words, and as a picture.

    `shows` is what it is in the paper, as a title.
    """

    shows: str
    table: Callable[[Sequence[Row]], str]
    comparison: Callable[[Sequence[Row]], str]
    figure: Callable[[Sequence[Row]], Any] | None = None


def aligned(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table as text: the first column to the left, all others to the right."""
    widths = [max(len(line[i]) for line in [headings, *lines]) for i in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [headings, *lines]
    )


def short(ratio: float) -> str:
    """Format a relative error: three decimals near 1, fewer beyond."""
    return f"{ratio:.3f}" if ratio < 2 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def rank_correlation(rows: Sequence[Row], first: str, second: str) -> float:
    """Spearman's coefficient of two columns."""
    from scipy.stats import spearmanr

    return float(spearmanr(numbers(rows, first), numbers(rows, second)).statistic)


def side_by_side(
    width: float, height: float, titles: Sequence[str], *, across: str, up: str
) -> tuple[Any, list[Any]]:
    """Return a figure of panels side by side with labelled axes, and the axes."""
    made, axes = figure_of(width, height, 1, len(titles))
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(across)
    axes[0, 0].set_ylabel(up)
    return made, list(axes[0])


def plot_quartiles(
    axis: Any, rows: Sequence[Row], across: str, up: str, *, color: str, **style: Any
) -> None:
    """Draw a line of medians with a band between the quartiles."""
    places = numbers(rows, across)
    axis.plot(places, numbers(rows, up), color=color, markersize=4, linewidth=1.5, **style)
    low, high = (numbers(rows, f"{up}_{end}") for end in ("low", "high"))
    axis.fill_between(places, low, high, color=color, alpha=0.15, linewidth=0)


def to_png(figure: Any) -> bytes:
    """Return a matplotlib figure as an image in few colours: a third of the bytes."""
    from PIL import Image  # matplotlib needs it too

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_PIXELS_PER_INCH)
    picture = (
        Image.open(drawn)
        .convert("RGB")
        .quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    )
    picture.save(small, format="png", optimize=True)
    return small.getvalue()
