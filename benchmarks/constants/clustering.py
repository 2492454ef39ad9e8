"""Curves of constants in `privsketch.clustering`.

Records are Gaussian clusters, half of them small, in a box of half-width 1. A loss is the cost of
private centers over that of centers without privacy, less 1: a median over data sets and noise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, partial

import numpy as np
import numpy.typing as npt

import privsketch as ps
from benchmarks.constants import Curve
from privsketch.clustering.baselines import aggregate
from privsketch.clustering.medians import cluster_medians
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.pipeline import plan as planner
from privsketch.clustering.run import clustered
from privsketch.clustering.tree.method import cluster_by_tree
from privsketch.models.clusters import ClusterModel

Array = npt.NDArray[np.float64]
N_RECORDS = 20_000
WITH_DELTA, PURE = ps.Budget(1.0, 1e-6), ps.Budget(1.0, 0.0)


@cache
def records(n_clusters: int, dim: int, n_records: int, seed: int) -> Array:
    """Draw clusters of two sizes and of a width that lets some of them touch."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.7, 0.7, size=(n_clusters, dim))
    sizes = np.where(np.arange(n_clusters) % 2, 1.0, 3.0)
    label = rng.choice(n_clusters, size=n_records, p=sizes / sizes.sum())
    return np.clip(centers[label] + 0.12 * rng.normal(size=(n_records, dim)), -1.0, 1.0)


def cost(data: Array, centers: Array, power: int) -> float:
    """Return the mean distance to the nearest center, to a power."""
    squared = np.square(data[:, np.newaxis] - centers).sum(axis=2).min(axis=1)
    return float(np.mean(squared ** (power / 2)))


@cache
def best_cost(n_clusters: int, dim: int, n_records: int, seed: int, power: int) -> float:
    """Return the cost of centers without privacy; medians by rounds of Weiszfeld."""
    from sklearn.cluster import KMeans

    data = records(n_clusters, dim, n_records, seed)
    centers = KMeans(n_clusters, n_init=3, random_state=0).fit(data).cluster_centers_
    for _ in range(30 if power == 1 else 0):
        label = np.square(data[:, np.newaxis] - centers).sum(axis=2).argmin(axis=1)
        for j in range(n_clusters):
            cluster = data[label == j]
            weights = 1 / np.maximum(np.linalg.norm(cluster - centers[j], axis=1), 1e-9)
            centers[j] = weights @ cluster / weights.sum()
    return cost(data, centers, power)


def loss(
    method: Callable[..., ClusterModel],
    budget: ps.Budget,
    /,
    *,
    n_clusters: int = 6,
    dim: int = 3,
    n_records: int = N_RECORDS,
    power: int = 2,
    repetitions: int = 8,
    **options: object,
) -> float:
    """Return the median loss of a method over data sets and noise."""
    losses = []
    for number in range(repetitions):
        facts = n_clusters, dim, n_records, number % 4
        model = clustered(
            method,
            records(*facts),
            n_clusters,
            domain=ps.Box(low=-1.0, high=1.0, dim=dim),
            budget=budget,
            n_records=float(n_records),
            random_state=number,
            n_threads=1,
            **options,
        )
        losses.append(cost(records(*facts), model.centers, power) / best_cost(*facts, power) - 1)
    return float(np.median(losses))


def median_losses() -> Mapping[str, float]:
    """Return losses of "rounds" in few and in many columns, with a delta and without."""
    few = partial(loss, cluster_medians, dim=3, power=1, n_records=3000, repetitions=12)
    many = partial(loss, cluster_medians, dim=25, power=1, n_records=3000, repetitions=6)
    return {"3 columns": few(WITH_DELTA), "3, pure": few(PURE), "25 columns": many(WITH_DELTA)}


def tree_median_losses() -> Mapping[str, float]:
    """Return losses of medians by partition trees."""
    return {
        f"epsilon {epsilon:g}": loss(
            partial(cluster_medians, method="partition-tree"), ps.Budget(epsilon, 0.0), power=1
        )
        for epsilon in (1.0, 4.0)
    }


