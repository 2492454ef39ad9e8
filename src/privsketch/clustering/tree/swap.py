"""Centers by private swaps of candidates, and their recovery in all columns.

Swaps (Algorithm 3). k of the candidates are exchanged one at a time. A record's loss is its squared
distance to the nearest of the k centers (k-medians: its distance), rounded down to a whole number
between 0 and a public width. One record therefore increases every sum of losses by at most the
width. A round compares all k m sets after one swap, including unchanged ones, in one pass: the
nearest and the second nearest center of a record give its loss without any one center. The last
choice is among the sets of all rounds.

The width may be less than that of the whole ball: losses may be cut at any public number. The noise
is in proportion to it, and few records are farther from all centers than a radius.

Recovery (Algorithm 4). A record belongs to the center that is nearest to its projection. Noisy
counts and noisy sums of the clusters give their means, which are moved into the ball. A record is
in one cluster, so all clusters together cost as much as one. Sums are of integers x with
|x|_2 <= R, hence |x|_1 <= sqrt(d) R: that is the sensitivity, which Balcan et al. (2017) take to be
R. In a box of half-widths h it is |h|_1, which is less where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privsketch._base.types import Floats, Indices, Integers, WholeFloats
from privsketch.clustering.passes import Passes
from privsketch.clustering.tree.cubes import RADIUS, RADIUS_BITS, Projected
from privsketch.features.stream import PublicStream
from privsketch.kernels.nearest import nearest
from privsketch.learning.concerns import RecordCount
from privsketch.noise.account import Account, Shares

WIDTH_BITS = 22  # 2^40 losses of this width add up within 62 bits
WIDTH = 2**WIDTH_BITS
_LOSSES_AT_ONCE = 2**17  # losses that fit the cache


def whole_losses(
    records: WholeFloats,
    centers: WholeFloats,
    radius_bits: int,
    width: int = WIDTH,
    loss: str = "squares",
) -> WholeFloats:
    """Return squared distances or distances (n, m) as whole numbers from 0 to `width`.

    WIDTH stands for the diameter of a ball of radius 2^radius_bits, or for its square. Losses
    above `width` are cut to it.
    """
    # Products of whole numbers: exact, so that a loss depends on record and center alone.
    losses = records @ (-2 * centers.T)
    losses += np.vecdot(centers, centers)
    losses += np.vecdot(records, records)[:, np.newaxis]
    power = 2
    if loss == "distances":
        np.sqrt(losses, out=losses)  # rounded the same way for every pair of numbers
        power = 1
    losses *= 2.0 ** (WIDTH_BITS - power * (radius_bits + 1))
    np.floor(losses, out=losses)
    return np.asarray(np.minimum(losses, float(width), out=losses))


def swap_losses(
    data: Projected,
    candidates: WholeFloats,
    centers: Indices,
    width: int = WIDTH,
    loss: str = "squares",
) -> Integers:
    """Sum the losses (k, m) of the sets in which a candidate replaces a center, in one pass."""
    rows = max(1, _LOSSES_AT_ONCE // len(candidates))

    def work(records: WholeFloats) -> tuple[Integers, ...]:
        total = np.zeros((len(centers), len(candidates)))
        for first in range(0, len(records), rows):
            block = records[first : first + rows]
            losses = whole_losses(block, candidates, RADIUS_BITS, width, loss)
            total += _swap_losses(losses, centers, width)
        return (total.astype(np.int64),)

    return data.sums(work, "losses of swaps")[0]


def _swap_losses(losses: WholeFloats, centers: Indices, width: int) -> WholeFloats:
    """Sum losses (n, m) over records after every swap, (k, m)."""
    current = losses[:, centers]
    label = current.argmin(axis=1)
    rows = np.arange(len(losses))
    nearest = current[rows, label]
    current[rows, label] = width  # the loss without the nearest center is that of the second
    second = current.min(axis=1)
    without_nearest = np.minimum(losses, second[:, np.newaxis])
    np.minimum(losses, nearest[:, np.newaxis], out=losses)
    return np.asarray(
        losses.sum(axis=0) + members(label, len(centers)) @ (without_nearest - losses)
    )


def members(labels: Indices, n_clusters: int) -> WholeFloats:
    """Return the membership of records in clusters, (k, n), as zeros and ones."""
    member = np.zeros((n_clusters, len(labels)))
    member[labels, np.arange(len(labels))] = 1.0
    return member


def release_swaps(
    data: Projected,
    candidates: WholeFloats,
    n_clusters: int,
    n_swaps: int,
    stream: PublicStream,
    account: Account,
    name: str,
    width: int = WIDTH,
    loss: str = "squares",
) -> WholeFloats:
    """Release centers (k, p) in projected space.

    Charges: the share `name`, in equal parts for all rounds and the last choice.
    """
    steps = [*(f"swap {i}" for i in range(1, n_swaps + 1)), "best"]
    weights = {step: Fraction(1, len(steps)) for step in steps}
    parts = Account(Shares(account.budget(name), weights))
    centers = _start(candidates, n_clusters, stream)
    sets, losses = [], []
    for step in steps[:-1]:
        after = swap_losses(data, candidates, centers, width, loss)
        removed, added = divmod(parts.choice(step, after.reshape(-1), width), len(candidates))
        centers = centers.copy()
        centers[removed] = added
        sets.append(centers)
        losses.append(after[removed, added])
    best = parts.choice("best", np.array(losses, dtype=np.int64), width)
    account.charge(parts.receipt(f"{name}: swaps of candidates", None), 0.0)
    return np.asarray(candidates[sets[best]])


def _start(candidates: WholeFloats, n_clusters: int, stream: PublicStream) -> Indices:
    """Draw spread-out candidates, each with probability in proportion to its squared distance."""
    indices: list[int] = []
    squared = np.full(len(candidates), 16.0 * RADIUS**2)  # farther than any: the first is uniform
    for number in stream.uniform(n_clusters):
        sums = np.cumsum(squared)
        index = min(int(np.searchsorted(sums, number * sums[-1])), len(candidates) - 1)
        indices.append(index)
        offsets = candidates - candidates[index]
        squared = np.minimum(squared, np.vecdot(offsets, offsets))
    return np.array(indices)


@dataclass(frozen=True, eq=False)
class ReleasedClusters:
    """Centers (k, dim), whole numbers in the ball of the passes, and noisy counts (k,).

    `count_variance` is the variance of the noise of a count, `errors` (k,) are standard deviations
    of that of the centers along an axis, None if they are unknown.
    """

    centers: WholeFloats
    counts: Floats
    count_variance: float = 0.0
    errors: Floats | None = None

    @property
    def seen(self) -> RecordCount:
        """The number of records in all clusters."""
        return RecordCount(float(self.counts.sum()), len(self.counts) * self.count_variance)


def cluster_sums(data: Projected, projected_centers: WholeFloats) -> tuple[Integers, Integers]:
    """Return the sums (k, dim) and numbers (k,) of the records of each cluster, in one pass."""

    def work(records: WholeFloats) -> tuple[Integers, ...]:
        member = members(nearest(data(records), projected_centers), len(projected_centers))
        sums, counts = member @ records, member.sum(axis=1)  # whole numbers: exact in any order
        return sums.astype(np.int64), counts.astype(np.int64)

    sums, counts = data.passes.sums(work, "cluster sums")
    return sums, counts


def release_centers(
    data: Projected,
    projected_centers: WholeFloats,
    account: Account,
    count_name: str,
    sum_name: str,
) -> ReleasedClusters:
    """Release the means of the clusters.

    Charges: the shares `count_name` and `sum_name`.
    """
    sums, counts = cluster_sums(data, projected_centers)
    noisy_counts, count_scale = account.laplace(count_name, counts, l1=1)
    noisy_sums, sum_scale = account.laplace(sum_name, sums, l1=data.passes.l1)
    divisors = np.maximum(noisy_counts, 1.0)
    means = noisy_sums / divisors[:, np.newaxis]
    return ReleasedClusters(
        move_into_ball(means, data.passes),
        noisy_counts,
        2 * count_scale**2,
        math.sqrt(2) * sum_scale / divisors,
    )


def move_into_ball(points: Floats, passes: Passes) -> WholeFloats:
    """Move points (k, dim) outside the ball to its edge, and round all to whole numbers."""
    largest = float(passes.limits.max())
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(np.rint(points * (largest / np.maximum(norms, largest))))


def nearest_losses(
    passes: Passes,
    sets: Sequence[WholeFloats],
    name: str,
    width: int = WIDTH,
    loss: str = "squares",
) -> Integers:
    """Sum the whole losses, up to `width`, to the nearest center of each set, in one pass."""

    def work(records: WholeFloats) -> tuple[Integers, ...]:
        sums = [
            whole_losses(records, centers, passes.bits, width, loss).min(axis=1).sum()
            for centers in sets
        ]
        return (np.array(sums, dtype=np.float64).astype(np.int64),)

    return passes.sums(work, name)[0]


def release_best(
    passes: Passes,
    trials: Sequence[ReleasedClusters],
    account: Account,
    name: str,
    loss: str = "squares",
) -> ReleasedClusters:
    """Choose one of the trials privately.

    Charges: the share `name`.
    """
    sets = [trial.centers for trial in trials]
    losses = nearest_losses(passes, sets, "losses of trials", loss=loss)
    return trials[account.choice(name, losses, WIDTH)]
