"""Lloyd's rounds on a fitted mixture instead of on records.

Where clusters overlap, or where a mixture has more components than centres asked
for, the means of the mixture are not the centres k-means would choose. A mixture is
public once decoded, so samples of it may be drawn and clustered at no privacy cost.
"""

import numpy as np
from sklearn.cluster import kmeans_plusplus
from threadpoolctl import threadpool_limits

from privsketch.learning.problem import Array, Solution


def sample_mixture(
    centers: Array,
    weights: Array,
    widths: Array,
    rng: np.random.Generator,
    n_per_cluster: int,
) -> tuple[Array, Array]:
    """Samples of a Gaussian mixture and the weight of each.

    Every component gets the same number of samples, so small ones are resolved
    as well as large ones, and they come in antithetic pairs, so that the mean of
    a component alone is exact: a well separated centre does not move.
    """
    n_clusters, dim = centers.shape
    n_pairs = max(1, n_per_cluster // 2)
    widths = widths.reshape(n_clusters, 1, -1)
    half = rng.standard_normal((n_clusters, n_pairs, dim)) * widths
    samples = centers[:, None, :] + np.concatenate([half, -half], axis=1)
    return samples.reshape(-1, dim), np.repeat(weights / (2 * n_pairs), 2 * n_pairs)


def assign(centers: Array, samples: Array, weights: Array) -> tuple[Array, Array, float]:
    """Mass and weighted sum of the samples nearest to each centre, and the cost of all."""
    n_clusters = len(centers)
    # |x|^2 is common to all centres and left out.
    scores = samples @ centers.T - 0.5 * np.einsum("kd,kd->k", centers, centers)
    labels = np.argmax(scores, axis=1)
    share = np.zeros((len(samples), n_clusters))
    share[np.arange(len(samples)), labels] = weights
    mass = share.sum(axis=0)
    sums = share.T @ samples
    misses = samples - centers[labels]
    return mass, sums, float(weights @ np.einsum("nd,nd->n", misses, misses))


def lloyd_round(centers: Array, samples: Array, weights: Array) -> Array:
    """One round; a centre that receives no weight stays where it is."""
    mass, sums, _ = assign(centers, samples, weights)
    received = mass > 0
    moved = centers.copy()
    moved[received] = sums[received] / mass[received, None]
    return moved


def lloyd(centers: Array, samples: Array, weights: Array, n_rounds: int) -> Array:
    """Rounds until nothing moves, at most `n_rounds`."""
    for _ in range(n_rounds):
        moved = lloyd_round(centers, samples, weights)
        if np.array_equal(moved, centers):
            break
        centers = moved
    return centers


def cluster_density(
    solution: Solution,
    rng: np.random.Generator,
    low: Array,
    high: Array,
    n_rounds: int = 30,
    samples_per_cluster: int = 500,
    n_seeds: int = 3,
) -> tuple[Array, Array]:
    """K-means centres of the density of a solution, and the records each one serves.

    Lloyd's rounds start from the centres of the solution. If the density is not made
    of these, they are no more than a guess: k-means++ seeds are tried as well, and the
    centres with the smallest cost on the samples are returned.
    """
    density = solution.density
    centers = solution.centers
    n_clusters = len(centers)
    # As many samples in all as the clusters are due, at least, and a few per component.
    n_each = max(samples_per_cluster * n_clusters // len(density.weights), 100)
    samples, weights = sample_mixture(
        density.centers, density.weights, density.axis_widths, rng, n_each
    )
    samples = np.clip(samples, low, high)
    with threadpool_limits(1):
        starts = [centers]
        if len(density.weights) != n_clusters and weights.sum() > 0:
            for _ in range(n_seeds):
                seed = int(rng.integers(2**31))
                seeds, _ = kmeans_plusplus(
                    samples, n_clusters, sample_weight=weights, random_state=seed
                )
                starts.append(seeds)
        found = [lloyd(start, samples, weights, n_rounds) for start in starts]
        best = min(found, key=lambda centers: assign(centers, samples, weights)[2])
        best = np.clip(best, low, high)
        return best, assign(best, samples, weights)[0]