def tree_losses() -> Mapping[str, float]:
    """Return losses of k-means by partition trees, and the seconds of a fit."""
    start = time.process_time()
    strong = loss(cluster_by_tree, ps.Budget(1.0, 0.0), repetitions=12)
    weak = loss(cluster_by_tree, ps.Budget(4.0, 0.0), repetitions=12)
    return {"epsilon 1": strong, "epsilon 4": weak, "seconds": (time.process_time() - start) / 24}


def plan_losses() -> Mapping[str, float]:
    """Return geometric means of the forecast loss of plans, and the seconds of a plan."""
    for function in (planner._sketch_design, planner.distant_excess, planner.missed_share):
        function.cache_clear()
    start, n_plans, means = time.process_time(), 0, {}
    for name, budget in (("with delta", WITH_DELTA), ("pure", PURE)):
        plans = [
            planner.plan_pipeline(n_clusters, dim, budget, n_records)
            for n_clusters in (5, 15)
            for dim in (15, 40)
            for n_records in (1e4, 1e5, 1e6)
        ]
        means[name] = math.exp(float(np.mean([math.log(plan.excess) for plan in plans])))
        n_plans += len(plans)
    return {**means, "seconds": (time.process_time() - start) / n_plans}


@cache
def noisy_loss(directions: str, n_clusters: int, dim: int, n_records: int, delta: float) -> float:
    """Return the measured loss of the best plan of one kind where noise is strong."""
    budget = ps.Budget(0.2, delta)
    facts = planner.Facts(n_clusters, dim, budget, float(n_records))
    plans = list(planner._mean_plans(facts))
    if directions != "mean":
        has_few = dim <= planner.MAX_PURE_SKETCH_COLUMNS
        plans = list((planner._column_plans if has_few else planner._direction_plans)(facts))
    plan = min(plans, key=lambda candidate: candidate.excess)
    return loss(
        pipeline.cluster,
        budget,
        n_clusters=n_clusters,
        dim=dim,
        n_records=n_records,
        repetitions=4,
        plan=plan,
    )


def noisy_studies() -> list[tuple[int, int, int, float]]:
    """Return numbers of clusters, columns and records, and deltas, around the turning point."""
    return [
        (n_clusters, dim, n_records, delta)
        for n_clusters, dim in ((3, 5), (8, 5), (4, 25), (10, 25))
        for n_records in (500, 1500, 5000, 15_000)
        for delta in (0.0, 1e-6)
    ]


def mean_start_losses() -> Mapping[str, float]:
    """Return the mean loss of the plan that the forecast chooses, and how often it is the mean."""
    losses, n_means = [], 0
    for n_clusters, dim, n_records, delta in noisy_studies():
        plan = planner.plan_pipeline(n_clusters, dim, ps.Budget(0.2, delta), float(n_records))
        kind = "mean" if plan.directions == "mean" else "sketch"
        n_means += kind == "mean"
        losses.append(noisy_loss(kind, n_clusters, dim, n_records, delta))
    return {"loss": float(np.mean(losses)), "starts around the mean": float(n_means)}


def mean_share_losses() -> Mapping[str, float]:
    """Return mean losses of starts around the mean, whatever their forecast."""
    noisy_loss.cache_clear()
    names = {500: "500 records", 1500: "1,500", 5000: "5,000", 15_000: "15,000"}
    return {
        name: float(
            np.mean([noisy_loss("mean", *study) for study in noisy_studies() if study[2] == n])
        )
        for n, name in names.items()
    }


