"""How often -k auto finds the number of clusters, on 70 kinds of sets with separated clusters.

    python -m benchmarks number                    all kinds, with the table of benchmarks/README.md
    python -m benchmarks number --group first      the kinds that methods were developed on
    python -m benchmarks number --only waves --output number.csv

Clusters are far enough apart that k-means without privacy leaves no doubt: between the means of two
lie at least six to eight of their standard deviations, and no record of one is nearer to the mean
of another. Their shapes differ: round, long, correlated, skewed, with heavy tails or none, whole
numbers, many sizes, on a background. A set is released where noise leaves its smallest cluster
visible: the sums of that cluster's records alone, squared, over the variance of the noise, are at
least `VISIBLE` times what the best place of a search gains by chance. Cells are measured where two
of them lie between any two clusters.

The first kinds took part in the development of the search; the second were looked at once, when it
seemed finished, and led to one more rule; the third were written after that, and run once. Every
set is planned for `MAX_CLUSTERS`, which is also the most that is considered.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import privsketch as ps
from benchmarks.common import markdown, parser_of
from privsketch._base.types import Floats, Indices
from privsketch.learning.concerns import cell_sides, resolution

MAX_CLUSTERS = 30
SIZES = (100_000, 15_000, 4_000)  # records
BUDGETS = ((1.0, 1e-6), (0.3, 1e-6), (1.0, 0.0))
CELL_COLUMNS = 4  # up to which cells are measured as well
VISIBLE = 5.0
Shape = Callable[[Indices, int, np.random.Generator], Floats]


def gaussian(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return round clusters."""
    return rng.standard_normal((len(z), dim))


def widths(least: float) -> Shape:
    """Return round clusters whose widths grow evenly from `least` to 1."""
    return lambda z, dim, rng: (
        np.linspace(least, 1, int(z.max()) + 1)[z, None] * gaussian(z, dim, rng)
    )


