"""Residual rounds: noisy steps from released centers towards the means of their clusters.

A record belongs to its nearest released center c. What is summed is its residual x - c, cut to a
radius r, instead of x: noise is then in proportion to the width of clusters, not to the domain.
r comes from a noisy histogram of the residuals' lengths. Labels, residuals and lengths depend on
the record and on released numbers only, and are computed in integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats, Integers, Whole
from privsketch.clustering.passes import Passes
from privsketch.kernels.nearest import CompiledClusters, Norm

N_BINS = 48  # from a hundredth on, each 100^(1/47) = 1.10 times as long as the one before


@dataclass(frozen=True)
class Bins:
    """Public edges of lengths, growing by a constant factor up to the diameter.

    `edges` are as `kernels/nearest.lengths` gives them: squares for the L2 norm.
    """

    edges: Whole
    norm: Norm

    @classmethod
    def of(cls, diameter: float, norm: Norm, n_bins: int = N_BINS) -> Bins:
        """Edges from a hundredth of the diameter on; the first bin starts at 0."""
        edges = np.ceil(np.geomspace(0.01 * diameter, diameter, n_bins))
        return cls(np.unique(edges**norm), norm)

    def quantile(self, counts: Floats, share: float) -> int:
        """Upper edge of the bin that holds the quantile of noisy counts."""
        smooth = np.maximum.accumulate(np.cumsum(counts))
        place = int(np.searchsorted(smooth, share * max(smooth[-1], 1.0)))
        edge = int(self.edges[min(place, len(self.edges) - 1)])
        return edge if self.norm == 1 else math.isqrt(edge)


def residual_lengths(passes: Passes, centers: Whole, bins: Bins) -> Integers:
    """One pass: how many residuals have which length."""
    clusters = CompiledClusters(centers)

    def work(blocks: Iterable[Whole]) -> tuple[Integers, ...]:
        return (clusters.lengths(blocks, bins.edges, bins.norm),)

    return passes.sums_of_blocks(work, "lengths of residuals")[0]


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

    What a record adds is in `Clusters.residuals`: one moves the first by at most the radius in
    the norm, and the second by at most the weight.
    """
    clusters = CompiledClusters(centers)

    def work(blocks: Iterable[Whole]) -> tuple[Integers, ...]:
        return clusters.residuals(blocks, radius, weight, norm)

    sums, counts = passes.sums_of_blocks(work, "sums of residuals")
    return sums, counts