def probed_losses(make_plan: Callable[[planner.Facts], planner.PipelinePlan]) -> dict[str, float]:
    """Return mean logarithms of costs over those without privacy, for plans of 12 studies."""
    logs: dict[str, list[float]] = {"pure": [], "with a delta": []}
    for n_clusters, dim in ((4, 6), (8, 6), (30, 8), (12, 15)):
        for name, budget in (
            ("pure", ps.Budget(1.0)),
            ("pure", ps.Budget(0.3)),
            ("with a delta", ps.Budget(0.1, 1e-6)),
        ):
            plan = make_plan(planner.Facts(n_clusters, dim, budget, float(N_RECORDS)))
            found = loss(
                pipeline.cluster,
                budget,
                n_clusters=n_clusters,
                dim=dim,
                repetitions=4,
                plan=plan,
            )
            logs[name].append(math.log1p(found))
    return {name: float(np.mean(values)) for name, values in logs.items()}


def chosen_probe_losses() -> Mapping[str, float]:
    """Return the losses of the plans that the forecast chooses, and how many look for clusters."""
    chosen = []

    def make_plan(facts: planner.Facts) -> planner.PipelinePlan:
        plan = planner.plan_pipeline(facts.n_clusters, facts.dim, facts.budget, facts.n_records)
        chosen.append("probe" in plan.rounds)
        return plan

    losses = probed_losses(make_plan)
    return {**losses, "of 12 look for clusters": float(sum(chosen))}


def probe_share_losses() -> Mapping[str, float]:
    """Return the losses of plans that look for clusters, whatever their forecast."""
    return probed_losses(planner.probe_plan)


def block_losses() -> Mapping[str, float]:
    """Return losses of sample and aggregate, and the seconds of a fit."""
    start = time.process_time()
    losses = {
        f"epsilon {epsilon:g}": loss(
            aggregate.cluster,
            ps.Budget(epsilon, 1e-6),
            n_clusters=3,
            dim=2,
            n_records=200_000,
            repetitions=3,
        )
        for epsilon in (0.1, 1.0)
    }
    return {**losses, "seconds": (time.process_time() - start) / 6}


