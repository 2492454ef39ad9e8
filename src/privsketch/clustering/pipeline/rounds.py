"""One round of the pipeline: means of the records around public places, by noisy sums of residuals.

A round asks up to three questions, about the residuals of all records from the place next to each:
how long they are in all, how long they are around every place, and what their sums are. Residuals
are cut to a radius of their place, which contains most of them, and are measured in units of that
radius: the noise of a mean is in proportion to it. Both histograms come from one pass, the sums
from another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats, Integers, WholeFloats
from privsketch.clustering.edge import Means
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.plan import OWN_BINS, RADIUS_BINS
from privsketch.kernels.nearest import CompiledClusters, Norm
from privsketch.noise.account import Account

# Share of the residuals that is not cut. More have more noise, and cut ones still say where a
# cluster is.
# benchmarks constants clustering UNCUT_SHARE
UNCUT_SHARE = 0.7
UNIT = 2**20  # of a residual that is as long as the radius: rounding leaves parts in a million
PRIOR_DEVIATIONS = 2.0  # weight of the common histogram in that of a place, in noises of the latter


def norm_of(account: Account) -> Norm:
    """Return the norm in which residuals are cut: that of the sensitivity of the noise."""
    return 1 if account.shares.is_pure else 2


@dataclass(frozen=True)
class Bins:
    """Public edges of bins of lengths, growing by a constant factor up to the diameter.

    For the L2 norm, `edges` are squares, as in `kernels/nearest.lengths`.
    """

    edges: WholeFloats
    norm: Norm

    @classmethod
    def of(cls, diameter: float, norm: Norm, n_bins: int, shortest: float = 0.01) -> Bins:
        """Return edges from the share `shortest` of the diameter on; the first bin starts at 0."""
        edges = np.ceil(np.geomspace(shortest * diameter, diameter, n_bins))
        return cls(np.unique(edges**norm), norm)

    def quantile(self, counts: Floats, share: float) -> int:
        """Return the upper edge of the bin that holds the quantile of noisy counts."""
        smooth = np.maximum.accumulate(np.cumsum(counts))
        index = int(np.searchsorted(smooth, share * max(smooth[-1], 1.0)))
        edge = int(self.edges[min(index, len(self.edges) - 1)])
        return edge if self.norm == 1 else math.isqrt(edge)

    @property
    def lengths(self) -> Floats:
        """Upper ends of the bins as lengths."""
        return np.asarray(self.edges if self.norm == 1 else np.sqrt(self.edges))

    @property
    def coarse(self) -> Integers:
        """First bins of `OWN_BINS` groups of neighbouring bins."""
        return np.unique(np.linspace(0, len(self.edges), OWN_BINS, endpoint=False).astype(int))


def residual_lengths(passes: Passes, centers: WholeFloats, bins: Bins) -> Integers:
    """Count the residuals in each bin of lengths around each center, (k, n_bins), in one pass."""
    clusters = CompiledClusters(centers)

    def work(blocks: Iterable[WholeFloats]) -> tuple[Integers, ...]:
        return (clusters.lengths(blocks, bins.edges, bins.norm),)

    return passes.sums_of_blocks(work, "lengths of residuals")[0]


def residual_sums(
    passes: Passes,
    centers: WholeFloats,
    radii: WholeFloats,
    weight: int,
    norm: Norm,
    unit: int = UNIT,
) -> tuple[Integers, Integers]:
    """Sum the cut residuals, (k, dim), and weights, (k,), of each center, in one pass.

    `ReferenceClusters.residuals` defines the terms. One record moves the first sum by at most
    `unit` in the norm, and the second by at most the weight.
    """
    clusters = CompiledClusters(centers)

    def work(blocks: Iterable[WholeFloats]) -> tuple[Integers, ...]:
        return clusters.residuals(blocks, radii, unit, weight, norm)

    sums, counts = passes.sums_of_blocks(work, "sums of residuals")
    return sums, counts


def round_sensitivities(unit: int, weight: int) -> dict[str, int]:
    """Return the sensitivity of `residual_sums`: a record moves one residual and one weight.

    A replaced record moves them in two clusters, or in one. There residuals may point apart, and
    weights, which are not negative, differ by at most one weight.
    """
    squared = unit**2 + weight**2
    return {
        "l1": unit + weight,
        "l2_squared": squared,
        "l2_replaced": max(2 * squared, 4 * unit**2 + weight**2),
    }


@dataclass(frozen=True)
class Radii:
    """Released lengths of residuals: a radius of each place, and how much the cut takes.

    Attributes
    ----------
    radii : (k,) float64
        Whole numbers, at least 1.
    kept : (k,) float64
        Average weight of a record of each place.
    """

    radii: WholeFloats
    kept: Floats


def release_radii(passes: Passes, places: WholeFloats, account: Account, name: str) -> Radii:
    """Release radii that contain most residuals: a common one, or one of each place.

    Charges: the share "radius" of that name, and "radii" if there is one, for radii of their own.
    """
    norm = norm_of(account)
    diameter = 2 * float(passes.limits[0]) * (math.sqrt(passes.dim) if norm == 1 else 1)
    bins = Bins.of(diameter, norm, RADIUS_BINS)
    counts = residual_lengths(passes, places, bins)
    common, _ = account.counts(f"radius {name}", counts.sum(axis=0))
    shape = np.maximum(common, 0.0)
    shape = shape / shape.sum() if shape.any() else np.full(len(shape), 1 / len(shape))
    if f"radii {name}" not in account.shares.weights:
        radius = _quantile(_cumulated(common), bins.lengths, UNCUT_SHARE)
        radius = min(max(round(radius), 1), math.ceil(diameter))
        kept = float(shape @ np.minimum(1.0, radius / _middles(bins.lengths)))
        return Radii(np.full(len(places), float(radius)), np.full(len(places), kept))
    coarse = bins.coarse
    noisy, variance = account.counts(f"radii {name}", np.add.reduceat(counts, coarse, axis=1))
    prior = PRIOR_DEVIATIONS * math.sqrt(variance * len(coarse)) * np.add.reduceat(shape, coarse)
    ends = bins.lengths[np.append(coarse[1:], len(bins.edges)) - 1]
    own = _cumulated(noisy + prior)
    radii = np.array([_quantile(row, ends, UNCUT_SHARE) for row in own])
    steps = np.diff(own, axis=1, prepend=0.0) / np.maximum(own[:, -1:], 1e-300)
    kept = (steps * np.minimum(1.0, radii[:, np.newaxis] / _middles(ends))).sum(axis=1)
    radii = np.clip(np.rint(radii), 1.0, math.ceil(diameter))
    return Radii(radii, np.clip(kept, 0.5, 1.0))


def _middles(ends: Floats) -> Floats:
    """Return the geometric middles of bins with these upper ends, at least 1."""
    return np.asarray(np.maximum(np.sqrt(ends * np.append(ends[0] / 2, ends[:-1])), 1.0))


def _cumulated(counts: Floats) -> Floats:
    """Return cumulated noisy counts, which never fall and are at least 0."""
    return np.maximum.accumulate(np.maximum(np.cumsum(counts, axis=-1), 0.0), axis=-1)


def _quantile(cumulated: Floats, ends: Floats, share: float) -> float:
    """Return the quantile of cumulated counts, geometrically inside of its bin."""
    level = share * float(cumulated[-1])
    if not level > 0:
        return float(ends[-1])
    index = int(np.searchsorted(cumulated, level))
    before = float(cumulated[index - 1]) if index else 0.0
    low = float(ends[index - 1]) if index else float(ends[0]) / 2
    within = (level - before) / max(float(cumulated[index]) - before, 1e-300)
    return float(low * (float(ends[index]) / low) ** within)


@dataclass(frozen=True)
class Measured:
    """Noisy means around places.

    Attributes
    ----------
    places : (k, dim) float64
        Whole numbers.
    steps : (k, dim) float64
        Noisy sums of residuals, in units of the passes.
    counts, kept : (k,) float64
        Noisy sums of weights, each at most 1, and the average weight of a record.
    radii : (k,) float64
    noise : (k,) float64
        Variances of the noise of each coordinate of `steps`.
    count_noise : float
        Variance of the noise of `counts`.
    """

    places: WholeFloats
    steps: Floats
    counts: Floats
    kept: Floats
    radii: WholeFloats
    noise: Floats
    count_noise: float

    def means(self, passes: Passes, norm: Norm) -> Means:
        """Return the means in units of the records, with their errors."""
        unit = passes.unit
        return Means.of(
            self.steps * unit,
            self.counts,
            (self.noise[:, np.newaxis] * unit**2, self.count_noise),
            is_gaussian=norm == 2,
            around=self.places * unit + passes.domain.center_vector,
        )


def measure(
    passes: Passes,
    places: WholeFloats,
    radii: Radii,
    account: Account,
    name: str,
    count_weight: float,
) -> Measured:
    """Release sums of residuals around places. A record's count is worth `count_weight` radii.

    Charges: the share "round" of that name.
    """
    norm, weight = norm_of(account), max(1, round(count_weight * UNIT))
    sums, weights = residual_sums(passes, places, radii.radii, weight, norm)
    values = np.concatenate([sums, weights[:, np.newaxis]], axis=1)
    noisy, variance = account.noisy(f"round {name}", values, **round_sensitivities(UNIT, weight))
    lengths = radii.radii / UNIT
    return Measured(
        places,
        noisy[:, :-1] * lengths[:, np.newaxis],
        noisy[:, -1] / weight,
        radii.kept,
        radii.radii,
        variance * lengths**2,
        variance / weight**2,
    )
