"""Data sets of the benchmarks, made from a seed.

RSSE is the squared error of a method over that of scikit-learn's KMeans (k-means++,
n_init=3) on the same raw records: 1 is as good as without privacy, below 1 is better
than that run of k-means.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from privsketch._base.types import Floats
from privsketch.models.base import nearest

Maker = Callable[[np.random.Generator], Floats]


@dataclass(frozen=True)
class DataSet:
    """A way to make records, with what is public about them."""

    name: str
    n_clusters: int
    domain: ps.Box | ps.Ball
    make: Maker
    about: str = ""
    needs: str = ""  # the folder or the package that has the records, if they are not made

    @property
    def is_here(self) -> bool:
        """Whether its records can be made on this machine."""
        return not self.needs or Path(self.needs).is_dir() or find_spec(self.needs) is not None


def seed_mixture(k: int, dim: int, n: int) -> Maker:
    """k equal Gaussians N(mu, I), mu ~ N(0, (1.5 k^(1/dim))^2 I)."""

    def make(rng: np.random.Generator) -> Floats:
        centers = rng.normal(size=(k, dim)) * 1.5 * k ** (1 / dim)
        return np.asarray(centers[rng.integers(k, size=n)] + rng.normal(size=(n, dim)))

    return make


def tight_plane(k: int, n: int, width: float) -> Maker:
    """k Gaussians of one width in the square [-1, 1]^2, centers uniform in its inner part."""

    def make(rng: np.random.Generator) -> Floats:
        centers = rng.uniform(-0.9, 0.9, (k, 2))
        return np.asarray(centers[rng.integers(k, size=n)] + width * rng.normal(size=(n, 2)))

    return make


def of_width(k: int, dim: int, n: int, factor: float) -> Maker:
    """k equal Gaussians in the box [-1, 1] of `factor` times the width that a forecast assumes.

    The centers use a quarter of the box; at 1 the clusters touch as in the seed mixture.
    """

    def make(rng: np.random.Generator) -> Floats:
        centers = rng.normal(size=(k, dim)) / 4
        width = factor / (6 * k ** (1 / dim))
        return np.asarray(centers[rng.integers(k, size=n)] + width * rng.normal(size=(n, dim)))

    return make


def along_a_curve(k: int, n: int, width: float) -> Maker:
    """k Gaussians along a figure of eight in the square [-1, 1]^2, at uneven distances."""

    def make(rng: np.random.Generator) -> Floats:
        angle = 2 * np.pi * (np.arange(k) + rng.uniform(0, 0.7, k) + rng.uniform()) / k
        centers = 0.35 * np.stack([np.cos(angle), np.sin(2 * angle)], axis=1)
        return np.asarray(centers[rng.integers(k, size=n)] + width * rng.normal(size=(n, 2)))

    return make


def unequal(k: int, dim: int, n: int, *, weights: float = 1.0, widths: float = 1.0) -> Maker:
    """Return the seed mixture with weights up to `weights` : 1 and widths up to `widths` : 1."""

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


def uniform_in_a_ball(n: int, dim: int, rng: np.random.Generator) -> Floats:
    """Points of the unit ball."""
    points = rng.normal(size=(n, dim))
    length = rng.uniform(size=(n, 1)) ** (1 / dim)
    return np.asarray(points * length / np.linalg.norm(points, axis=1, keepdims=True))


def in_a_ball(k: int, dim: int, n: int, *, weights: float = 1.0, outliers: float = 0.0) -> Maker:
    """Tight Gaussians of width 1 / (8 sqrt(dim)) with centers uniform in the unit ball.

    Weights up to `weights` : 1; a share of `outliers` is uniform in the ball.
    """

    def make(rng: np.random.Generator) -> Floats:
        centers = 0.9 * uniform_in_a_ball(k, dim, rng)
        share = np.linspace(1, weights, k)
        label = rng.choice(k, size=n, p=share / share.sum())
        records = centers[label] + rng.normal(size=(n, dim)) / (8 * np.sqrt(dim))
        n_far = round(outliers * n)
        records[:n_far] = uniform_in_a_ball(n_far, dim, rng)
        return np.asarray(records)

    return make


FASHION = Path("/usr/share/datasets/fashion-mnist")


def fashion(n_columns: int | None = None) -> Maker:
    """Fashion-MNIST (Debian's dataset-fashion-mnist): 70,000 images, or principal components."""

    def make(rng: np.random.Generator) -> Floats:
        parts = []
        for name in ("train", "t10k"):
            with gzip.open(FASHION / f"{name}-images-idx3-ubyte.gz") as file:
                parts.append(np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784))
        images = np.concatenate(parts) / np.float32(255)
        if n_columns is None:
            return np.asarray(images)
        centered = images - images.mean(axis=0)
        components = np.linalg.eigh(centered.T @ centered)[1][:, ::-1][:, :n_columns]
        return np.asarray(centered @ components, dtype=np.float64)

    return make


