"""Data sets that were there while rules of "auto" were made: of other benchmarks, of at most 30,000
records and 64 columns, kinds for which rules were made, and small tables of scikit-learn.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import privsketch as ps
from benchmarks import cells, datasets, worlds
from benchmarks.compare.cells import (
    breast_cancer,
    moons,
    patches,
    pixels,
    uniform,
    whole_digits,
    with_outliers,
)
from benchmarks.datasets import FASHION, DataSet
from benchmarks.regret.real.table import Bounds, capped, scaled
from privsketch._base.types import Floats


def _box(dim: int, half_width: float = 8.0) -> ps.Box:
    return ps.Box(-half_width, half_width, dim=dim)


def _drawn(name: str, k: int, dim: int, n: int, kind: str, about: str) -> DataSet:
    """Of a kind of worlds.py."""
    make = partial(worlds.records_of, kind, n, k, dim)
    return DataSet(name, k, _box(dim, 1), make, about)


def _sklearn(name: str, k: int, bounds: list[Bounds], about: str) -> DataSet:
    """Return a table of scikit-learn with bounds of its columns, scaled to [-1, 1]."""

    def make(rng: np.random.Generator) -> Floats:
        from sklearn import datasets as tables

        return np.clip(scaled(getattr(tables, f"load_{name}")().data, bounds), -1, 1)

    return DataSet(name, k, _box(len(bounds), 1), make, about)


_WINE: list[Bounds] = [
    *((10, 16), (0, 6), (1, 4), (10, 30), (50, 200), (0, 5), (0, 6)),
    *((0, 1), (0, 4), (0, 15), (0, 2), (1, 4), (200, 2000)),
]
_STRETCHED = datasets.stretched(7, 6, 30_000)
_OUTLIERS = with_outliers(datasets.correlated(6, 6, 30_000), 0.02, 8.0)
_BALL = datasets.in_a_ball(20, 40, 30_000)
_BOTH = datasets.in_a_ball(20, 40, 30_000, weights=10, outliers=0.01)
_FASHION = DataSet(
    "Fashion-MNIST, 8 columns",
    10,
    _box(8, 12),
    lambda rng: capped(datasets.fashion(8)(rng), rng),
    "principal components of images of clothes",
    str(FASHION),
)
KNOWN: list[DataSet] = [
    # Of compare.
    DataSet(
        "15 in the plane", 15, _box(2, 1), datasets.tight_plane(15, 5_000, 0.05), "round clusters"
    ),
    DataSet("mixture k=4", 4, _box(8), datasets.seed_mixture(4, 8, 10_000), "round clusters"),
    DataSet("mixture k=10", 10, _box(10), datasets.seed_mixture(10, 10, 30_000), "round clusters"),
    DataSet("stretched", 7, _box(6, 1), _STRETCHED, "clusters along axes of their own"),
    DataSet(
        "weights 1:20", 10, _box(10), datasets.unequal(10, 10, 30_000, weights=20), "unequal sizes"
    ),
    DataSet("correlated", 10, _box(10), datasets.correlated(10, 10, 30_000), "random covariances"),
    DataSet("heavy tails", 10, _box(10), datasets.heavy_tailed(10, 10, 30_000), "Student clusters"),
    DataSet("20 in a ball", 20, ps.Ball(40, 1.0), _BALL, "tight clusters in 40 columns"),
    DataSet("20 unequal in a ball", 20, ps.Ball(40, 1.0), _BOTH, "sizes 1:10, 1 % outliers"),
    DataSet("uniform, 5 columns", 8, _box(5, 1), uniform(5, 20_000), "no clusters"),
    DataSet("moons and a ring", 9, _box(2, 3), moons(20_000), "shapes that are no balls"),
    DataSet("stretched, 2 % outliers", 6, _box(6), _OUTLIERS, "random covariances and outliers"),
    DataSet("pixels", 8, ps.Box(0, 1, dim=3), pixels(30_000), "colours of a photograph"),
    DataSet("patches", 10, ps.Box(0, 1, dim=16), patches(4, 30_000), "4 x 4 of a photograph"),
    DataSet("breast cancer", 2, ps.Box(0, 1, dim=30), breast_cancer(), "scikit-learn's table"),
    DataSet("digits", 10, ps.Box(0, 1, dim=64), whole_digits(), "scikit-learn's images"),
    DataSet("digits, 10 columns", 10, _box(10, 3), datasets.digits(10, 30_000), "resampled"),
    _FASHION,
    # Kinds for which rules were made.
    DataSet(
        "tight and unequal",
        8,
        _box(2, 1),
        partial(cells.records_of, "tight", 6_500, 8, 2),
        "3 large and 5 small groups, 0.008 wide",
    ),
    DataSet(
        "filaments", 15, _box(2, 1), partial(cells.records_of, "filaments", 5_000, 15, 2), "curves"
    ),
    DataSet(
        "100 along a curve",
        100,
        _box(2, 1),
        datasets.along_a_curve(100, 10_000, 1 / 300),
        "tight clusters",
    ),
    DataSet("noise k=15", 15, _box(2, 1), uniform(2, 5_000), "uniform in the plane"),
    DataSet("noise k=100", 100, _box(2, 1), uniform(2, 30_000), "uniform in the plane"),
    _drawn("19 columns", 7, 19, 2_300, "uneq", "unequal clusters, few records"),
    _drawn("15 columns", 10, 15, 10_000, "gauss", "round clusters"),
    _drawn("40 columns", 8, 40, 10_000, "gauss", "round clusters"),
    _drawn("30 columns, tight", 4, 30, 3_000, "tight", "clusters of any sizes"),
    _drawn("12 columns, unequal", 15, 12, 30_000, "uneq", "unequal clusters"),
    _drawn("blob", 4, 6, 3_000, "blob", "one Gaussian"),
    _drawn("skew", 8, 8, 10_000, "skew", "most records in one corner"),
    _drawn("cities", 10, 4, 5_000, "cities", "towns of Zipf's sizes"),
    _drawn("tight, 3 columns", 8, 3, 1_000, "tight", "clusters of any sizes"),
    _drawn("a line", 5, 1, 3_000, "gauss", "clusters in one column"),
    # Small tables.
    _sklearn("iris", 3, [(4, 8), (2, 5), (1, 7), (0, 3)], "150 flowers"),
    _sklearn("wine", 3, _WINE, "178 wines, 13 measurements"),
    _sklearn("diabetes", 4, [(-0.2, 0.2)] * 10, "442 patients, scaled columns"),
]
