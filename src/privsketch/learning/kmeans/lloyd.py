"""Lloyd's rounds on a fitted mixture instead of on records.

Where clusters overlap, or where a mixture has more components than centres asked
for, the means of the mixture are not the centres k-means would choose. A mixture is
public once decoded, so samples of it may be drawn and clustered at no privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus

from privsketch._typing import Floats
from privsketch.learning.atoms import Atoms
from privsketch.learning.kmeans.solution import Solution
from privsketch.learning.threads import one_thread
from privsketch.models.rows import nearest

LEAST_SAMPLES, TRIAL_SAMPLES = 500, 200  # per cluster
MOST_NUMBERS, MOST_DISTANCES = 60_000, 600_000  # of a round, beyond what is needed
WHOLE = 0.9  # share of a component in one cluster from which on it is not divided
MOST_DIVIDED = 32
BETTER = 0.99  # cost over that of the solution's own centres that speaks for others
SETTLED = 1e-7  # relative fall of the cost that is worth another round


@dataclass(frozen=True)
class Clusters:
    """K-means clusters of a mixture.

    Attributes
    ----------
    centers : (n_clusters, dim) float64
    masses : (n_clusters, size) float64
        Weight of each component of the mixture that each cluster serves.
    means : (n_clusters, size, dim) float64
        Mean of what a cluster has of a component; its centre where it has nothing.
    cost : float
        Weighted squared distance of the mixture to its centres.
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
    component: NDArray[np.intp]

    def thinned(self, n: int) -> Samples:
        """About n of the samples, evenly from all components."""
        step = max(1, len(self.weights) // n)
        return Samples(self.places[::step], self.weights[::step], self.component[::step])


def sample_mixture(mixture: Atoms, rng: np.random.Generator, n_per_component: int) -> Samples:
    """Samples of a Gaussian mixture and the weight of each.

    Every component gets the same number of samples, so small ones are resolved
    as well as large ones, and they come in antithetic pairs, so that the mean of
    a component alone is exact: a well separated centre does not move.
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


def assign(centers: Floats, samples: Samples) -> tuple[NDArray[np.intp], float]:
    """Index of the nearest centre of each sample, and the weighted squared distance of all."""
    labels = nearest(samples.places, centers)
    misses = samples.places - centers[labels]
    return labels, float(samples.weights @ np.einsum("nd,nd->n", misses, misses))


def weighted_sums(labels: NDArray[np.intp], samples: Samples, n: int) -> tuple[Floats, Floats]:
    """(n,) weights and (n, dim) weighted sums of the samples of each label."""
    mass = np.bincount(labels, samples.weights, n).astype(np.float64)
    columns = [
        np.bincount(labels, samples.weights * column, n)
        for column in np.ascontiguousarray(samples.places.T)
    ]
    return mass, np.stack(columns, axis=1)


def lloyd_round(centers: Floats, samples: Samples) -> tuple[Floats, float]:
    """One round, and the cost before it; a centre that receives no weight stays where it is."""
    labels, cost = assign(centers, samples)
    mass, sums = weighted_sums(labels, samples, len(centers))
    received = mass > 0
    moved = centers.copy()
    moved[received] = sums[received] / mass[received, None]
    return moved, cost


def lloyd(centers: Floats, samples: Samples, n_rounds: int) -> Floats:
    """Rounds until the cost no longer falls, at most `n_rounds`."""
    previous = np.inf
    for _ in range(n_rounds):
        moved, cost = lloyd_round(centers, samples)
        if cost >= previous * (1 - SETTLED):
            break
        centers, previous = moved, cost
    return centers


def default_samples(n_clusters: int, dim: int) -> int:
    """Enough samples that they blur the centres less than a sketch does, in little time.

    Where clusters overlap, a centre of s samples is off by about width / sqrt(s).
    """
    affordable = min(MOST_NUMBERS // dim, MOST_DISTANCES // n_clusters)
    return max(LEAST_SAMPLES * n_clusters, affordable)


def cluster_density(
    solution: Solution,
    rng: np.random.Generator,
    low: Floats,
    high: Floats,
    n_rounds: int = 30,
    n_samples: int | None = None,
    n_seeds: int = 3,
) -> Clusters:
    """K-means clusters of the density of a solution.

    Lloyd's rounds start from the centres of the solution. If the density is not made
    of these, or its components overlap, they are no more than a guess: k-means++ seeds are
    tried as well, and the centres with the smallest cost on the samples are returned.
    """
    density = solution.density
    centers = solution.centers
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
        divided = bool((clusters.masses.max(axis=0) < WHOLE * density.weights).any())
        guessed = density.size != n_clusters or (divided and n_clusters <= MOST_DIVIDED)
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
                clusters = other if other.cost < BETTER * clusters.cost else clusters
    return replace(clusters, centers=np.clip(clusters.centers, low, high))


def _clusters(centers: Floats, samples: Samples, size: int) -> Clusters:
    """What each centre serves of each of `size` components."""
    labels, cost = assign(centers, samples)
    n_clusters = len(centers)
    mass, sums = weighted_sums(labels * size + samples.component, samples, n_clusters * size)
    masses = mass.reshape(n_clusters, size)
    means = np.repeat(centers[:, None, :], size, axis=1)
    served = masses > 0
    means[served] = sums.reshape(means.shape)[served] / masses[served, None]
    return Clusters(centers, masses, means, cost)
