"""Medians, under pure differential privacy, of clusters from a projection to few dimensions.

Balcan et al. (2017) draw a median from a log-concave density. A Markov chain that is stopped does
not draw from it exactly, so its release is not pure. Here a path starts at a noisy mean and takes a
few noisy steps along the sum of unit vectors; a private choice among its points and their mean
follows. A record is in one cluster, so all clusters together cost as much as one.

Unit vectors. The sum of distances to c falls fastest along the sum of the vectors
(x - c) / |x - c|. Here a vector is (x - c) / max(|x - c|, l): its norm is at most 1, and it does
not jump if a record lies at c. (It is the gradient of Huber's loss, which is the distance
beyond l and quadratic below.) One record moves the sum by at most 1, however far away it is.
Vectors are in fixed point, rounded towards 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from privsketch._base.formats import count_text
from privsketch._base.types import Floats, Integers, WholeFloats
from privsketch.clustering.tree.cubes import Projected
from privsketch.clustering.tree.swap import (
    WIDTH,
    ReleasedClusters,
    members,
    move_into_ball,
    release_centers,
    whole_losses,
)
from privsketch.kernels.nearest import nearest
from privsketch.noise.account import Account, Shares
from privsketch.noise.calibration import discrete_laplace_variance
from privsketch.noise.choice import choice_law
from privsketch.noise.mechanism import choose

UNIT_NORM = 2**16  # a vector of norm 1; 2^40 of them add up within 62 bits
MIN_TO_SHRINK = 3  # columns that shrinkage needs to lower the error (James and Stein, 1961)


def unit_vectors(
    residuals: WholeFloats, min_length: int, unit: int = UNIT_NORM
) -> tuple[WholeFloats, WholeFloats]:
    """Return integer vectors (n, dim) of norm at most `unit`, and lengths (n,) >= `min_length`.

    Square roots and quotients are correctly rounded, so a vector depends on its residual alone.
    Rounding adds less than 1 to a squared norm, so that of an integer vector is at most unit^2.
    """
    lengths = np.maximum(np.sqrt(np.vecdot(residuals, residuals)), float(min_length))
    return np.trunc(residuals * (unit / lengths)[:, np.newaxis]), lengths


def max_l1_norm(dim: int, unit: int = UNIT_NORM) -> int:
    """Return the largest L1 norm of an integer vector whose L2 norm is at most `unit`."""
    return math.isqrt(dim * unit**2)


def sum_members(membership: WholeFloats, values: WholeFloats) -> Integers:
    """Sum the integers of the members of each cluster: exact in any order, below 2^53."""
    return np.asarray((membership @ values).astype(np.int64))


def shrink_steps(steps: Floats, variances: Floats) -> Floats:
    """Shrink steps (k, dim) towards 0 as far as they are noise (James and Stein).

    The noise of a step has the same variance, (k,), in every column.
    """
    dim = steps.shape[1]
    if dim < MIN_TO_SHRINK:
        return steps
    squared = np.maximum(np.vecdot(steps, steps), np.finfo(np.float64).tiny)
    factors = np.maximum(1 - (dim - 2) * variances / squared, 0.0)
    return np.asarray(steps * factors[:, np.newaxis])


MEDIAN_SHARES: dict[str, Fraction] = {
    "candidates": Fraction(3, 10),
    "swaps": Fraction(3, 10),
    "counts": Fraction(1, 20),
    "sums": Fraction(3, 20),
    "steps": Fraction(3, 20),
    "median": Fraction(1, 20),
}
# The last step is 1/128 of the radius long. Losses with 2 to 10 steps differ by less than their
# noise: `python -m benchmarks constants clustering MEDIAN_STEPS`.
MEDIAN_STEPS = 5
FIRST_STEP = 0.125  # of the radius; each later step is half as long as the one before it
MIN_RESIDUAL = 2.0**-10  # of the radius: shorter residuals count less


def vector_sums(data: Projected, projected_centers: WholeFloats, centers: WholeFloats) -> Integers:
    """Sum the unit vectors from centers to the records of their clusters, (k, dim), in one pass."""
    min_length = max(1, round(MIN_RESIDUAL * float(data.passes.limits.max())))

    def work(records: WholeFloats) -> tuple[Integers, ...]:
        label = nearest(data(records), projected_centers)
        vectors, _ = unit_vectors(records - centers[label], min_length)
        return (sum_members(members(label, len(centers)), vectors),)

    return data.passes.sums(work, "steps to medians")[0]


def path_losses(
    data: Projected, projected_centers: WholeFloats, path: Sequence[WholeFloats]
) -> Integers:
    """Sum the distances of a cluster's records to the points of its path, (k, steps), in one pass.

    A record adds an integer up to WIDTH, which stands for the diameter of the ball.
    """
    k = len(projected_centers)

    def work(records: WholeFloats) -> tuple[Integers, ...]:
        label = nearest(data(records), projected_centers)
        total = np.zeros((k, len(path)), dtype=np.int64)
        for j in range(k):
            points = np.stack([step[j] for step in path])
            cluster = records[label == j]
            losses = whole_losses(cluster, points, data.passes.bits, loss="distances")
            total[j] = losses.sum(axis=0).astype(np.int64)
        return (total,)

    return data.passes.sums(work, "losses of medians")[0]


def release_medians(
    data: Projected, projected_centers: WholeFloats, account: Account, names: Mapping[str, str]
) -> ReleasedClusters:
    """Release the medians of the clusters.

    Charges: the shares of counts, sums, steps and median, whose names are in `names`.
    """
    start = release_centers(data, projected_centers, account, names["counts"], names["sums"])
    steps = {f"step {i}": Fraction(1, MEDIAN_STEPS) for i in range(MEDIAN_STEPS)}
    parts = Account(Shares(account.budget(names["steps"]), steps))
    counts = np.maximum(start.counts, 1.0)
    length = FIRST_STEP * float(data.passes.limits.max())
    path = [start.centers]
    for step in steps:
        sums = vector_sums(data, projected_centers, path[-1])
        noisy, scale = parts.laplace(step, sums, max_l1_norm(data.passes.dim))
        means = noisy / (UNIT_NORM * counts)[:, np.newaxis]
        variances = discrete_laplace_variance(scale) / (UNIT_NORM * counts) ** 2
        target = path[-1] + length * shrink_steps(means, variances)
        path.append(move_into_ball(target, data.passes))
        length /= 2
    account.charge(parts.receipt(f"{names['steps']}: sums of unit vectors", None), 0.0)
    path.append(np.rint(np.mean(path, axis=0)))
    losses = path_losses(data, projected_centers, path)
    best = release_indices(losses, account, names["median"])
    return replace(start, centers=np.stack([path[index][j] for j, index in enumerate(best)]))


def release_indices(losses: Integers, account: Account, name: str) -> list[int]:
    """Choose privately the index of a small sum in each row; a record is in one row.

    Under "replace" a record may leave one row and enter another: each gets half of the epsilon.

    Charges: the share `name`, once.
    """
    budget = account.budget(name)
    law = choice_law(WIDTH, losses.shape[1], budget.epsilon, budget.neighbours)
    choices = [choose(row, law, source=None) for row in losses]
    receipt = choices[0][1]
    mechanism = f"{name}: {receipt.mechanism}, for each of {count_text(len(losses), 'cluster')}"
    account.charge(replace(receipt, mechanism=mechanism), 0.0)
    return [int(index[0]) for index, _ in choices]
