"""The panels of Figure 2 of BAL."""

from __future__ import annotations

from papers.bal import panels, runs
from papers.bal.setting import PAPER
from papers.harness.results import Target

TARGETS = (
    Target("bal-synthetic", PAPER, runs.SYNTHETIC, panels.SYNTHETIC, seconds=(220, 20)),
    Target("bal-images", PAPER, runs.IMAGES, panels.IMAGES, seconds=(400, 30)),
    Target("bal-epsilon", PAPER, runs.BY_EPSILON, panels.BY_EPSILON, seconds=(230, 20)),
)
