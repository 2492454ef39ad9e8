"""Richer densities than one atom per cluster, and the k-means clusters of a density.

Records need not come in `n_clusters` round clusters of one width. Clusters differ in shape, or
there are more of them than centers. Then no `n_clusters` atoms of one width explain the sketch, and
their centers are a compromise that means nothing to k-means. This file fits richer and richer
mixtures, and stops where further parameters no longer pay.

Where clusters overlap, or a mixture has more components than there are centers, its means are not
the centers that k-means would choose. A mixture is public once decoded: samples of it are drawn and
clustered by Lloyd's rounds at no privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Indices
from privsketch.learning.problem import Atoms, Problem, Target, cost, residual_vector, weighted_sums
from privsketch.learning.pruning import prune
from privsketch.learning.refine import find_overview, refine
from privsketch.learning.uncertainty import Solution
from privsketch.models.base import nearest

DENSITY_SIZES = (4.0, 3.0, 2.0, 1.5)  # atoms per cluster of the richer mixtures
# Unknowns per number of the sketch. The misfit of clusters of a wrong shape is no white noise, and
# more unknowns follow it away from the records: on correlated clusters RSSE rose up to 1.07.
MAX_UNKNOWNS = 0.2
SHAPE_ITERATIONS = 100  # when atoms get widths or shapes of their own; by trial
# Atoms that are added for what a mixture leaves, and unknowns then: each explains its own part.
MAX_GROWN, MAX_GROWN_UNKNOWNS = 4, 0.4
SIZE_ITERATIONS = 60  # when a richer mixture gets fewer atoms; by trial
MIN_SAMPLES, TRIAL_SAMPLES = 500, 200  # per cluster
MAX_NUMBERS, MAX_DISTANCES = 60_000, 600_000  # of a round, beyond what is needed
UNDIVIDED_SHARE = 0.9  # share of a component in one cluster from which on it is not divided
MAX_DIVIDED = 32  # clusters: seeds of many more were never better; by trial
BETTER_COST = 0.99  # cost over that of the solution's own centers that speaks for others
LLOYD_TOLERANCE = 1e-7  # relative fall of the cost that is worth another round


def choose_density(
    target: Target, atoms: Atoms, particles: Atoms, expected: float, low: Floats, high: Floats
) -> tuple[Atoms, Atoms | None]:
    """Return the best mixture of the size of `atoms`, and the best of any size.

    `atoms` are one for each cluster, `particles` a large surplus to be pruned, both with
    one width for all; `expected` is the cost that noise and sampling alone would leave.
    The second mixture is None where the first is the best of all.
    """
    same_size = [atoms, *with_own_envelopes(target, atoms, low, high)]
    richer: list[Atoms] = []
    rich, _ = refine(target, particles, low, high, n_iterations=SHAPE_ITERATIONS)
    for size in DENSITY_SIZES:
        n_atoms = int(size * atoms.size)
        if not atoms.size < n_atoms <= rich.size:
            continue
        rich = prune(target, rich, n_atoms)
        rich, _ = refine(target, rich, low, high, n_iterations=SIZE_ITERATIONS)
        richer += [rich, *with_own_envelopes(target, rich, low, high)]

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
    """Add atoms for what a mixture leaves unexplained, one by one as long as they pay.

    What is left is looked at as the whole was: one Gaussian, from its low frequencies. So a small
    cluster is found that is far wider than the others, or far from them. None where none pays.
    """
    low, high = problem.low, problem.high
    grown, best = None, information_criterion(target, density, expected)
    shaped = replace(density, variances=density.axis_variances())
    for _ in range(MAX_GROWN):
        left = -residual_vector(target, shaped).reshape(2, -1)
        rest = replace(problem, moments=(left[0] + 1j * left[1]) * unit)
        overview = find_overview(rest, rng)
        atom = Atoms(
            np.array([overview.weight / unit]),
            overview.center[np.newaxis],
            np.full((1, len(low)), overview.variance),
        )
        shaped = Atoms(
            *(
                np.concatenate([getattr(part, name) for part in (shaped, atom)])
                for name in ("weights", "centers", "variances")
            )
        )
        shaped, _ = refine(target, shaped, low, high, n_iterations=SHAPE_ITERATIONS)
        score = information_criterion(target, shaped, expected, MAX_GROWN_UNKNOWNS)
        if score >= best:
            break
        grown, best = shaped, score
    return grown


def with_own_envelopes(target: Target, atoms: Atoms, low: Floats, high: Floats) -> list[Atoms]:
    """Return the atoms with a width each, and with a width along every axis each."""
    start = replace(atoms, variances=atoms.axis_variances().mean(axis=1, keepdims=True))
    spheres, _ = refine(target, start, low, high, n_iterations=SHAPE_ITERATIONS)
    return [spheres, with_shapes(target, spheres, low, high)]


def with_shapes(target: Target, atoms: Atoms, low: Floats, high: Floats) -> Atoms:
    """Give every atom a width of its own along every axis and refine."""
    start = replace(atoms, variances=atoms.axis_variances())
    return refine(target, start, low, high, n_iterations=SHAPE_ITERATIONS)[0]


def information_criterion(
    target: Target, atoms: Atoms, expected: float, richest: float = MAX_UNKNOWNS
) -> float:
    """Return Schwarz' criterion with unknown variance, floored by the noise; small is good.

    `2m log(variance) + p log(2m)` for p parameters and 2m real moments. What a mixture
    leaves unexplained is mostly its misfit, so it sets the scale of what is worth
    explaining: the variance is cost / (2m - p). Adding the expected cost takes the
    profit out of fitting noise.
    """
    n_values = 2 * target.n_features
    n_parameters = atoms.weights.size + atoms.centers.size + atoms.variances.size
    if n_parameters > richest * n_values:
        return float("inf")
    misfit = cost(target, atoms) / (1 - n_parameters / n_values)
    variance = max(misfit + expected, np.finfo(float).tiny)
    return float(n_values * np.log(variance) + n_parameters * np.log(n_values))


def each_its_own(atoms: Atoms) -> Clusters:
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
        Weight of each component of the mixture that each cluster serves.
    means : (n_clusters, size, dim) float64
        Mean of what a cluster has of a component; its center where it has nothing.
    cost : float
        Weighted squared distance of the mixture to its centers.
    """

    centers: Floats
    masses: Floats
    means: Floats
    cost: float

    @property
    def records(self) -> Floats:
        """(n_clusters,) weight that each cluster serves."""
        return np.asarray(self.masses.sum(axis=1))


