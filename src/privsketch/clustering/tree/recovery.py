"""From clusters in few dimensions to centres of the records themselves (Algorithm 4).

A record belongs to the centre that is nearest to its projection. Noisy counts and noisy sums of
the clusters give their means, which are moved into the ball. A record is in one cluster, so that
all of them together cost what one does. Sums are of integers x with |x|_2 <= R, hence
|x|_1 <= sqrt(d) R: that is the sensitivity, which Balcan et al. (2017) take to be R. In a box of
half-widths h it is |h|_1, which is less where they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privsketch._typing import Floats, Integers, Whole
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.rounds import nearest
from privsketch.clustering.tree.projection import Projected
from privsketch.clustering.tree.swap import WIDTH, whole_losses
from privsketch.noise.account import Account


@dataclass(frozen=True, eq=False)
class Recovered:
    """Centres (k, dim), whole numbers in the ball of the passes, and noisy counts (k,)."""

    centers: Whole
    counts: Floats


def cluster_sums(data: Projected, projected_centers: Whole) -> tuple[Integers, Integers]:
    """One pass: sums (k, dim) of the records of each cluster, and their numbers (k,)."""
    k = len(projected_centers)

    def work(records: Whole) -> tuple[Integers, ...]:
        member = np.zeros((k, len(records)))
        member[nearest(data(records), projected_centers), np.arange(len(records))] = 1.0
        sums, counts = member @ records, member.sum(axis=1)  # whole numbers: exact in any order
        return sums.astype(np.int64), counts.astype(np.int64)

    sums, counts = data.passes.sums(work, "cluster sums")
    return sums, counts


def release_centers(
    data: Projected, projected_centers: Whole, account: Account, count_name: str, sum_name: str
) -> Recovered:
    """Means of the clusters.

    Charges: the shares `count_name` and `sum_name`.
    """
    sums, counts = cluster_sums(data, projected_centers)
    noisy_counts, _ = account.laplace(count_name, counts, l1=1)
    noisy_sums, _ = account.laplace(sum_name, sums, l1=data.passes.l1)
    means = noisy_sums / np.maximum(noisy_counts, 1.0)[:, np.newaxis]
    return Recovered(moved_into_ball(means, data.passes), noisy_counts)


def moved_into_ball(points: Floats, passes: Passes) -> Whole:
    """Points (k, dim) as whole numbers, those outside the ball moved to its edge."""
    largest = float(passes.limits.max())
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(np.rint(points * (largest / np.maximum(norms, largest))))


def total_losses(passes: Passes, trials: Sequence[Recovered], loss: str = "squares") -> Integers:
    """One pass: what each trial's centres cost, as sums of whole losses up to WIDTH."""

    def work(records: Whole) -> tuple[Integers, ...]:
        # Centres rounded beyond the edge, or records far from all, count as WIDTH at most.
        each = [
            whole_losses(records, trial.centers, passes.bits, loss=loss).min(axis=1).sum()
            for trial in trials
        ]
        return (np.array(each, dtype=np.float64).astype(np.int64),)

    return passes.sums(work, "losses of trials")[0]


def release_best(
    passes: Passes,
    trials: Sequence[Recovered],
    account: Account,
    name: str,
    loss: str = "squares",
) -> Recovered:
    """One of the trials, by a private choice.

    Charges: the share `name`.
    """
    return trials[account.choice(name, total_losses(passes, trials, loss), WIDTH)]
