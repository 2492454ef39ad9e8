"""JLL Figure 4: the standard deviation of released numbers against their number k.

The paper plots sqrt(1 + 2 b^2), where 1 stands for the variance of the records. A projection of
d columns of variance 1 has variance d / k on average, not 1, so the spread of a released number
around the centre of its cluster is sqrt(d / k + 2 b^2): at first it falls with k.
"""

from __future__ import annotations

import math

import numpy as np

from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row
from papers.jll.setting import EPSILON, Labels, draw, records, released
from privsketch._base.types import Floats

DIM = 100  # the widest records of Table 1
# Numbers of components; releases to average over; records of a release.
_RUNS = {
    "full": (tuple(range(1, 51)), 10, 2000),
    "quick": ((1, 2, 3, 5, 7, 10, 14, 20, 30, 50), 4, 2000),
    "tiny": ((5,), 1, 50),
}
CURVES = (
    ("element", "paper"),
    ("row", "paper"),
    ("row", "union"),
    ("element", "auto"),
    ("row", "auto"),
)


def printed_scale(protect: str, k: int) -> float:
    """b = c / epsilon with c = 2 sqrt k (Theorem 3) or sqrt(2 k ln(2 k)) (Theorem 5)."""
    c = 2 * math.sqrt(k) if protect == "element" else math.sqrt(2 * k * math.log(2 * k))
    return c / EPSILON


def cells(effort: str) -> list[Cell]:
    """One for every number of components."""
    sizes, n_releases, n_records = _RUNS[effort]
    return [
        # A release takes time for its columns, and for its components.
        Cell(rows, {"k": k, "n_releases": n_releases, "n_records": n_records}, weight=k + 10)
        for k in sizes
    ]


def rows(k: int, n_releases: int, n_records: int) -> list[Row]:
    """One row for every curve."""
    table, labels = records(DIM)
    table, labels = table[:n_records], labels[:n_records]
    found: list[Row] = []
    for protect, calibration in CURVES:
        noise, spread, delta = [], [], 0.0
        for _ in range(n_releases):
            projection = draw(DIM, k, protect, calibration, "fresh")
            noise.append(projection.noise_variance)
            spread.append(_within(released(projection, table), labels))
            delta = projection.receipt().delta
        variance = float(np.mean(noise))
        found.append(
            {
                "k": k,
                "d": DIM,
                "protect": protect,
                "calibration": calibration,
                "delta": delta,
                "noise_std": math.sqrt(variance),
                "paper_formula": math.sqrt(1 + variance),
                "right_formula": math.sqrt(DIM / k + variance),
                "measured": math.sqrt(float(np.mean(spread))),
            }
        )
    return found


def _within(points: Floats, labels: Labels) -> float:
    """Variance of released numbers around the centre of their cluster."""
    parts = [points[labels == cluster] for cluster in (0, 1)]
    return float(np.mean([part.var(axis=0, ddof=1).mean() for part in parts]))


FIGURE4 = Experiment(cells)
