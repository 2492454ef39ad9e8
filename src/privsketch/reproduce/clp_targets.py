"""The targets of CLP."""

from __future__ import annotations

from privsketch.reproduce import (
    clp_ratio,
    clp_ratio_panels,
    clp_sampling,
    clp_sampling_panels,
    clp_size,
    clp_size_panels,
)
from privsketch.reproduce.clp_setting import PAPER
from privsketch.reproduce.results import Target

TARGETS = (
    Target(
        "clp-figure4",
        PAPER,
        "Figure 4: RSSE against the noise-to-signal ratio",
        240,
        25,
        clp_ratio.ratio_cells,
        clp_ratio_panels.ratio_table,
        clp_ratio_panels.ratio_comparison,
        clp_ratio_panels.ratio_figure,
        clp_ratio.summary,
    ),
    Target(
        "clp-figure5",
        PAPER,
        "Figure 5: RSSE over size and noise-to-signal ratio of a sketch",
        230,
        25,
        clp_ratio.grid_cells,
        clp_ratio_panels.grid_table,
        clp_ratio_panels.grid_comparison,
        clp_ratio_panels.grid_figure,
        clp_ratio.summary,
    ),
    Target(
        "clp-figure6",
        PAPER,
        "Figure 6: noise against epsilon for sampled records",
        20,
        8,
        clp_sampling.noise_cells,
        clp_sampling_panels.noise_table,
        clp_sampling_panels.noise_comparison,
        clp_sampling_panels.noise_figure,
    ),
    Target(
        "clp-figure7",
        PAPER,
        "Figure 7: noise-to-signal ratio with features or records left out",
        90,
        20,
        clp_sampling.total_cells,
        clp_sampling_panels.total_table,
        clp_sampling_panels.total_comparison,
        clp_sampling_panels.total_figure,
    ),
    Target(
        "clp-figure8",
        PAPER,
        "Figure 8: RSSE against the size of a private sketch",
        900,
        50,
        clp_size.cells,
        clp_size_panels.table,
        clp_size_panels.comparison,
        clp_size_panels.figure,
        clp_size.summary,
    ),
)