def correlated(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return clusters with axes of 0.2 to 1 in random directions."""
    values = gaussian(z, dim, rng) * np.linspace(0.2, 1, dim)
    for cluster in range(int(z.max()) + 1):
        rotation, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
        values[z == cluster] = values[z == cluster] @ rotation
    return values


def needles(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return clusters that are six times as long along one column as along the others."""
    values = gaussian(z, dim, rng)
    return np.where(np.arange(dim) == (z % dim)[:, None], 1.0, 1 / 6) * values


def student(freedom: int) -> Shape:
    """Return clusters with heavy tails in all directions."""
    return lambda z, dim, rng: (
        0.8 * gaussian(z, dim, rng) / np.sqrt(rng.chisquare(freedom, (len(z), 1)) / freedom)
    )


def laplace(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return clusters with a peak along every column."""
    return rng.laplace(0, math.sqrt(0.5), (len(z), dim))


def uniform(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return cubes."""
    return rng.uniform(-1.7, 1.7, (len(z), dim))


def balls(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return filled balls."""
    values = gaussian(z, dim, rng)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(math.sqrt(dim + 2) * values * rng.random((len(z), 1)) ** (1 / dim))


def lognormal(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return clusters that are skewed along every column."""
    values = np.exp(0.8 * gaussian(z, dim, rng))
    mean, spread = math.exp(0.32), math.sqrt((math.exp(0.64) - 1) * math.exp(0.64))
    return np.asarray(np.minimum((values - mean) / spread, 6.0))


def exponential(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return clusters that have an edge at one end of every column."""
    return np.asarray(np.minimum(rng.exponential(1, (len(z), dim)) - 1, 6.0))


def gamma(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return clusters that are a little skewed along every column."""
    return rng.gamma(3, 3**-0.5, (len(z), dim)) - 3**0.5


def logistic(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return clusters with slightly heavy tails along every column."""
    return rng.logistic(0, math.sqrt(3) / math.pi, (len(z), dim))


def triangular(z: Indices, dim: int, rng: np.random.Generator) -> Floats:
    """Return clusters with a peak and ends along every column."""
    return rng.triangular(-math.sqrt(6), 0, math.sqrt(6), (len(z), dim))


@dataclass(frozen=True)
class Kind:
    """A kind of set: its clusters, and what was done to its records."""

    name: str
    k: int
    dim: int
    shape: Shape = gaussian
    distance: float = 6.0
    weights: float = 1.0  # of the largest cluster over that of the smallest
    background: float = 0.0  # share of the records spread over the box
    box: float = 1.0  # half width of the domain over that of the records
    whole: bool = False  # records are rounded to whole numbers
    own: bool = False  # every column has bounds of its own, not those of the widest


FIRST = (
    Kind("round", 3, 2),
    Kind("round", 12, 5, box=2),
    Kind("round", 25, 10),
    Kind("round", 2, 1),
    Kind("round", 10, 20),
    Kind("weights 1:10", 8, 4, weights=10),
    Kind("widths 0.4-1", 10, 3, widths(0.4)),
    Kind("correlated", 6, 5, correlated),
    Kind("Student 4", 7, 6, student(4), 8, box=2),
    Kind("cubes", 9, 3, uniform),
    Kind("cubes", 15, 8, uniform, own=True),
    Kind("lognormal", 5, 4, lognormal, 8, box=2),
    Kind("exponential", 4, 2, exponential, 8),
    Kind("whole numbers", 6, 3, whole=True, box=3),
    Kind("background 3 %", 8, 5, background=0.03),
    Kind("wide box", 5, 4, box=10),
    Kind("one lognormal", 1, 3, lognormal, own=True),
    Kind("one round", 1, 8),
    Kind("one exponential", 1, 1, exponential),
    Kind("lognormal, weights 1:5", 8, 6, lognormal, 8, weights=5),
)
SECOND = (
    Kind("round", 6, 1),
    Kind("round", 20, 3, box=2),
    Kind("round", 16, 15),
    Kind("weights 1:10", 5, 10, weights=10),
    Kind("widths 0.3-1", 7, 8, widths(0.3)),
    Kind("correlated, weights 1:5", 4, 3, correlated, weights=5, box=2),
    Kind("needles", 5, 4, needles, own=True),
    Kind("Student 3", 4, 4, student(3), 8),
    Kind("Laplace", 10, 10, laplace, 8, box=2),
    Kind("balls", 6, 2, balls),
    Kind("lognormal", 3, 8, lognormal, 8),
    Kind("exponential", 8, 5, exponential, 8, box=3),
    Kind("gamma", 15, 2, gamma, 8, own=True),
    Kind("whole numbers", 10, 6, whole=True),
    Kind("background 5 %", 5, 3, background=0.05),
    Kind("wide box", 12, 6, box=10),
    Kind("one cube", 1, 2, uniform),
    Kind("one Student 4", 1, 5, student(4)),
    Kind("cubes, weights 1:10", 3, 1, uniform, weights=10),
    Kind("one correlated", 1, 4, correlated),
)
THIRD = (
    Kind("round", 4, 2),
    Kind("round", 7, 4, box=3),
    Kind("round", 18, 6),
    Kind("round", 9, 12),
    Kind("round", 24, 4),
    Kind("round", 14, 25),
    Kind("weights 1:20", 6, 3, weights=20),
    Kind("weights 1:5", 12, 7, weights=5),
    Kind("widths 0.3-1", 12, 6, widths(0.3)),
    Kind("widths 0.5-1, weights 1:5", 5, 2, widths(0.5), weights=5),
    Kind("correlated", 10, 8, correlated),
    Kind("correlated", 3, 2, correlated, own=True),
    Kind("needles", 8, 6, needles, box=2),
    Kind("Student 5", 5, 2, student(5), 8),
    Kind("Student 4", 10, 8, student(4), 8),
    Kind("Laplace", 6, 3, laplace, 8),
    Kind("logistic", 13, 5, logistic, 7),
    Kind("triangular", 7, 3, triangular),
    Kind("balls", 11, 7, balls, box=2),
    Kind("cubes", 5, 6, uniform),
    Kind("lognormal", 4, 5, lognormal, 8, box=2),
    Kind("exponential", 6, 6, exponential, 8, own=True),
    Kind("gamma", 9, 4, gamma, 8),
    Kind("whole numbers", 4, 2, whole=True, box=5),
    Kind("background 4 %", 10, 6, background=0.04),
    Kind("wide box", 8, 3, box=8),
    Kind("wide box", 4, 8, box=8),
    Kind("one gamma", 1, 2, gamma),
    Kind("one ball", 1, 6, balls),
    Kind("one Laplace", 1, 3, laplace, own=True),
)
GROUPS = {"first": FIRST, "second": SECOND, "third": THIRD}


def drawn(kind: Kind, number: int, n: int) -> tuple[Floats, Indices]:
    """Return records, and the cluster of each; -1 for the background."""
    rng = np.random.default_rng([number, kind.k, kind.dim, 34])
    scale = 0.37 * kind.distance * kind.k ** (1 / kind.dim)
    while True:
        centers = rng.normal(size=(kind.k, kind.dim)) * scale
        distances = np.linalg.norm(centers[:, None] - centers, axis=2) + 999 * np.eye(kind.k)
        if distances.min() >= kind.distance:
            break
        scale *= 1.02
    share = np.geomspace(1, kind.weights, kind.k)
    z = rng.choice(kind.k, n, p=share / share.sum())
    records = centers[z] + kind.shape(z, kind.dim, rng)
    if kind.background:
        z = np.where(rng.random(n) < kind.background, -1, z)
        low, high = records.min(axis=0), records.max(axis=0)
        spread = rng.uniform(low, high, records.shape)
        records = np.where(z[:, None] < 0, spread, records)
    return np.rint(records) if kind.whole else records, z


@dataclass(frozen=True)
class Result:
    """What -k auto answered."""

    group: str
    kind: str
    k: int
    dim: int
    n: int
    features: str
    epsilon: float
    delta: float
    found: int
    told: bool  # whether the model says that there may be more
    seconds: float

    @property
    def close(self) -> bool:
        """Whether the number is off by at most a fifth."""
        return abs(self.found - self.k) <= self.k / 5


def visible(sketch: ps.Sketch, records: Floats, z: Indices, kind: Kind) -> bool:
    """Return whether noise leaves the smallest cluster in sight, and cells tell clusters apart."""
    design, sizes = sketch.design, np.bincount(z[z >= 0])
    energy = float(sizes.min()) ** 2  # of cells, if the cluster were in one
    if design.cells is None:
        few = records[z == sizes.argmin()][:4000] - design.domain.center_vector
        means = np.exp(1j * (few @ design.radians().T)).mean(axis=0)
        energy *= float(np.square(np.abs(means)).sum())
    elif kind.k > 1 and cell_sides(design).max() > kind.distance / 2:
        return False
    places = np.log(np.maximum(design.domain.half_widths / resolution(design), 1.0)).sum()
    chance = 2 * float(places) + design.dim + 2
    return energy / sketch.noise_variance >= VISIBLE * chance


def released(
    kind: Kind, number: int, n: int, features: str, epsilon: float, delta: float
) -> ps.Sketch | None:
    """Return a sketch of a set; None if noise hides its smallest cluster."""
    records, z = drawn(kind, number, n)
    # Bounds are made up here, public in a study.
    low, high = np.floor(np.quantile(records, [0.0005, 0.9995], axis=0))
    high += 1
    if not kind.own:
        reach = kind.box * max(float(-low.min()), float(high.max()))
        low, high = np.full((2, kind.dim), reach) * [[-1], [1]]
    records = np.clip(records, low, high)
    design = ps.Design.plan(
        n_components=MAX_CLUSTERS,
        domain=ps.Box(low, high),
        budget=ps.Budget(epsilon, delta),
        n_records=n,
        random_state=number,
        feature_map="cells" if features == "cells" else "fourier",
    )
    sketch = ps.sketch(records, design)
    return sketch if visible(sketch, records, z, kind) else None


def sketches(
    group: str, only: str | None = None
) -> Iterator[tuple[Kind, int, str, float, float, ps.Sketch]]:
    """Yield sketches of all kinds, sizes and budgets of a group in which the clusters are seen."""
    for number, kind in enumerate(GROUPS[group]):
        for features, n, (epsilon, delta) in product(("waves", "cells"), SIZES, BUDGETS):
            if features == "cells" and (kind.dim > CELL_COLUMNS or delta == 0):
                continue  # noise in cells does not use a delta
            if only in (None, features):
                sketch = released(kind, number, n, features, epsilon, delta)
                if sketch is not None:
                    yield kind, n, features, epsilon, delta, sketch


def results(group: str, only: str | None) -> Iterator[Result]:
    """Yield what -k auto answers for all sketches of a group."""
    for kind, n, features, epsilon, delta, sketch in sketches(group, only):
        start = time.process_time()
        model = ps.learn_kmeans(sketch, "auto", max_clusters=MAX_CLUSTERS)
        seconds = time.process_time() - start
        told = any("hide" in each or "clusters may be up to" in each for each in model.concerns)
        yield Result(
            *(group, kind.name, kind.k, kind.dim, n, features, epsilon, delta),
            *(model.n_clusters, told, seconds),
        )


def table(rows: list[Result]) -> str:
    """Return shares of right numbers, by features and budget."""

    def place(row: Result) -> tuple[str, str, float, float]:
        return row.group, row.features, -row.delta, -row.epsilon

    lines = []
    for group, features, delta, epsilon in sorted(set(map(place, rows))):
        of = [row for row in rows if place(row) == (group, features, delta, epsilon)]
        right, close = sum(row.found == row.k for row in of), sum(row.close for row in of)
        seconds = float(np.median([row.seconds for row in of]))
        budget = f"{-epsilon:g}" + (", 1e-6" if delta else ", pure")
        lines.append(
            [
                group,
                features,
                budget,
                f"{right} of {len(of)}",
                f"{close} of {len(of)}",
                f"{seconds:.2f}",
            ]
        )
    headings = ["kinds", "features", "epsilon, delta", "right", "off by at most a fifth", "seconds"]
    return markdown(headings, lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--group", choices=tuple(GROUPS), help="group of kinds")
    parser.add_argument("--only", choices=("waves", "cells"), help="features")
    parser.add_argument("--output", type=Path, help="file of results, as CSV")
    arguments = parser.parse_args()
    groups = tuple(GROUPS) if arguments.group is None else (arguments.group,)
    rows: list[Result] = []
    for row in (row for group in groups for row in results(group, arguments.only)):
        rows.append(row)
        told = " (told)" if row.told else ""
        budget = f"({row.epsilon:g}, {row.delta:g})"
        name = f"{row.kind}, k={row.k}, d={row.dim}, n={row.n:.0e}"
        print(
            f"{name:40} {row.features:6} {budget:12} {row.found}{told}  {row.seconds:.1f} s",
            flush=True,
        )
    print(table(rows))
    if arguments.output:
        with arguments.output.open("w", newline="") as file:
            writer: Any = csv.DictWriter(file, list(rows[0].__dict__))
            writer.writeheader()
            writer.writerows(row.__dict__ for row in rows)


if __name__ == "__main__":
    main()
