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

from privsketch.budget import Budget
from privsketch.clustering import aggregate, cells, grid, lloyd, variates
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.run import clustered
from privsketch.clustering.sparse.method import Start, cluster_sparse
from privsketch.clustering.tree.method import cluster_by_tree
from privsketch.design.forecast import references
from privsketch.design.plan import plan_design
from privsketch.design.size import energy_share
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
# Rules of "auto", from 620 random studies of seven kinds, 1 to 40 columns, with and without a delta
# (benchmarks/worlds.py): what is lost on average against the best method of each, as a factor.
CELL_COLUMNS = 4  # up to so many, cells lose 1.03; sketches and pipelines 1.6
PURE_CELL_COLUMNS = 7  # without a delta they lose 1.1, sketches and pipelines 1.4 to 1.5
SKETCH_COLUMNS = 15  # with a delta, sketches up to here and pipelines beyond lose 1.08
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
    if dim <= CELL_COLUMNS:
        few = "1 column is" if dim == 1 else f"{dim} columns are"
        return Choice("cells", f"{few} few, and cells of a grid see most of them")
    if budget.delta == 0 and dim <= PURE_CELL_COLUMNS:
        return Choice("cells", f"without a delta, cells of {dim} columns have the least noise")
    if budget.delta > 0 and dim <= SKETCH_COLUMNS:
        return Choice("sketch", f"a sketch sees all {dim} columns at once")
    if (
        budget.delta == 0
        and n_records is not None
        and is_hidden(n_clusters, domain, budget, n_records)
    ):
        return Choice("lloyd", "noise hides clusters from a sketch, and rounds ask for less")
    return Choice("pipeline", f"{dim} columns are many: a sketch needs directions to look along")


def is_hidden(n_clusters: int, domain: Domain, budget: Budget, n_records: float) -> bool:
    """Whether noise hides clusters of average size from a sketch of all columns.

    A cluster of a records and width s lowers the squared residual by a^2 m E[exp(-|w|^2 s^2)] / v,
    v being the variance of noise and sampling. Noise alone lowers it by 2 ln(places) where the
    best of so many places is taken, and by 1 for each unknown.
    """
    try:
        design = plan_design(
            n_components=n_clusters,
            domain=domain,
            budget=budget.of_anybody,
            n_records=n_records,
            drawn=False,
        )
    except ParameterError:  # no noise of that size can be drawn
        return True
    dim, law = design.dim, design.frequencies
    # Clusters that touch, and use a quarter of the domain.
    width = next(references(design.domain, n_clusters)).width
    seen = energy_share(law.law, law.radial_law, width, dim) * design.n_features
    gain = (n_records / n_clusters) ** 2 * seen / (design.noise_std**2 + n_records / 2)
    places = sum(math.log(max(1.0, half / width)) for half in design.domain.half_widths)
    return gain < 2 * places + dim + 2


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
