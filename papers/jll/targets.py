"""Figures 1 to 4 and Table 1 of JLL."""

from __future__ import annotations

from papers.harness.results import Target
from papers.jll import (
    distances,
    distances_panels,
    scatter,
    scatter_panels,
    spread,
    spread_panels,
    table,
    table_panels,
)
from papers.jll.setting import PAPER

TARGETS = (
    Target("jll-figure1", PAPER, scatter.FIGURE1, scatter_panels.FIGURE1, seconds=(3, 3)),
    Target("jll-figure2", PAPER, scatter.FIGURE2, scatter_panels.FIGURE2, seconds=(5, 5)),
    Target("jll-figure3", PAPER, distances.FIGURE3, distances_panels.FIGURE3, seconds=(30, 6)),
    Target("jll-figure4", PAPER, spread.FIGURE4, spread_panels.FIGURE4, seconds=(15, 6)),
    Target("jll-table1", PAPER, table.TABLE1, table_panels.TABLE1, seconds=(200, 15)),
)
