"""Richer densities than one atom per cluster, and the k-means clusters of a density.

Records need not form `n_clusters` round clusters of one width. Clusters may differ in shape, or
there are more of them than centers. Then no `n_clusters` atoms of one width explain the sketch, and
their centers are a compromise without meaning for k-means. This file fits richer and richer
mixtures, until further parameters no longer pay.

If clusters overlap, or a mixture has more components than centers, its means are not the centers
that k-means would choose. A decoded mixture is public: its samples are drawn and clustered by
Lloyd's algorithm at no privacy cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.learning.lloyd import Points, assign, lloyd, total_cost, weighted_sums
from privsketch.learning.problem import Atoms, Problem, Target, cost, n_parameters, residual_vector
from privsketch.learning.pruning import prune
from privsketch.learning.refine import find_overview, refine
from privsketch.learning.uncertainty import Solution

DENSITY_SIZES = (4.0, 3.0, 2.0, 1.5)  # atoms per cluster of the richer mixtures
# Unknowns per number of the sketch. The misfit of clusters of a wrong shape is not white noise, and
# more unknowns follow it away from the records: on correlated clusters RSSE rose up to 1.07.
MAX_UNKNOWNS = 0.2
# Price of a parameter of products. With that of Schwarz, real tables kept one atom for a cluster:
# shares were off by 4.0 points in six releases of three tables instead of 3.1.
AKAIKE_PRICE = 2.0
# Atoms that are added for the residual of a mixture, and the limit of unknowns for these: each atom
# explains a part of its own.
MAX_GROWN, MAX_GROWN_UNKNOWNS = 4, 0.4
# Iterations when atoms get individual widths or shapes, and when a richer mixture gets fewer atoms:
# python -m benchmarks constants learning SHAPE_ITERATIONS moves both.
SHAPE_ITERATIONS = 100
SIZE_ITERATIONS = 60
MIN_SAMPLES, TRIAL_SAMPLES = 500, 200  # per cluster
MAX_SAMPLE_NUMBERS, MAX_DISTANCES = 60_000, 600_000  # of a round, beyond the least number
UNDIVIDED_SHARE = 0.9  # least share of an undivided component in one cluster
# Clusters beyond which divided components get no further seeds, which take time and rarely win:
# python -m benchmarks constants learning MAX_DIVIDED
MAX_DIVIDED = 32
BETTER_COST = 0.99  # cost over that of the solution's centers below which other centers win
LLOYD_LIMITS = 30, 1e-7  # rounds at most; relative fall of the cost that is worth another one
N_SEEDS = 3  # k-means++ starts beside the centers of the solution


def choose_density(
    target: Target, atoms: Atoms, particles: Atoms, expected: float
) -> tuple[Atoms, Atoms | None]:
    """Return the best mixture of the size of `atoms`, and the best of any size.

    `atoms` are one for each cluster and `particles` a large surplus to prune, both with one width
    for all. `expected` is the cost that noise and sampling alone leave. The second mixture is None
    if the first is the best of all.
    """
    same_size = [atoms, *with_own_envelopes(target, atoms)]
    richer: list[Atoms] = []
    rich, _ = refine(target, particles, n_iterations=SHAPE_ITERATIONS)
    for size in DENSITY_SIZES:
        n_atoms = int(size * atoms.size)
        if not atoms.size < n_atoms <= rich.size:
            continue
        rich = prune(target, rich, n_atoms)
        rich, _ = refine(target, rich, n_iterations=SIZE_ITERATIONS)
        richer += [rich, *with_own_envelopes(target, rich)]

    def score(mixture: Atoms) -> float:
        return information_criterion(target, mixture, expected)

    best_same = min(same_size, key=score)
    best = min([best_same, *richer], key=score)
    return best_same, None if best is best_same else best


def grow_density(
    problem: Problem,
    target: Target,
    density: Atoms,
    expected: float,
    unit: float,
    rng: np.random.Generator,
) -> Atoms | None:
    """Add atoms for the residual of a mixture, one by one as long as they pay; None if none does.

    A new atom is the overview of the residual: one Gaussian, fitted to its low frequencies. This
    finds a small cluster that is far wider than the others, or far from them.
    """
    grown, best = None, information_criterion(target, density, expected)
    shaped = replace(density, variances=density.axis_variances())
    for _ in range(MAX_GROWN):
        residual = -residual_vector(target, shaped).reshape(2, -1)
        unexplained = replace(problem, moments=(residual[0] + 1j * residual[1]) * unit)
        overview = find_overview(unexplained, rng)
        center = overview.center[np.newaxis]
        variances = np.broadcast_to(overview.variances, center.shape)
        weight = np.array([overview.weight / unit])
        atom = Atoms(weight, center, variances, overview.shares)
        shaped = shaped.joined(atom, shared=False)
        shaped, _ = refine(target, shaped, n_iterations=SHAPE_ITERATIONS)
        score = information_criterion(target, shaped, expected, MAX_GROWN_UNKNOWNS)
        if score >= best:
            break
        grown, best = shaped, score
    return grown


def with_own_envelopes(target: Target, atoms: Atoms) -> list[Atoms]:
    """Return the atoms with individual widths, and with individual widths along every axis.

    Products always have a width for every axis.
    """
    if len(target.ends):
        return [with_shapes(target, atoms)]
    start = replace(atoms, variances=atoms.axis_variances().mean(axis=1, keepdims=True))
    spheres, _ = refine(target, start, n_iterations=SHAPE_ITERATIONS)
    return [spheres, with_shapes(target, spheres)]


def with_shapes(target: Target, atoms: Atoms) -> Atoms:
    """Return the atoms refined with individual widths along every axis."""
    start = replace(atoms, variances=atoms.axis_variances())
    return refine(target, start, n_iterations=SHAPE_ITERATIONS)[0]


def information_criterion(
    target: Target, atoms: Atoms, expected: float, richest: float = MAX_UNKNOWNS
) -> float:
    """Return Schwarz' criterion with unknown variance, floored by the noise; smaller is better.

    It is `2m log(variance) + p log(2m)` for p parameters and 2m real moments. The residual of a
    mixture is mostly its misfit and sets the scale: the variance is cost / (2m - p). The expected
    cost is added so that fitting noise does not pay. Products have tens of parameters, most of them
    shares that hardly matter: they pay 2 for each, as Akaike's criterion has it.
    """
    n_values = 2 * target.n_features
    n_unknowns = n_parameters(target, atoms)
    if n_unknowns > richest * n_values:
        return float("inf")
    misfit = cost(target, atoms) / (1 - n_unknowns / n_values)
    variance = max(misfit + expected, np.finfo(float).tiny)
    return float(n_values * np.log(variance) + n_unknowns * price_of_unknown(target))


def price_of_unknown(target: Target) -> float:
    """Return what an unknown has to gain in twice the log likelihood."""
    return AKAIKE_PRICE if len(target.ends) else math.log(2 * target.n_features)


def atoms_as_clusters(atoms: Atoms) -> Clusters:
    """Return every atom as a cluster."""
    means = np.repeat(atoms.centers[None], atoms.size, axis=0)
    return Clusters(atoms.centers, np.diag(atoms.weights), means, cost=0.0)


@dataclass(frozen=True)
class Clusters:
    """K-means clusters of a mixture.

    Attributes
    ----------
    centers : (n_clusters, dim) float64
    masses : (n_clusters, size) float64
        Weight of each component of the mixture in each cluster.
    means : (n_clusters, size, dim) float64
        Mean of a cluster's share of a component; the center if it has none.
    cost : float
        Weighted squared distance of the mixture to its centers.
    """

    centers: Floats
    masses: Floats
    means: Floats
    cost: float

    @property
    def records(self) -> Floats:
        """(n_clusters,) weight of each cluster."""
        return np.asarray(self.masses.sum(axis=1))


def sample_mixture(mixture: Atoms, rng: np.random.Generator, n_per_component: int) -> Points:
    """Return samples of a Gaussian mixture with their weights and components.

    Every component gets the same number of samples, so that small ones are resolved as well as
    large ones. Samples are antithetic pairs, so that the mean of a component is exact and a well
    separated center does not move.
    """
    size, dim = mixture.centers.shape
    n_pairs = max(1, n_per_component // 2)
    widths = np.sqrt(mixture.axis_variances()).reshape(size, 1, dim)
    half = rng.standard_normal((size, n_pairs, dim)) * widths
    positions = mixture.centers[:, None, :] + np.concatenate([half, -half], axis=1)
    return Points(
        positions.reshape(-1, dim),
        np.repeat(mixture.weights / (2 * n_pairs), 2 * n_pairs),
        np.repeat(np.arange(size), 2 * n_pairs),
    )


def default_samples(n_clusters: int, dim: int) -> int:
    """Return a number of samples that blurs the centers less than a sketch does.

    For overlapping clusters, a center of s samples has an error of about width / sqrt(s).
    """
    affordable = min(MAX_SAMPLE_NUMBERS // dim, MAX_DISTANCES // n_clusters)
    return max(MIN_SAMPLES * n_clusters, affordable)


def cluster_density(
    solution: Solution,
    rng: np.random.Generator,
    low: Floats,
    high: Floats,
    n_samples: int | None = None,
) -> Clusters:
    """Return the k-means clusters of the density of a solution.

    Lloyd's algorithm starts from the centers of the solution. If the density has other components,
    or its components overlap, k-means++ seeds are tried as well, and the centers with the smallest
    cost on the samples are returned.
    """
    density = solution.density
    centers = solution.centers
    from sklearn.cluster import kmeans_plusplus

    n_clusters = len(centers)
    if n_samples is None:
        n_samples = default_samples(*centers.shape)
    n_each = max(n_samples // density.size, 100)
    samples = sample_mixture(density, rng, n_each)
    samples = replace(samples, positions=np.clip(samples.positions, low, high))
    with one_thread():
        clusters = _clusters(samples, lloyd(samples, centers, *LLOYD_LIMITS), density.size)
        # If clusters share a component, another division may be better.
        divided = bool((clusters.masses.max(axis=0) < UNDIVIDED_SHARE * density.weights).any())
        guessed = density.size != n_clusters or (divided and n_clusters <= MAX_DIVIDED)
        if guessed and samples.weights.sum() > 0:
            step = max(1, len(samples.weights) // (TRIAL_SAMPLES * n_clusters))
            few = samples.subset(slice(None, None, step))
            starts = [clusters.centers]
            for _ in range(N_SEEDS):
                seed = int(rng.integers(2**31))
                seeds, _ = kmeans_plusplus(
                    few.positions, n_clusters, sample_weight=few.weights, random_state=seed
                )
                starts.append(lloyd(few, seeds, *LLOYD_LIMITS))
            best = min(starts, key=partial(total_cost, few))
            if best is not starts[0]:
                other = _clusters(samples, lloyd(samples, best, *LLOYD_LIMITS), density.size)
                # The mixture is an estimate: a slightly lower cost on it means nothing.
                clusters = other if other.cost < BETTER_COST * clusters.cost else clusters
    return replace(clusters, centers=np.clip(clusters.centers, low, high))


def _clusters(samples: Points, centers: Floats, size: int) -> Clusters:
    """Return the clusters of these centers with their shares of each of `size` components."""
    labels, costs = assign(samples, centers)
    n_clusters = len(centers)
    pairs = labels * size + samples.source
    mass, sums = weighted_sums(samples.positions, samples.weights, pairs, n_clusters * size)
    masses = mass.reshape(n_clusters, size)
    means = np.repeat(centers[:, None, :], size, axis=1)
    served = masses > 0
    means[served] = sums.reshape(means.shape)[served] / masses[served, None]
    return Clusters(centers, masses, means, float(costs.sum()))
