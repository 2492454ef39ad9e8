"""Sparse records: cost of k-means by every way to recover centers, time and peak memory.

    python -m benchmarks sparse              cost and seconds of each way
    python -m benchmarks sparse --dense      the dense recovery too, which takes minutes
    python -m benchmarks sparse --memory     peak memory of one run in a process of its own

100,000 records in 10,000 columns, 10 clusters of unequal sizes. A cluster has 40 columns of its
own; a record has 16 of them, and 4 anywhere, with values between 0 and 1. Costs are mean squared
distances to the nearest center, divided by that of the means of the true clusters: "mean" is one
center, the mean of all records, and "zero" a center at 0; what is worse than these is useless.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import privsketch as ps
from benchmarks.common import parser_of
from benchmarks.peers.protocol import peak
from privsketch._base.types import Floats
from privsketch.clustering.run import clustered
from privsketch.clustering.sparse.method import cluster_sparse
from privsketch.clustering.tree.method import TreeSettings, cluster_by_tree

N_RECORDS, DIM, K, N_NONZERO, SUPPORT, ELSEWHERE = 100_000, 10_000, 10, 20, 40, 4
WAYS: list[tuple[str, dict[str, Any]]] = [
    ("sketch, largest, 2 rounds", {}),
    ("sketch, largest, 1 round", {"n_rounds": 1}),
    ("sketch, largest, 3 rounds", {"n_rounds": 3}),
    ("sketch, picks, 2 rounds", {"recovery": "picks"}),
    ("sketch, picks, 1 round", {"recovery": "picks", "n_rounds": 1}),
    ("trees, largest, 2 rounds", {"start": "trees"}),
    ("trees, picks, 1 round (BAL)", {"start": "trees", "recovery": "picks", "n_rounds": 1}),
]


def records(seed: int) -> tuple[csr_array, Floats]:
    """Return a table, and the means of its clusters."""
    rng = np.random.default_rng(seed)
    supports = np.stack([rng.choice(DIM, SUPPORT, replace=False) for _ in range(K)])
    levels = rng.uniform(0.3, 1, size=(K, SUPPORT))
    labels = rng.choice(K, N_RECORDS, p=rng.dirichlet(np.full(K, 8.0)))
    own = rng.random((N_RECORDS, SUPPORT)).argsort(axis=1)[:, : N_NONZERO - ELSEWHERE]
    columns = np.take_along_axis(supports[labels], own, axis=1)
    values = np.take_along_axis(levels[labels], own, axis=1) * rng.uniform(0.5, 1, own.shape)
    others = rng.integers(DIM, size=(N_RECORDS, ELSEWHERE))
    columns = np.concatenate([columns, others], axis=1).astype(np.int32)
    values = np.concatenate([values, rng.uniform(0.1, 1, others.shape)], axis=1)
    starts = np.arange(0, N_RECORDS * N_NONZERO + 1, N_NONZERO, dtype=np.int32)
    table = csr_array((values.ravel(), columns.ravel(), starts), shape=(N_RECORDS, DIM))
    table.sum_duplicates()
    table.data = np.minimum(table.data, 1.0)
    means = np.stack([np.asarray(table[labels == j].mean(axis=0)) for j in range(K)])
    return table, means


def cost(table: csr_array, centers: Floats) -> float:
    """Mean squared distance to the nearest center."""
    scores = -2 * (table @ centers.T) + np.vecdot(centers, centers)
    return float((table.multiply(table).sum() + scores.min(axis=1).sum()) / table.shape[0])


def without_privacy(table: csr_array, seed: int) -> Floats:
    """K-means of scikit-learn, the best of 5 starts."""
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(K, n_init=5, random_state=seed).fit(table).cluster_centers_)


def by_dense_recovery(table: csr_array, budget: ps.Budget, seed: int) -> Floats:
    """Partition trees with noise on all columns alike; a pass makes all rows dense, in blocks."""
    return clustered(
        cluster_by_tree,
        table,
        K,
        domain=ps.Ball(dim=DIM, radius=float(np.sqrt(N_NONZERO))),
        budget=budget,
        n_records=N_RECORDS,
        settings=TreeSettings(n_swaps=5, n_levels=4),
        random_state=seed,
    ).centers


def row(name: str, costs: list[float], seconds: list[float]) -> None:
    print(
        f"{name:30s} {np.median(costs):8.3f} {min(costs):8.3f} {max(costs):8.3f} "
        f"{np.median(seconds):8.1f}",
        flush=True,
    )


def table_of_costs(n_seeds: int, dense: bool, budgets: list[ps.Budget]) -> None:
    """Print the table."""
    data = [records(seed) for seed in range(n_seeds)]
    best = [cost(table, means) for table, means in data]

    def measure(name: str, centers: Any) -> None:
        costs, seconds = [], []
        for seed, (table, _) in enumerate(data):
            begin = time.perf_counter()
            found = centers(table, seed)
            seconds.append(time.perf_counter() - begin)
            costs.append(cost(table, found) / best[seed])
        row(name, costs, seconds)

    print(f"{'':30s} {'median':>8s} {'best':>8s} {'worst':>8s} {'seconds':>8s}")
    measure("zero", lambda table, seed: np.zeros((1, DIM)))
    measure("mean", lambda table, seed: np.asarray(table.mean(axis=0))[np.newaxis])
    measure("without privacy", without_privacy)
    for budget in budgets:
        print(f"epsilon = {budget.epsilon:g}, delta = {budget.delta:g}")
        ways = WAYS if budget.delta == 0 else WAYS[:3]
        for name, options in ways:

            def centers(table: csr_array, seed: int, options: Any = options) -> Floats:
                return clustered(
                    cluster_sparse,
                    table,
                    K,
                    domain=ps.Box(0, 1, dim=DIM),
                    budget=budget,  # noqa: B023
                    n_nonzero=N_NONZERO,
                    n_records=N_RECORDS,
                    random_state=seed,
                    **options,
                ).centers

            measure(name, centers)
        if dense and budget.delta == 0:
            table, _ = data[0]
            begin = time.perf_counter()
            found = by_dense_recovery(table, budget, 0)
            row("dense recovery", [cost(table, found) / best[0]], [time.perf_counter() - begin])


def one_run() -> None:
    """Measure `--memory` in a separate process, data included."""
    table, means = records(0)
    begin = time.perf_counter()
    model = clustered(
        cluster_sparse,
        table,
        K,
        domain=ps.Box(0, 1, dim=DIM),
        budget=ps.Budget(1.0),
        n_nonzero=N_NONZERO,
        random_state=0,
    )
    seconds = time.perf_counter() - begin
    memory = peak()
    share = cost(table, model.centers) / cost(table, means)
    print(f"peak memory {memory:.0f} MB, {seconds:.1f} s, cost {share:.3f}")


def main() -> None:
    """Print what was asked for."""
    parser = parser_of(__doc__)
    parser.add_argument("--dense", action="store_true", help="the dense recovery too")
    parser.add_argument("--memory", action="store_true", help="peak memory of one run")
    parser.add_argument("--one-run", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.one_run:
        one_run()
    elif arguments.memory:
        subprocess.run([sys.executable, "-m", "benchmarks.sparse", "--one-run"], check=True)
    else:
        budgets = [ps.Budget(1.0), ps.Budget(4.0), ps.Budget(0.3, 1e-6), ps.Budget(1.0, 1e-6)]
        table_of_costs(arguments.seeds, arguments.dense, budgets)


if __name__ == "__main__":
    main()
