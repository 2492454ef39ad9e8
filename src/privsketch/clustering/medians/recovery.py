"""Medians of clusters that were found in few dimensions, purely private: one for each cluster.

Balcan et al. (2017) draw a median from a log-concave density. A Markov chain that is stopped
does not draw from it exactly, so that what is released is not pure. Instead: a noisy mean, a few
noisy steps along the sum of unit vectors, and a private choice among all points on the way and
their mean. A record is in one cluster, so that all clusters together cost what one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from privsketch._base.types import Integers, Whole
from privsketch.clustering.medians.rounds import (
    ONE,
    l1_norm,
    members,
    shrunk,
    unit_vectors,
    whole_sums,
)
from privsketch.clustering.tree.projection import Projected
from privsketch.clustering.tree.swap import (
    WIDTH,
    Recovered,
    moved_into_ball,
    release_centers,
    whole_losses,
)
from privsketch.kernels.nearest import nearest
from privsketch.noise.account import Account, Shares
from privsketch.noise.calibration import discrete_laplace_variance
from privsketch.noise.choice import choice_law
from privsketch.noise.mechanism import choose

MEDIAN_SHARES: dict[str, Fraction] = {
    "candidates": Fraction(3, 10),
    "swaps": Fraction(3, 10),
    "counts": Fraction(1, 20),
    "sums": Fraction(3, 20),
    "steps": Fraction(3, 20),
    "median": Fraction(1, 20),
}
N_STEPS = 5  # the last one is 1/128 of the radius long; by trial
FIRST_STEP = 0.125  # of the radius; every further one is half as long
MIN_LENGTH = 2.0**-10  # of the radius: residuals below it count less


def vector_sums(data: Projected, projected_centers: Whole, centers: Whole) -> Integers:
    """One pass: sums (k, dim) of unit vectors from the centers to the records of their clusters."""
    least = max(1, round(MIN_LENGTH * float(data.passes.limits.max())))

    def work(records: Whole) -> tuple[Integers, ...]:
        label = nearest(data(records), projected_centers)
        vectors, _ = unit_vectors(records - centers[label], least)
        return (whole_sums(members(label, len(centers)), vectors),)

    return data.passes.sums(work, "steps to medians")[0]


def path_losses(data: Projected, projected_centers: Whole, path: Sequence[Whole]) -> Integers:
    """One pass: distances (k, steps) from the records of a cluster to the points of its path.

    A record adds a whole number up to WIDTH, which stands for the diameter of the ball.
    """
    k = len(projected_centers)

    def work(records: Whole) -> tuple[Integers, ...]:
        label = nearest(data(records), projected_centers)
        total = np.zeros((k, len(path)), dtype=np.int64)
        for j in range(k):
            points = np.stack([step[j] for step in path])
            own = records[label == j]
            losses = whole_losses(own, points, data.passes.bits, loss="distances")
            total[j] = losses.sum(axis=0).astype(np.int64)
        return (total,)

    return data.passes.sums(work, "losses of medians")[0]


def release_medians(
    data: Projected, projected_centers: Whole, account: Account, names: Mapping[str, str]
) -> Recovered:
    """Medians of the clusters.

    Charges: the shares that `names` gives for counts, sums, steps and median.
    """
    start = release_centers(data, projected_centers, account, names["counts"], names["sums"])
    steps = {f"step {i}": Fraction(1, N_STEPS) for i in range(N_STEPS)}
    parts = Account(Shares(account.budget(names["steps"]), steps))
    counts = np.maximum(start.counts, 1.0)
    length = FIRST_STEP * float(data.passes.limits.max())
    path = [start.centers]
    for step in steps:
        sums = vector_sums(data, projected_centers, path[-1])
        noisy, scale = parts.laplace(step, sums, l1_norm(data.passes.dim))
        means = noisy / (ONE * counts)[:, np.newaxis]
        variances = discrete_laplace_variance(scale) / (ONE * counts) ** 2
        moved = path[-1] + length * shrunk(means, variances)
        path.append(moved_into_ball(moved, data.passes))
        length /= 2
    account.charge(parts.receipt(f"{names['steps']}: sums of unit vectors", None), 0.0)
    path.append(np.rint(np.mean(path, axis=0)))
    losses = path_losses(data, projected_centers, path)
    best = release_places(losses, account, names["median"])
    return Recovered(np.stack([path[place][j] for j, place in enumerate(best)]), start.counts)


def release_places(losses: Integers, account: Account, name: str) -> list[int]:
    """For every row of sums of whole distances the place of a small one; a record is in one row.

    Under "replace" a record may leave one row and enter another: half the price for each.

    Charges: the share `name`, once.
    """
    budget = account.budget(name)
    law = choice_law(WIDTH, losses.shape[1], budget.epsilon, budget.neighbours)
    chosen = [choose(row, law, source=None) for row in losses]
    receipt = chosen[0][1]
    each = f"{name}: {receipt.mechanism}, for each of {len(losses)} clusters"
    account.charge(replace(receipt, mechanism=each), 0.0)
    return [int(place[0]) for place, _ in chosen]
