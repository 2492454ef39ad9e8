"""Residual rounds: noisy steps from released centres towards the means of their clusters.

A record belongs to its nearest released centre c. What is summed is its residual x - c, cut to a
radius r, instead of x: noise is then in proportion to the width of clusters, not to the domain.
r comes from a noisy histogram of the residuals' lengths. Labels, residuals and lengths depend on
the record and on released numbers only, and are computed in integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privsketch.clustering.passes import Integers, Passes, Whole

Floats = npt.NDArray[np.float64]
N_BINS = 48


@dataclass(frozen=True)
class Bins:
    """Public edges of squared lengths, growing by a constant factor up to the diameter."""

    squared: npt.NDArray[np.float64]

    @classmethod
    def of(cls, diameter: float, n_bins: int = N_BINS) -> Bins:
        """Edges from a hundredth of the diameter on; the first bin starts at 0."""
        edges = np.ceil(np.geomspace(0.01 * diameter, diameter, n_bins))
        return cls(np.unique(edges**2))

    def counts(self, squared_lengths: Whole) -> Integers:
        """How many lengths are in each bin."""
        places = np.searchsorted(self.squared, squared_lengths, side="left")
        return np.bincount(np.minimum(places, len(self.squared) - 1), minlength=len(self.squared))

    def quantile(self, counts: Floats, share: float) -> int:
        """Upper edge of the bin that holds the quantile of noisy counts."""
        smooth = np.maximum.accumulate(np.cumsum(counts))
        place = int(np.searchsorted(smooth, share * max(smooth[-1], 1.0)))
        return math.isqrt(int(self.squared[min(place, len(self.squared) - 1)]))


def nearest(records: Whole, centers: Whole) -> npt.NDArray[np.intp]:
    """Index of the nearest centre, the first of several: exact for whole numbers."""
    scores = records @ (-2 * centers.T)
    scores += np.vecdot(centers, centers)
    return np.asarray(scores.argmin(axis=1))


def residual_lengths(passes: Passes, centers: Whole, bins: Bins) -> Integers:
    """One pass: how many residuals have which length."""

    def work(records: Whole) -> tuple[Integers, ...]:
        residuals = records - centers[nearest(records, centers)]
        return (bins.counts(np.vecdot(residuals, residuals)),)

    return passes.sums(work, "lengths of residuals")[0]


def residual_sums(
    passes: Passes, centers: Whole, radius: int, weight: int
) -> tuple[Integers, Integers]:
    """One pass: per cluster the sum of cut residuals, (k, dim), and of weights, (k,).

    A residual longer than the radius counts less, by f = radius / length: the sums are of
    f (x - c) and of f weight, each rounded towards 0. One record moves them by at most
    sqrt(radius^2 + weight^2) in L2.
    """
    k = len(centers)

    def work(records: Whole) -> tuple[Integers, ...]:
        label = nearest(records, centers)
        residuals = records - centers[label]
        squared = np.vecdot(residuals, residuals)
        kept = np.full(len(records), float(weight))
        far = np.flatnonzero(squared > float(radius) ** 2)
        if len(far):
            factor = radius / np.sqrt(squared[far])
            residuals[far] = np.trunc(residuals[far] * factor[:, np.newaxis])
            kept[far] = np.trunc(weight * factor)
        member = np.zeros((len(records), k))
        member[np.arange(len(records)), label] = 1.0
        # Sums of whole numbers below 2^53: exact in any order.
        return (member.T @ residuals).astype(np.int64), (kept @ member).astype(np.int64)

    sums, counts = passes.sums(work, "sums of residuals")
    return sums, counts
