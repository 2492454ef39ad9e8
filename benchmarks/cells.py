"""Accuracy of the decoder of noisy histograms: cost over scikit-learn's, for few columns.

    python -m benchmarks cells                    the acceptance table
    python -m benchmarks cells --others           more kinds of data, and small tables
    python -m benchmarks cells --holders 5        merged sketches against one of the same noise

Numbers are cost of the centers on the raw records over that of scikit-learn's KMeans with three
starts: medians and means over fresh data sets, each with its own noise. All of it is pure: sketches
of cells, and with *zoom* the method "cells", which looks again at cells that are heavy.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.common import parser_of
from privsketch._base.types import Floats
from privsketch.clustering.cells import cluster
from privsketch.clustering.run import clustered

SEED = 20261116


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    kind: str
    dim: int
    epsilon: float
    bound: float = np.nan
    n_clusters: int = 15
    n_records: int = 5000
    zoom: bool = False


def _rows(dim: int, epsilon: float, bounds: tuple[float, ...]) -> list[Setting]:
    kinds = ("gauss", "uneq", "cities")
    return [Setting(kind, dim, epsilon, b) for kind, b in zip(kinds, bounds, strict=True)]


ACCEPTANCE = [
    *_rows(2, 0.1, (1.05, 1.25, 1.15)),
    *_rows(3, 0.3, (1.01, 1.15, 1.07)),
    *_rows(4, 0.3, (1.02, 1.22, 1.11)),
    *[
        Setting("tight", 2, epsilon, bound, n_clusters=8, n_records=6500, zoom=True)
        for epsilon, bound in ((1.0, 1.2), (0.3, 3.0), (0.1, 8.0))
    ],
]
OTHERS = [
    *[Setting(kind, 2, 0.3) for kind in ("gauss", "moons", "filaments", "heavy", "uniform")],
    *_rows(3, 0.1, (1.08, 1.79, 1.26)),
    *_rows(5, 0.1, (1.52, 2.11, 1.38)),
    *[Setting(kind, 2, 0.1, zoom=True) for kind in ("gauss", "uneq", "cities")],
    Setting("gauss", 1, 0.1, n_clusters=5),
    Setting("flowers", 4, 1.0, n_clusters=3, n_records=150),
    Setting("tight", 2, 1.0, n_clusters=8, n_records=6500),
]


def spread_centers(k: int, dim: int, rng: np.random.Generator) -> Floats:
    """Return the one of 20 draws in [-.8, .8]^d whose closest pair is farthest apart."""
    draws = rng.uniform(-0.8, 0.8, (20, k, dim))
    squares = ((draws[:, :, None] - draws[:, None]) ** 2).sum(axis=3)
    squares[:, np.arange(k), np.arange(k)] = np.inf
    return np.asarray(draws[squares.min(axis=(1, 2)).argmax()])


def records_of(kind: str, n: int, k: int, dim: int, rng: np.random.Generator) -> Floats:
    """Draw records of a kind in [-1, 1]^d; most kinds scale with k."""
    scale = 0.208 * k ** (-1 / dim)
    normal = rng.standard_normal((n, dim))
    if kind in ("gauss", "heavy"):
        means = spread_centers(k, dim, rng)[rng.integers(k, size=n)]
        noise = normal if kind == "gauss" else 0.7 * rng.standard_t(3, (n, dim))
        found = means + scale * noise
    elif kind == "uneq":
        found = _unequal(normal, k, scale, rng)
    elif kind == "cities":
        found = cities(normal, k, rng)
    elif kind == "moons":
        angle, which = rng.uniform(0, math.pi, n), rng.integers(3, size=n)
        x = np.choose(which, [0.55 * np.cos(angle) - 0.2, 0.55 * np.cos(angle) + 0.2,
                              0.25 * np.cos(2 * angle)])  # fmt: skip
        y = np.choose(which, [0.55 * np.sin(angle) - 0.1, 0.1 - 0.55 * np.sin(angle),
                              0.25 * np.sin(2 * angle)])  # fmt: skip
        found = 0.04 * normal
        found[:, :2] += np.stack([x, y], axis=1)
    elif kind == "filaments":
        curves = rng.uniform(-0.85, 0.85, (max(4, k // 2), 3, dim))
        ends = curves[rng.integers(len(curves), size=n)]
        t = rng.random((n, 1))
        found = ends[:, 0] * (1 - t) ** 2 + 2 * ends[:, 1] * t * (1 - t) + ends[:, 2] * t**2
        found += 0.02 * normal
    elif kind == "tight":  # three large groups, five small ones
        weights = np.repeat([2000.0, 100.0], [3, 5])
        label = rng.choice(8, n, p=weights / weights.sum())
        found = spread_centers(8, dim, rng)[label] + 0.008 * normal
    elif kind == "flowers":  # like Fisher's iris: one group apart, two that touch
        means = np.array([[-0.6, 0.2, -0.8, -0.8], [0.0, -0.2, 0.2, 0.1], [0.3, 0.0, 0.5, 0.6]])
        found = means[np.arange(n) % 3] + 0.2 * normal
    else:
        found = rng.uniform(-1, 1, (n, dim))
    return np.asarray(np.clip(found, -1, 1))


def _unequal(normal: Floats, k: int, scale: float, rng: np.random.Generator) -> Floats:
    """Weights 1:20 and widths 1:4, shuffled, stretched along turned axes."""
    n, dim = normal.shape
    weights = rng.permutation(np.geomspace(1, 20, k))
    widths = rng.permutation(np.geomspace(scale / 2, 2 * scale, k))
    label = rng.choice(k, n, p=weights / weights.sum())
    turns = np.linalg.qr(rng.standard_normal((k, dim, dim)))[0]
    factors = turns * (rng.uniform(0.5, 1.5, (k, 1, dim)) * widths[:, None, None])
    means = spread_centers(k, dim, rng)
    return np.asarray(means[label] + np.einsum("nab,nb->na", factors[label], normal))


def cities(normal: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Towns of Zipf's sizes about some hubs, and a tenth anywhere."""
    n, dim = normal.shape
    hubs = rng.uniform(-0.85, 0.85, (max(3, k // 2), dim))
    towns = hubs[rng.integers(len(hubs), size=20 * k)] + 0.3 * rng.standard_normal((20 * k, dim))
    weights = 1 / np.arange(1, 20 * k + 1)
    label = rng.choice(20 * k, n, p=weights / weights.sum())
    found = towns[label] + 0.03 * weights[label, None] ** 0.35 * normal
    anywhere = rng.random(n) < 0.1
    found[anywhere] = rng.uniform(-1, 1, (n, dim))[anywhere]
    return np.asarray(found)


def cost(records: Floats, centers: Floats) -> float:
    """Sum of squared distances of records to their centers."""
    squares = ((records[:, None, :] - centers) ** 2).sum(axis=2)
    return float(squares.min(axis=1).sum())


def one_ratio(setting: Setting, seed: int) -> tuple[float, float]:
    """Cost over scikit-learn's, and seconds of the decoder; with zoom those of the whole fit."""
    n, k, dim = setting.n_records, setting.n_clusters, setting.dim
    records = records_of(setting.kind, n, k, dim, np.random.default_rng([seed, SEED]))
    domain, budget = ps.Box(-1, 1, dim=dim), ps.Budget(setting.epsilon)
    if setting.zoom:
        start = time.process_time()  # of one core, whatever else the machine does
        run = {"domain": domain, "budget": budget, "n_records": n, "random_state": seed}
        centers = clustered(cluster, records, k, **run).centers
    else:
        design = ps.Design.plan(
            n_components=k,
            domain=domain,
            budget=budget,
            n_records=n,
            feature_map="cells",
            random_state=seed,
        )
        sketch = ps.sketch(records, design)
        start = time.process_time()
        centers = ps.learn_kmeans(sketch, k).centers
    seconds = time.process_time() - start
    plain = KMeans(k, n_init=3, random_state=seed).fit(records)
    return cost(records, centers) / cost(records, plain.cluster_centers_), seconds


def merged_ratios(setting: Setting, seed: int, n_holders: int) -> tuple[float, float]:
    """Cost over scikit-learn's of merged sketches, and of one whose noise has their variance.

    Both have the same records and the same cells. The laws differ: of one variance, a Laplace draw
    has up to twice the information of a sum of many.
    """
    n, k, dim = setting.n_records, setting.n_clusters, setting.dim
    records = records_of(setting.kind, n, k, dim, np.random.default_rng([seed, SEED]))
    # Discrete Laplace noise has the variance 1 / (2 sinh^2(epsilon / 2)).
    alone = 2 * math.asinh(math.sinh(setting.epsilon / 2) / math.sqrt(n_holders))

    def plan(epsilon: float, n_records: int, n_features: int | None) -> ps.Design:
        return ps.Design.plan(
            n_components=k,
            domain=ps.Box(-1, 1, dim=dim),
            budget=ps.Budget(epsilon),
            n_records=n_records,
            n_features=n_features,
            feature_map="cells",
            count="omitted",
            random_state=seed,
        )

    one = plan(alone, n, None)
    each = plan(setting.epsilon, n // n_holders, one.n_features)
    whole = ps.sketch(records, one)
    together = ps.merge(ps.sketch(part, each) for part in np.array_split(records, n_holders))
    if each.cells != one.cells or not math.isclose(
        together.noise_variance, whole.noise_variance, rel_tol=1e-6
    ):
        raise AssertionError("the two releases differ in more than the law of their noise")
    plain = cost(records, KMeans(k, n_init=3, random_state=seed).fit(records).cluster_centers_)
    merged, single = (
        cost(records, ps.learn_kmeans(found, k).centers) / plain for found in (together, whole)
    )
    return merged, single


def show_holders(rows: list[Setting], seeds: range, n_holders: int) -> None:
    """Print a table of merged and of single sketches, and the mean logarithm of their ratio."""
    form = "{:10} {:>2} {:>5} {:>8} {:>8} {:>16}"
    print(form.format("data", "d", "eps", "merged", "single", "log ratio"))
    for row in rows:
        if row.zoom:  # parts of cells are those of one holder
            continue
        ratios = np.array([merged_ratios(row, seed, n_holders) for seed in seeds])
        logs = np.log(ratios[:, 0] / ratios[:, 1])
        error = logs.std(ddof=1) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
        medians = [f"{value:.3f}" for value in np.median(ratios, axis=0)]
        told = f"{logs.mean():+.3f} +- {error:.3f}"
        print(form.format(row.kind, row.dim, f"{row.epsilon:g}", *medians, told), flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--others", action="store_true", help="more kinds of data")
    parser.add_argument("--kind", nargs="*", help="only rows of these kinds")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--holders", type=int, help="merge the sketches of so many")
    arguments = parser.parse_args()
    rows = OTHERS if arguments.others else ACCEPTANCE
    rows = [row for row in rows if not arguments.kind or row.kind in arguments.kind]
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.repetitions)
    if arguments.holders:
        show_holders(rows, seeds, arguments.holders)
        return
    form = "{:10} {:>2} {:>5} {:>5} {:>6} {:>7} {:>7} {:>7} {:>8}"
    head = ["data", "d", "eps", "zoom", "bound", "median", "mean", "most", "seconds"]
    print(form.format(*head))
    for row in rows:
        ratios, seconds = zip(*[one_ratio(row, seed) for seed in seeds], strict=True)
        limit = f"{row.bound:.2f}" if np.isfinite(row.bound) else "-"
        numbers = [f"{value:.3f}" for value in (np.median(ratios), np.mean(ratios), max(ratios))]
        zoom = "yes" if row.zoom else "no"
        cells = [row.kind, row.dim, f"{row.epsilon:g}", zoom, limit, *numbers]
        print(form.format(*cells, f"{np.median(seconds):.2f}"), flush=True)


if __name__ == "__main__":
    main()