@dataclass(frozen=True)
class Samples:
    """Samples of a mixture, (n, dim), the weight of each, and its component."""

    places: Floats
    weights: Floats
    component: Indices

    def thinned(self, n: int) -> Samples:
        """Return about n of the samples, evenly from all components."""
        step = max(1, len(self.weights) // n)
        return Samples(self.places[::step], self.weights[::step], self.component[::step])


def sample_mixture(mixture: Atoms, rng: np.random.Generator, n_per_component: int) -> Samples:
    """Return samples of a Gaussian mixture and the weight of each.

    Every component gets the same number of samples, so small ones are resolved
    as well as large ones, and they come in antithetic pairs, so that the mean of
    a component alone is exact: a well separated center does not move.
    """
    size, dim = mixture.centers.shape
    n_pairs = max(1, n_per_component // 2)
    widths = np.sqrt(mixture.axis_variances()).reshape(size, 1, dim)
    half = rng.standard_normal((size, n_pairs, dim)) * widths
    places = mixture.centers[:, None, :] + np.concatenate([half, -half], axis=1)
    return Samples(
        places.reshape(-1, dim),
        np.repeat(mixture.weights / (2 * n_pairs), 2 * n_pairs),
        np.repeat(np.arange(size), 2 * n_pairs),
    )


def assign(centers: Floats, samples: Samples) -> tuple[Indices, float]:
    """Return the nearest center of each sample, and the weighted squared distance of all."""
    labels = nearest(samples.places, centers)
    misses = samples.places - centers[labels]
    return labels, float(samples.weights @ np.einsum("nd,nd->n", misses, misses))


def lloyd_round(centers: Floats, samples: Samples) -> tuple[Floats, float]:
    """Return the centers after one round, and the cost before; centers without weight stay."""
    labels, cost = assign(centers, samples)
    mass, sums = weighted_sums(samples.places, samples.weights, labels, len(centers))
    received = mass > 0
    moved = centers.copy()
    moved[received] = sums[received] / mass[received, None]
    return moved, cost


def lloyd(centers: Floats, samples: Samples, n_rounds: int) -> Floats:
    """Run rounds until the cost no longer falls, at most `n_rounds`."""
    previous = np.inf
    for _ in range(n_rounds):
        moved, cost = lloyd_round(centers, samples)
        if cost >= previous * (1 - LLOYD_TOLERANCE):
            break
        centers, previous = moved, cost
    return centers


def default_samples(n_clusters: int, dim: int) -> int:
    """Return a number of samples that blurs the centers less than a sketch does.

    Where clusters overlap, a center of s samples is off by about width / sqrt(s).
    """
    affordable = min(MAX_NUMBERS // dim, MAX_DISTANCES // n_clusters)
    return max(MIN_SAMPLES * n_clusters, affordable)


def cluster_density(
    solution: Solution,
    rng: np.random.Generator,
    low: Floats,
    high: Floats,
    n_rounds: int = 30,
    n_samples: int | None = None,
    n_seeds: int = 3,
) -> Clusters:
    """Return the k-means clusters of the density of a solution.

    Lloyd's rounds start from the centers of the solution. If the density is not made
    of these, or its components overlap, they are no more than a guess: k-means++ seeds are
    tried as well, and the centers with the smallest cost on the samples are returned.
    """
    density = solution.density
    centers = solution.centers
    from sklearn.cluster import kmeans_plusplus

    n_clusters = len(centers)
    if n_samples is None:
        n_samples = default_samples(*centers.shape)
    n_each = max(n_samples // density.size, 100)
    samples = sample_mixture(density, rng, n_each)
    samples = replace(samples, places=np.clip(samples.places, low, high))
    with one_thread():
        clusters = _clusters(lloyd(centers, samples, n_rounds), samples, density.size)
        # Where clusters share a component, another division may be better; seeds of very many
        # clusters never are.
        divided = bool((clusters.masses.max(axis=0) < UNDIVIDED_SHARE * density.weights).any())
        guessed = density.size != n_clusters or (divided and n_clusters <= MAX_DIVIDED)
        if guessed and samples.weights.sum() > 0:
            few = samples.thinned(TRIAL_SAMPLES * n_clusters)
            starts = [clusters.centers]
            for _ in range(n_seeds):
                seed = int(rng.integers(2**31))
                seeds, _ = kmeans_plusplus(
                    few.places, n_clusters, sample_weight=few.weights, random_state=seed
                )
                starts.append(lloyd(seeds, few, n_rounds))
            best = min(starts, key=lambda start: assign(start, few)[1])
            if best is not starts[0]:
                other = _clusters(lloyd(best, samples, n_rounds), samples, density.size)
                # The mixture is itself an estimate: a little better on it means nothing.
                clusters = other if other.cost < BETTER_COST * clusters.cost else clusters
    return replace(clusters, centers=np.clip(clusters.centers, low, high))


def _clusters(centers: Floats, samples: Samples, size: int) -> Clusters:
    """Return what each center serves of each of `size` components."""
    labels, cost = assign(centers, samples)
    n_clusters = len(centers)
    cells = labels * size + samples.component
    mass, sums = weighted_sums(samples.places, samples.weights, cells, n_clusters * size)
    masses = mass.reshape(n_clusters, size)
    means = np.repeat(centers[:, None, :], size, axis=1)
    served = masses > 0
    means[served] = sums.reshape(means.shape)[served] / masses[served, None]
    return Clusters(centers, masses, means, cost)
