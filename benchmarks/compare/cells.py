"""Cells of the comparison: data sets, and the budgets that each is clustered under.

Most data sets are those of datasets.py, on which plans and constants were tried. Those of FRESH
were added for the comparison and nothing was ever chosen by looking at them: records without
clusters, shapes that are no balls, pixels and patches of a photograph, and two real tables of
few records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import privsketch as ps
from benchmarks.datasets import (
    BOTH,
    CELLS,
    FAR,
    IMAGES,
    OTHERS,
    PRIVATE,
    SIXTY_FOUR,
    SIZES,
    DataSet,
    Maker,
    correlated,
)
from privsketch._base.types import Floats

DELTA = 1e-6
Budgets = list[tuple[float, float]]


@dataclass(frozen=True)
class Setting:
    """A data set, the budgets it is clustered under, and how often: less where runs are long.

    `methods` are those of the package that are run: all if there are none.
    """

    data: DataSet
    budgets: Budgets
    repetitions: int = 5
    methods: tuple[str, ...] = ()


def budgets(with_delta: tuple[float, ...], pure: tuple[float, ...]) -> Budgets:
    """Epsilons with a delta, and epsilons without."""
    return [(epsilon, DELTA) for epsilon in with_delta] + [(epsilon, 0.0) for epsilon in pure]


def uniform(dim: int, n: int) -> Maker:
    """Draw records uniformly from the box [-1, 1]: there are no clusters."""
    return lambda rng: rng.uniform(-1, 1, (n, dim))


def moons(n: int) -> Maker:
    """Two half circles that reach into each other, and a ring around both."""

    def make(rng: np.random.Generator) -> Floats:
        angle = rng.uniform(0, np.pi, n)
        points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        part = rng.choice(3, size=n, p=(0.35, 0.35, 0.3))
        points[part == 1] = (1.0, 0.5) - points[part == 1]
        turned = 2 * angle[part == 2]
        ring = np.stack([np.cos(turned), np.sin(turned)], axis=1)
        points[part == 2] = (0.5, 0.25) + 2.2 * ring
        return np.asarray(points + 0.08 * rng.normal(size=(n, 2)))

    return make


def with_outliers(make: Maker, share: float, half_width: float) -> Maker:
    """Draw records of which a share lies anywhere in the box."""

    def made(rng: np.random.Generator) -> Floats:
        records = make(rng)
        far = rng.random(len(records)) < share
        records[far] = rng.uniform(-half_width, half_width, (int(far.sum()), records.shape[1]))
        return records

    return made


def pixels(n: int) -> Maker:
    """Colours of pixels of a photograph (scikit-learn's china.jpg), 0 to 1."""

    def make(rng: np.random.Generator) -> Floats:
        from sklearn.datasets import load_sample_image

        colours = load_sample_image("china.jpg").reshape(-1, 3)
        return np.asarray(rng.choice(colours, size=n, replace=False) / 255.0)

    return make


def patches(side: int, n: int) -> Maker:
    """Square patches of that photograph in grey, 0 to 1."""

    def make(rng: np.random.Generator) -> Floats:
        from sklearn.datasets import load_sample_image

        grey = load_sample_image("china.jpg").mean(axis=2) / 255.0
        windows = np.lib.stride_tricks.sliding_window_view(grey, (side, side))
        row = rng.integers(windows.shape[0], size=n)
        return np.asarray(windows[row, rng.integers(windows.shape[1], size=n)].reshape(n, -1))

    return make


def breast_cancer() -> Maker:
    """569 tumours, 30 measurements, each over the largest value its description prints."""

    def make(rng: np.random.Generator) -> Floats:
        from sklearn.datasets import load_breast_cancer

        table = load_breast_cancer().data
        return np.asarray(table / table.max(axis=0))

    return make


def whole_digits() -> Maker:
    """1,797 handwritten digits of 64 pixels, 0 to 1."""

    def make(rng: np.random.Generator) -> Floats:
        from sklearn.datasets import load_digits

        return np.asarray(load_digits().data / 16.0)

    return make


def _unit(dim: int) -> ps.Box:
    return ps.Box(0, 1, dim=dim)


_AXES = with_outliers(correlated(6, 6, 50_000), 0.02, 8.0)
FRESH: list[Setting] = [
    Setting(
        DataSet("uniform d=5 n=2e4", 8, ps.Box(-1, 1, dim=5), uniform(5, 20_000)),
        budgets((0.1, 1.0), (0.1, 1.0)),
    ),
    Setting(
        DataSet("moons and a ring n=2e4", 9, ps.Box(-3, 3, dim=2), moons(20_000)),
        budgets((0.1, 1.0), (0.1, 1.0)),
    ),
    Setting(
        DataSet("stretched, 2 % outliers", 6, ps.Box(-8, 8, dim=6), _AXES),
        budgets((0.1, 1.0), (0.1, 1.0)),
    ),
    Setting(
        DataSet("pixels n=5e4", 8, _unit(3), pixels(50_000)), budgets((0.03, 0.3), (0.03, 0.3, 1.0))
    ),
    Setting(
        DataSet("patches d=16 n=5e4", 10, _unit(16), patches(4, 50_000)),
        budgets((0.1, 1.0), (0.3, 1.0, 3.0)),
        3,
    ),
    Setting(
        DataSet("breast cancer n=569", 2, _unit(30), breast_cancer()),
        budgets((1.0, 3.0), (1.0, 3.0)),
    ),
    Setting(
        DataSet("digits d=64 n=1797", 10, _unit(64), whole_digits()),
        budgets((1.0, 3.0), (1.0, 3.0)),
    ),
]
_NAMED = {
    data.name: data for data in [row[0] for row in CELLS] + [row[0] for row in PRIVATE] + OTHERS
}
_ALL = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
GRID: list[Setting] = [
    Setting(_NAMED["seed mixture k=10 d=10 n=1e5"], budgets(_ALL, _ALL), 3),
    Setting(
        _NAMED["seed mixture k=10 d=10 n=1e6"],
        budgets((0.003, 0.01, 0.1), (0.01, 0.1)),
        2,
    ),
    Setting(_NAMED["seed mixture k=4 d=8 n=1e4"], budgets(_ALL[1:], _ALL[1:])),
    Setting(_NAMED["15 in the plane n=5000"], budgets(_ALL[2:], _ALL[2:])),
    Setting(IMAGES, budgets((0.3, 1.0, 3.0), (1.0,)), 2),
    Setting(_NAMED["Fashion-MNIST, 8 columns"], budgets((0.1, 1.0), (0.3, 1.0)), 3),
    Setting(SIXTY_FOUR, budgets((0.3, 1.0, 3.0), (1.0,)), 2),
    Setting(SIZES, budgets((1.0,), ()), 2),
    Setting(FAR, budgets((1.0,), ()), 2),
    Setting(BOTH, budgets((1.0,), ()), 2),
    Setting(_NAMED["stretched k=7 d=6 n=84e3"], budgets((0.1, 1.0), (0.3, 1.0)), 3),
    Setting(_NAMED["weights 1:20"], budgets((0.1,), (0.3,)), 3),
    Setting(_NAMED["correlated"], budgets((0.1,), (0.3,)), 3),
    Setting(_NAMED["heavy tails"], budgets((0.1,), (0.3,)), 3),
    *FRESH,
]
QUICK: list[Setting] = [
    Setting(_NAMED["seed mixture k=4 d=8 n=1e4"], budgets((0.1, 1.0), (0.1, 1.0))),
    Setting(_NAMED["15 in the plane n=5000"], budgets((0.1, 1.0), (0.1, 1.0))),
    Setting(FRESH[3].data, budgets((0.3,), (0.3,))),
]
