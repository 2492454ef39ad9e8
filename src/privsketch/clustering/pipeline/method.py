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
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from privsketch._base.errors import require_count
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, WholeFloats
from privsketch.clustering.edge import Means, edge_concerns
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.plan import PipelinePlan, pipeline_forecast, plan_pipeline
from privsketch.clustering.pipeline.probes import Group, Pool, reduced
from privsketch.clustering.pipeline.rounds import UNCUT_SHARE, Measured, measure, norm_of, release_radii
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
from privsketch.features.stream import PublicStream, Purpose
from privsketch.learning.concerns import RecordCount, count_of
from privsketch.learning.kmeans.learner import learn_kmeans
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account

COUNT_WEIGHT = {1: 0.1, 2: 0.25}  # weight of a record's count, in units of the radius, by norm
PROBE_COUNT_WEIGHT = 0.5  # the same where counts decide which means are merged
MIN_COUNT = 0.02  # smallest count of a cluster, as a share of the average one
FOUND_NOISES = 2.0  # noises of a count that noise cannot take from a cluster found before


@dataclass(frozen=True)
class Clusters:
    """What is known about the clusters between two rounds.

    Attributes
    ----------
    centers : (k, dim) float64
        Whole numbers in the ball.
    counts : (k,) float64
        Numbers of records.
    widths : (k,) float64
        Standard deviations along an axis, in whole numbers.
    axes : (k, dim) float64
        Unit vectors along which to look for two clusters.
    is_found : bool
        Whether they have been seen, by a sketch or a round, and are not just spread out.
    """

    centers: WholeFloats
    counts: Floats
    widths: Floats
    axes: Floats
    is_found: bool


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
    means: Means | None = None
    subspace = all_directions(passes.dim)
    starts: list[Clusters] = []
    with one_thread():  # blocks of records already share the cores
        if plan.directions != "mean":
            subspace = _subspace(run, passes, plan, account, n_records)
            start, counts, seen, means, width = _start_by_sketch(
                run, passes, subspace, n_clusters, n_records
            )
            centers = move_into_ball(start / passes.unit, passes)
            widths = np.full(n_clusters, width / passes.unit)
            axes = _random_axes(n_clusters, passes.dim, run.seed, "sketch")
            starts.append(Clusters(centers, counts, widths, axes, is_found=True))
        if "round mean" in account.shares.weights:
            around, number = _start_around_mean(run, passes, n_clusters, account, n_records)
            starts.append(around)
            if plan.directions == "mean":
                seen = number
        clusters = starts[0]
        n_counted = float(clusters.counts.sum())  # in rounds, cut records count as less than one
        for number_of_round, kind in enumerate(plan.rounds):
            name = str(number_of_round)
            if kind == "plain":
                clusters, means = _plain_round(passes, clusters, subspace, account, name)
            elif kind == "union":
                clusters = _union_round(run, passes, starts, subspace, account, name)
            else:
                clusters = _probe_round(run, passes, clusters, subspace, account, name)
    if plan.rounds:
        n_uncut = float(clusters.counts.sum()) / UNCUT_SHARE
        seen = RecordCount(min(seen.n_records, n_uncut), seen.variance)
    centers, counts = clusters.centers, clusters.counts
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
) -> tuple[Floats, Floats, RecordCount, Means | None, float]:
    """Release centers (k, dim) about the center of the ball, counts, their sum and a width.

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
    width = 0.0 if model.width is None else float(np.mean(model.width))
    return centers, counts, count_of(released, n_clusters, model.n_records), means, width


def _per_width(account: Account, dim: int) -> float:
    """Return the ratio of the radius of Gaussian records to their width, about."""
    root = math.sqrt(dim)
    return root + 0.6 if norm_of(account) == 2 else 0.8 * dim + 0.5 * root


def _random_axes(n: int, dim: int, seed: int, name: str) -> Floats:
    """Draw (n, dim) public random directions. Charges nothing."""
    salt = sum(ord(letter) << 8 * i for i, letter in enumerate(name[:3]))
    normal = PublicStream(seed + salt, Purpose.SPREAD).normal(n * dim).reshape(n, dim)
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))


def _has_own(account: Account, name: str) -> bool:
    return f"radii {name}" in account.shares.weights


def _plain_round(
    passes: Passes, clusters: Clusters, subspace: Subspace, account: Account, name: str
) -> tuple[Clusters, Means]:
    """Move the centers to the means of their clusters; return the means before shrinkage, too.

    Residuals that are cut count less in the sum and in the number of records: the means are
    weighted means of the records.

    Charges: the shares "radius", "radii" and "round" of that name.
    """
    norm, centers, counts = norm_of(account), clusters.centers, clusters.counts
    radii = release_radii(passes, centers, account, name, has_own=_has_own(account, name))
    found = measure(passes, centers, radii, account, name, COUNT_WEIGHT[norm])
    total = float(counts.sum())
    counts = pulled_counts(counts, found.counts, found.count_noise)
    divisors = np.maximum(counts, max(MIN_COUNT * total / len(centers), 1.0))
    steps = shrunk_steps(
        found.steps / divisors[:, np.newaxis], found.noise / divisors**2, divisors, subspace
    )
    moved = move_into_ball(centers + steps, passes)
    widths = found.radii / _per_width(account, passes.dim)
    clusters = Clusters(moved, counts, widths, clusters.axes, is_found=True)
    return clusters, found.means(passes, norm)


def _probe_round(
    run: Run,
    passes: Passes,
    clusters: Clusters,
    subspace: Subspace,
    account: Account,
    name: str,
) -> Clusters:
    """Measure means on both sides of every center, and merge them to as many centers.

    Charges: the shares "radius", "radii" and "round" of that name, and "width" if there is one.
    """
    k = len(clusters.centers)
    if f"radius width {name}" in account.shares.weights:
        radii = release_radii(passes, clusters.centers, account, f"width {name}", has_own=False)
        widths = radii.radii / _per_width(account, passes.dim)
        clusters = replace(clusters, widths=widths)
    offsets = clusters.widths[:, np.newaxis] * clusters.axes
    places = np.concatenate([clusters.centers + offsets, clusters.centers - offsets])
    before = np.tile(np.arange(k), 2)
    floors = clusters.counts if clusters.is_found else np.zeros(k)
    return _merged(run, passes, places, before, floors, k, subspace, account, name)


def _union_round(
    run: Run,
    passes: Passes,
    starts: list[Clusters],
    subspace: Subspace,
    account: Account,
    name: str,
) -> Clusters:
    """Measure means around the centers of two starts, and merge them.

    Charges: the shares "radius", "radii" and "round" of that name.
    """
    sketched, spread = starts
    k = len(sketched.centers)
    places = np.concatenate([sketched.centers, spread.centers])
    before = np.tile(np.arange(k), 2)
    return _merged(run, passes, places, before, sketched.counts, k, subspace, account, name)


def _merged(
    run: Run,
    passes: Passes,
    places: Floats,
    before: Floats,
    floors: Floats,
    n_clusters: int,
    subspace: Subspace,
    account: Account,
    name: str,
) -> Clusters:
    """Measure means around places, and merge them to `n_clusters` centers.

    Charges: the shares "radius", "radii" and "round" of that name.
    """
    places = move_into_ball(places, passes)
    radii = release_radii(passes, places, account, name, has_own=_has_own(account, name))
    found = measure(passes, places, radii, account, name, PROBE_COUNT_WEIGHT)
    pool = _pool(found, subspace)
    sizes = pool.sizes.copy()
    deviation = math.sqrt(found.count_noise)
    for label, floor in enumerate(np.minimum(floors, FOUND_NOISES * deviation)):
        members = np.flatnonzero(before == label)
        missing = floor - sizes[members].sum()
        if missing > 0:
            sizes[members] += missing / len(members)
    pool = replace(pool, sizes=sizes)
    groups = reduced(pool, before, n_clusters)
    per_width = _per_width(account, passes.dim)
    clusters = _clusters_of(run, groups, pool, found.radii / per_width, name, places, n_clusters)
    return replace(clusters, centers=move_into_ball(clusters.centers, passes))


def _pool(found: Measured, subspace: Subspace) -> Pool:
    """Return the means around places, their numbers of records and their errors."""
    deviation, dim = math.sqrt(found.count_noise), found.steps.shape[1]
    divisors = np.maximum(found.counts, deviation)
    variances = found.noise / divisors**2
    steps = shrunk_steps(found.steps / divisors[:, np.newaxis], variances, divisors, subspace)
    sizes = np.where(found.counts > deviation, found.counts / found.kept, 0.0)
    return Pool(found.places + steps, sizes, dim * variances)


def _clusters_of(
    run: Run,
    groups: list[Group],
    pool: Pool,
    widths: Floats,
    name: str,
    places: Floats,
    n_clusters: int,
) -> Clusters:
    """Return the clusters of groups; where groups are missing, large ones are divided."""
    dim = places.shape[1]
    axes = _random_axes(n_clusters, dim, run.seed, name)
    if not groups:
        k = n_clusters
        return Clusters(places[:k], np.zeros(k), widths[:k], axes, is_found=False)
    centers = [group.mean for group in groups]
    counts = [group.size for group in groups]
    found_widths, found_axes = [], []
    for i, group in enumerate(groups):
        shares = pool.sizes[group.members] / group.size
        offsets = pool.means[group.members] - group.mean
        squares = np.square(offsets).sum(axis=1) / dim
        found_widths.append(math.sqrt(float(shares @ (widths[group.members] ** 2 + squares))))
        axis = axes[i]
        if len(group.members) > 1:
            scaled = offsets * np.sqrt(shares)[:, np.newaxis]
            main = np.linalg.svd(scaled, full_matrices=False)[2][0]
            axis = main if np.isfinite(main).all() else axis
        found_axes.append(axis)
    while len(centers) < n_clusters:
        largest = int(np.argmax([n * w**2 for n, w in zip(counts, found_widths, strict=True)]))
        offset = found_widths[largest] * found_axes[largest]
        centers.append(centers[largest] + offset)
        centers[largest] = centers[largest] - offset
        counts[largest] /= 2
        counts.append(counts[largest])
        found_widths[largest] *= 0.7
        found_widths.append(found_widths[largest])
        found_axes.append(axes[len(centers) - 1])
    return Clusters(
        np.stack(centers),
        np.array(counts),
        np.array(found_widths),
        np.stack(found_axes),
        is_found=True,
    )


def _start_around_mean(
    run: Run, passes: Passes, n_clusters: int, account: Account, n_records: float
) -> tuple[Clusters, RecordCount]:
    """Release centers around the mean of all records, whole numbers in the ball, and a number.

    They lie in random directions, as far from the mean as the best centers of a single round
    cluster. The noise of a mean grows with the distance that it is measured from: where a plan has
    shares for two steps, the first one finds the place for the second.

    Charges: the shares "radius" and "round" of "mean", and of "middle" if there are any.
    """
    dim, everything = passes.dim, all_directions(passes.dim)
    middle = Clusters(
        np.zeros((1, dim)), np.array([n_records]), np.ones(1), np.ones((1, dim)), is_found=False
    )
    if "round middle" in account.shares.weights:
        middle, _ = _plain_round(passes, middle, everything, account, "middle")
        middle = replace(middle, counts=np.array([n_records]))
    moved, found = _plain_round(passes, middle, everything, account, "mean")
    step = moved.centers - middle.centers
    spread = min(float(moved.widths[0]), float(passes.limits[0]) / math.sqrt(dim))
    width = math.sqrt(max(spread**2 - float(np.mean(step**2)), (spread / 10) ** 2))
    directions = spread_directions(n_clusters, dim, run.seed)
    centers = moved.centers + width * expected_normal_max(n_clusters) * directions
    # Records that are cut count as less than one.
    number = RecordCount(float(found.counts[0]) / UNCUT_SHARE, float(found.count_errors) ** 2)
    counts = np.full(n_clusters, max(number.n_records, 0.0) / n_clusters)
    axes = _random_axes(n_clusters, dim, run.seed, "mean")
    widths = np.full(n_clusters, width)
    return Clusters(move_into_ball(centers, passes), counts, widths, axes, is_found=False), number


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
