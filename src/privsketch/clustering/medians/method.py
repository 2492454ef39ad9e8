"""K-medians: centers of least distance to their records, on one budget.

A mean follows its farthest records, a median hardly does: the sum of distances, not of their
squares, is small. Two ways: "rounds" starts from the k-means centers of one sketch and makes a
few median rounds; "partition-tree" is that of Balcan et al. (2017), made implementable and pure.
Both are in docs/medians.md.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from privsketch._base.errors import require_count, require_one_of
from privsketch._base.threads import one_thread
from privsketch._base.types import Integers, Whole
from privsketch.clustering.medians.rounds import release_least, release_round
from privsketch.clustering.medians.start import release_start, start_weights
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run
from privsketch.clustering.tree.method import cluster_by_tree
from privsketch.kernels.nearest import nearest
from privsketch.models.clusters import ClusterModel

METHODS = ("rounds", "partition-tree")
N_ROUNDS = 4  # by trial; docs/medians.md has what they reach
LENGTHS_SHARE, COUNTS_SHARE = Fraction(1, 50), Fraction(1, 50)  # by trial


def cluster_medians(
    run: Run,
    n_clusters: int,
    *,
    method: str = "rounds",
) -> ClusterModel:
    """K-medians centers of records that can be read several times.

    Method "rounds" uses Gaussian noise if the budget has a delta and pure noise if not;
    "partition-tree" is pure.

    Charges: the budget, once; with "partition-tree" no delta.
    """
    checked_method(method)
    require_count("n_clusters", n_clusters)
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
        for number in range(N_ROUNDS):
            centers = release_round(passes, centers, least, account, f"round {number}")
        counts, _ = account.counts("counts", cluster_counts(passes, centers))
    return run.model(
        centers * passes.unit + ball.center_vector,
        counts,
        method="rounds",
        mechanism="k-medians: sketch and median rounds",
        loss="distances",
    )


def checked_method(method: str) -> str:
    """Refuse a method that there is none of."""
    require_one_of("method", method, METHODS)
    return method


def share_weights(dim: int, is_pure: bool) -> dict[str, Fraction]:
    """Shares of the steps of "rounds"; they add up to 1."""
    start = start_weights(dim, is_pure)
    for_round = (1 - sum(start.values()) - LENGTHS_SHARE - COUNTS_SHARE) / N_ROUNDS
    return {
        **start,
        "lengths": LENGTHS_SHARE,
        **{f"round {number}": for_round for number in range(N_ROUNDS)},
        "counts": COUNTS_SHARE,
    }


def cluster_counts(passes: Passes, centers: Whole) -> Integers:
    """One pass: how many records are nearest to each center, (k,)."""

    def work(records: Whole) -> tuple[Integers, ...]:
        return (np.bincount(nearest(records, centers), minlength=len(centers)),)

    return passes.sums(work, "cluster sizes")[0]
