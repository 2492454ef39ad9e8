"""Cells of the regret of "auto": a rule for the budgets of a data set, and what is run on it.

Budgets follow from numbers of records n, clusters k and columns d by one rule for all data sets,
in which noise in the middle of an average cluster is some hundredths of the domain:

    (1, 1e-6);
    (e, 1e-6) with the e of EPSILONS that is nearest to 90 k sqrt(d) / n, if it is not 1;
    (e, 0) with the e of EPSILONS that is nearest to 100 k d / n;

nearest by logarithm.
"""

from __future__ import annotations

import numpy as np

from benchmarks import worlds
from benchmarks.compare.cells import DELTA, Budgets, Setting
from benchmarks.datasets import DataSet

EPSILONS = (0.1, 0.3, 1.0, 3.0)
METHODS = ("auto", "sketch", "pipeline", "lloyd")
GRID_METHODS = ("cells", "grid")  # beyond GRID_COLUMNS a grid has two cells along each axis
GRID_COLUMNS = worlds.CELL_DIMS


def budgets_of(n: int, k: int, dim: int) -> Budgets:
    """Return the budgets of a data set by the rule above."""

    def nearest(epsilon: float) -> float:
        return min(EPSILONS, key=lambda known: abs(np.log(known / epsilon)))

    with_delta = {1.0: DELTA, nearest(90 * k * dim**0.5 / n): DELTA}
    return [*with_delta.items(), (nearest(100 * k * dim / n), 0.0)]


def setting_of(data: DataSet, repetitions: int, only: Budgets | None = None) -> Setting:
    """Return a data set with its budgets, or some of them, and the methods that are run on it."""
    dim = len(data.domain.half_widths)
    methods = METHODS + GRID_METHODS if dim <= GRID_COLUMNS else METHODS
    if only is None:
        n = len(data.make(np.random.default_rng(0)))
        only = budgets_of(n, data.n_clusters, dim)
    return Setting(data, only, repetitions, methods)
