"""K-medians: centres of least distance to their records, on one budget.

A mean follows its farthest records, a median hardly does: the sum of distances, not of their
squares, is small. Two ways: "rounds" starts from the k-means centres of one sketch and makes a
few median rounds; "partition-tree" is that of Balcan et al. (2017), made implementable and pure.
Both are in docs/medians.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from privsketch._parallel import one_thread
from privsketch._typing import Integers, Whole
from privsketch.budget import Budget
from privsketch.clustering.medians.rounds import release_least, release_round
from privsketch.clustering.medians.start import release_start, start_weights
from privsketch.clustering.passes import Passes, Progress, known_number
from privsketch.clustering.pipeline.rounds import nearest
from privsketch.clustering.pipeline.subspace import enclosing_ball
from privsketch.clustering.tree.method import cluster_by_tree
from privsketch.domain import Domain
from privsketch.errors import ParameterError, require_count, require_records
from privsketch.features.frequencies import public_seed
from privsketch.models.centers import CenterModel
from privsketch.noise.account import Account, Shares

METHODS = ("rounds", "partition-tree")
N_ROUNDS = 4
LENGTHS_SHARE, COUNTS_SHARE = Fraction(1, 50), Fraction(1, 50)


def cluster_medians(
    data: Any,
    n_clusters: int,
    *,
    domain: Domain,
    budget: Budget,
    n_records: float | None = None,
    method: str = "rounds",
    columns: Sequence[str | int] | None = None,
    header: bool | None = None,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    source: str | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> CenterModel:
    """K-medians centres of records that can be read several times.

    `n_records` is a public number, about that of the records. Without it, a noisy one is paid
    for under "add-remove". Method "rounds" uses Gaussian noise if the budget has a delta and pure
    noise if not; "partition-tree" is pure.

    Charges: the budget, once; with "partition-tree" no delta.
    """
    checked_method(method)
    require_count("n_clusters", n_clusters)
    if n_records is not None:
        require_records(n_records)
    common: dict[str, Any] = {
        "columns": columns,
        "header": header,
        "missing_to_center": missing_to_center,
        "n_threads": n_threads,
        "progress": progress,
    }
    if method == "partition-tree":
        model = cluster_by_tree(
            data,
            n_clusters,
            domain=domain,
            budget=budget,
            n_records=n_records,
            loss="distances",
            source=source,
            random_state=random_state,
            **common,
        )
        return replace(model, domain=domain)
    ball = enclosing_ball(domain)
    passes = Passes(data, ball, neighbours=budget.neighbours, **common)
    n_records, budget, close = known_number(passes, budget, n_records)
    account = Account(Shares(budget, share_weights(passes.dim, budget.delta == 0)))
    with one_thread():  # blocks of records already share the cores
        centers = release_start(
            passes,
            domain,
            n_clusters,
            account,
            n_records=n_records,
            missing_to_center=missing_to_center,
            n_threads=n_threads,
            seed=public_seed(random_state),
        )
        least = release_least(passes, centers, account, "lengths")
        for number in range(N_ROUNDS):
            centers = release_round(passes, centers, least, account, f"round {number}")
        counts, _ = account.counts("counts", cluster_counts(passes, centers))
    counts = np.maximum(counts, 0.0)
    total = float(counts.sum())
    return CenterModel(
        domain.project(centers * passes.unit + ball.center_vector),
        counts / total if total > 0 else np.full(n_clusters, 1 / n_clusters),
        max(total, 1.0),
        close(account.receipt("k-medians: sketch and median rounds", source)),
        method="rounds",
        loss="distances",
        domain=domain,
    )


def checked_method(method: str) -> str:
    """Refuse a method that there is none of."""
    if method not in METHODS:
        known = ", ".join(map(repr, METHODS))
        raise ParameterError(f"method={method!r}: expected one of {known}")
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
    """One pass: how many records are nearest to each centre, (k,)."""

    def work(records: Whole) -> tuple[Integers, ...]:
        return (np.bincount(nearest(records, centers), minlength=len(centers)),)

    return passes.sums(work, "cluster sizes")[0]
