"""Figures 1 to 4 and Table 1 of JLL."""

from __future__ import annotations

from papers.harness.results import Target
from papers.jll import (
    distances as jll_distances,
)
from papers.jll import (
    distances_panels as jll_distances_panels,
)
from papers.jll import (
    scatter as jll_scatter,
)
from papers.jll import (
    scatter_panels as jll_scatter_panels,
)
from papers.jll import (
    spread as jll_spread,
)
from papers.jll import (
    spread_panels as jll_spread_panels,
)
from papers.jll import (
    table as jll_table,
)
from papers.jll import (
    table_panels as jll_table_panels,
)
from papers.jll.setting import PAPER

TARGETS = (
    Target(
        "jll-figure1",
        PAPER,
        "Figure 1: the records in three dimensions",
        seconds=3,
        quick_seconds=3,
        cells=jll_scatter.record_cells,
        table=jll_scatter_panels.record_table,
        comparison=jll_scatter_panels.record_comparison,
        figure=jll_scatter_panels.record_figure,
    ),
    Target(
        "jll-figure2",
        PAPER,
        "Figure 2: two projections of them, element-wise and row-wise private",
        seconds=5,
        quick_seconds=5,
        cells=jll_scatter.release_cells,
        table=jll_scatter_panels.release_table,
        comparison=jll_scatter_panels.release_comparison,
        figure=jll_scatter_panels.release_figure,
    ),
    Target(
        "jll-figure3",
        PAPER,
        "Figure 3: recovered minus true squared distances",
        seconds=30,
        quick_seconds=6,
        cells=jll_distances.cells,
        summary=jll_distances.summary,
        table=jll_distances_panels.table,
        comparison=jll_distances_panels.comparison,
        figure=jll_distances_panels.figure,
    ),
    Target(
        "jll-figure4",
        PAPER,
        "Figure 4: standard deviation of released numbers against k",
        seconds=15,
        quick_seconds=6,
        cells=jll_spread.cells,
        table=jll_spread_panels.table,
        comparison=jll_spread_panels.comparison,
        figure=jll_spread_panels.figure,
    ),
    Target(
        "jll-table1",
        PAPER,
        "Table 1: accuracy of k-means after a release",
        seconds=200,
        quick_seconds=15,
        cells=jll_table.cells,
        table=jll_table_panels.table,
        comparison=jll_table_panels.comparison,
    ),
)
