"""The panels of Figure 2 of BAL."""

from __future__ import annotations

from papers.bal import panels as bal_panels
from papers.bal import runs as bal_runs
from papers.bal.setting import PAPER
from papers.harness.results import Target

TARGETS = (
    Target(
        "bal-synthetic",
        PAPER,
        "Figure 2 (a): k-means objective of 64 Gaussians against k",
        seconds=220,
        quick_seconds=20,
        cells=bal_runs.synthetic_cells,
        summary=bal_runs.summary,
        table=bal_panels.table,
        comparison=bal_panels.comparison,
        figure=bal_panels.figure,
    ),
    Target(
        "bal-images",
        PAPER,
        "Figure 2 (b, c): k-means objective of images against k",
        seconds=400,
        quick_seconds=30,
        cells=bal_runs.image_cells,
        summary=bal_runs.summary,
        table=bal_panels.table,
        comparison=bal_panels.comparison,
        figure=bal_panels.figure,
    ),
    Target(
        "bal-epsilon",
        PAPER,
        "Figure 2 (d): k-means objective of images against epsilon",
        seconds=230,
        quick_seconds=20,
        cells=bal_runs.epsilon_cells,
        summary=bal_runs.summary,
        table=bal_panels.table,
        comparison=bal_panels.comparison,
        figure=bal_panels.figure,
    ),
)
