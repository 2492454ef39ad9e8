"""K-medians: centers of least distance to their records, on one budget.

A median minimises the sum of distances, a mean that of squared distances. The farthest records
therefore move a mean, and hardly a median. There are two methods. "rounds" starts from the k-means
centers of one sketch and makes a few median rounds. "partition-tree" follows Balcan et al. (2017),
made implementable and pure. docs/medians.md compares them.

Start. Medians are near means unless clusters are skewed, and a sketch finds k means at once. In
many columns it is a sketch of the records' coordinates along directions. With a delta they are
released first; without one they are random, which is as good in pure noise and costs nothing. If
clusters are not round, several searches of one sketch end at different centers. Searching is free,
and a private choice by sums of distances picks the best result.

Rounds. A record x belongs to its nearest released center c. With L = max(|x - c|, l), the center
moves by the sum of (x - c) / L over the sum of 1 / L, to the mean of the records weighted by their
closeness. This is one step of reweighted least squares (Weiszfeld). The sums are of the whole
numbers UNIT_NORM (x - c) / L and UNIT_WEIGHT l / L, which are bounded for every record. l is a
small quantile of the lengths, from a noisy histogram: most records count as in a sum of distances,
and no weight is far below another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from privsketch._base.errors import require_count, require_one_of
from privsketch._base.threads import one_thread
from privsketch._base.types import Block, Floats, Integers, WholeFloats
from privsketch.clustering.edge import Means, cut_concerns
from privsketch.clustering.extent import crowded
from privsketch.clustering.forecast import PublicFacts
from privsketch.clustering.limits import require_searchable
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.plan import (
    DIRECTION_COUNTS,
    MAX_SKETCH_COLUMNS,
    MAX_START_EXCESS,
    Facts,
    lost_excess,
    round_noise,
    sketch_excess,
)
from privsketch.clustering.pipeline.rounds import Bins, residual_lengths, round_sensitivities
from privsketch.clustering.pipeline.subspace import projected, random_directions, release_subspace
from privsketch.clustering.run import Run, shares_of
from privsketch.clustering.tree.medians import (
    UNIT_NORM,
    max_l1_norm,
    shrink_steps,
    sum_members,
    unit_vectors,
)
from privsketch.clustering.tree.method import cluster_by_tree
from privsketch.clustering.tree.swap import WIDTH, members, move_into_ball, nearest_losses
from privsketch.facts.domain import Ball
from privsketch.kernels.nearest import nearest
from privsketch.learning.concerns import RecordCount
from privsketch.learning.kmeans.learner import learn_kmeans
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account
from privsketch.sketching.sketch import Sketch

MEDIAN_METHODS = ("rounds", "partition-tree")
# With a delta, losses hardly depend on rounds and shares between half and twice these values:
# `python -m benchmarks constants clustering MEDIAN_ROUNDS` and so on.
MEDIAN_ROUNDS = 4
LENGTHS_SHARE = Fraction(1, 50)  # benchmarks constants clustering LENGTHS_SHARE
COUNTS_SHARE = Fraction(1, 50)  # benchmarks constants clustering COUNTS_SHARE


def cluster_medians(run: Run, n_clusters: int, *, method: str = "rounds") -> ClusterModel:
    """Release k-medians centers of records that can be read several times.

    Method "rounds" uses Gaussian noise if the budget has a delta and pure noise if not;
    "partition-tree" is pure.

    Charges: the budget, once; with "partition-tree" no delta.
    """
    checked_method(method)
    require_searchable(method, require_count("n_clusters", n_clusters), "distances")
    if method == "partition-tree":
        return cluster_by_tree(run, n_clusters, loss="distances")
    run.require_one_record("rounds")
    ball = run.ball
    passes = run.read(ball)
    n_records = run.number(passes)
    account = run.share(share_weights(passes.dim, run.budget.delta == 0))
    with one_thread():  # blocks of records already share the cores
        centers = release_start(run, passes, n_clusters, account, n_records)
        least = release_least(passes, centers, account, "lengths")
        for number in range(MEDIAN_ROUNDS):
            centers, errors = _release_steps(passes, centers, least, account, f"round {number}")
        counts, count_variance = account.counts("counts", cluster_counts(passes, centers))
    medians = Means(
        centers * passes.unit + ball.center_vector,
        counts,
        np.broadcast_to(errors[:, np.newaxis] * passes.unit, centers.shape),
        math.sqrt(count_variance),
        is_gaussian=run.budget.delta > 0,
    )
    return run.model(
        medians.means,
        counts,
        method="rounds",
        mechanism="k-medians: sketch and median rounds",
        concerns=cut_concerns(
            medians, shares_of(counts), run.domain, schema=run.schema, names=run.names
        ),
        loss="distances",
        forecast=rounds_forecast,
        seen=RecordCount(float(counts.sum()), n_clusters * count_variance),
        too_wide=crowded(centers * passes.unit, counts, math.sqrt(count_variance), run.domain),
    )


def rounds_forecast(facts: PublicFacts) -> float:
    """Return the cost ratio to expect: of clusters that the sketch loses, and of the last round."""
    weights = share_weights(facts.dim, facts.budget.delta == 0)
    dim = facts.dim if facts.dim <= MAX_SKETCH_COLUMNS else DIRECTION_COUNTS[-1]
    planned = Facts(facts.n_clusters, dim, facts.budget, max(facts.n_records, 1.0))
    lost = lost_excess(sketch_excess(planned, weights["sketch"]))
    last = round_noise(replace(planned, dim=facts.dim), weights["round 0"])
    return 1 + min(lost + last, MAX_START_EXCESS)


def checked_method(method: str) -> str:
    """Return the method, or raise a ParameterError if it is unknown."""
    return require_one_of("method", method, MEDIAN_METHODS)


def share_weights(dim: int, is_pure: bool) -> dict[str, Fraction]:
    """Return the shares of the steps of "rounds"; they add up to 1."""
    start = start_weights(dim, is_pure)
    for_round = (1 - sum(start.values()) - LENGTHS_SHARE - COUNTS_SHARE) / MEDIAN_ROUNDS
    return {
        **start,
        "lengths": LENGTHS_SHARE,
        **{f"round {number}": for_round for number in range(MEDIAN_ROUNDS)},
        "counts": COUNTS_SHARE,
    }


def cluster_counts(passes: Passes, centers: WholeFloats) -> Integers:
    """Count the records nearest to each center, (k,), in one pass."""

    def work(records: WholeFloats) -> tuple[Integers, ...]:
        return (np.bincount(nearest(records, centers), minlength=len(centers)),)

    return passes.sums(work, "cluster sizes")[0]


# The sketch has a compromise: pure noise needs more, little noise less.
SKETCH_SHARE = Fraction(1, 2)  # benchmarks constants clustering SKETCH_SHARE
STARTS_SHARE = Fraction(1, 25)  # benchmarks constants clustering STARTS_SHARE
# Of the share of the sketch.
SUBSPACE_SHARE = Fraction(1, 5)  # benchmarks constants clustering SUBSPACE_SHARE
SEARCHES = (None, 1, 2)  # public seeds of searches; None is the seed of the sketch
MAX_DISTANCE = WIDTH // 4  # distances are cut at a quarter of the diameter


def start_weights(dim: int, is_pure: bool) -> dict[str, Fraction]:
    """Return the shares of the steps of the start."""
    if dim <= MAX_SKETCH_COLUMNS or is_pure:
        return {"sketch": SKETCH_SHARE, "starts": STARTS_SHARE}
    return {
        "subspace": SKETCH_SHARE * SUBSPACE_SHARE,
        "sketch": SKETCH_SHARE * (1 - SUBSPACE_SHARE),
        "starts": STARTS_SHARE,
    }


def release_start(
    run: Run, passes: Passes, n_clusters: int, account: Account, n_records: float
) -> WholeFloats:
    """Release start centers (k, dim), whole numbers in the ball of the passes.

    Charges: the shares of `start_weights`.
    """
    searches = _search_centers(run, passes, n_clusters, account, n_records)
    center = passes.domain.center_vector
    starts = [move_into_ball((centers - center) / passes.unit, passes) for centers in searches]
    return starts[account.choice("starts", start_losses(passes, starts), MAX_DISTANCE)]


def start_losses(passes: Passes, starts: Sequence[WholeFloats]) -> Integers:
    """Sum the distances to the nearest center of each start, in whole numbers, in one pass."""
    return nearest_losses(passes, starts, "losses of starts", MAX_DISTANCE, "distances")


def _search_centers(
    run: Run, passes: Passes, n_clusters: int, account: Account, n_records: float
) -> list[Floats]:
    """Return the centers (k, dim) of several searches, in the units of the records.

    Charges: the shares "subspace" and "sketch".
    """
    if passes.dim <= MAX_SKETCH_COLUMNS:
        missing = run.table.missing
        blocks = passes.changed(_unchanged, "sketch")
        released = run.sketch(blocks, run.domain, n_clusters, n_records, missing=missing)
        return _learn_centers(released, n_clusters)
    ball = passes.domain
    if account.shares.is_pure:
        subspace = random_directions(passes.dim, DIRECTION_COUNTS[-1], run.seed)
    else:
        subspace = release_subspace(
            passes, DIRECTION_COUNTS[-1], account, "subspace", n_records, run.seed, run.n_threads
        )
    rows = subspace.rows
    small = Ball(dim=len(rows), radius=float(ball.half_widths[0]) * subspace.reach)
    released = run.sketch(projected(passes, rows), small, n_clusters, n_records)
    return [ball.center_vector + centers @ rows for centers in _learn_centers(released, n_clusters)]


def _unchanged(block: Block) -> Block:
    return block


def _learn_centers(released: Sketch, n_clusters: int) -> list[Floats]:
    return [learn_kmeans(released, n_clusters, random_state=seed).centers for seed in SEARCHES]


SHORT_SHARE = 0.1  # share of the records that are nearer to their center than l
LENGTH_BINS = 64  # from SHORTEST_LENGTH on, each 2^(12/63) = 1.14 times as long as the one before
SHORTEST_LENGTH = 2.0**-12  # first edge of the bins, as a share of the diameter
MIN_WEIGHT = 0.02  # smallest weight of a cluster, as a share of the average one
UNIT_WEIGHT = UNIT_NORM // 4  # a larger one has more noise in the vectors, less in the weights


def release_least(passes: Passes, centers: WholeFloats, account: Account, name: str) -> int:
    """Release l, the length below which a record counts less, in whole numbers.

    Charges: the share `name`.
    """
    diameter = 2 * float(passes.limits.max())
    bins = Bins.of(diameter, 2, LENGTH_BINS, SHORTEST_LENGTH)
    noisy, _ = account.counts(name, residual_lengths(passes, centers, bins).sum(axis=0))
    return max(1, bins.quantile(noisy, SHORT_SHARE))


def median_sums(
    passes: Passes,
    centers: WholeFloats,
    least: int,
    one: int = UNIT_NORM,
    weight: int = UNIT_WEIGHT,
) -> Integers:
    """Sum the vectors and weights of each cluster, (k, dim + 1), in one pass."""

    def work(records: WholeFloats) -> tuple[Integers, ...]:
        label = nearest(records, centers)
        vectors, lengths = unit_vectors(records - centers[label], least, one)
        weights = np.trunc(weight * (least / lengths))
        terms = np.concatenate([vectors, weights[:, np.newaxis]], axis=1)
        return (sum_members(members(label, len(centers)), terms),)

    return passes.sums(work, "steps to medians")[0]


def sensitivities(dim: int, one: int = UNIT_NORM, weight: int = UNIT_WEIGHT) -> dict[str, int]:
    """Return the sensitivity of `median_sums`: a record moves a vector and a weight of one cluster.

    Vectors are residuals cut to the radius `one` in L2, so `round_sensitivities` holds for L2.
    """
    return {**round_sensitivities(one, weight), "l1": max_l1_norm(dim, one) + weight}


def release_round(
    passes: Passes, centers: WholeFloats, least: int, account: Account, name: str
) -> WholeFloats:
    """Release new centers, whole numbers in the ball.

    Charges: the share `name`.
    """
    return _release_steps(passes, centers, least, account, name)[0]


def _release_steps(
    passes: Passes, centers: WholeFloats, least: int, account: Account, name: str
) -> tuple[WholeFloats, Floats]:
    """Release new centers, and the standard deviations (k,) of their noise along an axis.

    Charges: the share `name`.
    """
    sums = median_sums(passes, centers, least)
    noisy, variance = account.noisy(name, sums, **sensitivities(passes.dim))
    moved = move_into_ball(centers + steps_of(noisy, variance, least), passes)
    return moved, math.sqrt(variance) * _reach(noisy, variance, least)


def steps_of(noisy: Floats, variance: float, least: int) -> Floats:
    """Return the steps (k, dim) of noisy `median_sums`, by post-processing."""
    reach = _reach(noisy, variance, least)
    return shrink_steps(noisy[:, :-1] * reach[:, np.newaxis], variance * reach**2)


def _reach(noisy: Floats, variance: float, least: int) -> Floats:
    """Return the steps, (k,), for a sum of vectors of 1."""
    weights = noisy[:, -1] / UNIT_WEIGHT
    # A weight that is all noise must not become a long step.
    mean = float(np.maximum(weights, 0.0).mean())
    floor = max(MIN_WEIGHT * mean, 2 * variance**0.5 / UNIT_WEIGHT)
    return np.asarray(least / np.maximum(weights, floor) / UNIT_NORM)