def stretched(k: int, dim: int, n: int) -> Maker:
    """Clusters stretched along axes of their own, in the box [-1, 1]."""

    def make(rng: np.random.Generator) -> Floats:
        parts = []
        for size in np.full(k, n // k):
            rotation, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
            noise = rng.normal(size=(size, dim)) * rng.gamma(1, 0.12, size=dim)
            parts.append(noise @ rotation + rng.uniform(-0.5, 0.5, dim))
        return np.asarray(np.clip(np.concatenate(parts), -1, 1))

    return make


def digits(n_columns: int, n: int) -> Maker:
    """Handwritten digits (scikit-learn's), principal components, resampled to n records."""

    def make(rng: np.random.Generator) -> Floats:
        from sklearn.datasets import load_digits

        images = load_digits().data / 16.0
        centered = images - images.mean(axis=0)
        components = np.linalg.svd(centered, full_matrices=False)[2][:n_columns]
        rows = (centered @ components.T)[rng.integers(len(images), size=n)]
        return np.asarray(rows + 0.02 * rng.normal(size=rows.shape))

    return make


def squared_error(records: Floats, centers: Floats) -> float:
    """Sum of squared distances to the nearest center."""
    return float(np.square(records - centers[nearest(records, centers)]).sum())


def reference_error(records: Floats, n_clusters: int, seed: int) -> float:
    """Return the cost that k-means without privacy reaches."""
    fit = KMeans(n_clusters, n_init=3, random_state=seed).fit(records)
    return float(fit.inertia_)


def _box(dim: int, half_width: float = 8.0) -> ps.Box:
    return ps.Box(-half_width, half_width, dim=dim)


def _seed(k: int, dim: int, n: int, half_width: float = 8.0) -> DataSet:
    """Return a seed mixture in a public box."""
    name = f"seed mixture k={k} d={dim} n={n:.0e}".replace("e+0", "e")
    return DataSet(name, k, _box(dim, half_width), seed_mixture(k, dim, n))


_WEIGHTS = DataSet("weights 1:20", 10, _box(10), unequal(10, 10, 100_000, weights=20))
_WIDTHS = DataSet("widths 1:4", 10, _box(10), unequal(10, 10, 100_000, widths=4))
_CORRELATED = DataSet("correlated", 10, _box(10), correlated(10, 10, 100_000))
_HEAVY = DataSet("heavy tails", 10, _box(10), heavy_tailed(10, 10, 100_000))
_DIGITS = DataSet("digits, 10 columns", 10, _box(10, 3), digits(10, 50_000))

# Data set, epsilon, delta, bound on the median RSSE.
PRIVATE: list[tuple[DataSet, float, float, float]] = [
    (_seed(10, 10, 100_000), 0.1, 1e-6, 1.005),
    (_seed(10, 10, 100_000), 0.03, 1e-6, 1.02),
    (_seed(10, 10, 100_000), 1.0, 0.0, 1.02),
    (_seed(10, 10, 100_000), 0.2, 0.0, 1.03),
    (_seed(10, 10, 100_000), 0.1, 0.0, 1.12),
    (_seed(10, 10, 1_000_000), 0.02, 0.0, 1.03),
    (_seed(10, 10, 1_000_000), 0.003, 1e-6, 1.02),
    (_seed(64, 10, 100_000), 0.3, 1e-6, 1.0),
    (_seed(64, 10, 100_000), 0.1, 1e-6, 1.08),
    (_seed(4, 8, 10_000), 1.0, 1e-6, 1.02),
    (_seed(4, 8, 10_000), 1.0, 0.0, 1.02),
    (
        DataSet("15 in the plane n=5000", 15, _box(2, 1), tight_plane(15, 5_000, 0.05)),
        1.0,
        1e-6,
        1.05,
    ),
]
# Data set, features per cluster and column, bound on RSSE in nine of ten data sets.
NOISE_FREE: list[tuple[DataSet, int, float]] = [
    (_seed(10, 10, 100_000), 4, 1.01),
    (_seed(20, 20, 100_000), 4, 1.01),
    (_seed(64, 10, 100_000, 12), 4, 1.01),
    (_seed(64, 16, 100_000, 12), 4, 1.01),
    (_seed(10, 30, 100_000), 4, 1.01),
    (_seed(4, 2, 100_000, 16), 4, 1.01),
    (_seed(15, 2, 100_000, 28), 4, 1.01),
    (_seed(100, 2, 100_000, 64), 4, 1.01),
    (_WEIGHTS, 4, 1.01),
    (_WIDTHS, 4, 1.01),
    (_CORRELATED, 4, 1.02),
    (_HEAVY, 4, 1.02),
    (_DIGITS, 10, 1.06),
]
OTHERS: list[DataSet] = [
    DataSet("3 in the plane n=1e4", 3, _box(2, 1), tight_plane(3, 10_000, 0.1)),
    DataSet("5 on a line n=1e4", 5, _box(1, 30), seed_mixture(5, 1, 10_000)),
    _WEIGHTS,
    _WIDTHS,
    _CORRELATED,
    _HEAVY,
    DataSet("64 in a ball d=10", 64, ps.Ball(10, 1.5), in_a_ball(64, 10, 100_000)),
    DataSet("k=20 d=20", 20, _box(20), seed_mixture(20, 20, 100_000)),
    DataSet("box 4 times too wide", 10, _box(10, 32), seed_mixture(10, 10, 100_000)),
    _DIGITS,
]


def _of_width(factor: float, k: int, dim: int, n: int) -> DataSet:
    name = f"width {factor:g} k={k} d={dim} n={n:.0e}".replace("e+0", "e")
    return DataSet(name, k, _box(dim, 1), of_width(k, dim, n, factor))


_CURVE = DataSet("100 along a curve", 100, _box(2, 1), along_a_curve(100, 100_000, 1 / 300))
# Data set, epsilon, delta, bound on the median RSSE: clusters of a tenth of the width that a
# forecast assumes, and of twice that width.
WIDTHS: list[tuple[DataSet, float, float, float]] = [
    (_CURVE, 1.0, 1e-6, 1.05),
    (_CURVE, 0.1, 1e-6, 1.3),
    *(
        (_of_width(factor, *size), epsilon, delta, np.nan)
        for size, epsilon, delta in [
            ((15, 2, 10_000), 1.0, 1e-6),
            ((15, 2, 10_000), 0.3, 1e-6),
            ((15, 3, 10_000), 0.3, 1e-6),
            ((20, 5, 100_000), 0.1, 1e-6),
            ((10, 10, 100_000), 0.1, 1e-6),
            ((10, 10, 100_000), 0.2, 0.0),
            ((64, 10, 100_000), 0.3, 1e-6),
        ]
        for factor in (0.1, 2.0)
    ),
]

_BALL = ps.Ball(100, 1.0)
SIXTY_FOUR = DataSet("64 in R^100 n=1e5", 64, _BALL, in_a_ball(64, 100, 100_000))
SIZES = DataSet("sizes 1:10", 64, _BALL, in_a_ball(64, 100, 100_000, weights=10))
FAR = DataSet("1 % outliers", 64, _BALL, in_a_ball(64, 100, 100_000, outliers=0.01))
BOTH = DataSet("both of these", 64, _BALL, in_a_ball(64, 100, 100_000, weights=10, outliers=0.01))
_IMAGES = ps.Ball(784, 13.0, center=0.286)
IMAGES = DataSet("Fashion-MNIST", 10, _IMAGES, fashion(), needs=str(FASHION))
# Every cell of the comparison of methods: data set, budgets.
CELLS: list[tuple[DataSet, list[tuple[float, float]]]] = [
    (
        DataSet("15 in the plane n=5000", 15, _box(2, 1), tight_plane(15, 5_000, 0.05)),
        [(0.1, 1e-6), (1.0, 1e-6), (0.1, 0.0), (0.3, 0.0), (1.0, 0.0)],
    ),
    (
        _seed(4, 8, 10_000),
        [(0.03, 1e-6), (0.1, 1e-6), (0.3, 1e-6), (1.0, 1e-6), (0.1, 0.0), (0.3, 0.0), (1.0, 0.0)],
    ),
    (
        _seed(10, 10, 100_000),
        [(0.01, 1e-6), (0.03, 1e-6), (0.1, 1e-6), (1.0, 1e-6), (0.03, 0.0), (0.1, 0.0), (1.0, 0.0)],
    ),
    (
        DataSet("stretched k=7 d=6 n=84e3", 7, _box(6, 1), stretched(7, 6, 84_000)),
        [(0.1, 1e-6), (1.0, 1e-6), (0.3, 0.0), (1.0, 0.0)],
    ),
    (
        DataSet("Fashion-MNIST, 8 columns", 10, _box(8, 12), fashion(8), needs=str(FASHION)),
        [(0.1, 1e-6), (1.0, 1e-6), (0.3, 0.0), (1.0, 0.0)],
    ),
    (IMAGES, [(0.3, 1e-6), (1.0, 1e-6), (3.0, 1e-6), (1.0, 0.0)]),
    (SIXTY_FOUR, [(0.3, 1e-6), (1.0, 1e-6), (3.0, 1e-6), (1.0, 0.0)]),
    (SIZES, [(1.0, 1e-6)]),
    (FAR, [(1.0, 1e-6)]),
    (BOTH, [(1.0, 1e-6)]),
]
