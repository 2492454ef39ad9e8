"""Curves of the learners' searches, on small sketches: the same ones at every value of a constant.

"excess, %" is the k-means cost of private centers beyond that of k-means on the records, "misfit"
what a mixture leaves of a sketch over what noise and sampling leave, "lost, %" the variance that
principal components miss. "+-" is the standard error of the mean over the sketches.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.constants import Curve, constant_set
from benchmarks.number import FIRST, MAX_CLUSTERS, released
from privsketch._base.types import Floats
from privsketch.learning.kmeans.number import count_in_waves
from privsketch.learning.problem import Atoms, make_target, problem_of
from privsketch.learning.refine import find_overview
from privsketch.learning.uncertainty import assess

Measure = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class Case:
    """A sketch, the records behind it, and the cost of k-means on these."""

    sketch: ps.Sketch
    records: Floats
    n_clusters: int
    least_cost: float

    def excess(self, model: ps.ClusterModel) -> float:
        """Excess cost of the centers of a model beyond that of k-means, in percent."""
        return 100 * (-model.score(self.records) / self.least_cost - 1)


@cache
def cases(
    kind: str, sizes: tuple[tuple[int, int], ...], repetitions: int, **options: Any
) -> tuple[Case, ...]:
    """Sketches of clusters, `sizes` pairs of a number of clusters and one of columns."""
    made = []
    n = options.get("n_records", 20_000)
    for seed in range(repetitions):
        for k, dim in sizes:
            rng = np.random.default_rng([seed, k, dim])
            centers = rng.uniform(-0.7, 0.7, (k, dim))
            widths = 0.07 * np.ones((k, dim))
            if kind == "stretched":
                widths *= np.exp(0.8 * rng.standard_normal((k, dim)))
            if kind == "overlapping":
                widths *= 2.5
            label = rng.integers(k, size=n)
            records = centers[label] + widths[label] * rng.standard_normal((n, dim))
            records *= 1.4 if kind == "cut" else 1.0
            design = ps.Design.plan(
                n_components=k,
                domain=ps.Box(-1, 1, dim=dim),
                budget=ps.Budget(options.get("epsilon", 1.0), options.get("delta", 1e-6)),
                n_records=n,
                random_state=seed,
                feature_map=options.get("feature_map", "fourier"),
                noise=options.get("noise"),
            )
            records = np.clip(records, -1, 1)
            starts = {"k-means++": 5, "true": 1}
            least = min(
                KMeans(k, init=centers if name == "true" else name, n_init=n, random_state=0)
                .fit(records)
                .inertia_
                for name, n in starts.items()
            )
            made.append(Case(ps.sketch(records, design), records, k, least))
    return tuple(made)


ROUND = partial(cases, "round", ((8, 2), (8, 5), (20, 5), (20, 10)), 4)
STRETCHED = partial(cases, "stretched", ((4, 2), (10, 2), (8, 5)), 5)
NOISY = partial(cases, "round", ((8, 2), (8, 5)), 12, epsilon=0.1, n_records=4000)
CUT = partial(cases, "cut", ((3, 2), (4, 2)), 6)
SIGNS = partial(cases, "round", ((3, 2), (4, 2)), 4, feature_map="one-bit")
CUBES = partial(cases, "round", ((4, 2), (8, 2)), 8, noise="cube", delta=0.0, n_records=5000)
CELLS = partial(
    cases, "stretched", ((6, 2), (10, 2)), 10, feature_map="cells", delta=0.0, epsilon=0.3
)


def summary(name: str, values: Iterable[float], start: float) -> dict[str, float]:
    """Mean of one number per sketch, its error, and the seconds for one."""
    numbers = np.array(list(values))
    seconds = (time.process_time() - start) / len(numbers)
    spread = float(numbers.std(ddof=1) / np.sqrt(len(numbers)))
    return {name: float(numbers.mean()), "+-": spread, "seconds": seconds}


def cost_of(studies: Callable[[], tuple[Case, ...]], **options: Any) -> Measure:
    """Measure the cost of centers."""

    def measure() -> Mapping[str, float]:
        listed = studies()
        start = time.process_time()
        excess = [case.excess(ps.learn_kmeans(case.sketch, **options)) for case in listed]
        return summary("excess, %", excess, start)

    return measure


def misfit_of(studies: Callable[[], tuple[Case, ...]], **options: Any) -> Measure:
    """Measure the misfit of mixtures, and the share of searches that got stuck."""

    def measure() -> Mapping[str, float]:
        listed = studies()
        start = time.process_time()
        models = [ps.learn_gaussian_mixture(case.sketch, **options) for case in listed]
        misfits = [model.misfit or np.inf for model in models]
        stuck = float(np.mean(np.array(misfits) > 1.5))
        return {**summary("misfit", misfits, start), "stuck": stuck}

    return measure


@cache
def component_sketches(noise: str) -> tuple[tuple[ps.Sketch, Floats], ...]:
    """Sketches of quadratic features with few values per unknown, and their covariances."""
    made = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        axes = np.linalg.qr(rng.standard_normal((20, 20)))[0]
        records = rng.standard_normal((50_000, 20)) * 0.3 / np.arange(1, 21) @ axes.T
        design = ps.Design.plan(
            task="pca",
            n_components=3,
            domain=ps.Ball(dim=20, radius=1.0),
            budget=ps.Budget(2.0, 0.0 if noise == "laplace" else 1e-6),
            n_records=len(records),
            feature_map="quadratic",
            n_features=180,
            noise=noise,
            random_state=seed,
        )
        made.append((ps.sketch(records, design), records.T @ records / len(records)))
    return tuple(made)


def lost_of(noise: str = "gaussian", method: str = "auto") -> Measure:
    """Measure the variance that three of 20 components miss."""

    def measure() -> Mapping[str, float]:
        listed = component_sketches(noise)
        start = time.process_time()
        shares = []
        for sketch, covariance in listed:
            components = ps.learn_pca(sketch, 3, method=method).components
            best = np.linalg.eigvalsh(covariance)[-3:].sum()
            kept = float(np.trace(components @ covariance @ components.T)) / best
            shares.append(100 * (1 - kept))
        return summary("lost, %", shares, start)

    return measure


def overview_misses() -> Mapping[str, float]:
    """Measure how often an overview is off: by its own width from a tight cloud far outside."""
    rng = np.random.default_rng(0)
    misses = []
    problems = []
    for seed in range(20):
        mean = rng.uniform(-0.8, 0.8, 6)
        records = mean + 0.03 * rng.standard_normal((5000, 6))
        design = ps.Design.plan(
            n_components=4,
            domain=ps.Box(-1, 1, dim=6),
            budget=ps.Budget(1.0, 1e-6),
            n_records=5000,
            random_state=seed,
        )
        problems.append((problem_of(ps.sketch(records, design)), mean))
    start = time.process_time()
    for seed, (problem, mean) in enumerate(problems):
        overview = find_overview(problem, np.random.default_rng(seed))
        width = max(np.sqrt(overview.variance), 0.03)
        misses.append(float(np.linalg.norm(overview.center - mean) > 3 * width))
    return summary("missed", misses, start)


def overview_widths() -> Mapping[str, float]:
    """Measure the error of an overview's width, as a share of the records' own."""
    listed = ROUND()
    start = time.process_time()
    errors = []
    for seed, case in enumerate(listed):
        overview = find_overview(problem_of(case.sketch), np.random.default_rng(seed))
        spread = float(case.records.var(axis=0).mean())
        errors.append(abs(np.sqrt(overview.variance / spread) - 1))
    return summary("error", errors, start)


def tangent_seconds() -> Mapping[str, float]:
    """Measure the seconds that standard errors take, by the number of atoms."""
    rng = np.random.default_rng(0)
    seconds = {}
    for size in (30, 60, 100):
        frequencies = 4 * rng.standard_normal((14 * size, 5))
        centers = rng.uniform(-1, 1, (size, 5))
        atoms = Atoms(np.full(size, 1 / size), centers, np.full((1, 1), 0.01))
        target = make_target(frequencies, np.zeros(len(frequencies), complex))
        times = []
        for _ in range(5):
            start = time.process_time()
            assess(target, atoms, noise_variance=1e-6, n_records=1e4, rng=rng)
            times.append(time.process_time() - start)
        seconds[f"seconds, {size} atoms"] = min(times)
    return seconds


@cache
def number_sketches() -> tuple[tuple[int, ps.Sketch], ...]:
    """Sketches of separated clusters of all shapes, and their numbers."""
    made = []
    for number, kind in enumerate(FIRST):
        for n, epsilon, delta in ((100_000, 1.0, 0.0), (15_000, 1.0, 1e-6)):
            sketch = released(kind, number, n, "waves", epsilon, delta)
            if sketch is not None:
                made.append((kind.k, sketch))
    return tuple(made)


def right_numbers() -> Mapping[str, float]:
    """Measure how often the number of clusters is right."""
    listed = number_sketches()
    start = time.process_time()
    answers = [
        (k, count_in_waves(problem_of(sketch), MAX_CLUSTERS, np.random.default_rng(0)).n_clusters)
        for k, sketch in listed
    ]
    return {**_shares(answers), "seconds": (time.process_time() - start) / len(answers)}


def _shares(answers: list[tuple[int, int]]) -> dict[str, float]:
    errors = np.array([answer - k for k, answer in answers])
    return {
        "right": float(np.mean(errors == 0)),
        "too many": float(np.mean(errors > 0)),
        "too few": float(np.mean(errors < 0)),
    }


def moved_together(constant: str, others: tuple[str, ...], measure: Measure) -> Measure:
    """Return a measure that multiplies other constants of the module by the same factor."""
    module, _, name = constant.rpartition(".")
    names = vars(importlib.import_module(module))
    used = {each: names[each] for each in (name, *others)}

    def measure_scaled() -> Mapping[str, float]:
        factor = names[name] / used[name]
        with ExitStack() as stack:
            for other in others:
                value = round(factor * used[other])
                stack.enter_context(constant_set(f"{module}.{other}", value))
            return measure()

    return measure_scaled


def _curve(
    where: str, values: tuple[Any, ...], measure: Measure, about: str, *others: str
) -> Curve:
    constant = f"privsketch.learning.{where}"
    if others:
        measure = moved_together(constant, others, measure)
    return Curve(constant, values, measure, about)


CURVES = (
    _curve(
        "refine.OVERVIEW_STARTS",
        (1, 4, 16, 64, 256),
        overview_misses,
        "Share of overviews that miss a tight cloud in six columns: a guard, one place is enough.",
    ),
    _curve(
        "refine.OVERVIEW_PASSES",
        (1, 2, 3, 5),
        overview_widths,
        "Error of the overview's width, relative to that of the records.",
    ),
    _curve(
        "refine.OVERVIEW_ITERATIONS",
        (5, 15, 30, 60, 120),
        overview_widths,
        "The same: a guard, descents of one Gaussian end by themselves.",
    ),
    _curve(
        "refine.POWER_ITERATIONS",
        (1, 10, 30, 100, 300),
        cost_of(CUBES),
        "Excess cost under cube noise: a guard, descents in third powers end by themselves.",
    ),
    _curve(
        "uncertainty.MAX_DENSE_ATOMS",
        (0, 40, 80, 160),
        tangent_seconds,
        "Seconds for standard errors with five columns; small sizes decide, large ones are alike.",
    ),
    _curve(
        "kmeans.joint.LEVEL_ITERATIONS",
        (4, 8, 15, 30, 60, 120),
        cost_of(ROUND),
        "Excess cost; the iterations of all other steps of a search move in proportion.",
        "PRUNE_ITERATIONS",
        "LAST_PRUNE_ITERATIONS",
        "POLISH_ITERATIONS",
    ),
    _curve(
        "kmeans.joint.STRONG_NOISE",
        (0.05, 0.1, 0.2, 0.4, 10.0),
        cost_of(NOISY),
        "Excess cost of 8 clusters of 500 records at epsilon = 0.1.",
    ),
    _curve(
        "kmeans.joint.STRONG_NOISE_STARTS",
        (1, 2, 3, 5),
        cost_of(NOISY),
        "The same, by the number of searches that strong noise makes certain.",
    ),
    _curve(
        "kmeans.number.REMOVAL_ITERATIONS",
        (10, 30, 60, 120),
        right_numbers,
        "Numbers of clusters, 1 to 25, of all shapes, in 1 to 20 columns.",
    ),
    _curve(
        "modes.LEAST_ABOVE",
        (0.05, 0.1, 0.25, 0.5, 0.75),
        right_numbers,
        "The same: valleys inside of a cluster are shallow or noise, those between two are deep.",
    ),
    _curve(
        "kmeans.learner.MAX_KMEANS_SEARCHES",
        (1, 2, 4, 6, 10),
        cost_of(STRETCHED),
        "Excess cost of clusters of unequal shapes: a guard, most searches end before the last.",
    ),
    _curve(
        "kmeans.density.SHAPE_ITERATIONS",
        (10, 25, 50, 100, 200),
        cost_of(STRETCHED),
        "Excess cost of clusters of unequal shapes; SIZE_ITERATIONS moves in proportion.",
        "SIZE_ITERATIONS",
    ),
    _curve(
        "kmeans.density.MAX_DIVIDED",
        (0, 16, 32, 64),
        cost_of(partial(cases, "overlapping", ((24, 2), (48, 2)), 3)),
        "Excess cost of 24 and 48 overlapping clusters with further seeds up to so many clusters.",
    ),
    _curve(
        "kmeans.ompr.STEP_ITERATIONS",
        (6, 12, 25, 50, 100),
        cost_of(ROUND, decoder="cl-ompr", n_init=1),
        "Excess cost of the greedy search; its other iterations move in proportion.",
        "ASCENT_ITERATIONS",
        "LAST_ITERATIONS",
    ),
    _curve(
        "cells.path.N_SPLITS",
        (0, 1, 3, 6),
        cost_of(CELLS),
        "Excess cost of unequal clusters at epsilon = 0.3, d = 2.",
    ),
    _curve(
        "cells.path.SPLIT_ROUNDS",
        (0, 1, 3, 6),
        cost_of(CELLS),
        "The same: rounds end by themselves when no split helps.",
    ),
    _curve(
        "mixture.search.SURPLUS_SHARE",
        (0.0, 0.1, 0.3, 0.6, 1.2),
        misfit_of(STRETCHED, n_init=1),
        "Misfit of a single search; MIN_SURPLUS moves in proportion.",
        "MIN_SURPLUS",
    ),
    _curve(
        "mixture.search.FREE_ITERATIONS",
        (8, 15, 30, 60, 120),
        misfit_of(STRETCHED, n_init=1),
        "Misfit of a single search; LAST_REMOVAL_ITERATIONS moves in proportion.",
        "LAST_REMOVAL_ITERATIONS",
    ),
    _curve(
        "mixture.search.POLISH_STEPS",
        (1, 2, 4, 8, 16),
        misfit_of(STRETCHED),
        "Misfit of components of unequal shapes: a guard, steps end by themselves.",
    ),
    _curve(
        "mixture.search.CORRECTION_STEPS",
        (1, 2, 3, 6),
        misfit_of(CUT),
        "Misfit of components that the edge of the domain cuts.",
    ),
    _curve(
        "mixture.search.DISTORTION_ROUNDS",
        (1, 2, 4, 8, 16),
        misfit_of(CUT),
        "The same: a guard, rounds end by themselves.",
    ),
    _curve(
        "mixture.search.HARMONIC_ROUNDS",
        (0, 1, 2, 4, 8),
        misfit_of(SIGNS),
        "Misfit in one-bit sketches: corrections that follow make up for missing rounds.",
    ),
    _curve(
        "mixture.decoder.CUT_SEARCHES",
        (1, 2, 3, 5),
        misfit_of(CUT),
        "Misfit of components that the edge of the domain cuts.",
    ),
    _curve(
        "pca.fits.FACTOR_TOLERANCE",
        (1e-2, 1e-4, 1e-6, 1e-10, 1e-12),
        lost_of(),
        "Variance lost with 180 features of 20 columns.",
    ),
    _curve(
        "pca.fits.FACTOR_ITERATIONS",
        (10, 30, 100, 1000, 3000),
        lost_of(),
        "The same: a guard, FACTOR_TOLERANCE ends fits.",
    ),
    _curve(
        "pca.fits.CONVEX_TOLERANCE",
        (1e-2, 1e-4, 1e-6, 1e-8),
        lost_of(method="convex"),
        "Variance lost by the convex fit with 180 features of 20 columns.",
    ),
    _curve(
        "pca.fits.CONVEX_ITERATIONS",
        (10, 30, 100, 1000, 3000),
        lost_of(method="convex"),
        "The same: a guard, CONVEX_TOLERANCE ends fits.",
    ),
    _curve(
        "pca.fits.REMAINDER_ROUNDS",
        (0, 1, 2, 4, 8),
        lost_of(),
        "Variance lost with 180 features of 20 columns, of a slow spectrum.",
    ),
    _curve(
        "pca.search.START_TOLERANCE",
        (1e-1, 1e-2, 1e-3, 1e-5),
        lost_of(),
        "Variance lost when fits of low rank start from a rougher or finer convex one.",
    ),
    _curve(
        "pca.search.START_ITERATIONS",
        (10, 30, 100, 300),
        lost_of(),
        "The same: START_TOLERANCE ends most of these fits.",
    ),
)
