"""JLL Figure 3: recovered minus true squared distances, a new matrix for every pair and release.

A million matrices would be drawn one by one. Instead one wide matrix is drawn for many pairs: a
pair's records fill a block of columns of their own and are zero elsewhere, so that each pair
meets only its own rows of the matrix, which are independent of all others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from privsketch.domain import Ball
from privsketch.learning.threads import one_thread
from privsketch.release.distances import Distances, Released
from privsketch.release.projection import Projection
from privsketch.report.drawing import INK, PALETTE, figure_of
from privsketch.reproduce.jll_setting import BOUND, EPSILON, Floats, ball, records, released
from privsketch.reproduce.results import Progress, Row, aligned, number

PRINTED = {"element": 0.006, "row": -0.011}  # means of one run
_DIM, _COMPONENTS = 3, 2
# Pairs, releases of each, pairs that share a wide matrix.
_RUNS = {"full": (1000, 1000, 50), "quick": (1000, 50, 50), "tiny": (40, 5, 20)}
_EDGES = np.arange(-100.0, 301.0, 2.0)  # the first and last bin hold all that is beyond
_SHOWN = (-60.0, 90.0)
_SEED = 0


def sampled_pairs(n_pairs: int) -> tuple[Floats, Floats]:
    """Pairs of different records, (n_pairs, dim) each."""
    table, _ = records(_DIM)
    rng = np.random.default_rng(_SEED)
    first = rng.integers(len(table), size=n_pairs)
    second = (first + rng.integers(1, len(table), size=n_pairs)) % len(table)
    return table[first], table[second]


def recovered(first: Floats, second: Floats, protect: str) -> tuple[Floats, Distances]:
    """Squared distances of pairs from one release, each pair with a matrix of its own.

    And what is known about them. Charges nothing here: records are synthetic.
    """
    n_pairs, dim = first.shape
    wide = Projection.draw(
        Ball(dim=n_pairs * dim, radius=ball(dim).radius, center=0.0),
        _COMPONENTS,
        epsilon=EPSILON,
        protect=protect,
        bound=BOUND,
        calibration="paper",
    )
    blocks = np.zeros((2, n_pairs, n_pairs, dim))
    every = np.arange(n_pairs)
    blocks[0, every, every] = first
    blocks[1, every, every] = second
    distances = Distances(Released(released(wide, blocks.reshape(2 * n_pairs, -1)), wide))
    return distances.pairs(every, n_pairs + every), distances


def rows(effort: str, progress: Progress) -> Iterator[Row]:
    """Bins of the histogram; their counts and sums add up to those of all differences."""
    n_pairs, n_releases, together = _RUNS[effort]
    first, second = sampled_pairs(n_pairs)
    true = np.square(first - second).sum(axis=1)
    done, total = 0, 2 * n_releases * n_pairs
    for protect in PRINTED:
        sums = np.zeros((3, len(_EDGES) - 1))
        for _ in range(n_releases):
            for start in range(0, n_pairs, together):
                part = slice(start, start + together)
                with one_thread():
                    squares, distances = recovered(first[part], second[part], protect)
                found = squares - true[part]
                place = np.clip(np.digitize(found, _EDGES) - 1, 0, len(_EDGES) - 2)
                for power in range(3):
                    np.add.at(sums[power], place, found**power)
                done += len(found)
                progress(done / total)
        expected = float(distances.variance(true).mean())
        claimed = float(claim_7(true, distances.rows.variance).mean())
        for low, high, count, sum_1, sum_2 in zip(_EDGES, _EDGES[1:], *sums, strict=False):
            yield {
                "protect": protect,
                "low": float(low),
                "high": float(high),
                "count": int(count),
                "sum": float(sum_1),
                "sum_of_squares": float(sum_2),
                "expected_variance": expected,
                "claim_7": claimed,
            }


def claim_7(true: Floats, noise_variance: float) -> Floats:
    """The variance as printed, for squared distances `true`."""
    k, s2 = _COMPONENTS, noise_variance
    return 2 / k * true**2 + 2 * k * (7 * s2**2 - s2) + 4 * s2 * true


def moments(found: Sequence[Row], protect: str) -> tuple[float, float, float]:
    """Mean of the differences, its standard error, and their variance.

    Every difference has mean 0, so the square of differences is their variance.
    """
    own = [row for row in found if row["protect"] == protect]
    count, total, squares = (
        sum(number(row, name) for row in own) for name in ("count", "sum", "sum_of_squares")
    )
    variance = squares / count
    return total / count, math.sqrt(variance / count), variance


def variances(found: Sequence[Row], protect: str) -> tuple[float, float]:
    """By the corrected formula, and by JLL Claim 7 as printed; averages over the pairs."""
    row = next(row for row in found if row["protect"] == protect)
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
    """What the numbers say, in sentences."""
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
    made, axes = figure_of(8.6, 3.2, 1, 2)
    for axis, (protect, color) in zip(axes[0], zip(PRINTED, PALETTE, strict=False), strict=True):
        own = [row for row in found if row["protect"] == protect]
        counts = np.array([number(row, "count") for row in own])
        low, high = (np.array([number(row, name) for row in own]) for name in ("low", "high"))
        heights = counts / counts.sum() / (high - low)
        axis.bar(low, heights, width=high - low, align="edge", color=color, alpha=0.75, lw=0)
        mean, error, _ = moments(found, protect)
        axis.axvline(mean, color=INK, linewidth=1.2)
        axis.set_title(f"{protect}-wise", fontsize=9)
        axis.set_xlabel("recovered minus true squared distance")
        axis.set_xlim(*_SHOWN)
        axis.annotate(
            f"mean {mean:+.3f} ± {error:.3f}\n(paper {PRINTED[protect]:+.3f})",
            (0.55, 0.8),
            xycoords="axes fraction",
            fontsize=8,
        )
    axes[0, 0].set_ylabel("density")
    return made
