"""Local swaps: k of the candidates, exchanged one at a time by private choices (Algorithm 3).

A record's loss is its squared distance to the nearest of the k centers (k-medians: its distance),
rounded down to a whole number between 0 and a public width, so that one record moves every sum of
losses by no more than the width, and all of them up. A round compares all k m sets that one swap
leads to, those that change nothing among them, in one pass: the nearest and the second nearest
center of a record say what its loss becomes without any center. The last choice is among the sets
of all rounds.

The width need not be that of the whole ball: losses may be cut at any public number.
Noise is in proportion to it, and few records are farther from all centers than a radius.

From clusters in few dimensions to centers of the records themselves (Algorithm 4).

A record belongs to the center that is nearest to its projection. Noisy counts and noisy sums of
the clusters give their means, which are moved into the ball. A record is in one cluster, so that
all of them together cost what one does. Sums are of integers x with |x|_2 <= R, hence
|x|_1 <= sqrt(d) R: that is the sensitivity, which Balcan et al. (2017) take to be R. In a box of
half-widths h it is |h|_1, which is less where they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privsketch._base.types import Floats, Indices, Integers, Whole
from privsketch.clustering.passes import Passes
from privsketch.clustering.tree.cubes import RADIUS, RADIUS_BITS, Projected
from privsketch.features.stream import PublicStream
from privsketch.kernels.nearest import nearest
from privsketch.noise.account import Account, Shares

WIDTH_BITS = 22  # 2^40 losses of this width add up within 62 bits
WIDTH = 2**WIDTH_BITS
_BLOCK = 2**17  # losses at a time: they stay in the cache


def whole_losses(
    records: Whole,
    centers: Whole,
    radius_bits: int,
    width: int = WIDTH,
    loss: str = "squares",
) -> Whole:
    """Squared distances or distances (n, m) of whole numbers, as whole numbers from 0 to `width`.

    WIDTH stands for the diameter of a ball of radius 2^radius_bits, or for its square; what is
    beyond `width` counts as that.
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
    candidates: Whole,
    chosen: Indices,
    width: int = WIDTH,
    loss: str = "squares",
) -> Integers:
    """One pass: losses (k, m) of the sets in which candidate y takes the place of center j."""
    rows = max(1, _BLOCK // len(candidates))

    def work(records: Whole) -> tuple[Integers, ...]:
        total = np.zeros((len(chosen), len(candidates)))
        for first in range(0, len(records), rows):
            some = records[first : first + rows]
            losses = whole_losses(some, candidates, RADIUS_BITS, width, loss)
            total += _swap_losses(losses, chosen, width)
        return (total.astype(np.int64),)

    return data.sums(work, "losses of swaps")[0]


def _swap_losses(losses: Whole, chosen: Indices, width: int) -> Whole:
    """Sums over records of losses (n, m) after every swap, (k, m)."""
    n, k = len(losses), len(chosen)
    now = losses[:, chosen]
    label = now.argmin(axis=1)
    everyone = np.arange(n)
    nearest = now[everyone, label]
    now[everyone, label] = width  # what remains when the nearest center is taken away
    second = now.min(axis=1)
    without_own = np.minimum(losses, second[:, np.newaxis])
    np.minimum(losses, nearest[:, np.newaxis], out=losses)
    member = np.zeros((k, n))
    member[label, everyone] = 1.0
    return np.asarray(losses.sum(axis=0) + member @ (without_own - losses))


def release_swaps(
    data: Projected,
    candidates: Whole,
    n_clusters: int,
    n_swaps: int,
    stream: PublicStream,
    account: Account,
    name: str,
    width: int = WIDTH,
    loss: str = "squares",
) -> Whole:
    """Centers (k, p) in projected space.

    Charges: the share `name`, in equal parts for all rounds and the last choice.
    """
    steps = [*(f"swap {i}" for i in range(1, n_swaps + 1)), "best"]
    weights = {step: Fraction(1, len(steps)) for step in steps}
    parts = Account(Shares(account.budget(name), weights))
    chosen = _start(candidates, n_clusters, stream)
    sets, losses = [], []
    for step in steps[:-1]:
        after = swap_losses(data, candidates, chosen, width, loss)
        place = parts.choice(step, after.reshape(-1), width)
        out, come = divmod(place, len(candidates))
        chosen = chosen.copy()
        chosen[out] = come
        sets.append(chosen)
        losses.append(after[out, come])
    best = parts.choice("best", np.array(losses, dtype=np.int64), width)
    account.charge(parts.receipt(f"{name}: swaps of candidates", None), 0.0)
    return np.asarray(candidates[sets[best]])


def _start(candidates: Whole, n_clusters: int, stream: PublicStream) -> Indices:
    """Candidates that are spread out: each drawn by its squared distance to those before it."""
    uniform = stream.uniform(n_clusters)
    chosen: list[int] = []
    squared = np.full(len(candidates), 16.0 * RADIUS**2)  # farther than any: the first is uniform
    for number in uniform:
        summed = np.cumsum(squared)
        place = min(int(np.searchsorted(summed, number * summed[-1])), len(candidates) - 1)
        chosen.append(place)
        away = candidates - candidates[place]
        squared = np.minimum(squared, np.vecdot(away, away))
    return np.array(chosen)


@dataclass(frozen=True, eq=False)
class Recovered:
    """Centers (k, dim), whole numbers in the ball of the passes, and noisy counts (k,)."""

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
    """One pass: what each trial's centers cost, as sums of whole losses up to WIDTH."""

    def work(records: Whole) -> tuple[Integers, ...]:
        # Centers rounded beyond the edge, or records far from all, count as WIDTH at most.
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
