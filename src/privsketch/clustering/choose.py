"""Ways to cluster records that one holder has: which there are, and which one is chosen.

A sketch (design, sketch, learn) is one of them and lives in rooms of its own; the others read the
records themselves. The choice sees public facts only: numbers of clusters, columns and records,
the budget, the domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from privsketch._base.errors import ParameterError, require_count, require_one_of, require_records
from privsketch.clustering import cells
from privsketch.clustering.baselines import aggregate, grid, lloyd, variates
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.pipeline.plan import plan_pipeline
from privsketch.clustering.run import clustered
from privsketch.clustering.sparse.method import Start, cluster_sparse
from privsketch.clustering.tree.method import cluster_by_tree
from privsketch.design.cells import cell_error, noise_of_cells, plan_cells
from privsketch.design.forecast import references
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Domain, enclosing_box
from privsketch.facts.receipt import Receipt
from privsketch.models.clusters import ClusterModel

_RUNS: dict[str, Callable[..., ClusterModel]] = {
    "pipeline": pipeline.cluster,
    "cells": cells.cluster,
    "partition-tree": cluster_by_tree,
    "lloyd": lloyd.cluster,
    "grid": grid.cluster,
    "sample-aggregate": aggregate.cluster,
    "k-variates": variates.cluster,
}
CHOOSE_NOISE = ("lloyd", "sample-aggregate", "k-variates")  # their noise can be asked for
_SPARSE_STARTS: dict[str, Start] = {"pipeline": "sketch", "partition-tree": "trees"}
# Of "auto", from random studies of seven kinds and from 70 data sets (benchmarks/worlds.py,
# benchmarks/regret): what is lost on average against the best method of each, as a factor.
CELL_COLUMNS = 2  # up to so many, cells lose 1.03; sketches and pipelines 1.6
FORECAST_COLUMNS = 8  # up to so many, 1.12 by cells, 1.2 by pipelines, 1.02 if forecasts choose
FEW_COLUMNS, PURE_FEW_COLUMNS = 4, 7  # where nothing can be forecast: cells, pipelines beyond
# Forecasts are for clusters that touch; many kinds are worse off in a sketch than in cells. Of 185
# studies, factors of 3 to 5 lost least, with a delta and without.
_FOR_CELLS = 4.0
METHODS = ("auto", "sketch", *_RUNS)


@dataclass(frozen=True)
class Choice:
    """A method, and why: an empty reason if it was asked for by name."""

    method: str
    reason: str = ""

    def receipt(self, receipt: Receipt) -> Receipt:
        """A receipt of the method that says how it was chosen, if it was."""
        if not self.reason:
            return receipt
        told = f"{receipt.mechanism}; method {self.method!r} was chosen: {self.reason}"
        return replace(receipt, mechanism=told)


def chosen_method(
    method: str,
    *,
    n_clusters: int,
    domain: Domain,
    budget: Budget,
    n_records: float | None,
    n_nonzero: int | None = None,
) -> Choice:
    """The method that was asked for, or for "auto" the one that loses least over many studies.

    Charges: nothing. No record is seen.
    """
    require_one_of("method", method, METHODS)
    require_count("n_clusters", n_clusters)
    if n_records is not None:
        n_records = require_records(n_records)
    if n_nonzero is not None and method not in ("auto", *_SPARSE_STARTS):
        raise _no_sparse(n_nonzero, method)
    if method != "auto":
        return Choice(method)
    dim = len(domain.half_widths)
    if n_nonzero is not None:
        require_count("n_nonzero", n_nonzero)
        return Choice("pipeline", f"records have at most {n_nonzero} entries of {dim}")
    few = "1 column is" if dim == 1 else f"{dim} columns are"
    if dim <= CELL_COLUMNS:
        return Choice("cells", f"{few} few, and cells of a grid see most of them")
    if n_records is None and dim <= (FEW_COLUMNS if budget.delta > 0 else PURE_FEW_COLUMNS):
        return Choice("cells", f"{few} few, and nobody said how many records there are")
    if n_records is not None and dim <= FORECAST_COLUMNS:
        by_cells = expected_of_cells(n_clusters, domain, budget, n_records)
        by_sketch = plan_pipeline(n_clusters, dim, budget, n_records).excess
        if by_cells < _FOR_CELLS * by_sketch:
            return Choice("cells", f"{few} few enough that cells are expected to lose less")
        return Choice("pipeline", f"a sketch of {dim} columns is expected to lose less than cells")
    return Choice("pipeline", f"{few} many: a sketch, or the mean of all, then rounds")


def expected_of_cells(n_clusters: int, domain: Domain, budget: Budget, n_records: float) -> float:
    """Squared error over that of k-means without privacy, less 1, of clusters that touch."""
    half_widths = enclosing_box(domain).half_widths
    try:
        noise = noise_of_cells(replace(budget, delta=0.0), "laplace")
    except ParameterError:  # no noise of that size can be drawn
        return math.inf
    expected = cell_error(
        cells=plan_cells(half_widths, n_clusters, n_records, noise),
        half_widths=half_widths,
        n_components=n_clusters,
        n_records=n_records,
        variance=noise**2,
        width=next(references(domain, n_clusters)).width,
    )
    return expected.excess


def _no_sparse(n_nonzero: object, method: str) -> ParameterError:
    known = " or ".join(map(repr, _SPARSE_STARTS))
    return ParameterError(f"`n_nonzero={n_nonzero!r}` with `method={method!r}`: expected {known}")


def cluster_by(choice: str | Choice, data: Any, n_clusters: int, **options: Any) -> ClusterModel:
    """Centers by a method that reads the records itself; `options` as in `clustered`.

    Charges: the budget, once.
    """
    choice = Choice(choice) if isinstance(choice, str) else choice
    require_one_of("method", choice.method, _RUNS)
    method = _RUNS[choice.method]
    if options.get("n_nonzero") is None:
        options.pop("n_nonzero", None)
    elif choice.method in _SPARSE_STARTS:
        method = partial(cluster_sparse, start=_SPARSE_STARTS[choice.method])
    else:
        raise _no_sparse(options["n_nonzero"], choice.method)
    model = clustered(method, data, n_clusters, **options)
    return replace(model, reason=choice.reason, receipt=choice.receipt(model.receipt))
