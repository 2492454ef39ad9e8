"""K-means in many columns: subspace, sketch, residual rounds, on one budget.

1. Noisy second moments give a subspace in which clusters differ.
2. A sketch of the records' coordinates there gives centres to start from.
3. Rounds in the original space: a noisy histogram of residuals gives a radius, noisy sums of
   residuals cut to it move the centres, and what is mostly noise in the moves is shrunk away.

Every number that a step uses was released before or is public. Gaussian noise throughout, in
one zCDP composition.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.budget import Budget
from privsketch.clustering.account import Account
from privsketch.clustering.passes import Passes, Progress
from privsketch.clustering.rounds import Bins, residual_lengths, residual_sums
from privsketch.clustering.shares import Shares
from privsketch.clustering.shrinkage import pulled_counts, shrunk_steps
from privsketch.clustering.subspace import Subspace, enclosing_ball, projected, release_subspace
from privsketch.design import Design
from privsketch.domain import Ball, Domain
from privsketch.errors import ParameterError, require_count
from privsketch.learning.center_model import CenterModel
from privsketch.learning.kmeans import learn_kmeans
from privsketch.sketching.release import sketch

Floats = npt.NDArray[np.float64]
MOST_DIRECTIONS = 10
N_ROUNDS = 4
SUBSPACE_SHARE, SKETCH_SHARE = Fraction(1, 10), Fraction(2, 10)
RADIUS_SHARE = Fraction(1, 100)  # of a round
INSIDE = 0.8  # share of the residuals that is not cut
COUNT_WEIGHT = 0.25  # of a record's count, in units of the radius
LEAST_COUNT = 0.02  # no cluster is taken to be smaller than this share of the average one


def cluster(
    data: Any,
    n_clusters: int,
    *,
    domain: Domain,
    budget: Budget,
    n_records: float | None = None,
    columns: Sequence[str | int] | None = None,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    source: str | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> CenterModel:
    """K-means centres of records that can be read several times.

    Charges: the budget, once.
    """
    require_count("n_clusters", n_clusters)
    if budget.delta == 0:
        raise ParameterError(
            "delta=0 with method='pipeline': its noise is Gaussian; use method='sketch' for pure "
            "differential privacy"
        )
    ball = enclosing_ball(domain)
    passes = Passes(
        data,
        ball,
        columns=columns,
        missing_to_center=missing_to_center,
        n_threads=n_threads,
        progress=progress,
    )
    account = Account(Shares(budget, _weights(N_ROUNDS)))
    subspace = release_subspace(_complete(passes), ball, account, "subspace", n_records)
    p = min(MOST_DIRECTIONS, passes.dim)
    centers, weights = _start(
        passes, ball, subspace, p, n_clusters, account, n_records, random_state
    )
    whole, counts = np.rint(centers / passes.unit), weights * subspace.n_records
    for number in range(N_ROUNDS):
        whole, counts = _round(passes, whole, counts, subspace, p, account, number)
    total = max(float(counts.sum()), 1.0)
    found = whole * passes.unit + ball.center_vector
    receipt = account.receipt("k-means: subspace, sketch and residual rounds", source)
    return CenterModel(domain.project(found), counts / total, total, receipt, method="pipeline")


def _weights(n_rounds: int) -> dict[str, Fraction]:
    """Shares of the steps; they add up to 1."""
    for_round = (1 - SUBSPACE_SHARE - SKETCH_SHARE) / n_rounds
    weights = {"subspace": SUBSPACE_SHARE, "sketch": SKETCH_SHARE}
    for number in range(n_rounds):
        weights[f"radius {number}"] = for_round * RADIUS_SHARE
        weights[f"round {number}"] = for_round * (1 - RADIUS_SHARE)
    return weights


def _complete(passes: Passes) -> Any:
    """Records with their missing values filled, in the units that they came in."""
    center = passes.domain.center_vector
    for block in passes.blocks():
        yield passes.quantised(block) * passes.unit + center


def _start(
    passes: Passes,
    ball: Ball,
    subspace: Subspace,
    p: int,
    n_clusters: int,
    account: Account,
    n_records: float | None,
    random_state: int | None,
) -> tuple[Floats, Floats]:
    """Centres (k, dim) about the centre of the ball, and weights, from a sketch."""
    directions = subspace.first(p)
    design = Design.plan(
        task="kmeans",
        n_components=n_clusters,
        domain=Ball(dim=p, radius=ball.radius),
        budget=account.budget("sketch"),
        n_records=n_records,
        random_state=random_state,
        noise="gaussian",
    )
    released = sketch(projected(passes, directions), design)
    account.charge(released.receipt, design.sum_noise.sums_law.rho)
    model = learn_kmeans(released, n_clusters)
    return model.centers @ directions, model.weights


def _round(
    passes: Passes,
    centers: Floats,
    counts: Floats,
    subspace: Subspace,
    p: int,
    account: Account,
    number: int,
) -> tuple[Floats, Floats]:
    """New centres, whole numbers in the ball, and counts."""
    largest = float(passes.limits[0])
    bins = Bins.of(2 * largest)
    lengths, _ = account.gaussian(
        f"radius {number}", residual_lengths(passes, centers, bins), l2_squared=1
    )
    radius = bins.quantile(lengths, INSIDE)
    weight = max(1, round(COUNT_WEIGHT * radius))
    sums, kept = residual_sums(passes, centers, radius, weight)
    together = np.concatenate([sums, kept[:, np.newaxis]], axis=1)
    noisy, scale = account.gaussian(f"round {number}", together, radius**2 + weight**2)
    counts = pulled_counts(counts, noisy[:, -1] / weight, (scale / weight) ** 2)
    least = max(LEAST_COUNT * subspace.n_records / len(centers), 1.0)
    divisors = np.maximum(counts, least)
    steps = shrunk_steps(
        noisy[:, :-1] / divisors[:, np.newaxis],
        (scale / divisors) ** 2,
        divisors,
        subspace.directions,
        p,
    )
    moved = centers + steps
    norms = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.rint(moved * np.minimum(1.0, largest / np.maximum(norms, 1.0))), counts
