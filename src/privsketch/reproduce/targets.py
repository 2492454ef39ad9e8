"""All targets by name. A paper adds its own here."""

from __future__ import annotations

from privsketch.errors import ParameterError
from privsketch.reproduce import (
    bal_panels,
    bal_runs,
    jll_distances,
    jll_scatter,
    jll_spread,
    jll_table,
)
from privsketch.reproduce.bal_setting import PAPER as BAL
from privsketch.reproduce.jll_setting import PAPER as JLL
from privsketch.reproduce.results import Target

TARGETS = (
    Target(
        "jll-figure1",
        JLL,
        "Figure 1: the records in three dimensions",
        2,
        2,
        jll_scatter.record_rows,
        jll_scatter.record_table,
        jll_scatter.record_comparison,
        jll_scatter.record_figure,
    ),
    Target(
        "jll-figure2",
        JLL,
        "Figure 2: two projections of them, element-wise and row-wise private",
        2,
        2,
        jll_scatter.release_rows,
        jll_scatter.release_table,
        jll_scatter.release_comparison,
        jll_scatter.release_figure,
    ),
    Target(
        "jll-figure3",
        JLL,
        "Figure 3: recovered minus true squared distances",
        180,
        8,
        jll_distances.rows,
        jll_distances.table,
        jll_distances.comparison,
        jll_distances.figure,
    ),
    Target(
        "jll-figure4",
        JLL,
        "Figure 4: standard deviation of released numbers against k",
        120,
        10,
        jll_spread.rows,
        jll_spread.table,
        jll_spread.comparison,
        jll_spread.figure,
    ),
    Target(
        "jll-table1",
        JLL,
        "Table 1: accuracy of k-means after a release",
        600,
        40,
        jll_table.rows,
        jll_table.table,
        jll_table.comparison,
    ),
    Target(
        "bal-synthetic",
        BAL,
        "Figure 2 (a): k-means objective of 64 Gaussians against k",
        600,
        30,
        bal_runs.synthetic_rows,
        bal_panels.table,
        bal_panels.comparison,
        bal_panels.figure,
    ),
    Target(
        "bal-images",
        BAL,
        "Figure 2 (b, c): k-means objective of images against k",
        1000,
        70,
        bal_runs.image_rows,
        bal_panels.table,
        bal_panels.comparison,
        bal_panels.figure,
    ),
    Target(
        "bal-epsilon",
        BAL,
        "Figure 2 (d): k-means objective of images against epsilon",
        1000,
        60,
        bal_runs.epsilon_rows,
        bal_panels.table,
        bal_panels.comparison,
        bal_panels.figure,
    ),
)


def find_target(name: str) -> Target:
    """The target of this name, or an error that lists all of them."""
    for target in TARGETS:
        if target.name == name:
            return target
    known = ", ".join(target.name for target in TARGETS)
    raise ParameterError(f"target={name!r}: expected one of {known}")