MEDIANS = "privsketch.clustering.medians"
PLAN = "privsketch.clustering.pipeline.plan"
SHARES = tuple(Fraction(1, i) for i in (200, 100, 50, 25, 10))
CURVES = (
    Curve(
        f"{MEDIANS}.MEDIAN_ROUNDS",
        (1, 2, 3, 4, 6, 10),
        median_losses,
        "Loss of k-medians of 6 clusters at epsilon 1, by the number of rounds.",
    ),
    Curve(
        f"{MEDIANS}.LENGTHS_SHARE",
        SHARES,
        median_losses,
        "Loss of k-medians by the share of the budget for the lengths of residuals.",
    ),
    Curve(
        f"{MEDIANS}.COUNTS_SHARE",
        SHARES,
        median_losses,
        "Loss of k-medians by the share for the sizes of clusters, which no center uses.",
    ),
    Curve(
        f"{MEDIANS}.SKETCH_SHARE",
        tuple(Fraction(i, 8) for i in (1, 2, 3, 4, 5, 6)),
        median_losses,
        "Loss of k-medians by the share of the budget for the sketch.",
    ),
    Curve(
        f"{MEDIANS}.STARTS_SHARE",
        SHARES,
        median_losses,
        "Loss of k-medians by the share for the choice among three searches.",
    ),
    Curve(
        f"{MEDIANS}.SUBSPACE_SHARE",
        tuple(Fraction(1, i) for i in (20, 10, 5, 3, 2)),
        median_losses,
        "Loss of k-medians by the share of the sketch for directions, in more than 20 columns.",
    ),
    Curve(
        "privsketch.clustering.tree.medians.MEDIAN_STEPS",
        (1, 2, 3, 5, 7, 10),
        tree_median_losses,
        "Loss of k-medians by partition trees, by the number of steps to a median.",
    ),
    Curve(
        "privsketch.clustering.tree.method.MAX_CANDIDATES",
        (32, 128, 256, 512, 1024, 2048),
        tree_losses,
        "Loss of k-means by partition trees, by the largest number of candidate centers.",
    ),
    Curve(
        f"{PLAN}.DIRECTION_COUNTS",
        ((2, 4), (2, 4, 8), (2, 3, 4, 5, 6, 8, 10), tuple(range(2, 15))),
        plan_losses,
        "Forecast loss of the best plan for 12 studies, by the numbers of directions to choose "
        "from.",
    ),
    Curve(
        f"{PLAN}.ROUND_COUNTS",
        ((4,), (2, 4), (2, 4, 8), (2, 3, 4, 6, 8), tuple(range(2, 13))),
        plan_losses,
        "Forecast loss of the best plan for 12 studies, by the numbers of rounds to choose from.",
    ),
    Curve(
        f"{PLAN}.SUBSPACE_SHARES",
        (
            (Fraction(1, 5),),
            (Fraction(1, 10), Fraction(1, 5)),
            tuple(Fraction(1, i) for i in (20, 10, 5, 3)),
        ),
        plan_losses,
        "Forecast loss of the best plan for 12 studies, by the shares of directions to choose "
        "from.",
    ),
    Curve(
        f"{PLAN}.MEAN_ERROR_PER_CLUSTER",
        (0.01, 0.03, 0.05, 0.07, 0.1, 0.2),
        mean_start_losses,
        "Measured loss of the chosen plan in 32 noisy studies, by the error per cluster that is "
        "assumed of starts around the mean.",
    ),
    Curve(
        f"{PLAN}.MEAN_START_ERROR",
        (0.5, 1.5, 2.5, 4.0, 8.0),
        mean_start_losses,
        "Measured loss of the chosen plan in 32 noisy studies, by the error that rounds from the "
        "mean are assumed to begin with.",
    ),
    Curve(
        f"{PLAN}.MEAN_OFFSET",
        (1.0, 3.0, 6.0, 12.0, 24.0),
        mean_start_losses,
        "Measured loss of the chosen plan in 32 noisy studies, by the assumed squared distance of "
        "the mean from the center of the ball.",
    ),
    Curve(
        f"{PLAN}.MEAN_SHARES",
        (
            ((Fraction(1), 0),),
            ((Fraction(1, 2), 1),),
            ((Fraction(1, 5), 2),),
            ((Fraction(1), 0), (Fraction(1, 2), 1), (Fraction(1, 5), 2)),
        ),
        mean_share_losses,
        "Measured loss of starts around the mean, by the shares of the mean and the numbers of "
        "rounds to choose from.",
    ),
    Curve(
        f"{PLAN}.RADIUS_BINS",
        (8, 12, 16, 24, 48),
        probe_share_losses,
        "Mean logarithm of the cost ratio of plans that look for clusters in 12 studies, by the "
        "number of bins of the lengths of residuals.",
    ),
    Curve(
        "privsketch.clustering.pipeline.rounds.UNCUT_SHARE",
        (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
        probe_share_losses,
        "Mean logarithm of the cost ratio of plans that look for clusters in 12 studies, by the "
        "share of the residuals that is not cut.",
    ),
    Curve(
        f"{PLAN}.PROBED_ERROR",
        (0.2, 0.5, 1.0, 1.5, 2.5, 5.0, 20.0),
        chosen_probe_losses,
        "Mean logarithm of the cost ratio of the chosen plan in 12 studies, by the error that is "
        "assumed of rounds that look for clusters.",
    ),
    Curve(
        f"{PLAN}.PROBE_SHARES",
        tuple(planner.PROBE_SHARES[:most] for most in (1, 2, 3, 4)),
        probe_share_losses,
        "Mean logarithm of the cost ratio of plans that look for clusters, by the numbers of such "
        "rounds to choose from.",
    ),
    Curve(
        "privsketch.clustering.baselines.aggregate.MAX_SAMPLE_BLOCKS",
        (250, 500, 1000, 2000, 4000),
        block_losses,
        "Loss of sample and aggregate of 200,000 records, by the largest number of blocks.",
    ),
)
