"""JLL Figure 3 as a table, words and a picture, from bins of its histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.harness.rows import Row, number, numbers, where
from papers.harness.views import View, aligned, side_by_side
from papers.jll.distances import PROTECT
from privsketch.models.drawing.axes import INK, PALETTE

PRINTED = dict(zip(PROTECT, (0.006, -0.011), strict=True))  # means of one run
_SHOWN = (-60.0, 90.0)


def moments(found: Sequence[Row], protect: str) -> tuple[float, float, float]:
    """Mean of the differences, its standard error, and their variance.

    Every difference has mean 0, so the square of differences is their variance.
    """
    own = where(found, protect=protect)
    count, total, squares = (sum(numbers(own, name)) for name in ("count", "sum", "sum_of_squares"))
    variance = squares / count
    return total / count, math.sqrt(variance / count), variance


def variances(found: Sequence[Row], protect: str) -> tuple[float, float]:
    """By the corrected formula, and by JLL Claim 7 as printed; averages over the pairs."""
    row = where(found, protect=protect)[0]
    return number(row, "expected_variance"), number(row, "claim_7")


def table(found: Sequence[Row]) -> str:
    """Means and variances beside the printed ones."""
    lines = []
    for protect, printed in PRINTED.items():
        mean, error, variance = moments(found, protect)
        right, claimed = variances(found, protect)
        lines.append(
            [
                f"{protect}-wise",
                f"{printed:+.3f}",
                f"{mean:+.4f} ± {error:.4f}",
                f"{variance:.1f}",
                f"{right:.1f}",
                f"{claimed:.1f}",
            ]
        )
    return aligned(
        ["difference", "printed mean", "mean", "variance", "corrected formula", "Claim 7"], lines
    )


def comparison(found: Sequence[Row]) -> str:
    """State the results in sentences."""
    words = []
    for protect in PRINTED:
        mean, error, variance = moments(found, protect)
        right, claimed = variances(found, protect)
        words.append(
            f"{protect}-wise the mean is {abs(mean) / error:.1f} standard errors from 0, and the "
            f"variance {variance / right - 1:+.1%} from the corrected formula, "
            f"{variance / claimed - 1:+.1%} from Claim 7"
        )
    count = sum(int(row["count"]) for row in found) // len(PRINTED)
    return (
        f"Distances are recovered without bias, as printed, over {count:,} pairs and releases: "
        + "; ".join(words)
        + ".\nThe spread is wide: one recovered distance says little. Releasing a pair 1000 times, "
        "as this experiment does, would cost 1000 epsilon = 4000."
    )


def figure(found: Sequence[Row]) -> Any:
    """Histograms side by side."""
    titles = [f"{protect}-wise" for protect in PRINTED]
    across = "recovered minus true squared distance"
    made, axes = side_by_side(8.6, 3.2, titles, across=across, up="density")
    for axis, protect, color in zip(axes, PRINTED, PALETTE, strict=False):
        own = where(found, protect=protect)
        counts, low, high = (np.array(numbers(own, name)) for name in ("count", "low", "high"))
        heights = counts / counts.sum() / (high - low)
        axis.bar(low, heights, width=high - low, align="edge", color=color, alpha=0.75, lw=0)
        mean, error, _ = moments(found, protect)
        axis.axvline(mean, color=INK, linewidth=1.2)
        axis.set_xlim(*_SHOWN)
        axis.annotate(
            f"mean {mean:+.3f} ± {error:.3f}\n(paper {PRINTED[protect]:+.3f})",
            (0.55, 0.8),
            xycoords="axes fraction",
            fontsize=8,
        )
    return made


FIGURE3 = View("Figure 3: recovered minus true squared distances", table, comparison, figure)
