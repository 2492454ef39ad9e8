"""K-means in many columns: directions, sketch, residual rounds, on one budget.

1. Directions in which clusters are searched for: released, random, or the columns themselves.
2. A sketch of the records' coordinates along them gives centers to start from. If noise would hide
   clusters from it, the centers start around the mean of all records.
3. Rounds in the original space: a noisy histogram of residuals gives a radius, noisy sums of
   residuals cut to it move the centers, and steps that are mostly noise are shrunk (`shrinkage`).

Every number that a step uses is public or was released before. With a delta all noise is Gaussian,
in one zCDP composition. Without it the sketch has cube noise, and the rounds have Laplace noise for
residuals cut in the L1 norm.

Rounds. A record belongs to its nearest released center c. A round sums its residual x - c, cut to a
radius r, instead of x: the noise is then in proportion to the width of clusters, not to the domain.
A noisy histogram of the residuals' lengths gives r. Labels, residuals and lengths depend on the
record and on released numbers only, and are computed in integers.

Probe rounds. Where a sketch would lose clusters, rounds look for them: every center becomes a pair
of probes, and the means around all of them are merged to as many centers again (`probes`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from privsketch._base.errors import require_count
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.clustering.edge import Means, edge_concerns
from privsketch.clustering.forecast import PublicFacts
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.doubts import (
    measured_excess,
    unfound_clusters,
    unsettled_centers,
)
from privsketch.clustering.pipeline.plan import PipelinePlan, pipeline_forecast, plan_pipeline
from privsketch.clustering.pipeline.probes import Clusters, Pool, clusters_of, reduced
from privsketch.clustering.pipeline.rounds import (
    UNCUT_SHARE,
    Measured,
    measure,
    norm_of,
    release_radii,
)
from privsketch.clustering.pipeline.shrinkage import pulled_counts, shrunk_steps
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
    measured = math.inf  # excess of the cost, as the last round tells it
    with one_thread():  # blocks of records already share the cores
        if plan.directions == "mean":
            subspace, means = all_directions(passes.dim), None
            clusters, seen = _start_around_mean(run, passes, n_clusters, account, n_records)
            doubts = unfound_clusters(n_clusters)
        else:
            subspace = _subspace(run, passes, plan, account, n_records)
            clusters, seen, means, doubts = _start_by_sketch(
                run, passes, subspace, n_clusters, n_records
            )
        n_counted = float(clusters.counts.sum())  # in rounds, cut records count as less than one
        for number, kind in enumerate(plan.rounds):
            name = str(number)
            if kind == "probe":
                axes = _axes(n_clusters, passes.dim, run.seed, number + 1)
                clusters = _probe_round(passes, clusters, subspace, account, name, axes)
            else:
                clusters, found = _plain_round(passes, clusters, subspace, account, name)
                means = found.means(passes, norm_of(account))
                doubts = unsettled_centers(found, clusters.centers, plan.excess)
                measured = measured_excess(found, clusters.centers, plan.excess)
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
    concerns += doubts

    def forecast(facts: PublicFacts) -> float:
        planned = 1 + plan.excess if is_as_planned else pipeline_forecast(facts)
        return planned if facts.n_records < n_clusters else min(planned, 1 + measured)

    return run.model(
        centers * passes.unit + ball.center_vector,
        counts,
        method="pipeline",
        mechanism=f"k-means: {plan.describe()}",
        n_records=n_counted,
        concerns=concerns,
        forecast=forecast,
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
) -> tuple[Clusters, RecordCount, Means | None, tuple[str, ...]]:
    """Release clusters and the number of their records, by a sketch, and doubts about them.

    If the sketch has all columns, its means are returned too, to check the edge of the domain.

    Charges: the share "sketch".
    """
    dim, has_all_columns = passes.dim, subspace.n_directions == passes.dim
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
    moved = move_into_ball(centers / passes.unit, passes)
    axes = _axes(n_clusters, dim, run.seed, 0)
    clusters = Clusters(moved, counts, np.zeros(n_clusters), axes, is_found=True)
    ratio = model.cost_ratio
    doubts = (f"the k-means cost is {ratio.describe()}",) if ratio and ratio.is_bad else ()
    return clusters, count_of(released, n_clusters, model.n_records), means, doubts


def _per_width(account: Account, dim: int) -> float:
    """Return the ratio of the radius of Gaussian records to their width, about."""
    root = math.sqrt(dim)
    return root + 0.6 if norm_of(account) == 2 else 0.8 * dim + 0.5 * root


def _axes(n: int, dim: int, seed: int, number: int) -> Floats:
    """Draw the public random directions (n, dim) of a round. Charges nothing."""
    stream = PublicStream(seed, Purpose.PROBES)
    normal = stream.normal((number + 1) * n * dim)[-n * dim :].reshape(n, dim)
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))


def _plain_round(
    passes: Passes, clusters: Clusters, subspace: Subspace, account: Account, name: str
) -> tuple[Clusters, Measured]:
    """Move the centers to the means of their clusters; return what was measured, too.

    Residuals that are cut count less in the sum and in the number of records: the means are
    weighted means of the records.

    Charges: the shares "radius", "radii" and "round" of that name.
    """
    norm, centers, counts = norm_of(account), clusters.centers, clusters.counts
    radii = release_radii(passes, centers, account, name)
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
    return clusters, found


def _probe_round(
    passes: Passes,
    clusters: Clusters,
    subspace: Subspace,
    account: Account,
    name: str,
    axes: Floats,
) -> Clusters:
    """Measure means on both sides of every center, and merge them to as many centers.

    `axes` are public directions for clusters that have none of their own.

    Charges: the shares "radius", "radii" and "round" of that name. Centers that are only spread
    out have no width yet, and "radius start" pays for one.
    """
    k, dim = clusters.centers.shape
    per_width = _per_width(account, dim)
    widths = clusters.widths
    floors = clusters.counts if clusters.is_found else np.zeros(k)
    if not clusters.is_found and "radius start" in account.shares.weights and name == "0":
        radii = release_radii(passes, clusters.centers, account, "start")
        widths = radii.radii / per_width
    offsets = widths[:, np.newaxis] * clusters.axes
    places = np.concatenate([clusters.centers + offsets, clusters.centers - offsets])
    places = move_into_ball(places, passes)
    radii = release_radii(passes, places, account, name)
    found = measure(passes, places, radii, account, name, PROBE_COUNT_WEIGHT)
    pool = _pool(found, subspace, per_width)
    # What was found before, noise does not take away.
    floors = np.minimum(floors, FOUND_NOISES * math.sqrt(found.count_noise))
    pool = pool.with_at_least(floors, of=np.tile(np.arange(k), 2))
    groups = reduced(pool, np.tile(np.arange(k), 2), k)
    if not groups:
        return replace(clusters, widths=widths, axes=axes)
    merged = clusters_of(groups, pool, axes, k)
    return replace(merged, centers=move_into_ball(merged.centers, passes))


def _pool(found: Measured, subspace: Subspace, per_width: float) -> Pool:
    """Return the means around places, their numbers of records, errors and widths."""
    deviation, dim = math.sqrt(found.count_noise), found.steps.shape[1]
    divisors = np.maximum(found.counts, max(deviation, 1.0))
    variances = found.noise / divisors**2
    steps = shrunk_steps(found.steps / divisors[:, np.newaxis], variances, divisors, subspace)
    sizes = np.where(found.counts > deviation, found.counts / found.kept, 0.0)
    return Pool(found.places + steps, sizes, dim * variances, found.radii / per_width)


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
    kept = float(found.kept[0])
    number = RecordCount(float(found.counts[0]) / kept, found.count_noise / kept**2)
    counts = np.full(n_clusters, max(number.n_records, 0.0) / n_clusters)
    axes, widths = _axes(n_clusters, dim, run.seed, 0), np.full(n_clusters, width)
    return Clusters(move_into_ball(centers, passes), counts, widths, axes, is_found=False), number


def expected_normal_max(n: int) -> float:
    """Return the expected largest of n standard normal numbers, approximately (Blom, 1958)."""
    return float(ndtri((n - 0.375) / (n + 0.25)))
