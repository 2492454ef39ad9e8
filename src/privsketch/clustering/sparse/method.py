"""K-means of sparse records, which use few of many columns.

1. Clusters in few public random directions: from a sketch, or from the partition trees and swaps
   of Balcan et al. (2017). A record belongs to the cluster whose center is nearest to its
   projection, in integers.
2. Sparse centers of these clusters in all columns, and again of the clusters that these centers
   make: sums of sparse records need little noise, so rounds are cheap.

A record with s entries of at most L moves the sums of its cluster by at most s L in L1. There are
two ways from noisy sums to sparse centers.

"largest" adds noise of scale s L / epsilon to all sums and keeps those that noise alone hardly
reaches. This decision is post-processing and costs nothing. With a delta the noise is Gaussian, for
sqrt(s) L in L2.

"picks" is Algorithm 5 of Balcan et al. (2017), with corrected scales: the exponential mechanism
picks a number of coordinates, then their sums get noise. That noise has the same scale
s L / epsilon, as a record may have entries at s of the picks, and picking takes a share of epsilon.
It is better only if fewer coordinates are picked than a record has entries.

Memory does not grow with n d. docs/sparse.md has sensitivities, measurements and a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_count
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Integers, WholeFloats
from privsketch.clustering.forecast import PublicFacts, forecast_ratio, missed_clusters
from privsketch.clustering.pipeline.plan import Facts, distant_excess, lost_excess
from privsketch.clustering.run import Run
from privsketch.clustering.sparse.passes import SparsePasses
from privsketch.clustering.tree.cubes import MAX_DIMENSIONS, RADIUS, Projected
from privsketch.clustering.tree.method import TreeSettings, choice_noise, projected_centers
from privsketch.design.forecast import ReferenceData
from privsketch.facts.domain import Ball
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels.nearest import nearest
from privsketch.learning.concerns import RecordCount
from privsketch.learning.kmeans.learner import learn_kmeans
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account, Shares
from privsketch.noise.choice import picks_law
from privsketch.noise.mechanism import choose

SparseStart = Literal["sketch", "trees"]
SPARSE_STARTS: tuple[SparseStart, ...] = ("sketch", "trees")
START_SHARE = Fraction(1, 2)  # share of the steps that find clusters in few dimensions
_ROUND_SHARES: dict[str, dict[str, Fraction]] = {
    "largest": {"counts": Fraction(1, 20), "sums": Fraction(19, 20)},
    "picks": {"counts": Fraction(1, 20), "picks": Fraction(7, 10), "sums": Fraction(1, 4)},
}
_START_SHARES: dict[str, dict[str, Fraction]] = {
    "sketch": {"sketch": Fraction(1)},
    "trees": {"candidates": Fraction(1, 2), "swaps": Fraction(1, 2)},
}
_MIN_OVER_NOISE = 16  # records of a cluster over the reach of noise for a start with more clusters
_METHOD_OF_START = {"sketch": "pipeline", "trees": "partition-tree"}


def cluster_sparse(
    run: Run,
    n_clusters: int,
    *,
    n_nonzero: int,
    start: SparseStart = "sketch",
    recovery: Recovery = "largest",
    picks: int | None = None,
    n_rounds: int = 2,
    settings: TreeSettings | None = None,
) -> ClusterModel:
    """Release k-means centers of sparse records that can be read several times.

    Charges: the budget, once. No delta with start="trees" or recovery="picks".

    Parameters
    ----------
    run : Run
        A run on sparse matrices of SciPy or any table; its domain is a box that contains 0 in every
        column, or a ball around 0. Missing values, where they are allowed, count as 0.
    n_nonzero : int
        Public number of entries of a record that count. Of more, the largest are kept.
    start : {"sketch", "trees"}
        How clusters are found in few dimensions. "trees" is Balcan et al.
    recovery : {"largest", "picks"}
        How sparse centers are found. "picks" is Algorithm 5 of Balcan et al.
    picks : int, optional
        Coordinates of a center with recovery="picks"; twice `n_nonzero` by default.
    n_rounds : int
        Number of recoveries: the first from the start, the others from the clusters of the centers
        before. 1 is Balcan et al.
    settings : TreeSettings, optional
        `n_dimensions` is for both ways to start, the rest for trees.
    """
    require_count("n_clusters", n_clusters)
    require_count("n_rounds", n_rounds)
    if start not in SPARSE_STARTS or recovery not in RECOVERIES:
        raise ParameterError(
            f"`start={start!r}`, `recovery={recovery!r}`: expected one of {SPARSE_STARTS} and of "
            f"{RECOVERIES}"
        )
    run.require_one_record("pipeline")
    if run.schema is not None:
        raise ParameterError(
            f"`n_nonzero={n_nonzero}` with a schema: encoded records are not sparse"
        )
    passes = SparsePasses(
        run.table,
        run.domain,
        n_nonzero,
        # Marks for a ledger are noted of dense blocks only.
        replace(run.selection(len(run.domain.half_widths)), noter=None),
        n_threads=run.n_threads,
        progress=run.progress,
    )
    n_picks = _checked_picks(picks, recovery, passes)
    if start == "trees" or recovery == "picks":
        run.without_delta()
    n_records = run.number(passes)
    account = run.share(sparse_weights(start, recovery, n_rounds))
    settings = settings or TreeSettings()
    if start == "sketch":
        n_first = _first_clusters(n_clusters, n_records, n_rounds, recovery, passes, account)
        labels = start_by_sketch(run, passes, n_first, settings, n_records)
    else:
        n_first = n_clusters
        labels = start_by_trees(passes, n_clusters, settings, n_records, account, run.seed)
    clusters = _recover(passes, labels, n_first, n_picks, account, recovery, 0)
    for number in range(1, n_rounds):
        labels = merged(clusters, n_clusters).labels
        clusters = _recover(passes, labels, n_clusters, n_picks, account, recovery, number)
    reach = noise_reach(passes, account.shares, f"sums {n_rounds - 1}") / passes.linf
    return run.model(
        clusters.centers * passes.unit,
        clusters.counts,
        method=_METHOD_OF_START[start],
        mechanism=f"k-means of sparse records: {start}, then sums",
        forecast=lambda facts: sparse_forecast(facts, settings, start, reach),
        seen=RecordCount(float(clusters.counts.sum()), n_clusters * clusters.count_variance),
    )


def sparse_forecast(
    facts: PublicFacts, settings: TreeSettings, start: SparseStart, reach: float
) -> float:
    """Return the cost ratio to expect: of the start, and of entries that noise reaches.

    `reach` is that of noise in a sum, in records. Means of entries are taken for half of the
    largest entry.
    """
    hidden = (2 * reach / facts.per_cluster) ** 2
    if start == "trees":
        shares = {step: float(START_SHARE * share) for step, share in _START_SHARES[start].items()}
        missed = missed_clusters(facts, choice_noise(facts, settings, shares))
    else:
        dim = _sketch_dimensions(facts.n_clusters, settings)
        planned = Facts(facts.n_clusters, dim, facts.budget, max(facts.n_records, 1.0))
        lost = lost_excess(distant_excess(planned, START_SHARE))

        def missed(reference: ReferenceData) -> float:
            return lost

    return forecast_ratio(facts, missed, lambda reference: hidden)


def _sketch_dimensions(n_clusters: int, settings: TreeSettings) -> int:
    """Return enough directions to separate k clusters; more of them make the sketch larger."""
    return settings.n_dimensions or min(MAX_DIMENSIONS, max(8, 3 * n_clusters // 2 + 1))


def sparse_weights(start: SparseStart, recovery: Recovery, n_rounds: int) -> dict[str, Fraction]:
    """Return the shares of all steps; they add up to 1."""
    weights = {step: START_SHARE * share for step, share in _START_SHARES[start].items()}
    for number in range(n_rounds):
        for step, share in _ROUND_SHARES[recovery].items():
            weights[f"{step} {number}"] = (1 - START_SHARE) / n_rounds * share
    return weights


def picks_for(n_nonzero: int, accuracy: float) -> int:
    """Return ceil(2 s / eta), the picks of Algorithm 5 that keep a share 1 - eta of the energy."""
    return math.ceil(2 * n_nonzero / accuracy)


def _checked_picks(picks: int | None, recovery: str, passes: SparsePasses) -> int:
    if picks is None:
        return min(picks_for(passes.n_nonzero, 1.0), passes.dim)
    require_count("picks", picks)
    if recovery != "picks" or picks > passes.dim:
        raise ParameterError(
            "picks",
            picks,
            f"for recovery='picks' only, at most {passes.dim}, the number of columns",
        )
    return picks


def _first_clusters(
    n_clusters: int,
    n_records: float,
    n_rounds: int,
    recovery: Recovery,
    passes: SparsePasses,
    account: Account,
) -> int:
    """Return the number of clusters to start with: half as many again where noise allows it.

    Later rounds merge clusters that a start splits, but do not split those that it merges.
    """
    more = 3 * n_clusters // 2
    if n_rounds == 1 or recovery != "largest":
        return n_clusters
    reach = noise_reach(passes, account.shares, "sums 0") / passes.linf  # in records
    return more if n_records / more >= _MIN_OVER_NOISE * reach else n_clusters


def _recover(
    passes: SparsePasses,
    labels: Labels,
    n_clusters: int,
    n_picks: int,
    account: Account,
    recovery: Recovery,
    number: int,
) -> SparseCenters:
    names = [f"{step} {number}" for step in _ROUND_SHARES[recovery]]
    if recovery == "largest":
        return release_largest(passes, labels, n_clusters, account, *names)
    return release_picks(passes, labels, n_clusters, n_picks, account, *names)


def start_by_sketch(
    run: Run, passes: SparsePasses, n_clusters: int, settings: TreeSettings, n_records: float
) -> Labels:
    """Find clusters from a sketch of the projections.

    Charges: the share "sketch".
    """
    dimensions = _sketch_dimensions(n_clusters, settings)
    tail = settings.fail_prob / n_records
    data = Projected.draw(passes, dimensions, PublicStream(run.seed, Purpose.SPARSE_SKETCH), tail)

    def blocks() -> Iterator[WholeFloats]:
        for block in passes.blocks("sketch"):
            yield data(passes.quantised(block)) / RADIUS

    unit_ball = Ball(dim=data.n_dimensions, radius=1.0)
    released = run.sketch(blocks(), unit_ball, n_clusters, n_records)
    centers = np.rint(learn_kmeans(released, n_clusters).centers * RADIUS)
    return lambda records: nearest(data(records), centers)


def start_by_trees(
    passes: SparsePasses,
    n_clusters: int,
    settings: TreeSettings,
    n_records: float,
    account: Account,
    seed: int,
) -> Labels:
    """Find clusters by partition trees and swaps of their cubes.

    Charges: the shares "candidates" and "swaps".
    """
    swaps = account.shares.part("swaps")
    halves = 1 if swaps.neighbours == "add-remove" else 2
    settings = settings.filled(n_clusters, passes.dim, n_records, swaps.epsilon / halves)
    stream = PublicStream(seed, Purpose.SPARSE_TREES)
    tail = settings.fail_prob / n_records
    data = Projected.draw(passes, settings.n_dimensions or 1, stream, tail)
    with one_thread():  # blocks of records already share the cores
        centers = projected_centers(
            data, n_clusters, settings, stream, account, "candidates", "swaps"
        )
    return lambda records: nearest(data(records), centers)


Labels = Callable[[Any], npt.NDArray[np.intp]]
Recovery = Literal["largest", "picks"]
RECOVERIES: tuple[Recovery, ...] = ("largest", "picks")


@dataclass(frozen=True, eq=False)
class SparseCenters:
    """Centers (k, dim), whole numbers, and noisy counts (k,) with the variance of their noise."""

    centers: Floats
    counts: Floats
    count_variance: float = 0.0

    def labels(self, records: Any) -> npt.NDArray[np.intp]:
        """Return the index of the nearest center of CSR records, exactly; the first of equals."""
        scores = records @ (-2 * self.centers.T)
        scores += np.vecdot(self.centers, self.centers)
        return np.asarray(scores.argmin(axis=1))


def sparse_sums(passes: SparsePasses, labels: Labels, n_clusters: int) -> tuple[Integers, Integers]:
    """Return the sums (k, dim) and numbers (k,) of the records of each cluster, in one pass."""
    from scipy.sparse import csr_array

    def work(records: Any) -> tuple[Integers, ...]:
        label = labels(records)
        n = len(label)
        member = csr_array((np.ones(n), (label, np.arange(n))), shape=(n_clusters, n))
        sums = (member @ records).toarray()  # whole numbers: exact in any order
        return sums.astype(np.int64), np.bincount(label, minlength=n_clusters)

    sums, counts = passes.sums(work, "cluster sums")
    return sums, counts


def release_largest(
    passes: SparsePasses,
    labels: Labels,
    n_clusters: int,
    account: Account,
    count_name: str,
    sum_name: str,
) -> SparseCenters:
    """Release the means of the clusters, 0 where a sum may be all noise.

    Charges: the shares `count_name` and `sum_name`.
    """
    sums, counts = sparse_sums(passes, labels, n_clusters)
    noisy_counts, count_variance = account.counts(count_name, counts)
    reach = noise_reach(passes, account.shares, sum_name)
    noisy_sums, _ = account.noisy(
        sum_name, sums, l1=passes.l1, l2_squared=passes.l2_squared, l2_replaced=passes.l2_replaced
    )
    sparse = np.where(np.abs(noisy_sums) > reach, noisy_sums, 0.0)
    return SparseCenters(_whole_means(sparse, noisy_counts, passes), noisy_counts, count_variance)


def release_picks(
    passes: SparsePasses,
    labels: Labels,
    n_clusters: int,
    n_picks: int,
    account: Account,
    count_name: str,
    pick_name: str,
    sum_name: str,
) -> SparseCenters:
    """Release the means of the clusters at `n_picks` coordinates each (Algorithm 5), 0 elsewhere.

    Charges: the shares `count_name`, `pick_name` and `sum_name`.
    """
    sums, counts = sparse_sums(passes, labels, n_clusters)
    noisy_counts, count_scale = account.laplace(count_name, counts, l1=1)
    l1 = passes.l1_over(n_picks)
    budget = account.budget(pick_name)
    law = picks_law(passes.linf, l1, passes.dim, n_picks, budget.epsilon, budget.neighbours)
    columns, receipt = choose(sums, law, source=None)
    account.charge(receipt, 0.0)
    noisy_sums, _ = account.laplace(sum_name, np.take_along_axis(sums, columns, axis=1), l1=l1)
    sparse = np.zeros(sums.shape)
    np.put_along_axis(sparse, columns, noisy_sums, axis=1)
    means = _whole_means(sparse, noisy_counts, passes)
    return SparseCenters(means, noisy_counts, 2 * count_scale**2)


def noise_reach(passes: SparsePasses, shares: Shares, name: str) -> float:
    """Return a size that noise exceeds in at most about one sum of a center."""
    is_replaced = shares.budget.neighbours == "replace"
    log = math.log(max(passes.dim, 2))
    if shares.is_pure:
        return (1 + is_replaced) * passes.l1 / shares.part(name).epsilon * log
    squared = passes.l2_replaced if is_replaced else passes.l2_squared
    return math.sqrt(squared / shares.rho(name) * log)


def merged(clusters: SparseCenters, n_clusters: int) -> SparseCenters:
    """Merge pairs of centers, beginning with those that add least to the cost of k-means.

    Charges: nothing; centers and counts were released.
    """
    centers, counts = clusters.centers.copy(), np.maximum(clusters.counts, 1.0)
    while len(centers) > n_clusters:
        squared = np.vecdot(centers, centers)
        distances = squared + squared[:, np.newaxis] - 2 * centers @ centers.T
        costs = distances * (counts * counts[:, np.newaxis]) / (counts + counts[:, np.newaxis])
        np.fill_diagonal(costs, np.inf)
        i, j = np.unravel_index(costs.argmin(), costs.shape)
        total = counts[i] + counts[j]
        centers[i] = np.rint((counts[i] * centers[i] + counts[j] * centers[j]) / total)
        counts[i] = total
        centers, counts = np.delete(centers, j, axis=0), np.delete(counts, j)
    return SparseCenters(centers, counts, clusters.count_variance)


def _whole_means(sums: Floats, counts: Floats, passes: SparsePasses) -> Floats:
    means = sums / np.maximum(counts, 1.0)[:, np.newaxis]
    return np.rint(np.clip(means, -passes.linf, passes.linf))
