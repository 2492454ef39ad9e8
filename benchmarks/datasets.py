"""Data sets of the benchmarks, made from a seed.

RSSE is the squared error of a method over that of scikit-learn's KMeans (k-means++,
n_init=3) on the same raw records: 1 is as good as without privacy, below 1 is better
than that run of k-means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

import privsketch as ps
from privsketch.learning.model import nearest

Floats = npt.NDArray[np.float64]
Maker = Callable[[np.random.Generator], Floats]


@dataclass(frozen=True)
class DataSet:
    """A way to make records, with what is public about them."""

    name: str
    n_clusters: int
    domain: ps.Box | ps.Ball
    make: Maker


def seed_mixture(k: int, dim: int, n: int) -> Maker:
    """k equal Gaussians N(mu, I), mu ~ N(0, (1.5 k^(1/dim))^2 I)."""

    def make(rng: np.random.Generator) -> Floats:
        centers = rng.normal(size=(k, dim)) * 1.5 * k ** (1 / dim)
        return np.asarray(centers[rng.integers(k, size=n)] + rng.normal(size=(n, dim)))

    return make


def tight_plane(k: int, n: int, width: float) -> Maker:
    """k Gaussians of one width in the square [-1, 1]^2, centres uniform in its inner part."""

    def make(rng: np.random.Generator) -> Floats:
        centers = rng.uniform(-0.9, 0.9, (k, 2))
        return np.asarray(centers[rng.integers(k, size=n)] + width * rng.normal(size=(n, 2)))

    return make


def unequal(k: int, dim: int, n: int, *, weights: float = 1.0, widths: float = 1.0) -> Maker:
    """The seed mixture with weights up to `weights` : 1 and widths up to `widths` : 1."""

    def make(rng: np.random.Generator) -> Floats:
        centers = rng.normal(size=(k, dim)) * 1.5 * k ** (1 / dim)
        share = np.geomspace(1, weights, k)
        label = rng.choice(k, size=n, p=share / share.sum())
        width = np.geomspace(widths**-0.5, widths**0.5, k)
        return np.asarray(centers[label] + width[label, None] * rng.normal(size=(n, dim)))

    return make


def correlated(k: int, dim: int, n: int) -> Maker:
    """Clusters with a random covariance each, axes between 0.4 and 1.6."""

    def make(rng: np.random.Generator) -> Floats:
        centers = rng.normal(size=(k, dim)) * 1.5 * k ** (1 / dim)
        label = rng.integers(k, size=n)
        records = np.empty((n, dim))
        for cluster in range(k):
            rotation, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
            mine = label == cluster
            noise = rng.normal(size=(int(mine.sum()), dim)) * rng.uniform(0.4, 1.6, dim)
            records[mine] = centers[cluster] + noise @ rotation
        return records

    return make


def heavy_tailed(k: int, dim: int, n: int) -> Maker:
    """Student clusters with five degrees of freedom."""

    def make(rng: np.random.Generator) -> Floats:
        centers = rng.normal(size=(k, dim)) * 1.5 * k ** (1 / dim)
        tails = np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)
        noise = 0.8 * rng.normal(size=(n, dim)) / tails
        return np.asarray(centers[rng.integers(k, size=n)] + noise)

    return make


def in_a_ball(k: int, dim: int, n: int) -> Maker:
    """Tight Gaussians of width 1 / (8 sqrt(dim)) with centres uniform in the unit ball."""

    def make(rng: np.random.Generator) -> Floats:
        centers = rng.normal(size=(k, dim))
        centers *= (rng.uniform(size=(k, 1)) ** (1 / dim)) / np.linalg.norm(
            centers, axis=1, keepdims=True
        )
        noise = rng.normal(size=(n, dim)) / (8 * np.sqrt(dim))
        return np.asarray(0.9 * centers[rng.integers(k, size=n)] + noise)

    return make


def digits(n_columns: int, n: int) -> Maker:
    """Handwritten digits (scikit-learn's), principal components, resampled to n records."""

    def make(rng: np.random.Generator) -> Floats:
        from sklearn.datasets import load_digits

        images = load_digits().data / 16.0
        centred = images - images.mean(axis=0)
        components = np.linalg.svd(centred, full_matrices=False)[2][:n_columns]
        rows = (centred @ components.T)[rng.integers(len(images), size=n)]
        return np.asarray(rows + 0.02 * rng.normal(size=rows.shape))

    return make


def squared_error(records: Floats, centers: Floats) -> float:
    """Sum of squared distances to the nearest centre."""
    return float(np.square(records - centers[nearest(records, centers)]).sum())


def reference_error(records: Floats, n_clusters: int, seed: int) -> float:
    """What k-means without privacy reaches."""
    fit = KMeans(n_clusters, n_init=3, random_state=seed).fit(records)
    return float(fit.inertia_)


_BOX_10 = ps.Box(-8, 8, dim=10)
ACCEPTANCE: dict[str, DataSet] = {
    data.name: data
    for data in (
        DataSet("seed mixture k=10 d=10 n=1e5", 10, _BOX_10, seed_mixture(10, 10, 100_000)),
        DataSet("seed mixture k=4 d=8 n=1e4", 4, ps.Box(-8, 8, dim=8), seed_mixture(4, 8, 10_000)),
        DataSet("15 in the plane n=5000", 15, ps.Box(-1, 1, dim=2), tight_plane(15, 5_000, 0.05)),
    )
}
OTHERS: dict[str, DataSet] = {
    data.name: data
    for data in (
        DataSet("3 in the plane n=1e4", 3, ps.Box(-1, 1, dim=2), tight_plane(3, 10_000, 0.1)),
        DataSet("5 on a line n=1e4", 5, ps.Box(-30, 30, dim=1), seed_mixture(5, 1, 10_000)),
        DataSet("weights 1:20", 10, _BOX_10, unequal(10, 10, 100_000, weights=20)),
        DataSet("widths 1:4", 10, _BOX_10, unequal(10, 10, 100_000, widths=4)),
        DataSet("correlated", 10, _BOX_10, correlated(10, 10, 100_000)),
        DataSet("heavy tails", 10, _BOX_10, heavy_tailed(10, 10, 100_000)),
        DataSet("64 in a ball d=10", 64, ps.Ball(10, 1.5), in_a_ball(64, 10, 100_000)),
        DataSet("k=20 d=20", 20, ps.Box(-8, 8, dim=20), seed_mixture(20, 20, 100_000)),
        DataSet("box 4 times too wide", 10, ps.Box(-32, 32, dim=10), seed_mixture(10, 10, 100_000)),
        DataSet("digits, 10 columns", 10, ps.Box(-3, 3, dim=10), digits(10, 50_000)),
    )
}
