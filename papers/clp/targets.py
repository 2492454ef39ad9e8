"""Figures 4 to 8 of CLP."""

from __future__ import annotations

from papers.clp import (
    ratio as clp_ratio,
)
from papers.clp import (
    ratio_panels as clp_ratio_panels,
)
from papers.clp import (
    sampling as clp_sampling,
)
from papers.clp import (
    sampling_panels as clp_sampling_panels,
)
from papers.clp import (
    size as clp_size,
)
from papers.clp import (
    size_panels as clp_size_panels,
)
from papers.clp.setting import PAPER
from papers.harness.results import Target

TARGETS = (
    Target(
        "clp-figure4",
        PAPER,
        "Figure 4: RSSE against the noise-to-signal ratio",
        seconds=110,
        quick_seconds=25,
        cells=clp_ratio.ratio_cells,
        table=clp_ratio_panels.ratio_table,
        comparison=clp_ratio_panels.ratio_comparison,
        figure=clp_ratio_panels.ratio_figure,
        summary=clp_ratio.summary,
    ),
    Target(
        "clp-figure5",
        PAPER,
        "Figure 5: RSSE over size and noise-to-signal ratio of a sketch",
        seconds=130,
        quick_seconds=25,
        cells=clp_ratio.grid_cells,
        table=clp_ratio_panels.grid_table,
        comparison=clp_ratio_panels.grid_comparison,
        figure=clp_ratio_panels.grid_figure,
        summary=clp_ratio.summary,
    ),
    Target(
        "clp-figure6",
        PAPER,
        "Figure 6: noise against epsilon for sampled records",
        seconds=15,
        quick_seconds=8,
        cells=clp_sampling.noise_cells,
        table=clp_sampling_panels.noise_table,
        comparison=clp_sampling_panels.noise_comparison,
        figure=clp_sampling_panels.noise_figure,
    ),
    Target(
        "clp-figure7",
        PAPER,
        "Figure 7: noise-to-signal ratio with features or records left out",
        seconds=70,
        quick_seconds=20,
        cells=clp_sampling.total_cells,
        table=clp_sampling_panels.total_table,
        comparison=clp_sampling_panels.total_comparison,
        figure=clp_sampling_panels.total_figure,
    ),
    Target(
        "clp-figure8",
        PAPER,
        "Figure 8: RSSE against the size of a private sketch",
        seconds=680,
        quick_seconds=50,
        cells=clp_size.cells,
        table=clp_size_panels.table,
        comparison=clp_size_panels.comparison,
        figure=clp_size_panels.figure,
        summary=clp_size.summary,
    ),
)
