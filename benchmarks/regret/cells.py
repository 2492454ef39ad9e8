"""Cells of the regret of "auto": data sets seen before and unseen, and a rule for their budgets.

Budgets follow from numbers of records n, clusters k and columns d by one rule for all data sets,
in which noise in the middle of an average cluster is some hundredths of the domain:

    (1, 1e-6);
    (e, 1e-6) with the e of EPSILONS that is nearest to 90 k sqrt(d) / n, if it is not 1;
    (e, 0) with the e of EPSILONS that is nearest to 100 k d / n;

nearest by logarithm. SEEN are data sets of other benchmarks (of at most 30,000 records and 64
columns), and kinds on which the rules of "auto" were made. UNSEEN are those of real.py and
families.py: nothing of ours was run on them before the rules stood.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import privsketch as ps
from benchmarks import cells, datasets, worlds
from benchmarks.compare.cells import (
    DELTA,
    Budgets,
    Setting,
    breast_cancer,
    moons,
    patches,
    pixels,
    uniform,
    whole_digits,
    with_outliers,
)
from benchmarks.datasets import FASHION, DataSet, Maker
from benchmarks.regret.families import FAMILIES
from benchmarks.regret.real import MOST, REAL
from privsketch._typing import Floats

EPSILONS = (0.1, 0.3, 1.0, 3.0)
METHODS = ("auto", "sketch", "pipeline", "lloyd")
GRID_METHODS = ("cells", "grid")  # beyond GRID_COLUMNS a grid has two cells along each axis
GRID_COLUMNS = worlds.CELL_DIMS


def budgets_of(n: int, k: int, dim: int) -> Budgets:
    """The budgets of a data set, by the rule above."""

    def nearest(epsilon: float) -> float:
        return min(EPSILONS, key=lambda known: abs(np.log(known / epsilon)))

    with_delta = {1.0: DELTA, nearest(90 * k * dim**0.5 / n): DELTA}
    return [*with_delta.items(), (nearest(100 * k * dim / n), 0.0)]


def setting_of(data: DataSet, repetitions: int, only: Budgets | None = None) -> Setting:
    """A data set with its budgets, or some of them, and the methods that are run on it."""
    dim = len(data.domain.half_widths)
    methods = METHODS + GRID_METHODS if dim <= GRID_COLUMNS else METHODS
    if only is None:
        n = len(data.make(np.random.default_rng(0)))
        only = budgets_of(n, data.n_clusters, dim)
    return Setting(data, only, repetitions, methods)


def _box(dim: int, half_width: float = 8.0) -> ps.Box:
    return ps.Box(-half_width, half_width, dim=dim)


def _capped(make: Maker) -> Maker:
    """At most MOST of the records."""

    def made(rng: np.random.Generator) -> Floats:
        records = make(rng)
        return np.asarray(records[rng.choice(len(records), MOST, replace=False)])

    return made


def _drawn(name: str, k: int, dim: int, n: int, kind: str, about: str) -> DataSet:
    """Of a kind of worlds.py."""
    make = partial(worlds.records_of, kind, n, k, dim)
    return DataSet(name, k, _box(dim, 1), make, about)


def _sklearn(name: str, k: int, bounds: list[tuple[float, float]], about: str) -> DataSet:
    """A table of scikit-learn with bounds of its columns, scaled to [-1, 1]."""

    def make(rng: np.random.Generator) -> Floats:
        from sklearn import datasets as tables

        values = getattr(tables, f"load_{name}")().data
        low, high = np.array(bounds).T
        return np.asarray(np.clip(2 * (values - low) / (high - low) - 1, -1, 1))

    return DataSet(name, k, _box(len(bounds), 1), make, about)


_WINE: list[tuple[float, float]] = [
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
    _capped(datasets.fashion(8)),
    "principal components of images of clothes",
    str(FASHION),
)
SEEN: list[DataSet] = [
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
UNSEEN: list[DataSet] = [*REAL, *FAMILIES]
