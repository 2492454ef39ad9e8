"""Ways to cluster records that one holder has: which there are, and which one is chosen.

A sketch (design, sketch, learn) is one of them and lives in rooms of its own; the others read the
records themselves. The choice sees public facts only: numbers of clusters, columns and records,
the budget, the domain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from privsketch.budget import Budget
from privsketch.clustering import aggregate, cells, grid, lloyd, variates
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.pipeline.plan import MAX_COLUMNS, plan_pipeline, sketch_excess
from privsketch.clustering.run import clustered
from privsketch.clustering.sparse.method import Start, cluster_sparse
from privsketch.clustering.tree.method import cluster_by_tree
from privsketch.domain import Domain
from privsketch.errors import ParameterError, require_count, require_one_of, require_records
from privsketch.models.clusters import ClusterModel
from privsketch.receipt import Receipt

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
# With MAX_SKETCH_EXCESS a rule of "auto", set on data of benchmarks/compare outside of FRESH.
GRID_COLUMNS = (2, 3)
MAX_SKETCH_EXCESS = 3.3  # forecast error of a sketch that loses nearly all clusters
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
    """The method that was asked for, or for "auto" the one whose forecast is best.

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
    if dim > MAX_COLUMNS:
        return Choice("pipeline", f"a sketch of {dim} columns needs directions to look along")
    if n_records is None:
        return Choice("sketch", f"{dim} columns are few, and n_records is not given")
    hopeless = dim > 1 and _is_hopeless(n_clusters, dim, budget, n_records)
    if hopeless and dim not in GRID_COLUMNS:
        return Choice("lloyd", "it is too much noise for a sketch, and rounds ask for less")
    if hopeless:
        return Choice("grid", "it is too much noise for a sketch, and few columns have few cells")
    plan = plan_pipeline(n_clusters, dim, budget, n_records)
    if plan.n_rounds == 0:
        return Choice("sketch", "with so much noise the sketch needs the whole budget")
    return Choice(
        "pipeline",
        f"{plan.n_rounds} rounds after a sketch are forecast to leave an error of "
        f"{plan.excess:.2g}",
    )


def _is_hopeless(n_clusters: int, dim: int, budget: Budget, n_records: float) -> bool:
    """Whether pure noise hides all clusters from a sketch: what is left are their rough places."""
    if budget.delta > 0:
        return False
    error, _ = sketch_excess(n_clusters, dim, budget, Fraction(1), n_records)
    return error > MAX_SKETCH_EXCESS


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
