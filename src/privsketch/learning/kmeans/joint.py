"""Decode k-means centres by fitting all atoms together, from coarse to fine.

Greedy search adds one atom at a time to whatever the others leave; in ten
dimensions the sum of all other clusters drowns every single one. Here a surplus
of particles is fitted jointly, first to the low frequencies, where the cost is
smooth and the whole cloud of records is one blob, then to higher and higher ones,
which pull the particles to their clusters. The surplus is then pruned by deleting
and merging, with a joint refinement after every step. Atoms have a Gaussian
envelope whose variance is fitted too: clusters have width, and Dirac atoms would
be pushed off their means by it.
"""

from dataclasses import dataclass, replace

import numpy as np

from privsketch._typing import Floats
from privsketch.errors import ParameterError
from privsketch.learning.atoms import Atoms, Target, cost, make_target
from privsketch.learning.kmeans.density import choose_density
from privsketch.learning.kmeans.pruning import prune
from privsketch.learning.kmeans.solution import Solution
from privsketch.learning.overview import Overview, find_overview
from privsketch.learning.problem import Problem
from privsketch.learning.refine import refine
from privsketch.learning.threads import one_thread
from privsketch.learning.uncertainty import Uncertainty, assess_fit

SURPLUS = 2  # particles per cluster: with one, two particles may share a cluster for good
RICH_SURPLUS = 4  # when the records turn out to have more structure than clusters
CAP_GROWTH = 1.4  # ratio of the frequency caps of two levels
LEVEL_ITERATIONS = 30
PRUNE_ITERATIONS = 25
FINAL_ITERATIONS = 200
POLISH_ITERATIONS = 60  # in double precision
EXPLAINED = 4.0  # standard deviations that a residual may exceed its expectation by
SAME_MINIMUM = 1e-3  # relative difference of the costs of two runs that found the same
# With noise on every number of more than this share of a cluster, a run that missed a
# cluster may explain the sketch as well: a few are made, and the best is kept.
STRONG_NOISE = 0.2
STRONG_NOISE_STARTS = 3


@dataclass(frozen=True)
class Run:
    """One search: where it started, what it found, how well that explains the sketch."""

    origin: Overview
    atoms: Atoms
    cost: float
    uncertainty: Uncertainty

    @property
    def explains(self) -> bool:
        """Whether noise and sampling account for all that is left."""
        return self.uncertainty.excess(self.cost) <= EXPLAINED


def decode_joint(
    problem: Problem,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    n_starts: int = 6,
) -> Solution:
    """Fit `n_clusters` atoms with envelopes; the best of up to `n_starts` runs.

    The noise is known, so a run that explains the sketch is known to be good, and no
    other is made; nor if the best minimum was found twice. Where one width for all
    clusters does not explain the sketch, richer mixtures are tried: they end up in
    `density`, and in the widths.

    Parameters
    ----------
    problem : Problem
        The sketch.
    n_clusters : int
        Number of atoms wanted, at least 1.
    rng : numpy.random.Generator
        Places the first particles. The result is a function of its state.
    n_starts : int
        Most independent runs; the one with the smallest residual is kept.
    """
    if n_starts < 1:
        raise ParameterError(f"n_starts={n_starts}: at least one start is needed")
    # The matrix products are small: threads would cost more than they bring.
    with one_thread():
        return _decode(problem, n_clusters, rng, n_starts)


def _decode(problem: Problem, n_clusters: int, rng: np.random.Generator, n_starts: int) -> Solution:
    low, high = problem.low, problem.high
    overview = find_overview(problem, rng)
    unit = overview.weight
    target = make_target(problem.frequencies, problem.moments / unit)
    # Half of the digits are enough, at half of the time, until the last polish.
    single = target.astype(np.float32)
    noise_share = n_clusters * np.sqrt(problem.noise_variance) / unit
    # Whoever allows few runs wants them only where something is amiss.
    unsure = noise_share > STRONG_NOISE and n_starts >= STRONG_NOISE_STARTS
    n_certain = STRONG_NOISE_STARTS if unsure else 1
    runs: list[Run] = []
    n_evaluations = overview.n_evaluations
    while len(runs) < n_starts:
        unexplained = not any(run.explains for run in runs)
        origin = whole_box(overview, low, high) if unexplained and len(runs) % 2 else overview
        found, value, n_run = run_start(single, origin, n_clusters, low, high, rng)
        n_evaluations += n_run
        found = found.in_order()
        runs.append(Run(origin, found, value, assess_fit(problem, found, unit, rng)))
        best = min(runs, key=lambda run: run.cost)
        found_again = sum(run.cost <= (1 + SAME_MINIMUM) * best.cost for run in runs) > 1
        if found_again or (best.explains and len(runs) >= n_certain):
            break
    atoms, density = best.atoms, None
    if not best.explains:
        rich = scatter_particles(best.origin, RICH_SURPLUS * n_clusters, low, high, rng)
        rich, n_rich = sharpen(single, rich, best.origin.variance, low, high)
        atoms, density, n_more = choose_density(
            single, atoms, rich, best.uncertainty.expected_cost, low, high
        )
        n_evaluations += n_rich + n_more
    atoms, value, n_polish = refine(target, atoms, low, high, n_iterations=POLISH_ITERATIONS)
    uncertainty = best.uncertainty
    if not best.explains:
        density = atoms if density is None else density
        value = cost(target, density)
        uncertainty = assess_fit(problem, density, unit, rng)
    return Solution(
        atoms=atoms.scaled(unit),
        density=(density or atoms).scaled(unit),
        residual=value * unit**2,
        uncertainty=uncertainty.scaled(unit),
        n_evaluations=n_evaluations + n_polish,
    )


