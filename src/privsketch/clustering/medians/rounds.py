"""Median rounds: noisy steps of Weiszfeld's from released centers to the medians of their clusters.

A record x belongs to its nearest released center c. With L = max(|x - c|, l), the center moves by
the sum of (x - c) / L over the sum of 1 / L: the mean of the records, each weighted by how near it
is, which is one step of reweighted least squares. Sums are of whole numbers, ONE (x - c) / L and
WEIGHT l / L, both bounded whatever the record is. l is a small quantile of the lengths, from a
noisy histogram: most records count as in a sum of distances, and no weight is far below another.

What a record says about the median of its cluster: which way it lies, and how far.

The sum of distances to c falls fastest along the sum of the unit vectors (x - c) / |x - c|. Here
a vector is (x - c) / max(|x - c|, l): one of norm at most 1 that does not jump where a record
lies at c. (It belongs to Huber's loss, which is the distance beyond l and a square below.) One
record moves the sum by no more than 1, however far away it is. In fixed point, rounded towards 0.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats, Integers, Whole
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.rounds import Bins, residual_lengths
from privsketch.clustering.tree.swap import moved_into_ball
from privsketch.kernels.nearest import nearest
from privsketch.noise.account import Account

INSIDE = 0.1  # share of the records that are nearer than l
N_BINS = 64  # from SHORTEST on, each 2^(12/63) = 1.14 times as long as the one before
SHORTEST = 2.0**-12  # the first edge of the bins, as a share of the diameter
MIN_WEIGHT = 0.02  # no cluster is taken to weigh less than this share of the average one
ONE = 2**16  # a vector of norm 1; 2^40 of them add up within 62 bits
WEIGHT = ONE // 4  # more of it is more noise in the vectors, less of it in the weights
MIN_TO_SHRINK = 3  # columns: from three on shrinkage errs less on average (James and Stein, 1961)


def release_least(passes: Passes, centers: Whole, account: Account, name: str) -> int:
    """The length below which a record counts less, in whole numbers.

    Charges: the share `name`.
    """
    diameter = 2 * float(passes.limits.max())
    edges = np.ceil(np.geomspace(SHORTEST * diameter, diameter, N_BINS))
    bins = Bins(np.unique(edges**2), 2)
    counts = residual_lengths(passes, centers, bins)
    noisy, _ = account.counts(name, counts)
    return max(1, bins.quantile(noisy, INSIDE))


def median_sums(
    passes: Passes, centers: Whole, least: int, one: int = ONE, weight: int = WEIGHT
) -> Integers:
    """One pass: per cluster the sums of vectors and of weights, (k, dim + 1)."""

    def work(records: Whole) -> tuple[Integers, ...]:
        label = nearest(records, centers)
        vectors, lengths = unit_vectors(records - centers[label], least, one)
        weights = np.trunc(weight * (least / lengths))
        both = np.concatenate([vectors, weights[:, np.newaxis]], axis=1)
        return (whole_sums(members(label, len(centers)), both),)

    return passes.sums(work, "steps to medians")[0]


def sensitivities(dim: int, one: int = ONE, weight: int = WEIGHT) -> dict[str, int]:
    """How far one record moves `median_sums`: a vector and a weight of one cluster.

    A record that is replaced moves them in two clusters; or in one, where vectors may point apart
    and weights, which are not negative, differ by at most one of them.
    """
    return {
        "l1": l1_norm(dim, one) + weight,
        "l2_squared": one**2 + weight**2,
        "l2_replaced": max(2 * (one**2 + weight**2), 4 * one**2 + weight**2),
    }


def release_round(passes: Passes, centers: Whole, least: int, account: Account, name: str) -> Whole:
    """New centers, whole numbers in the ball.

    Charges: the share `name`.
    """
    sums = median_sums(passes, centers, least)
    noisy, variance = account.noisy(name, sums, **sensitivities(passes.dim))
    return moved_into_ball(centers + steps_of(noisy, variance, least), passes)


def steps_of(noisy: Floats, variance: float, least: int) -> Floats:
    """Steps (k, dim) from noisy `median_sums`. Released numbers only."""
    weights = noisy[:, -1] / WEIGHT
    # Where noise is all there is of a weight, it must not become a long step.
    floor = max(MIN_WEIGHT * float(np.maximum(weights, 0.0).mean()), 2 * variance**0.5 / WEIGHT)
    reach = least / np.maximum(weights, floor) / ONE
    return shrunk(noisy[:, :-1] * reach[:, np.newaxis], variance * reach**2)


def unit_vectors(residuals: Whole, least: int, one: int = ONE) -> tuple[Whole, Whole]:
    """Vectors (n, dim) of whole numbers, of norm at most `one`; lengths (n,), at least `least`.

    Square roots and quotients are rounded in one way only, so that a vector depends on its
    residual alone. Rounding may lengthen a squared norm by less than 1 before it is made whole:
    that of the whole numbers is at most one^2.
    """
    lengths = np.maximum(np.sqrt(np.vecdot(residuals, residuals)), float(least))
    return np.trunc(residuals * (one / lengths)[:, np.newaxis]), lengths


def l1_norm(dim: int, one: int = ONE) -> int:
    """Largest L1 norm of a vector, in whole numbers."""
    return math.isqrt(dim * one**2)


def members(labels: npt.NDArray[np.intp], n_clusters: int) -> Whole:
    """Which record is in which cluster, (k, n), as 0 and 1."""
    found = np.zeros((n_clusters, len(labels)))
    found[labels, np.arange(len(labels))] = 1.0
    return found


def whole_sums(member: Whole, values: Whole) -> Integers:
    """Sums per cluster of whole numbers below 2^53: exact in any order."""
    return np.asarray((member @ values).astype(np.int64))


def shrunk(steps: Floats, variances: Floats) -> Floats:
    """Steps (k, dim) pulled towards 0 as far as they are noise (James and Stein).

    The noise of a step has the same variance, (k,), in every column.
    """
    dim = steps.shape[1]
    if dim < MIN_TO_SHRINK:
        return steps
    squared = np.maximum(np.vecdot(steps, steps), np.finfo(np.float64).tiny)
    kept = np.maximum(1 - (dim - 2) * variances / squared, 0.0)
    return np.asarray(steps * kept[:, np.newaxis])
