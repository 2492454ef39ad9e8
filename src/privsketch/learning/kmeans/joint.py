"""Decode k-means centers by fitting all atoms together, from coarse to fine.

A greedy search fits one atom at a time to the residual of the others. In ten dimensions the sum of
all other clusters drowns every single one. This search fits a surplus of particles jointly. It
begins with low frequencies, where the cost is smooth and all records are one blob. Higher
frequencies then pull the particles to their clusters. Deletions and merges prune the surplus, with
a joint refinement after every step. Atoms have a Gaussian envelope whose variance is fitted too:
clusters have width, which would push Dirac atoms off their means.

With categories, flags or cycles, atoms are products. Their moments are linear in the shares of
labels, so that only frequencies of numbers go from coarse to fine. All atoms share one variance for
each number: numbers, dates among them, differ in spread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.errors import require_count
from privsketch._base.threads import one_thread
from privsketch.learning.blocks import parts_of
from privsketch.learning.kmeans.density import choose_density, grow_density
from privsketch.learning.problem import Atoms, Problem, Target, cost
from privsketch.learning.pruning import prune
from privsketch.learning.refine import Overview, find_overview, refine, refine_powers
from privsketch.learning.uncertainty import MAX_RESIDUAL_EXCESS, Solution, Uncertainty, assess_fit

PARTICLES_PER_CLUSTER = 2  # with one, two particles may share a cluster for good
RICH_PARTICLES_PER_CLUSTER = 4  # for records that have more structure than clusters
MIN_CONCENTRATION = 0.1  # of the drawn shares of a corner that next to no record has
CAP_GROWTH = 1.4  # ratio of the frequency caps of two levels
# Iterations of a descent: python -m benchmarks constants learning LEVEL_ITERATIONS moves all four.
LEVEL_ITERATIONS = 30  # of one level
PRUNE_ITERATIONS = 25  # after a round of pruning
LAST_PRUNE_ITERATIONS = 200  # after the last round
POLISH_ITERATIONS = 60  # in double precision
SAME_MINIMUM = 1e-3  # relative difference of the costs of two runs in the same minimum
# If the noise of a number exceeds this share of a cluster's records, a run that missed a cluster
# may explain the sketch as well. The best of a few runs is kept:
#   python -m benchmarks constants learning STRONG_NOISE
#   python -m benchmarks constants learning STRONG_NOISE_STARTS
STRONG_NOISE = 0.2
STRONG_NOISE_STARTS = 3  # docs/learning.md states it


@dataclass(frozen=True)
class Run:
    """One search: its start, its atoms, and how well they explain the sketch."""

    origin: Overview
    atoms: Atoms
    cost: float
    uncertainty: Uncertainty

    @property
    def explains(self) -> bool:
        """Whether noise and sampling account for the residual."""
        return self.uncertainty.excess(self.cost) <= MAX_RESIDUAL_EXCESS


def decode_joint(
    problem: Problem, n_clusters: int, rng: np.random.Generator, *, n_init: int = 6
) -> Solution:
    """Fit `n_clusters` atoms with envelopes; the best of up to `n_init` runs.

    The variance of the noise is known, so the search ends with a run that explains the sketch. It
    also ends when two runs reach the best minimum. If one width for all clusters does not explain
    the sketch, richer mixtures are tried: `density` and the widths are theirs.

    Parameters
    ----------
    problem : Problem
        The sketch.
    n_clusters : int
        Number of atoms, at least 1.
    rng : numpy.random.Generator
        Draws the first particles. The result is a function of its state.
    n_init : int
        Maximum number of independent runs; the one with the smallest residual is kept.
    """
    require_count("n_init", n_init)
    # The matrix products are small: threads would cost more than they bring.
    with one_thread():
        overview = find_overview(problem, rng)
        unit = overview.weight
        target = problem.target(unit)
        # Single precision suffices until the last polish, and takes half of the time.
        single = target.astype(np.float32)
        noise_share = n_clusters * np.sqrt(problem.noise_variance) / unit
        # Callers that allow few runs want them only for sketches that one run does not explain.
        unsure = noise_share > STRONG_NOISE and n_init >= STRONG_NOISE_STARTS
        n_certain = STRONG_NOISE_STARTS if unsure else 1
        runs: list[Run] = []
        while len(runs) < n_init:
            unexplained = not any(run.explains for run in runs)
            origin = whole_box(overview, target) if unexplained and len(runs) % 2 else overview
            start_atoms, value = run_start(single, origin, n_clusters, rng)
            start_atoms = start_atoms.in_order()
            runs.append(
                Run(origin, start_atoms, value, assess_fit(problem, start_atoms, unit, rng))
            )
            best = min(runs, key=lambda run: run.cost)
            is_confirmed = sum(run.cost <= (1 + SAME_MINIMUM) * best.cost for run in runs) > 1
            if is_confirmed or (best.explains and len(runs) >= n_certain):
                break
        atoms, density = best.atoms, None
        if not best.explains:
            rich = _everywhere(single, best.origin, RICH_PARTICLES_PER_CLUSTER * n_clusters, rng)
            rich = sharpen(single, rich, best.origin.variance)
            expected = best.uncertainty.expected_cost
            atoms, density = choose_density(single, atoms, rich, expected)
            grown = grow_density(problem, target, density or atoms, expected, unit, rng)
            density = grown or density
        atoms, value = refine(target, atoms, n_iterations=POLISH_ITERATIONS)
        uncertainty = best.uncertainty
        if not best.explains:
            density = atoms if density is None else density
            if problem.layout is not None and density is not atoms:
                density, _ = refine(target, density, n_iterations=POLISH_ITERATIONS)
            value = cost(target, density)
            uncertainty = assess_fit(problem, density, unit, rng)
        elif problem.uniform:
            noise_std = float(np.sqrt(problem.noise_variance)) / unit
            atoms = refine_powers(target, atoms, noise_std)
        return Solution(
            atoms=atoms.scaled(unit),
            density=(density or atoms).scaled(unit),
            residual=value * unit**2,
            uncertainty=uncertainty.scaled(unit),
            layout=problem.layout,
        )


def whole_box(overview: Overview, box: Target | Problem) -> Overview:
    """Return the overview of records that fill the box.

    A fit of one Gaussian to few distant clusters may settle on one of them. A start from the whole
    box cannot miss the others, but under strong noise it finds spurious atoms. It is for sketches
    that the first start leaves unexplained. Its agreement with that start is better evidence than
    two starts from one overview.
    """
    sides = box.high - box.low
    if overview.variances.shape[1] == 1 and len(sides):
        sides = np.max(sides, keepdims=True)
    squares = np.array([float(side) ** 2 for side in sides])
    variances = np.maximum(squares / 12, overview.variances)
    return replace(overview, center=(box.low + box.high) / 2, variances=variances)


def run_start(
    target: Target, overview: Overview, n_clusters: int, rng: np.random.Generator
) -> tuple[Atoms, float]:
    """Run one search from fresh particles; return atoms of one width and their cost."""
    n_particles = max(PARTICLES_PER_CLUSTER * n_clusters, n_clusters + 4)
    particles = scatter_particles(target, overview, n_particles, rng)
    particles = sharpen(target, particles, overview.variance)
    atoms = finish(target, particles, n_clusters)
    return atoms, cost(target, atoms)


def scatter_particles(
    target: Target, overview: Overview, n_atoms: int, rng: np.random.Generator
) -> Atoms:
    """Return equal particles over all records, half as wide as these.

    Shares are half those of all records and half drawn around them: atoms may differ in labels
    alone.
    """
    spread = 0.8 * np.sqrt(overview.variances)
    centers = overview.center + spread * rng.standard_normal((n_atoms, len(overview.center)))
    centers = np.clip(centers, target.low, target.high)
    shares = np.repeat(overview.shares, n_atoms, axis=0)
    for part in parts_of(target.ends):
        whole = overview.shares[0, part]
        drawn = rng.dirichlet(np.maximum(len(whole) * whole, MIN_CONCENTRATION), n_atoms)
        shares[:, part] = shares[:, part] / 2 + drawn / 2
    return Atoms(np.full(n_atoms, 1 / n_atoms), centers, overview.variances / 4, shares)


def _everywhere(
    target: Target, overview: Overview, n_atoms: int, rng: np.random.Generator
) -> Atoms:
    """Return particles over all records and over the box: small clusters may lie far away."""
    near = scatter_particles(target, overview, n_atoms - n_atoms // 2, rng)
    far = scatter_particles(target, whole_box(overview, target), n_atoms // 2, rng)
    return near.joined(far, shared=True).scaled(0.5)


def sharpen(target: Target, atoms: Atoms, variance: float) -> Atoms:
    """Fit higher and higher frequencies, until the atoms' width damps the next ones."""
    dim = len(target.low)
    if dim == 0:
        return atoms
    squared_norms = target.squared_norms.astype(np.float64)
    n_needed = max(1, min(8 * (dim + len(target.labels)), target.n_features // 2))
    highest = float(np.quantile(squared_norms, 0.98))
    squared_cap = 1 / variance
    while squared_cap <= highest and squared_cap * float(np.max(atoms.variances)) <= 4:
        taper = np.exp(-squared_norms / squared_cap / 2)
        keep = taper > 0.05
        if np.count_nonzero(keep) >= n_needed:
            level = target.tapered(taper, keep)
            atoms, _ = refine(level, atoms, n_iterations=LEVEL_ITERATIONS)
        squared_cap *= CAP_GROWTH**2
    return atoms


def finish(target: Target, atoms: Atoms, n_clusters: int) -> Atoms:
    """Fit all frequencies and prune the surplus away in four rounds."""
    atoms, _ = refine(target, atoms, n_iterations=LEVEL_ITERATIONS)
    surplus = atoms.size - n_clusters
    for fraction in (0.5, 0.25, 0.1, 0.0):
        atoms = prune(target, atoms, n_clusters + int(fraction * surplus))
        n_iterations = PRUNE_ITERATIONS if fraction > 0 else LAST_PRUNE_ITERATIONS
        atoms, _ = refine(target, atoms, n_iterations=n_iterations)
    return atoms
