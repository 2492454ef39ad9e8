"""Figures 4 to 8 of CLP."""

from __future__ import annotations

from papers.clp import ratio, ratio_panels, sampling, sampling_panels, size, size_panels
from papers.clp.setting import PAPER
from papers.harness.results import Target

TARGETS = (
    Target("clp-figure4", PAPER, ratio.FIGURE4, ratio_panels.FIGURE4, seconds=(110, 25)),
    Target("clp-figure5", PAPER, ratio.FIGURE5, ratio_panels.FIGURE5, seconds=(130, 25)),
    Target("clp-figure6", PAPER, sampling.FIGURE6, sampling_panels.FIGURE6, seconds=(15, 8)),
    Target("clp-figure7", PAPER, sampling.FIGURE7, sampling_panels.FIGURE7, seconds=(70, 20)),
    Target("clp-figure8", PAPER, size.FIGURE8, size_panels.FIGURE8, seconds=(680, 50)),
)