def whole_box(overview: Overview, low: Floats, high: Floats) -> Overview:
    """The overview of a cloud that fills the box.

    A fit of one Gaussian to few far clusters may settle on one of them. A start from
    everywhere cannot miss the others, but under strong noise it finds atoms that are
    not there: it is for sketches that the first start leaves unexplained, and its
    agreement with that one says more than two starts from one place.
    """
    variance = float(np.max(high - low)) ** 2 / 12
    return replace(overview, center=(low + high) / 2, variance=max(variance, overview.variance))


def run_start(
    target: Target,
    overview: Overview,
    n_clusters: int,
    low: Floats,
    high: Floats,
    rng: np.random.Generator,
) -> tuple[Atoms, float, int]:
    """One run from fresh particles: atoms of one width, their cost, evaluations spent."""
    n_particles = max(SURPLUS * n_clusters, n_clusters + 4)
    particles = scatter_particles(overview, n_particles, low, high, rng)
    particles, n_coarse = sharpen(target, particles, overview.variance, low, high)
    atoms, n_fine = finish(target, particles, n_clusters, low, high)
    return atoms, cost(target, atoms), n_coarse + n_fine


def scatter_particles(
    overview: Overview, n_atoms: int, low: Floats, high: Floats, rng: np.random.Generator
) -> Atoms:
    """Equal particles over the cloud, as wide as half of it."""
    spread = 0.8 * np.sqrt(overview.variance)
    centers = overview.center + spread * rng.standard_normal((n_atoms, len(low)))
    return Atoms(
        np.full(n_atoms, 1 / n_atoms),
        np.clip(centers, low, high),
        np.array([[overview.variance / 4]]),
    )


def sharpen(
    target: Target, atoms: Atoms, variance: float, low: Floats, high: Floats
) -> tuple[Atoms, int]:
    """Fit ever higher frequencies, until the atoms' own width damps what comes next."""
    dim = len(low)
    squared_norms = target.squared_norms.astype(np.float64)
    n_needed = max(1, min(8 * dim, target.n_features // 2))
    highest = float(np.quantile(squared_norms, 0.98))
    squared_cap = 1 / variance
    n_evaluations = 0
    while squared_cap <= highest and squared_cap * float(np.max(atoms.variances)) <= 4:
        taper = np.exp(-squared_norms / squared_cap / 2)
        keep = taper > 0.05
        if np.count_nonzero(keep) >= n_needed:
            level = target.tapered(taper, keep)
            atoms, _, n_more = refine(level, atoms, low, high, n_iterations=LEVEL_ITERATIONS)
            n_evaluations += n_more
        squared_cap *= CAP_GROWTH**2
    return atoms, n_evaluations


def finish(
    target: Target, atoms: Atoms, n_clusters: int, low: Floats, high: Floats
) -> tuple[Atoms, int]:
    """Fit all frequencies and prune the surplus away in four rounds."""
    atoms, _, n_evaluations = refine(target, atoms, low, high, n_iterations=LEVEL_ITERATIONS)
    surplus = atoms.size - n_clusters
    for fraction in (0.5, 0.25, 0.1, 0.0):
        atoms = prune(target, atoms, n_clusters + int(fraction * surplus))
        n_iterations = PRUNE_ITERATIONS if fraction > 0 else FINAL_ITERATIONS
        atoms, _, n_more = refine(target, atoms, low, high, n_iterations=n_iterations)
        n_evaluations += n_more
    return atoms, n_evaluations
