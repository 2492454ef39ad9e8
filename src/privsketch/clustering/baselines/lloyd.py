"""K-means by noisy rounds of Lloyd's: DP-Lloyd, also known as SuLQ k-means.

Blum, Dwork, McSherry and Nissim (2005), with the budget of Su et al. (2016). A fixed number of
rounds from public centers; each assigns every record to its nearest center and releases noisy
counts and noisy sums about the center of the domain. A record is in one cluster, so the numbers of
all clusters together change as those of one do. Empty clusters get noise like all others.

The releases of a round. A is the largest L1 norm of a record: the sum of the half-widths of a box,
or sqrt(d) R for a ball of radius R; r is the largest half-width, or R:

- "laplace-joint": sums and r times the count, one Laplace law for an L1 norm of A + r.
- "laplace": the same with a share each. Coordinates get 1 part each and the count q parts,
  q = (4 d rho^2)^(1/3), which is least error for means about 2 rho r from the center in each column
  of a box, or 2 rho R from that of a ball.
- "cube": sums and r times the count of each cluster in cube noise of d + 1 components. Clusters
  have independent noise: together the density is exp(-epsilon sum_j |z_j|_inf / r), and a record
  changes sum_j |z_j|_inf by at most r, two records that replace each other by at most 2 r.
- "gaussian": sums and w times the count, zCDP for an L2 norm of sqrt(R^2 + w^2). R is the radius
  of a ball, or the half diagonal of a box. w balances errors as q does. A replacement moves two
  clusters, or one by 2 R, whose count it leaves alone: w = R costs nothing then.

Without a delta the default is "cube" or "laplace", whichever has the smaller error: the cube for
boxes whose sides are alike, Laplace noise for balls of more than a few columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from privsketch._base.errors import (
    require_count,
    require_gaussian_delta,
    require_one_of,
    require_records,
)
from privsketch._base.formats import count_text
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Integers, WholeFloats
from privsketch.clustering.baselines.points import Start, start_centers
from privsketch.clustering.edge import Means, edge_concerns
from privsketch.clustering.extent import crowded
from privsketch.clustering.forecast import forecast_ratio, noisy_means
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run, shares_of
from privsketch.facts.domain import Ball, Domain
from privsketch.kernels.nearest import CompiledClusters
from privsketch.learning.concerns import RecordCount
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account
from privsketch.noise.mechanism import add_noise, cube_factor, cube_law
from privsketch.noise.sums import saturating_multiply

LloydNoise = Literal["laplace-joint", "laplace", "cube", "gaussian"]
LLOYD_ROUNDS = 5  # with pure noise, 20 are worse (docs/papers/bal.md)
MIN_ROUNDS, MAX_ROUNDS = 2, 7  # limits of n_rounds="auto" (Su et al., 2016)
# rho of Su et al. (2016): distance of cluster means from the center of a column, in its widths.
MEAN_DISTANCE = 0.225


def cluster(
    run: Run,
    n_clusters: int,
    *,
    noise: LloydNoise | None = None,
    n_rounds: int | Literal["auto"] = LLOYD_ROUNDS,
    start: Start = "packing",
) -> ClusterModel:
    """Release k-means centers of records that are read once a round.

    `noise` is by default "gaussian" if there is a delta, else the better of "cube" and "laplace".
    Only `n_rounds="auto"` needs the run's `n_records`.

    Charges: the budget, once; without its delta where the noise is pure.
    """
    require_count("n_clusters", n_clusters)
    domain, delta = run.domain, run.budget.delta
    kind: LloydNoise = noise or ("gaussian" if delta > 0 else pure_noise(domain))
    require_one_of("noise", kind, _RELEASES)
    if kind == "gaussian":
        require_gaussian_delta(delta)
    else:
        run.without_delta()
    passes = run.read()
    rounds = _checked_rounds(n_rounds, run, n_clusters, passes.dim)
    account = run.share(round_shares(kind, rounds, passes.dim))
    centers = np.rint(start_centers(domain, n_clusters, start, run.seed) / passes.unit)
    with one_thread():  # blocks of records already share the cores
        for number in range(rounds):
            exact_sums, exact_counts = cluster_sums(passes, centers)
            noisy = _RELEASES[kind](account, f"round {number}", passes, exact_sums, exact_counts)
            centers = _moved(passes, centers, noisy.sums, noisy.counts)
    means = Means.of(
        noisy.sums * passes.unit,
        noisy.counts,
        (noisy.sum_variance * passes.unit**2, noisy.count_variance),
        is_gaussian=kind == "gaussian",
        around=domain.center_vector,
    )
    return run.model(
        centers * passes.unit + domain.center_vector,
        noisy.counts,
        method="lloyd",
        mechanism=f"k-means: {rounds} noisy rounds of Lloyd's",
        concerns=edge_concerns(
            means, shares_of(noisy.counts), domain, schema=run.schema, names=run.names
        ),
        too_wide=crowded(
            centers * passes.unit, noisy.counts, math.sqrt(noisy.count_variance), domain
        ),
        forecast=lambda facts: forecast_ratio(
            facts,
            noisy_means(facts, noisy.sum_variance * passes.unit**2, noisy.count_variance),
        ),
        seen=RecordCount(float(noisy.counts.sum()), n_clusters * noisy.count_variance),
    )


def pure_noise(domain: Domain) -> LloydNoise:
    """Return the kind of pure noise whose means err less, from the domain alone.

    It compares squared errors of the mean of n records, times (n epsilon)^2, for means as far out
    as `count_parts` assumes. Numbers of clusters, records and rounds are the same for both.
    """
    half = domain.half_widths
    dim, widest = len(half), float(half.max())
    if isinstance(domain, Ball):
        l1, far = math.sqrt(dim) * widest, 2 * MEAN_DISTANCE * widest
    else:
        l1, far = float(half.sum()), 2 * MEAN_DISTANCE * float(np.linalg.norm(half))
    for_coordinate, for_count = map(float, split(dim))
    laplace = 2 * dim * (l1 / (dim * for_coordinate)) ** 2 + 2 * (far / for_count) ** 2
    cube = (dim + 2) * (dim + 3) / 3 * (dim * widest**2 + far**2)
    return "laplace" if laplace < cube else "cube"


def count_parts(dim: int) -> float:
    """Return q: the share of a count over that of a coordinate."""
    return float((4 * dim * MEAN_DISTANCE**2) ** (1 / 3))


def chosen_rounds(n_records: float, n_clusters: int, dim: int, epsilon: float) -> int:
    """Return the rounds that a public number of records allows, 2 to 7 (Su et al., 2016)."""
    # The epsilon of a round that keeps its noise below a share of the clusters' spread.
    for_round = math.sqrt(500 * (n_clusters * (dim + count_parts(dim))) ** 3) / n_records
    return int(min(max(epsilon / for_round, MIN_ROUNDS), MAX_ROUNDS))


def round_shares(kind: LloydNoise, n_rounds: int, dim: int) -> dict[str, Fraction]:
    """Return the shares of all releases; they add up to 1."""
    for_round = Fraction(1, n_rounds)
    if kind != "laplace":
        return {f"round {number}": for_round for number in range(n_rounds)}
    for_coordinate, for_count = split(dim)
    parts = {"sums": for_round * dim * for_coordinate, "counts": for_round * for_count}
    return {f"round {i} {part}": parts[part] for i in range(n_rounds) for part in parts}


def split(dim: int) -> tuple[Fraction, Fraction]:
    """Return the shares of a round: that of one coordinate, and that of the count."""
    q = Fraction(count_parts(dim))
    return 1 / (dim + q), q / (dim + q)


def cluster_sums(passes: Passes, centers: WholeFloats) -> tuple[Integers, Integers]:
    """Return sums (k, dim) and counts (k,) of the records nearest to each center, in one pass."""
    clusters = CompiledClusters(centers)
    sums, counts = passes.sums_of_blocks(clusters.sums, "cluster sums")
    return sums, counts


@dataclass(frozen=True)
class Noisy:
    """Released sums (k, dim) and counts (k,) of a round, and the variances of their noise."""

    sums: Floats
    counts: Floats
    sum_variance: float
    count_variance: float


def _laplace_joint(
    account: Account, name: str, passes: Passes, sums: Integers, counts: Integers
) -> Noisy:
    weight = int(passes.limits.max())
    noisy, scale = account.laplace(name, _together(sums, counts, weight), passes.l1 + weight)
    return _apart(noisy, weight, 2 * scale**2)


def _laplace(
    account: Account, name: str, passes: Passes, sums: Integers, counts: Integers
) -> Noisy:
    # One L1 norm for all columns never means more total noise than a share for each of them.
    noisy, scale = account.laplace(f"{name} sums", sums, passes.l1)
    noisy_counts, count_scale = account.laplace(f"{name} counts", counts, 1)
    return Noisy(noisy, noisy_counts, 2 * scale**2, 2 * count_scale**2)


def _gaussian(
    account: Account, name: str, passes: Passes, sums: Integers, counts: Integers
) -> Noisy:
    squared = passes.l2_squared
    if account.shares.budget.neighbours == "replace":
        # Two records of one cluster are up to 2 R apart: counts cost nothing up to a weight of R.
        weight = math.isqrt(squared)
    else:
        # Least (R^2 + w^2) (d + (2 rho R / w)^2), the squared error of a mean at 2 rho R.
        weight = max(1, round(math.sqrt(squared * 2 * MEAN_DISTANCE / math.sqrt(passes.dim))))
    together = _together(sums, counts, weight)
    replaced = max(4 * squared, 2 * (squared + weight**2))
    noisy, scale = account.gaussian(name, together, squared + weight**2, replaced=replaced)
    return _apart(noisy, weight, scale**2)


def _cube(account: Account, name: str, passes: Passes, sums: Integers, counts: Integers) -> Noisy:
    budget = account.budget(name, many=True)
    weight = int(passes.limits.max())
    sensitivity = weight if budget.neighbours == "add-remove" else 2 * weight
    sensitivity *= budget.unit.max_records  # in as many clusters, or in one
    n_components = passes.dim + 1
    factor = cube_factor(sensitivity, n_components, budget.epsilon)
    law = cube_law(factor * sensitivity, n_components, budget.epsilon, budget.neighbours)
    scaled = saturating_multiply(_together(sums, counts, weight), factor)
    released = [add_noise(row, law, source=None) for row in scaled]
    receipt = released[0][1]
    account.charge(
        replace(
            receipt,
            mechanism=f"{receipt.mechanism}, for each of {count_text(len(sums), 'cluster')}",
            norm="largest components, added up over clusters",
        ),
        0.0,
    )
    noisy = np.array([row for row, _ in released], dtype=np.float64) / factor
    return _apart(noisy, weight, law.variance / factor**2)


_Release = Callable[[Account, str, Passes, Integers, Integers], Noisy]
_RELEASES: dict[str, _Release] = {
    "laplace-joint": _laplace_joint,
    "laplace": _laplace,
    "cube": _cube,
    "gaussian": _gaussian,
}


def _together(sums: Integers, counts: Integers, weight: int) -> Integers:
    """Join sums and weighted counts, (k, dim + 1)."""
    weighted = saturating_multiply(counts, weight)
    return np.concatenate([sums, weighted[:, np.newaxis]], axis=1)


def _apart(noisy: Floats, weight: int, variance: float) -> Noisy:
    """Separate the sums and counts of a release of `_together`."""
    return Noisy(noisy[:, :-1], noisy[:, -1] / weight, variance, variance / weight**2)


def _moved(passes: Passes, centers: WholeFloats, sums: Floats, counts: Floats) -> WholeFloats:
    """Return noisy means in the domain, as whole numbers, from released numbers alone.

    Clusters of less than one record keep their center.
    """
    means = sums / np.maximum(counts, 1.0)[:, np.newaxis]
    inside = passes.domain.centered().project(means * passes.unit) / passes.unit
    whole = np.clip(np.rint(inside), -passes.limits, passes.limits)
    return np.asarray(np.where(counts[:, np.newaxis] < 1, centers, whole))


def _checked_rounds(n_rounds: int | str, run: Run, n_clusters: int, dim: int) -> int:
    if n_rounds != "auto":
        return require_count("n_rounds", n_rounds, "an integer of at least 1, or 'auto'")
    return chosen_rounds(require_records(run.n_records), n_clusters, dim, run.budget.epsilon)
