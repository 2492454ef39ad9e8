"""The curves of BAL's Figure 2: what each method is, and what it costs.

The paper's own curve ends with 8 rounds of SuLQ k-means that "do not affect the privacy
guarantee". They read the records, so here they are paid for: half of epsilon is for the trees,
half and all of delta for the rounds. Its SuLQ baseline has 20 rounds with Gaussian noise from
uniform centres; pure Laplace noise is shown beside it. All have one thread: runs share the cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from papers.bal.setting import Records
from privsketch.clustering.baselines import lloyd
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.run import clustered
from privsketch.clustering.tree.method import cluster_by_tree
from privsketch.facts.budget import Budget
from privsketch.facts.receipt import compose_sequential
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account, Shares

DELTA = 1e-6  # of the methods that need one; the paper names none
ROUNDS_AFTER, ROUNDS = 8, 20  # section 7
_LAPLACE_ROUNDS = 5  # 20 would have 16 times the variance
# Of records, number of clusters, epsilon and a public seed.
Fit = Callable[[Records, int, float, int], ClusterModel]


@dataclass(frozen=True)
class Method:
    """A curve: its name, the delta that it spends, and the method."""

    name: str
    delta: float
    fit: Fit


def tree(records: Records, n_clusters: int, epsilon: float, seed: int) -> ClusterModel:
    """BAL, corrected. Charges: epsilon."""
    return clustered(
        cluster_by_tree,
        records.table,
        n_clusters,
        domain=records.ball,
        budget=Budget(epsilon),
        n_records=len(records.table),
        n_threads=1,
        random_state=seed,
    )


def tree_and_rounds(records: Records, n_clusters: int, epsilon: float, seed: int) -> ClusterModel:
    """BAL, corrected, then rounds from its centres. Charges: epsilon and DELTA."""
    first = tree(records, n_clusters, epsilon / 2, seed)
    return paid_rounds(records, first, Budget(epsilon / 2, DELTA), ROUNDS_AFTER)


def paid_rounds(
    records: Records, model: ClusterModel, budget: Budget, n_rounds: int
) -> ClusterModel:
    """Noisy rounds of Lloyd's from released centres, as in clustering/baselines/lloyd.py.

    Charges: the budget, besides what the centres cost.
    """
    passes = Passes(records.table, records.ball, n_threads=1)
    names = [f"round {number}" for number in range(n_rounds)]
    account = Account(Shares(budget, dict.fromkeys(names, Fraction(1, n_rounds))))
    middle, radius = records.ball.center_vector, int(passes.limits.max())
    weight = max(1, round(radius * float(np.sqrt(2 * lloyd.MEAN_DISTANCE / np.sqrt(passes.dim)))))
    centers = np.rint((model.centers - middle) / passes.unit)
    for name in names:
        sums, counts = lloyd.cluster_sums(passes, centers)
        together = np.concatenate([sums, counts[:, np.newaxis] * weight], axis=1)
        noisy, _ = account.gaussian(name, together, radius**2 + weight**2)
        sizes = noisy[:, -1:] / weight
        means = noisy[:, :-1] / np.maximum(sizes, 1.0)
        inside = radius / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), radius)
        centers = np.where(sizes < 1, centers, np.trunc(means * inside))
    total = np.maximum(sizes[:, 0], 1.0)
    receipt = account.receipt(f"{n_rounds} noisy rounds of Lloyd's", None)
    return ClusterModel(
        centers * passes.unit + middle,
        total / total.sum(),
        float(total.sum()),
        compose_sequential("k-means: trees, then rounds", [model.receipt, receipt], None),
        method="partition-tree",
    )


def _sulq(delta: float) -> Fit:
    def fit(records: Records, n_clusters: int, epsilon: float, seed: int) -> ClusterModel:
        """SuLQ k-means, as in section 7 or with Laplace noise. Charges: epsilon and delta."""
        return clustered(
            lloyd.cluster,
            records.table,
            n_clusters,
            # Gaussian noise has an L2 sensitivity, Laplace noise is by column.
            domain=records.ball if delta else records.box,
            budget=Budget(epsilon, delta),
            noise="gaussian" if delta else "laplace-joint",
            n_rounds=ROUNDS if delta else _LAPLACE_ROUNDS,
            start="uniform",
            n_threads=1,
            random_state=seed,
        )

    return fit


def _pipeline(delta: float) -> Fit:
    def fit(records: Records, n_clusters: int, epsilon: float, seed: int) -> ClusterModel:
        """Our own method. Charges: epsilon and delta."""
        return clustered(
            pipeline.cluster,
            records.table,
            n_clusters,
            domain=records.ball,
            budget=Budget(epsilon, delta),
            n_records=len(records.table),
            n_threads=1,
            random_state=seed,
        )

    return fit


NO_PRIVACY = "k-means, no privacy"
TREE, TREE_ROUNDS = "BAL corrected", "BAL, then 8 paid rounds"
SULQ, PURE_SULQ = "SuLQ, Gaussian", "SuLQ, Laplace"
PIPELINE, PURE_PIPELINE = "our pipeline", "our pipeline, pure"
METHODS = (
    Method(TREE, 0.0, tree),
    Method(TREE_ROUNDS, DELTA, tree_and_rounds),
    Method(SULQ, DELTA, _sulq(DELTA)),
    Method(PURE_SULQ, 0.0, _sulq(0.0)),
    Method(PIPELINE, DELTA, _pipeline(DELTA)),
    Method(PURE_PIPELINE, 0.0, _pipeline(0.0)),
)
