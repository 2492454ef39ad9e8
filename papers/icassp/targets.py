"""Figures 2 and 3 of ICASSP."""

from __future__ import annotations

from papers.harness.results import Target
from papers.icassp import (
    curves as icassp_curves,
)
from papers.icassp import (
    panels as icassp_panels,
)
from papers.icassp import (
    snr as icassp_snr,
)
from papers.icassp import (
    snr_panels as icassp_snr_panels,
)
from papers.icassp.setting import PAPER

TARGETS = (
    Target(
        "icassp-figure2-left",
        PAPER,
        "Figure 2 (left): relative SSE against the signal-to-noise ratio",
        seconds=200,
        quick_seconds=40,
        cells=icassp_snr.left_cells,
        table=icassp_snr_panels.left_table,
        comparison=icassp_snr_panels.left_comparison,
        figure=icassp_snr_panels.left_figure,
        summary=icassp_snr.left_summary,
    ),
    Target(
        "icassp-figure2-right",
        PAPER,
        "Figure 2 (right): relative SSE over ratio and sketch size",
        seconds=230,
        quick_seconds=50,
        cells=icassp_snr.right_cells,
        table=icassp_snr_panels.right_table,
        comparison=icassp_snr_panels.right_comparison,
        figure=icassp_snr_panels.right_figure,
        summary=icassp_snr.right_summary,
    ),
    Target(
        "icassp-figure3",
        PAPER,
        "Figure 3: relative SSE against epsilon",
        seconds=700,
        quick_seconds=100,
        cells=icassp_curves.cells,
        table=icassp_panels.table,
        comparison=icassp_panels.comparison,
        figure=icassp_panels.figure,
        summary=icassp_curves.summary,
    ),
)
