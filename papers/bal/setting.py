"""What all panels of BAL's Figure 2 share: their records, and what centres of them cost.

BAL is Balcan, Dick, Liang, Mou and Zhang, "Differentially Private Clustering in High-Dimensional
Euclidean Spaces" (2017). Its section 7 names "a mixture of 64 Gaussians in R^100", MNIST and
features of CIFAR-10; it prints no centres or widths of the mixture. Ours has centres in the unit
ball and width 1 / (8 sqrt d). Images are Fashion-MNIST, of MNIST's size and format, if the Debian
package `dataset-fashion-mnist` is installed, and scikit-learn's digits.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from privsketch._base.errors import FileError
from privsketch._base.types import Floats
from privsketch.facts.domain import Ball, Box

PAPER = "BAL 2017"
SIZES = (2, 4, 8, 16, 32, 64)  # numbers of clusters of Figure 2 (a-c)
FASHION = Path("/usr/share/datasets/fashion-mnist")
_PARTS = ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz")
_HEADER = 16  # bytes of a file of images before its pixels
_ROWS = 10_000  # records at a time
_SEED = 2017  # far from the seeds of runs: public starts are drawn in the same way


@dataclass(frozen=True, eq=False)
class Records:
    """A table and what is public about it.

    `ball` and `box` hold the records, or all but a few, which are moved to the edge. The first
    is for mechanisms with an L2 sensitivity, the second for those that add noise by column.
    """

    name: str
    table: Floats = field(repr=False)
    ball: Ball
    box: Box

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of records and columns."""
        return self.table.shape[0], self.table.shape[1]


@cache
def gaussians(n_records: int = 100_000, dim: int = 100, n_gaussians: int = 64) -> Records:
    """Round clusters of equal size whose centres are uniform in the unit ball."""
    rng = np.random.default_rng(_SEED)
    ways = rng.normal(size=(n_gaussians, dim))
    lengths = rng.random((n_gaussians, 1)) ** (1 / dim)
    centers = ways / np.linalg.norm(ways, axis=1, keepdims=True) * lengths
    table = centers[rng.integers(n_gaussians, size=n_records)]
    table += rng.normal(size=(n_records, dim)) / (8 * np.sqrt(dim))
    table.flags.writeable = False
    # In high dimension centres lie near the sphere, and half of the records just outside of it.
    ball = Ball(dim=dim, radius=1.0)
    return Records(f"{n_gaussians} Gaussians", table, ball, Box(low=-1.0, high=1.0, dim=dim))


@cache
def digits(n_records: int = 1797) -> Records:
    """Handwritten digits of 8 x 8 pixels, from 0 to 16; they come with scikit-learn."""
    from sklearn.datasets import load_digits

    table = np.asarray(load_digits().data[:n_records], dtype=np.float64)
    table.flags.writeable = False
    box = Box(low=0.0, high=16.0, dim=64)
    return Records("digits", table, Ball(dim=64, radius=64.0, center=8.0), box)


@cache
def fashion_mnist(n_records: int = 70_000) -> Records:
    """Pictures of clothes of 28 x 28 pixels, from 0 to 255."""
    pixels = []
    for name in _PARTS:
        try:
            with gzip.open(FASHION / name) as stream:
                content = stream.read()
        except (OSError, EOFError) as error:
            raise FileError(f"{FASHION / name}: cannot be read ({type(error).__name__})") from None
        pixels.append(np.frombuffer(content, dtype=np.uint8, offset=_HEADER).reshape(-1, 784))
    table = np.concatenate(pixels)[:n_records].astype(np.float64)
    table.flags.writeable = False
    # The mean pixel that is published for this data set, and the radius of our other experiments.
    ball = Ball(dim=784, radius=13.0 * 255, center=0.286 * 255)
    return Records("Fashion-MNIST", table, ball, Box(low=0.0, high=255.0, dim=784))


def records_of(data: str, size: tuple[int, ...]) -> Records:
    """Return the records of a data set: "gaussians", "digits" or "fashion"."""
    makers: dict[str, Callable[..., Records]] = {
        "gaussians": gaussians,
        "digits": digits,
        "fashion": fashion_mnist,
    }
    return makers[data](*size)


def has_fashion_mnist() -> bool:
    """Whether its files are installed."""
    return all((FASHION / name).is_file() for name in _PARTS)


def objective(table: Floats, centers: Floats) -> float:
    """Sum of squared distances to the nearest centre: what Figure 2 shows."""
    total = 0.0
    for first in range(0, len(table), _ROWS):
        some = table[first : first + _ROWS]
        scores = some @ (-2 * centers.T)
        scores += np.vecdot(centers, centers)
        total += float((scores.min(axis=1) + np.vecdot(some, some)).sum())
    return total


def without_privacy(table: Floats, n_clusters: int, seed: int) -> Floats:
    """Centres of k-means from one k-means++ start."""
    from sklearn.cluster import KMeans

    model = KMeans(n_clusters, n_init=1, max_iter=100, random_state=seed).fit(table)
    return np.asarray(model.cluster_centers_, dtype=np.float64)
