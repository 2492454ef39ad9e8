"""Residual rounds: noisy steps from released centers towards the means of their clusters.

A record belongs to its nearest released center c. What is summed is its residual x - c, cut to a
radius r, instead of x: noise is then in proportion to the width of clusters, not to the domain.
r comes from a noisy histogram of the residuals' lengths. Labels, residuals and lengths depend on
the record and on released numbers only, and are computed in integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats, Integers, Whole
from privsketch.clustering.run import Passes

Norm = Literal[1, 2]
N_BINS = 48  # from a hundredth on, each 100^(1/47) = 1.10 times as long as the one before


@dataclass(frozen=True)
class Bins:
    """Public edges of lengths, growing by a constant factor up to the diameter.

    `edges` are as `lengths` gives them: squares for the L2 norm.
    """

    edges: Whole
    norm: Norm

    @classmethod
    def of(cls, diameter: float, norm: Norm, n_bins: int = N_BINS) -> Bins:
        """Edges from a hundredth of the diameter on; the first bin starts at 0."""
        edges = np.ceil(np.geomspace(0.01 * diameter, diameter, n_bins))
        return cls(np.unique(edges**norm), norm)

    def counts(self, found: Whole) -> Integers:
        """How many of the `lengths` are in each bin."""
        places = np.searchsorted(self.edges, found, side="left")
        return np.bincount(np.minimum(places, len(self.edges) - 1), minlength=len(self.edges))

    def quantile(self, counts: Floats, share: float) -> int:
        """Upper edge of the bin that holds the quantile of noisy counts."""
        smooth = np.maximum.accumulate(np.cumsum(counts))
        place = int(np.searchsorted(smooth, share * max(smooth[-1], 1.0)))
        edge = int(self.edges[min(place, len(self.edges) - 1)])
        return edge if self.norm == 1 else math.isqrt(edge)


def nearest(records: Whole, centers: Whole) -> npt.NDArray[np.intp]:
    """Index of the nearest center, the first of several: exact for whole numbers."""
    scores = records @ (-2 * centers.T)
    scores += np.vecdot(centers, centers)
    return np.asarray(scores.argmin(axis=1))


def lengths(points: Whole, norm: Norm) -> Whole:
    """L1 lengths, or squared L2 ones, of whole numbers (n, dim)."""
    if norm == 1:
        return np.asarray(np.abs(points).sum(axis=1))
    return np.asarray(np.vecdot(points, points))


def residual_lengths(passes: Passes, centers: Whole, bins: Bins) -> Integers:
    """One pass: how many residuals have which length."""

    def work(records: Whole) -> tuple[Integers, ...]:
        residuals = records - centers[nearest(records, centers)]
        return (bins.counts(lengths(residuals, bins.norm)),)

    return passes.sums(work, "lengths of residuals")[0]


def round_sensitivities(radius: int, weight: int) -> dict[str, int]:
    """How far one record moves `residual_sums`: a residual and a weight of one cluster.

    A record that is replaced moves them in two clusters; or in one, where residuals may point apart
    and weights, which are not negative, differ by at most one of them.
    """
    squared = radius**2 + weight**2
    return {
        "l1": radius + weight,
        "l2_squared": squared,
        "l2_replaced": max(2 * squared, 4 * radius**2 + weight**2),
    }


def residual_sums(
    passes: Passes, centers: Whole, radius: int, weight: int, norm: Norm
) -> tuple[Integers, Integers]:
    """One pass: per cluster the sum of cut residuals, (k, dim), and of weights, (k,).

    A residual longer than the radius counts less, by f = radius / length: the sums are of
    f (x - c) and of f weight, each rounded towards 0. One record moves the first by at most
    the radius in the norm, and the second by at most the weight.
    """
    k = len(centers)

    def work(records: Whole) -> tuple[Integers, ...]:
        label = nearest(records, centers)
        residuals = records - centers[label]
        length = lengths(residuals, norm)
        kept = np.full(len(records), float(weight))
        far = np.flatnonzero(length > (radius if norm == 1 else float(radius) ** 2))
        if len(far):
            # A product rounded up to the next integer makes a length too long by parts in 10^15:
            # lengths, and squares, are integers far below that, so that they stay within.
            factor = radius / (length[far] if norm == 1 else np.sqrt(length[far]))
            residuals[far] = np.trunc(residuals[far] * factor[:, np.newaxis])
            kept[far] = np.trunc(weight * factor)
        member = np.zeros((len(records), k))
        member[np.arange(len(records)), label] = 1.0
        # Sums of whole numbers below 2^53: exact in any order.
        return (member.T @ residuals).astype(np.int64), (kept @ member).astype(np.int64)

    sums, counts = passes.sums(work, "sums of residuals")
    return sums, counts
