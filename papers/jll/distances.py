"""JLL Figure 3: recovered minus true squared distances, a new matrix for every pair and release.

A million matrices would be drawn one by one. Instead one wide matrix is drawn for many pairs: a
pair's records fill a block of columns of their own and are zero elsewhere, so that each pair
meets only its own rows of the matrix, which are independent of all others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row
from papers.jll.setting import BOUND, EPSILON, ball, records, released
from privsketch._base.types import Floats
from privsketch.facts.domain import Ball
from privsketch.projection.distances import Distances, Released
from privsketch.projection.rows import Projection

PROTECT = ("element", "row")
_DIM, _COMPONENTS = 3, 2
# Pairs, releases of each, releases of a cell, pairs that share a wide matrix.
_RUNS = {"full": (1000, 1000, 100, 50), "quick": (1000, 50, 25, 50), "tiny": (40, 5, 5, 20)}
_EDGES = np.arange(-100.0, 301.0, 2.0)  # the first and last bin hold all that is beyond
_SEED = 0


def sampled_pairs(n_pairs: int) -> tuple[Floats, Floats]:
    """Pairs of different records, (n_pairs, dim) each."""
    table, _ = records(_DIM)
    rng = np.random.default_rng(_SEED)
    first = rng.integers(len(table), size=n_pairs)
    second = (first + rng.integers(1, len(table), size=n_pairs)) % len(table)
    return table[first], table[second]


def recovered(first: Floats, second: Floats, protect: str) -> tuple[Floats, Distances]:
    """Squared distances of pairs from one release, each pair with a matrix of its own.

    And what is known about them. Charges nothing here: records are synthetic.
    """
    n_pairs, dim = first.shape
    wide = Projection.draw(
        Ball(dim=n_pairs * dim, radius=ball(dim).radius, center=0.0),
        _COMPONENTS,
        epsilon=EPSILON,
        protect=protect,
        bound=BOUND,
        calibration="paper",
    )
    blocks = np.zeros((2, n_pairs, n_pairs, dim))
    every = np.arange(n_pairs)
    blocks[0, every, every] = first
    blocks[1, every, every] = second
    distances = Distances(Released(released(wide, blocks.reshape(2 * n_pairs, -1)), wide))
    return distances.pairs(every, n_pairs + every), distances


def cells(effort: str) -> list[Cell]:
    """Return distances of all pairs in some releases; `part` distinguishes equal cells."""
    n_pairs, n_releases, at_once, together = _RUNS[effort]
    sizes = {"n_pairs": n_pairs, "n_releases": at_once, "together": together}
    return [
        Cell(rows, {"protect": protect, "part": part, **sizes})
        for protect in PROTECT
        for part in range(n_releases // at_once)
    ]


def rows(protect: str, part: int, n_pairs: int, n_releases: int, together: int) -> list[Row]:
    """Bins of the histogram; their counts and sums add up to those of all differences."""
    first, second = sampled_pairs(n_pairs)
    true = np.square(first - second).sum(axis=1)
    sums = np.zeros((3, len(_EDGES) - 1))
    for _ in range(n_releases):
        for start in range(0, n_pairs, together):
            own = slice(start, start + together)
            squares, distances = recovered(first[own], second[own], protect)
            found = squares - true[own]
            place = np.clip(np.digitize(found, _EDGES) - 1, 0, len(_EDGES) - 2)
            for power in range(3):
                np.add.at(sums[power], place, found**power)
    expected = float(distances.variance(true).mean())
    claimed = float(claim_7(true, distances.rows.variance).mean())
    return [
        {
            "protect": protect,
            "low": float(low),
            "high": float(high),
            "count": int(count),
            "sum": float(sum_1),
            "sum_of_squares": float(sum_2),
            "expected_variance": expected,
            "claim_7": claimed,
        }
        for low, high, count, sum_1, sum_2 in zip(_EDGES, _EDGES[1:], *sums, strict=False)
    ]


def summary(found: Sequence[Row]) -> list[Row]:
    """Bins of all cells, added up."""
    every: dict[tuple[str, float], Row] = {}
    for row in found:
        key = str(row["protect"]), float(row["low"])
        known = every.setdefault(key, {**row, "count": 0, "sum": 0.0, "sum_of_squares": 0.0})
        for name in ("sum", "sum_of_squares"):
            known[name] = float(known[name]) + float(row[name])
        known["count"] = int(known["count"]) + int(row["count"])
    return list(every.values())


def claim_7(true: Floats, noise_variance: float) -> Floats:
    """Return the variance as printed, for squared distances `true`."""
    k, s2 = _COMPONENTS, noise_variance
    return 2 / k * true**2 + 2 * k * (7 * s2**2 - s2) + 4 * s2 * true


FIGURE3 = Experiment(cells, summary)
