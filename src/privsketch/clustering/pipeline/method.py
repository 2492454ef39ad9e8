"""K-means in many columns: directions, sketch, residual rounds, on one budget.

1. Directions in which clusters are searched for: released, random, or the columns themselves.
2. A sketch of the records' coordinates along them gives centers to start from; where noise would
   hide clusters from it, the centers start around the mean of all records.
3. Rounds in the original space: a noisy histogram of residuals gives a radius, noisy sums of
   residuals cut to it move the centers, and steps that are mostly noise are shrunk.

Every number that a step uses was released before or is public. With a delta all noise is
Gaussian, in one zCDP composition. Without it the sketch has cube noise, and the rounds have Laplace
noise for residuals cut in the L1 norm.

Rounds. A record belongs to its nearest released center c. A round sums its residual x - c, cut to a
radius r, instead of x: the noise is then in proportion to the width of clusters, not to the domain.
A noisy histogram of the residuals' lengths gives r. Labels, residuals and lengths depend on the
record and on released numbers only, and are computed in integers.

Shrinkage. Counts and steps of all clusters are judged together (empirical Bayes). If they vary no
more than their noise, nothing is left of them; if they vary much more, all of it. Steps are judged
in groups of directions, strong ones first: clusters differ along strong directions, and weak ones
have mostly noise. A cluster that is still far from its mean, when all others have arrived, is
judged by itself. This is post-processing of released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from privsketch._base.errors import require_count
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Integers, Whole
from privsketch.clustering.edge import Means, cut_records
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.plan import N_BINS, PipelinePlan, plan_pipeline
from privsketch.clustering.pipeline.subspace import (
    Subspace,
    all_directions,
    projected,
    random_directions,
    release_subspace,
    spread_directions,
)
from privsketch.clustering.run import Run, shares_of
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.kernels.nearest import CompiledClusters, Norm
from privsketch.learning.kmeans.learner import learn_kmeans
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account

INSIDE = 0.8  # share of the residuals that is not cut
COUNT_WEIGHT = {1: 0.1, 2: 0.25}  # of a record's count, in units of the radius, by norm
MIN_COUNT = 0.02  # no cluster is taken to be smaller than this share of the average one


def cluster(
    run: Run,
    n_clusters: int,
    *,
    plan: PipelinePlan | None = None,
) -> ClusterModel:
    """K-means centers of records that can be read several times.

    Charges: the budget, once.
    """
    require_count("n_clusters", n_clusters)
    ball = run.ball
    passes = run.read(ball)
    n_records = run.number(passes)
    plan = plan or plan_pipeline(n_clusters, passes.dim, run.left, n_records)
    account = run.share(dict(plan.weights))
    with one_thread():  # blocks of records already share the cores
        if plan.directions == "mean":
            subspace, seen = all_directions(passes.dim), None
            whole, counts = _around_the_mean(run, passes, n_clusters, account, n_records)
        else:
            subspace = _subspace(run, passes, plan, account, n_records)
            centers, counts, seen = _start(run, passes, subspace, n_clusters, n_records)
            whole = _in_ball(centers / passes.unit, passes)
        n_found = float(counts.sum())  # rounds count what they cut as less than a record
        for number in range(plan.n_rounds):
            whole, counts, seen = _round(passes, whole, counts, subspace, account, str(number))
    concerns = plan.concerns()
    if seen is not None:
        # Rounds move records into the ball: outside of a box they stay where they are, as they do
        # not in a sketch.
        beyond = plan.n_rounds > 0
        concerns += cut_records(
            seen, shares_of(counts), run.domain, beyond=beyond, schema=run.schema
        )
    return run.model(
        whole * passes.unit + ball.center_vector,
        counts,
        method="pipeline",
        mechanism=f"k-means: {plan.describe()}",
        n_records=n_found,
        concerns=concerns,
    )


def _subspace(
    run: Run, passes: Passes, plan: PipelinePlan, account: Account, n_records: float
) -> Subspace:
    """Directions as planned.

    Charges: the share "subspace" if they are released.
    """
    if plan.directions == "columns":
        return all_directions(passes.dim)
    if plan.directions == "random":
        return random_directions(passes.dim, plan.n_directions, run.seed)
    return release_subspace(
        passes, plan.n_directions, account, "subspace", n_records, run.seed, run.n_threads
    )


def _start(
    run: Run,
    passes: Passes,
    subspace: Subspace,
    n_clusters: int,
    n_records: float,
) -> tuple[Floats, Floats, Means | None]:
    """Centers (k, dim) about the center of the ball, and counts, from a sketch.

    And what they tell of the edge of the domain: nothing if not all columns are seen.

    Charges: the share "sketch".
    """
    small: Domain = Ball(dim=subspace.n_directions, radius=run.ball.radius * subspace.reach)
    if subspace.n_directions == passes.dim and isinstance(run.domain, Box) and run.schema is None:
        half = run.domain.half_widths
        small = Box(-half, half)
    released = run.sketch(projected(passes, subspace.rows), small, n_clusters, n_records)
    model = learn_kmeans(released, n_clusters)
    centers = model.centers @ subspace.rows
    counts = model.weights * max(model.n_records, 1.0)
    seen, errors = None, model.standard_errors
    if subspace.n_directions == passes.dim and errors is not None:
        errors = np.sqrt(np.square(errors) @ np.square(subspace.rows))
        noise = math.sqrt(released.noise_variance)
        middle = passes.domain.center_vector
        seen = Means(centers + middle, counts, errors, noise, is_gaussian=False)
    return centers, counts, seen


def _round(
    passes: Passes,
    centers: Floats,
    counts: Floats,
    subspace: Subspace,
    account: Account,
    name: str,
    radius: int | None = None,
) -> tuple[Floats, Floats, Means]:
    """New centers, whole numbers in the ball, and counts; the means as they were released.

    Residuals that are cut count less, and as much less in the number of records: the means are
    means of records with weights, wherever these are cut.

    Charges: the shares "radius" and "round" of that name; the second alone if a radius is given.
    """
    norm = _norm(account)
    if radius is None:
        radius = _radius(passes, centers, account, name)
    weight = max(1, round(COUNT_WEIGHT[norm] * radius))
    sums, kept = residual_sums(passes, centers, radius, weight, norm)
    together = np.concatenate([sums, kept[:, np.newaxis]], axis=1)
    noisy, variance = account.noisy(
        f"round {name}", together, **round_sensitivities(radius, weight)
    )
    unit = passes.unit
    seen = Means.of(
        noisy[:, :-1] * unit,
        noisy[:, -1] / weight,
        (variance * unit**2, variance / weight**2),
        is_gaussian=norm == 2,
        around=centers * unit + passes.domain.center_vector,
    )
    before = float(counts.sum())
    counts = pulled_counts(counts, noisy[:, -1] / weight, variance / weight**2)
    least = max(MIN_COUNT * before / len(centers), 1.0)
    divisors = np.maximum(counts, least)
    steps = shrunk_steps(
        noisy[:, :-1] / divisors[:, np.newaxis], variance / divisors**2, divisors, subspace
    )
    return _in_ball(centers + steps, passes), counts, seen


def _norm(account: Account) -> Norm:
    """In which residuals are cut: that of the sensitivity of the noise."""
    return 1 if account.shares.is_pure else 2


def _radius(passes: Passes, centers: Floats, account: Account, name: str) -> int:
    """What most residuals are within.

    Charges: the share "radius" of that name.
    """
    norm = _norm(account)
    diameter = 2 * float(passes.limits[0]) * (math.sqrt(passes.dim) if norm == 1 else 1)
    bins = Bins.of(diameter, norm)
    histogram, _ = account.counts(f"radius {name}", residual_lengths(passes, centers, bins))
    return bins.quantile(histogram, INSIDE)


def _around_the_mean(
    run: Run, passes: Passes, n_clusters: int, account: Account, n_records: float
) -> tuple[Floats, Floats]:
    """Centers, whole numbers in the ball, around the mean of all records, and equal counts.

    As far from it as the best centers of one round cloud of records would be, in random directions.

    Charges: the shares "radius mean" and "round mean".
    """
    dim = passes.dim
    middle, whole = np.zeros((1, dim)), np.array([n_records])
    radius = _radius(passes, middle, account, "mean")
    mean, _, _ = _round(passes, middle, whole, all_directions(dim), account, "mean", radius)
    # Of Gaussian records of width s the radius is about s times this.
    per_width = math.sqrt(dim) + 0.6 if _norm(account) == 2 else 0.8 * dim + 0.5 * math.sqrt(dim)
    across = min(radius / per_width, float(passes.limits[0]) / math.sqrt(dim))
    width = math.sqrt(max(across**2 - float(np.mean(mean**2)), (across / 10) ** 2))
    directions = spread_directions(n_clusters, dim, run.seed)
    return _in_ball(mean + width * largest_of(n_clusters) * directions, passes), np.full(
        n_clusters, n_records / n_clusters
    )


def largest_of(size: int) -> float:
    """About the expected largest of so many standard normal numbers (Blom, 1958)."""
    return float(ndtri((size - 0.375) / (size + 0.25)))


def _in_ball(centers: Floats, passes: Passes) -> Floats:
    """Centers as whole numbers, those outside the ball on its edge."""
    norms = np.linalg.norm(centers, axis=1, keepdims=True)
    largest = float(passes.limits[0])
    return np.asarray(np.rint(centers * np.minimum(1.0, largest / np.maximum(norms, 1.0))))


def pulled_counts(before: Floats, noisy: Floats, variance: float) -> Floats:
    """Counts between what they were thought to be and what was measured."""
    moved = noisy - before
    excess = max(float(np.mean(moved**2)) - variance, 0.0)
    return np.asarray(before + excess / (excess + variance) * moved)


def shrunk_steps(steps: Floats, variances: Floats, weights: Floats, subspace: Subspace) -> Floats:
    """Steps (k, dim) with noise of one variance per cluster, shrunk in groups of directions.

    Groups double in size: [0, p), [p, 2p), [2p, 4p), ...
    """
    if subspace.n_directions == steps.shape[1]:  # the start has seen all columns
        return shrunk_together(steps, variances)
    if not subspace.is_ordered:
        common = shrunk_together(steps, variances)
        return common + shrunk_alone(steps - common, variances)
    rotated = steps @ subspace.directions
    dim = rotated.shape[1]
    share = weights / weights.sum()
    start, end = 0, min(subspace.n_directions, dim)
    while start < dim:
        group = rotated[:, start:end]
        squares = np.mean(group**2, axis=1)
        typical = max(float(share @ (squares - variances)), 0.0)
        signal = np.maximum(typical, squares - _noise_at_most(variances, end - start))
        group *= (signal / (signal + variances))[:, np.newaxis]
        start, end = end, min(2 * end, dim)
    return np.asarray(rotated @ subspace.directions.T)


def shrunk_together(steps: Floats, variances: Floats) -> Floats:
    """Steps (k, dim) shrunk along directions of their own.

    Steps of clusters have directions in common, noise has none: singular values of k rows of
    noise of variance 1 in d columns end at sqrt(k) + sqrt(d). What stands out of them is
    shrunk as is best for squared errors (Gavish and Donoho, 2017).
    """
    deviations = np.sqrt(variances)[:, np.newaxis]
    left, values, right = np.linalg.svd(steps / deviations, full_matrices=False)
    few, many = sorted(steps.shape)
    ratio = few / many
    y = values**2 / many
    inside = (y - ratio - 1) ** 2 - 4 * ratio
    kept = np.where(
        y > (1 + np.sqrt(ratio)) ** 2, np.sqrt(np.maximum(inside, 0.0) / np.maximum(y, 1e-300)), 0.0
    )
    return np.asarray((left * (kept * np.sqrt(many))) @ right * deviations)


def shrunk_alone(steps: Floats, variances: Floats) -> Floats:
    """Steps (k, dim) of which each is judged by itself."""
    squares = np.mean(steps**2, axis=1)
    signal = np.maximum(squares - _noise_at_most(variances, steps.shape[1]), 0.0)
    return np.asarray((signal / (signal + variances))[:, np.newaxis] * steps)


def _noise_at_most(variances: Floats, size: int) -> Floats:
    """What the mean square of so many numbers of noise hardly exceeds: three deviations more."""
    return np.asarray(variances * (1 + 3 * math.sqrt(2 / size)))


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
