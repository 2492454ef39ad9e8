"""K-means in many columns: directions, sketch, residual rounds, on one budget.

1. Directions in which clusters are searched for: released, random, or the columns themselves.
2. A sketch of the records' coordinates along them gives centers to start from. If noise would hide
   clusters from it, the centers start around the mean of all records.
3. Rounds in the original space: a noisy histogram of residuals gives a radius, noisy sums of
   residuals cut to it move the centers, and steps that are mostly noise are shrunk.

Every number that a step uses is public or was released before. With a delta all noise is Gaussian,
in one zCDP composition. Without it the sketch has cube noise, and the rounds have Laplace noise for
residuals cut in the L1 norm.

Rounds. A record belongs to its nearest released center c. A round sums its residual x - c, cut to a
radius r, instead of x: the noise is then in proportion to the width of clusters, not to the domain.
A noisy histogram of the residuals' lengths gives r. Labels, residuals and lengths depend on the
record and on released numbers only, and are computed in integers.

Shrinkage. Counts and steps of all clusters are judged together (empirical Bayes). If they vary no
more than their noise they vanish; if they vary much more they remain. Steps are judged in groups of
directions, strong ones first: clusters differ along strong directions, and weak ones are mostly
noise. A cluster that is still far from its mean when the others have converged is judged by itself.
This is post-processing of released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from privsketch._base.errors import require_count
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Integers, WholeFloats
from privsketch.clustering.edge import Means, edge_concerns
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.plan import (
    RADIUS_BINS,
    PipelinePlan,
    pipeline_forecast,
    plan_pipeline,
)
from privsketch.clustering.pipeline.subspace import (
    Subspace,
    all_directions,
    projected,
    random_directions,
    release_subspace,
    spread_directions,
)
from privsketch.clustering.run import Run, shares_of
from privsketch.clustering.tree.swap import move_into_ball
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.kernels.nearest import CompiledClusters, Norm
from privsketch.learning.concerns import RecordCount, count_of
from privsketch.learning.kmeans.learner import learn_kmeans
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account

UNCUT_SHARE = 0.8  # share of the residuals that is not cut
COUNT_WEIGHT = {1: 0.1, 2: 0.25}  # weight of a record's count, in units of the radius, by norm
MIN_COUNT = 0.02  # smallest count of a cluster, as a share of the average one


def cluster(
    run: Run,
    n_clusters: int,
    *,
    plan: PipelinePlan | None = None,
    n_rounds: int | None = None,
) -> ClusterModel:
    """Release k-means centers of records that can be read several times.

    Charges: the budget, once.
    """
    require_count("n_clusters", n_clusters)
    ball = run.ball
    passes = run.read(ball)
    n_records = run.number(passes)
    plan = plan or plan_pipeline(n_clusters, passes.dim, run.left, n_records, n_rounds)
    account = run.share(dict(plan.weights))
    with one_thread():  # blocks of records already share the cores
        if plan.directions == "mean":
            subspace, means = all_directions(passes.dim), None
            centers, seen = _start_around_mean(run, passes, n_clusters, account, n_records)
            counts = np.full(n_clusters, max(seen.n_records, 0.0) / n_clusters)
        else:
            subspace = _subspace(run, passes, plan, account, n_records)
            start, counts, seen, means = _start_by_sketch(
                run, passes, subspace, n_clusters, n_records
            )
            centers = move_into_ball(start / passes.unit, passes)
        n_counted = float(counts.sum())  # in rounds, records that are cut count as less than one
        for number in range(plan.n_rounds):
            centers, counts, means = _round(passes, centers, counts, subspace, account, str(number))
    if plan.n_rounds > 0:
        n_uncut = float(counts.sum()) / UNCUT_SHARE
        seen = RecordCount(min(seen.n_records, n_uncut), seen.variance)
    is_as_planned = seen.sure >= UNCUT_SHARE * n_records
    concerns: tuple[str, ...] = ()
    if means is not None:
        # Rounds move records into the ball, a sketch moves them into the box.
        beyond = plan.n_rounds > 0
        concerns = edge_concerns(
            means, shares_of(counts), run.domain, beyond=beyond, schema=run.schema, names=run.names
        )
    return run.model(
        centers * passes.unit + ball.center_vector,
        counts,
        method="pipeline",
        mechanism=f"k-means: {plan.describe()}",
        n_records=n_counted,
        concerns=concerns,
        forecast=lambda facts: 1 + plan.excess if is_as_planned else pipeline_forecast(facts),
        seen=seen,
    )


def _subspace(
    run: Run, passes: Passes, plan: PipelinePlan, account: Account, n_records: float
) -> Subspace:
    """Return the directions of the plan.

    Charges: the share "subspace" if they are released.
    """
    if plan.directions == "columns":
        return all_directions(passes.dim)
    if plan.directions == "random":
        return random_directions(passes.dim, plan.n_directions, run.seed)
    return release_subspace(
        passes, plan.n_directions, account, "subspace", n_records, run.seed, run.n_threads
    )


def _start_by_sketch(
    run: Run, passes: Passes, subspace: Subspace, n_clusters: int, n_records: float
) -> tuple[Floats, Floats, RecordCount, Means | None]:
    """Release centers (k, dim) about the center of the ball, counts, and their sum, by a sketch.

    If the sketch has all columns, its means are returned too, to check the edge of the domain.

    Charges: the share "sketch".
    """
    has_all_columns = subspace.n_directions == passes.dim
    domain: Domain = Ball(dim=subspace.n_directions, radius=run.ball.radius * subspace.reach)
    if has_all_columns and isinstance(run.domain, Box) and run.schema is None:
        domain = Box(-run.domain.half_widths, run.domain.half_widths)
    released = run.sketch(projected(passes, subspace.rows), domain, n_clusters, n_records)
    model = learn_kmeans(released, n_clusters)
    centers = model.centers @ subspace.rows
    counts = model.weights * max(model.n_records, 1.0)
    means, errors = None, model.standard_errors
    if has_all_columns and errors is not None:
        errors = np.sqrt(np.square(errors) @ np.square(subspace.rows))
        noise = math.sqrt(released.noise_variance)
        middle = passes.domain.center_vector
        means = Means(centers + middle, counts, errors, noise, is_gaussian=False)
    return centers, counts, count_of(released, n_clusters, model.n_records), means


def _round(
    passes: Passes,
    centers: Floats,
    counts: Floats,
    subspace: Subspace,
    account: Account,
    name: str,
    radius: int | None = None,
) -> tuple[Floats, Floats, Means]:
    """Release new centers, whole numbers in the ball, counts, and the means before shrinkage.

    Residuals that are cut count less in the sum and in the number of records: the means are
    weighted means of the records.

    Charges: the shares "radius" and "round" of that name; the second alone if a radius is given.
    """
    norm = _norm(account)
    if radius is None:
        radius = _radius(passes, centers, account, name)
    weight = max(1, round(COUNT_WEIGHT[norm] * radius))
    sums, weights = residual_sums(passes, centers, radius, weight, norm)
    values = np.concatenate([sums, weights[:, np.newaxis]], axis=1)
    sensitivities = round_sensitivities(radius, weight)
    noisy, variance = account.noisy(f"round {name}", values, **sensitivities)
    unit = passes.unit
    means = Means.of(
        noisy[:, :-1] * unit,
        noisy[:, -1] / weight,
        (variance * unit**2, variance / weight**2),
        is_gaussian=norm == 2,
        around=centers * unit + passes.domain.center_vector,
    )
    total = float(counts.sum())
    counts = pulled_counts(counts, noisy[:, -1] / weight, variance / weight**2)
    divisors = np.maximum(counts, max(MIN_COUNT * total / len(centers), 1.0))
    steps = shrunk_steps(
        noisy[:, :-1] / divisors[:, np.newaxis], variance / divisors**2, divisors, subspace
    )
    return move_into_ball(centers + steps, passes), counts, means


def _norm(account: Account) -> Norm:
    """Return the norm in which residuals are cut: that of the sensitivity of the noise."""
    return 1 if account.shares.is_pure else 2


def _radius(passes: Passes, centers: Floats, account: Account, name: str) -> int:
    """Release a radius that contains most residuals.

    Charges: the share "radius" of that name.
    """
    norm = _norm(account)
    diameter = 2 * float(passes.limits[0]) * (math.sqrt(passes.dim) if norm == 1 else 1)
    bins = Bins.of(diameter, norm)
    histogram, _ = account.counts(f"radius {name}", residual_lengths(passes, centers, bins))
    return bins.quantile(histogram, UNCUT_SHARE)


def _start_around_mean(
    run: Run, passes: Passes, n_clusters: int, account: Account, n_records: float
) -> tuple[Floats, RecordCount]:
    """Release centers around the mean of all records, whole numbers in the ball, and a number.

    They lie in random directions, as far from the mean as the best centers of a single round
    cluster.

    Charges: the shares "radius mean" and "round mean".
    """
    dim = passes.dim
    middle, count = np.zeros((1, dim)), np.array([n_records])
    radius = _radius(passes, middle, account, "mean")
    mean, _, found = _round(passes, middle, count, all_directions(dim), account, "mean", radius)
    # Ratio of the radius of Gaussian records to their width, about.
    per_width = math.sqrt(dim) + 0.6 if _norm(account) == 2 else 0.8 * dim + 0.5 * math.sqrt(dim)
    spread = min(radius / per_width, float(passes.limits[0]) / math.sqrt(dim))
    width = math.sqrt(max(spread**2 - float(np.mean(mean**2)), (spread / 10) ** 2))
    directions = spread_directions(n_clusters, dim, run.seed)
    centers = mean + width * expected_normal_max(n_clusters) * directions
    # Records that are cut count as less than one.
    number = RecordCount(float(found.counts[0]) / UNCUT_SHARE, float(found.count_errors) ** 2)
    return move_into_ball(centers, passes), number


def expected_normal_max(n: int) -> float:
    """Return the expected largest of n standard normal numbers, approximately (Blom, 1958)."""
    return float(ndtri((n - 0.375) / (n + 0.25)))


def pulled_counts(before: Floats, noisy: Floats, variance: float) -> Floats:
    """Return counts between the previous and the measured ones."""
    changes = noisy - before
    excess = max(float(np.mean(changes**2)) - variance, 0.0)
    return np.asarray(before + excess / (excess + variance) * changes)


def shrunk_steps(steps: Floats, variances: Floats, weights: Floats, subspace: Subspace) -> Floats:
    """Shrink steps (k, dim), with one variance of noise per cluster, in groups of directions.

    Groups double in size: [0, p), [p, 2p), [2p, 4p), ...
    """
    if subspace.n_directions == steps.shape[1]:  # the start had all columns
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
    """Shrink steps (k, dim) along their singular vectors.

    Steps of clusters share directions, noise does not: the singular values of k rows of noise of
    variance 1 in d columns end at sqrt(k) + sqrt(d). Larger ones are shrunk optimally for squared
    errors (Gavish and Donoho, 2017).
    """
    deviations = np.sqrt(variances)[:, np.newaxis]
    left, values, right = np.linalg.svd(steps / deviations, full_matrices=False)
    shorter, longer = sorted(steps.shape)
    ratio = shorter / longer
    y = values**2 / longer
    radicand = np.maximum((y - ratio - 1) ** 2 - 4 * ratio, 0.0) / np.maximum(y, 1e-300)
    shrunk = np.where(y > (1 + np.sqrt(ratio)) ** 2, np.sqrt(radicand), 0.0)
    return np.asarray((left * (shrunk * np.sqrt(longer))) @ right * deviations)


def shrunk_alone(steps: Floats, variances: Floats) -> Floats:
    """Shrink steps (k, dim), each by itself."""
    squares = np.mean(steps**2, axis=1)
    signal = np.maximum(squares - _noise_at_most(variances, steps.shape[1]), 0.0)
    return np.asarray((signal / (signal + variances))[:, np.newaxis] * steps)


def _noise_at_most(variances: Floats, size: int) -> Floats:
    """Return a bound on the mean square of `size` numbers of noise: three deviations above it."""
    return np.asarray(variances * (1 + 3 * math.sqrt(2 / size)))


@dataclass(frozen=True)
class Bins:
    """Public edges of bins of lengths, growing by a constant factor up to the diameter.

    For the L2 norm, `edges` are squares, as in `kernels/nearest.lengths`.
    """

    edges: WholeFloats
    norm: Norm

    @classmethod
    def of(
        cls, diameter: float, norm: Norm, n_bins: int = RADIUS_BINS, shortest: float = 0.01
    ) -> Bins:
        """Return edges from the share `shortest` of the diameter on; the first bin starts at 0."""
        edges = np.ceil(np.geomspace(shortest * diameter, diameter, n_bins))
        return cls(np.unique(edges**norm), norm)

    def quantile(self, counts: Floats, share: float) -> int:
        """Return the upper edge of the bin that holds the quantile of noisy counts."""
        smooth = np.maximum.accumulate(np.cumsum(counts))
        index = int(np.searchsorted(smooth, share * max(smooth[-1], 1.0)))
        edge = int(self.edges[min(index, len(self.edges) - 1)])
        return edge if self.norm == 1 else math.isqrt(edge)


def residual_lengths(passes: Passes, centers: WholeFloats, bins: Bins) -> Integers:
    """Count the residuals in each bin of lengths, in one pass."""
    clusters = CompiledClusters(centers)

    def work(blocks: Iterable[WholeFloats]) -> tuple[Integers, ...]:
        return (clusters.lengths(blocks, bins.edges, bins.norm),)

    return passes.sums_of_blocks(work, "lengths of residuals")[0]


def round_sensitivities(radius: int, weight: int) -> dict[str, int]:
    """Return the sensitivity of `residual_sums`: a record moves one residual and one weight.

    A replaced record moves them in two clusters, or in one. There residuals may point apart, and
    weights, which are not negative, differ by at most one weight.
    """
    squared = radius**2 + weight**2
    return {
        "l1": radius + weight,
        "l2_squared": squared,
        "l2_replaced": max(2 * squared, 4 * radius**2 + weight**2),
    }


def residual_sums(
    passes: Passes, centers: WholeFloats, radius: int, weight: int, norm: Norm
) -> tuple[Integers, Integers]:
    """Sum the cut residuals, (k, dim), and weights, (k,), of each cluster, in one pass.

    `ReferenceClusters.residuals` defines the terms. One record moves the first sum by at most the
    radius in the norm, and the second by at most the weight.
    """
    clusters = CompiledClusters(centers)

    def work(blocks: Iterable[WholeFloats]) -> tuple[Integers, ...]:
        return clusters.residuals(blocks, radius, weight, norm)

    sums, counts = passes.sums_of_blocks(work, "sums of residuals")
    return sums, counts
