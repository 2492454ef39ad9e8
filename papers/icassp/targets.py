"""Figures 2 and 3 of ICASSP."""

from __future__ import annotations

from papers.harness.results import Target
from papers.icassp import curves, panels, snr, snr_panels
from papers.icassp.setting import PAPER

TARGETS = (
    Target("icassp-figure2-left", PAPER, snr.LEFT, snr_panels.LEFT, seconds=(200, 40)),
    Target("icassp-figure2-right", PAPER, snr.RIGHT, snr_panels.RIGHT, seconds=(230, 50)),
    Target("icassp-figure3", PAPER, curves.FIGURE3, panels.FIGURE3, seconds=(700, 100)),
)
