"""JLL Figures 1 and 2: the records, and what a release makes of them."""

from __future__ import annotations

import math

from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row
from papers.jll.setting import draw, records, released

_DIM, _COMPONENTS = 3, 2
_POINTS = {"full": 1000, "quick": 1000, "tiny": 40}
# Panels of Figure 2: what is protected, calibration, matrix. The last one is not in the paper.
PANELS = (
    ("element", "paper", "seed 0"),
    ("row", "paper", "seed 0"),
    ("whole record", "auto", "fresh"),
)


def record_cells(effort: str) -> list[Cell]:
    """Figure 1: one cell."""
    return [Cell(record_rows, {"n_points": _POINTS[effort]})]


def record_rows(n_points: int) -> list[Row]:
    """Draw records in three dimensions."""
    table, labels = records(_DIM)
    return [
        {"cluster": int(label), "x": x, "y": y, "z": z}
        for (x, y, z), label in zip(table[:n_points].tolist(), labels, strict=False)
    ]


def release_cells(effort: str) -> list[Cell]:
    """Figure 2: a cell for every panel."""
    names = ("protect", "calibration", "matrix")
    return [
        Cell(release_rows, {"n_points": _POINTS[effort], **dict(zip(names, panel, strict=True))})
        for panel in PANELS
    ]


def release_rows(n_points: int, protect: str, calibration: str, matrix: str) -> list[Row]:
    """Return the records after one release."""
    table, labels = records(_DIM)
    projection = draw(_DIM, _COMPONENTS, protect, calibration, matrix)
    points = released(projection, table[:n_points])
    std = math.sqrt(projection.noise_variance)
    return [
        {"protect": protect, "noise_std": std, "cluster": int(label), "x": x, "y": y}
        for (x, y), label in zip(points.tolist(), labels, strict=False)
    ]


FIGURE1, FIGURE2 = Experiment(record_cells), Experiment(release_cells)
