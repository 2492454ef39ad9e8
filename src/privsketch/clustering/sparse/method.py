"""K-means of records with many columns, of which each record uses few.

1. Clusters in few public random directions: from a sketch, or from the partition trees and swaps
   of Balcan et al. (2017).
2. Sparse centers of these clusters in all columns (sparse_recovery), and again of the clusters
   that these centers make: sums of sparse records need little noise, so rounds are cheap.

Nothing of size n d is ever held. docs/sparse.md has sensitivities and measurements.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from privsketch._base.errors import ParameterError, require_count
from privsketch.clustering.run import Run
from privsketch.clustering.sparse.passes import SparsePasses
from privsketch.clustering.sparse.recovery import (
    RECOVERIES,
    Labels,
    Recovery,
    SparseCenters,
    merged,
    noise_reach,
    release_largest,
    release_picks,
)
from privsketch.clustering.sparse.start import start_by_sketch, start_by_trees
from privsketch.clustering.tree.method import TreeSettings
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account

Start = Literal["sketch", "trees"]
STARTS: tuple[Start, ...] = ("sketch", "trees")
START_SHARE = Fraction(1, 2)  # of what is spent before centers are recovered
_ROUND_SHARES: dict[str, dict[str, Fraction]] = {
    "largest": {"counts": Fraction(1, 20), "sums": Fraction(19, 20)},
    "picks": {"counts": Fraction(1, 20), "picks": Fraction(7, 10), "sums": Fraction(1, 4)},
}
_START_SHARES: dict[str, dict[str, Fraction]] = {
    "sketch": {"sketch": Fraction(1)},
    "trees": {"candidates": Fraction(1, 2), "swaps": Fraction(1, 2)},
}
_ROOM = 16  # times what noise reaches are in a cluster, where more are made than asked for
_METHODS = {"sketch": "pipeline", "trees": "partition-tree"}


def cluster_sparse(
    run: Run,
    n_clusters: int,
    *,
    n_nonzero: int,
    start: Start = "sketch",
    recovery: Recovery = "largest",
    picks: int | None = None,
    n_rounds: int = 2,
    settings: TreeSettings | None = None,
) -> ClusterModel:
    """K-means centers of sparse records that can be read several times.

    Charges: the budget, once. No delta with start="trees" or recovery="picks".

    Parameters
    ----------
    run : Run
        Of sparse matrices of SciPy or any table; its domain is a box that holds 0 in every column,
        or a ball around 0. Missing values, where they are allowed, count as 0.
    n_nonzero : int
        Public: how many entries of a record count. Of more, the largest are kept.
    start : {"sketch", "trees"}
        How clusters are found in few dimensions. "trees" is Balcan et al.
    recovery : {"largest", "picks"}
        How sparse centers are found. "picks" is Algorithm 5 of Balcan et al.
    picks : int, optional
        Coordinates of a center with recovery="picks"; twice `n_nonzero` if left out.
    n_rounds : int
        How often centers are recovered: from the start, then from the clusters of the centers
        before. 1 is Balcan et al.
    settings : TreeSettings, optional
        `n_dimensions` counts for both ways to start, the rest for trees.
    """
    require_count("n_clusters", n_clusters)
    require_count("n_rounds", n_rounds)
    if start not in STARTS or recovery not in RECOVERIES:
        raise ParameterError(
            f"`start={start!r}`, `recovery={recovery!r}`: expected one of {STARTS} and of "
            f"{RECOVERIES}"
        )
    run.require_one_record("pipeline")
    if run.schema is not None:
        raise ParameterError(
            f"`n_nonzero={n_nonzero}` with a schema: encoded records are not sparse"
        )
    passes = SparsePasses(
        run.data,
        run.domain,
        n_nonzero,
        missing_to_center=run.missing_to_center,
        **run.reading(),
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
    found = _recovered(passes, labels, n_first, n_picks, account, recovery, 0)
    for number in range(1, n_rounds):
        labels = merged(found, n_clusters).labels
        found = _recovered(passes, labels, n_clusters, n_picks, account, recovery, number)
    return run.model(
        found.centers * passes.unit,
        found.counts,
        method=_METHODS[start],
        mechanism=f"k-means of sparse records: {start}, then sums",
    )


def sparse_weights(start: Start, recovery: Recovery, n_rounds: int) -> dict[str, Fraction]:
    """Shares of all steps; they add up to 1."""
    weights = {step: START_SHARE * share for step, share in _START_SHARES[start].items()}
    for number in range(n_rounds):
        for step, share in _ROUND_SHARES[recovery].items():
            weights[f"{step} {number}"] = (1 - START_SHARE) / n_rounds * share
    return weights


def picks_for(n_nonzero: int, accuracy: float) -> int:
    """Picks of Algorithm 5: ceil(2 s / eta), which keep all but a share eta of a mean's energy."""
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
    """Half as many again where noise allows it: what they split is merged, not the reverse.

    Two clusters that a start takes for one stay together in later rounds.
    """
    more = 3 * n_clusters // 2
    if n_rounds == 1 or recovery != "largest":
        return n_clusters
    reach = noise_reach(passes, account.shares, "sums 0") / passes.linf  # in records
    return more if n_records / more >= _ROOM * reach else n_clusters


def _recovered(
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
