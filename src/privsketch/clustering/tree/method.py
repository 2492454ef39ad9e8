"""K-means by projection, partition trees, swaps and recovery: Balcan et al. (2017), corrected.

A trial projects the records on a few public random directions and finds cubes that contain many of
them. The centers of these cubes are candidates, of which k are swapped for better ones; the records
of each cluster are then averaged. Of several trials one is chosen. With loss="distances" swaps
count distances, and clusters get medians. docs/theory.md lists the corrections. All steps are pure:
they spend no delta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from privsketch._base.errors import ParameterError, require_count
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, WholeFloats
from privsketch.clustering.edge import Means, cut_concerns
from privsketch.clustering.extent import crowded
from privsketch.clustering.forecast import (
    PublicFacts,
    forecast_ratio,
    laplace_variance,
    missed_clusters,
    noisy_means,
)
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run, shares_of
from privsketch.clustering.tree.cubes import (
    MAX_DIMENSIONS,
    MAX_LEVELS,
    Projected,
    candidate_centers,
    default_threshold,
    projected_radius,
    release_candidates,
)
from privsketch.clustering.tree.medians import MEDIAN_SHARES, release_medians
from privsketch.clustering.tree.swap import (
    WIDTH,
    ReleasedClusters,
    release_best,
    release_centers,
    release_swaps,
)
from privsketch.facts.domain import Box
from privsketch.features.stream import PublicStream, Purpose
from privsketch.models.clusters import ClusterModel
from privsketch.noise.account import Account

BEST_SHARE = Fraction(1, 10)  # share of the choice among several trials
TRIAL_SHARES = {
    "candidates": Fraction(1, 5),
    "swaps": Fraction(1, 4),
    "counts": Fraction(1, 20),
    "sums": Fraction(1, 2),
}
_STEP_SHARES = {"squares": TRIAL_SHARES, "distances": MEDIAN_SHARES}
_TASK_NAMES = {"squares": "k-means", "distances": "k-medians"}
# The paper has up to n log n, and a pass compares k times as many sets. Losses are level from 128
# on: `python -m benchmarks constants clustering MAX_CANDIDATES`.
MAX_CANDIDATES = 512
MAX_LOSS = 0.25  # the squared radius, over the squared diameter: few records are farther away


@dataclass(frozen=True)
class TreeSettings:
    """Public numbers of a run, whose defaults follow from other public numbers.

    Parameters
    ----------
    n_dimensions : int, optional
        Dimensions after the projection; by default half the logarithm of the number of records.
    n_trees, n_levels : int, optional
        Number of shifted trees of a trial, and of levels of a tree.
    threshold : int, optional
        Noisy count at which a cube is split further. Privacy does not depend on it.
    n_swaps : int, optional
        Swaps of a trial; by default 3/2 for each cluster, or fewer where noise would decide most.
    loss_share : float, optional
        Squared distances in swaps are cut at this share of the squared diameter, at most 1;
        distances at its root, as a share of the diameter. The default is the squared distance of
        neighbours among k centers that fill the records' ball evenly, at most a quarter.
    fail_prob : float
        Probability of failure that defaults allow for. It concerns utility and is no delta.
    """

    n_dimensions: int | None = None
    n_trees: int = 2
    n_levels: int | None = None
    threshold: int | None = None
    n_swaps: int | None = None
    loss_share: float | None = None
    fail_prob: float = 0.01

    def __post_init__(self) -> None:
        for name in ("n_dimensions", "n_trees", "n_levels", "threshold", "n_swaps"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name))
        if self.n_levels is not None and self.n_levels > MAX_LEVELS:
            raise ParameterError(f"`n_levels={self.n_levels}`: expected at most {MAX_LEVELS}")
        if self.loss_share is not None and not 0 < self.loss_share <= 1:
            raise ParameterError("loss_share", self.loss_share, "expected a number in (0, 1]")
        if not 0 < self.fail_prob < 1:
            raise ParameterError("fail_prob", self.fail_prob, "expected a number in (0, 1)")

    def filled(
        self, n_clusters: int, dim: int, n_records: float, swap_epsilon: float
    ) -> TreeSettings:
        """Return settings with all defaults but the threshold, which depends on the budget."""
        size = max(n_records, 2.0)
        # The noise of a choice, about ln(choices) / epsilon records at their largest loss, should
        # stay below a cluster.
        log_choices = math.log(n_clusters * MAX_CANDIDATES)
        useful = math.floor(size / n_clusters * swap_epsilon / log_choices)
        p = self.n_dimensions or min(dim, MAX_DIMENSIONS, max(2, math.ceil(math.log(size) / 2)))
        stretch = projected_radius(dim, min(p, dim), self.fail_prob / size)
        neighbour_share = math.pow(n_clusters, -2 / p) / (4 * stretch**2)
        return replace(
            self,
            n_dimensions=p,
            n_levels=self.n_levels or min(MAX_LEVELS, max(2, math.ceil(math.log2(size) / 3))),
            n_swaps=self.n_swaps or max(1, min((3 * n_clusters + 1) // 2, useful)),
            loss_share=self.loss_share or min(MAX_LOSS, neighbour_share),
        )


def cluster_by_tree(
    run: Run,
    n_clusters: int,
    *,
    n_trials: int = 1,
    settings: TreeSettings | None = None,
    loss: str = "squares",
) -> ClusterModel:
    """Release centers by private partition trees, from records that can be read several times.

    The number of records only sets defaults. Of `n_trials` independent trials one is chosen.
    `loss` is "squares" for k-means, "distances" for k-medians.

    Charges: epsilon of the budget, once. No delta.
    """
    require_count("n_clusters", n_clusters)
    require_count("n_trials", n_trials)
    settings = settings or TreeSettings()
    run.without_delta()
    run.require_one_record("partition-tree")
    ball, within = run.ball, None
    if isinstance(run.domain, Box) and run.schema is None:  # it has the center of the ball
        within = run.domain
    passes = run.read(ball, within=within)
    n_records = run.number(passes)
    account = run.share(share_weights(n_trials, _STEP_SHARES[loss]))
    swap_epsilon = account.shares.part(_share("swaps", 0)).epsilon
    if run.budget.neighbours == "replace":
        swap_epsilon /= 2
    filled = settings.filled(n_clusters, passes.dim, n_records, swap_epsilon)
    with one_thread():  # blocks of records already share the cores
        trials = [
            _trial(passes, n_clusters, filled, n_records, account, number, run.seed, loss)
            for number in range(n_trials)
        ]
        best = trials[0]
        if len(trials) > 1:
            best = release_best(passes, trials, account, "best trial", loss)

    def forecast(facts: PublicFacts) -> float:
        return tree_forecast(facts, n_trials=n_trials, settings=settings, loss=loss)

    centers = best.centers * passes.unit + ball.center_vector
    return run.model(
        centers,
        best.counts,
        method="partition-tree",
        mechanism=f"{_TASK_NAMES[loss]}: partition trees, swaps and recovery",
        loss=loss,
        concerns=_edge_concerns(run, best, centers, passes.unit),
        forecast=forecast,
        seen=best.seen,
        too_wide=crowded(
            best.centers * passes.unit, best.counts, math.sqrt(best.count_variance), run.domain
        ),
    )


def _edge_concerns(
    run: Run, best: ReleasedClusters, centers: Floats, unit: float
) -> tuple[str, ...]:
    """Return a concern if centers lie where records outside of the domain are moved."""
    if best.errors is None:
        return ()
    errors = np.broadcast_to(best.errors[:, np.newaxis] * unit, centers.shape)
    deviation = math.sqrt(best.count_variance)
    means = Means(centers, best.counts, errors, deviation, is_gaussian=False)
    return cut_concerns(
        means, shares_of(best.counts), run.domain, schema=run.schema, names=run.names
    )


def tree_forecast(
    facts: PublicFacts,
    *,
    n_trials: int = 1,
    settings: TreeSettings | None = None,
    loss: str = "squares",
) -> float:
    """Return the cost ratio to expect: of noisy means, cubes below the threshold and swaps."""
    trial = (1 - BEST_SHARE if n_trials > 1 else Fraction(1)) / n_trials
    shares = {step: float(trial * share) for step, share in _STEP_SHARES[loss].items()}
    sums = laplace_variance(facts, facts.l1, shares["sums"])
    return forecast_ratio(
        facts,
        noisy_means(facts, sums, laplace_variance(facts, 1.0, shares["counts"])),
        missed_clusters(facts, choice_noise(facts, settings or TreeSettings(), shares)),
    )


def choice_noise(facts: PublicFacts, settings: TreeSettings, shares: Mapping[str, float]) -> float:
    """Return the records below which trees do not see a cluster, or swaps choose by noise."""
    k, n_records = facts.n_clusters, max(facts.n_records, 1.0)
    swap_epsilon = facts.budget.epsilon / facts.n_moved * shares["swaps"]
    filled = settings.filled(k, facts.dim, n_records, swap_epsilon)
    levels, steps = filled.n_levels or 1, (filled.n_swaps or 1) + 1
    one_tree = replace(
        facts.budget.without_person,
        epsilon=facts.budget.epsilon * shares["candidates"] / filled.n_trees,
        delta=0.0,
    )
    threshold = settings.threshold or default_threshold(
        filled.n_dimensions or 1, levels, one_tree, settings.fail_prob
    )
    swaps = math.log(k * MAX_CANDIDATES) * steps / swap_epsilon
    return max(float(threshold), swaps)


def share_weights(
    n_trials: int, steps: Mapping[str, Fraction] = TRIAL_SHARES
) -> dict[str, Fraction]:
    """Return the shares of all steps; they add up to 1."""
    weights: dict[str, Fraction] = {}
    left = Fraction(1)
    if n_trials > 1:
        weights["best trial"] = BEST_SHARE
        left -= BEST_SHARE
    for number in range(n_trials):
        for step, share in steps.items():
            weights[_share(step, number)] = left / n_trials * share
    return weights


def _share(step: str, number: int) -> str:
    return f"{step} of trial {number}"


def projected_centers(
    data: Projected,
    n_clusters: int,
    settings: TreeSettings,
    stream: PublicStream,
    account: Account,
    tree_name: str,
    swap_name: str,
    loss: str = "squares",
) -> WholeFloats:
    """Release centers (k, p) in projected space, by trees and swaps.

    Charges: the shares `tree_name` and `swap_name`.
    """
    levels = settings.n_levels or 1
    budget = account.shares.part(tree_name)
    one_tree = replace(budget, epsilon=budget.epsilon / settings.n_trees, delta=0.0)
    threshold = settings.threshold or default_threshold(
        data.n_dimensions, levels, one_tree, settings.fail_prob
    )
    trees = release_candidates(
        data, settings.n_trees, levels, threshold, stream, account, tree_name
    )
    # There are more candidates than clusters, so that every swap has a choice.
    min_points = 2 * n_clusters
    candidates = candidate_centers(trees, min_points, max(MAX_CANDIDATES, min_points), stream)
    share = settings.loss_share or MAX_LOSS
    width = max(1, round(WIDTH * (share if loss == "squares" else math.sqrt(share))))
    n_swaps = settings.n_swaps or 1
    return release_swaps(
        data, candidates, n_clusters, n_swaps, stream, account, swap_name, width, loss
    )


def _trial(
    passes: Passes,
    n_clusters: int,
    settings: TreeSettings,
    n_records: float,
    account: Account,
    number: int,
    seed: int,
    loss: str,
) -> ReleasedClusters:
    """Run the steps of one trial.

    Charges: the shares of the trial.
    """
    stream = PublicStream(seed, Purpose.TREE_TRIALS, number)
    tail = settings.fail_prob / max(n_records, 1.0)
    data = Projected.draw(passes, settings.n_dimensions or 1, stream, tail)
    names = {step: _share(step, number) for step in _STEP_SHARES[loss]}
    centers = projected_centers(
        data, n_clusters, settings, stream, account, names["candidates"], names["swaps"], loss
    )
    if loss == "distances":
        return release_medians(data, centers, account, names)
    return release_centers(data, centers, account, names["counts"], names["sums"])
