"""Median rounds: noisy steps of Weiszfeld's from released centres to the medians of their clusters.

A record x belongs to its nearest released centre c. With L = max(|x - c|, l), the centre moves by
the sum of (x - c) / L over the sum of 1 / L: the mean of the records, each weighted by how near it
is, which is one step of reweighted least squares. Sums are of whole numbers, ONE (x - c) / L and
WEIGHT l / L, both bounded whatever the record is. l is a small quantile of the lengths, from a
noisy histogram: most records count as in a sum of distances, and no weight is far below another.
"""

from __future__ import annotations

import numpy as np

from privsketch._typing import Floats, Integers, Whole
from privsketch.clustering.medians.vectors import (
    ONE,
    l1_norm,
    members,
    shrunk,
    unit_vectors,
    whole_sums,
)
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.rounds import Bins, nearest, residual_lengths
from privsketch.clustering.tree.recovery import moved_into_ball
from privsketch.noise.account import Account

WEIGHT = ONE // 4  # more of it is more noise in the vectors, less of it in the weights
INSIDE = 0.1  # share of the records that are nearer than l
N_BINS = 64
SHORTEST = 2.0**-12  # the first edge of the bins, as a share of the diameter
LEAST_WEIGHT = 0.02  # no cluster is taken to weigh less than this share of the average one


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
    """New centres, whole numbers in the ball.

    Charges: the share `name`.
    """
    sums = median_sums(passes, centers, least)
    noisy, variance = account.noisy(name, sums, **sensitivities(passes.dim))
    return moved_into_ball(centers + steps_of(noisy, variance, least), passes)


def steps_of(noisy: Floats, variance: float, least: int) -> Floats:
    """Steps (k, dim) from noisy `median_sums`. Released numbers only."""
    weights = noisy[:, -1] / WEIGHT
    # Where noise is all there is of a weight, it must not become a long step.
    floor = max(LEAST_WEIGHT * float(np.maximum(weights, 0.0).mean()), 2 * variance**0.5 / WEIGHT)
    reach = least / np.maximum(weights, floor) / ONE
    return shrunk(noisy[:, :-1] * reach[:, np.newaxis], variance * reach**2)
