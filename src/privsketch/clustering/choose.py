"""Clustering methods for the records of one holder, and how "auto" chooses one.

A sketch (design, sketch, learn) is one of the methods; all others read the records themselves.
Methods that are not in `_BUILT_IN` are registered as entry points of the group
`privsketch.methods`, this library's baselines among them. "auto" chooses by public facts only: the
numbers of clusters, columns and records, the budget and the domain. It never chooses a registered
method.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from traceback import walk_tb
from typing import Any

from privsketch._base.errors import (
    ParameterError,
    PrivsketchError,
    require_count,
    require_one_of,
    require_records,
)
from privsketch._base.plugins import DEBUG, failure_of, find_plugin, plugin_names
from privsketch._base.settings import Setting, settings_of, signature_of
from privsketch.clustering import cells
from privsketch.clustering.forecast import Forecast, PublicFacts, RunForecast
from privsketch.clustering.limits import require_searchable
from privsketch.clustering.medians import rounds_forecast
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.pipeline.plan import Facts, mean_noise, pipeline_forecast, plan_pipeline
from privsketch.clustering.run import RUN_OPTIONS, Run, clustered
from privsketch.clustering.sparse.method import SparseStart, cluster_sparse
from privsketch.clustering.tree.method import cluster_by_tree, tree_forecast
from privsketch.design.cells import cell_error, cell_noise_std, plan_cells
from privsketch.design.forecast import references
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Domain, enclosing_box
from privsketch.facts.receipt import Receipt
from privsketch.models.clusters import ClusterModel

_BUILT_IN: dict[str, Callable[..., ClusterModel]] = {
    "pipeline": pipeline.cluster,
    "cells": cells.cluster,
    "partition-tree": cluster_by_tree,
}
_SPARSE_STARTS: dict[str, SparseStart] = {"pipeline": "sketch", "partition-tree": "trees"}
_FORECASTS: dict[str, dict[str, Forecast]] = {
    "squares": {
        "pipeline": pipeline_forecast,
        "cells": cells.cells_forecast,
        "partition-tree": tree_forecast,
    },
    "distances": {
        "rounds": rounds_forecast,
        "partition-tree": partial(tree_forecast, loss="distances"),
    },
}
# Limits of "auto", from random studies of seven kinds and from 70 data sets (benchmarks/worlds.py,
# benchmarks/regret). The factors are average errors over those of the best method of each study.
CELL_COLUMNS = 2  # up to which cells have a factor of 1.03, sketches and pipelines 1.6
FORECAST_COLUMNS = 8  # up to which cells and pipelines are compared by forecast
FEW_COLUMNS, PURE_FEW_COLUMNS = 4, 7  # limits of cells if the number of records is unknown
# A search for k clusters in cells takes time that grows with k^2, half a minute for 300 of them;
# rounds around the mean take a second for 1,000.
MANY_CLUSTERS = 200
# Forecasts are for touching clusters; for many other kinds a sketch is worse than cells. In 185
# studies, factors of 3 to 5 had the smallest error, for delta > 0 and delta = 0.
_CELLS_ADVANTAGE = 4.0
# In 5 to 8 columns forecasts are compared as they are, and cells are taken only where noise moves
# even the mean of all records by a third of their spread: rounds begin lost there. Of 22 cells of
# data sets the condition changes 8, which all cost less, 0.74 times as much on average. In 142
# studies (pure, with a delta) it lost 1.145 and 1.05 times the better method, without it 1.15 and
# 1.06, pipelines alone 1.17 and 1.07. Half and twice the squared third do as well.
_LARGE_MEAN_NOISE, _MEAN_SHARE = 0.1, Fraction(1, 5)  # of the budget, as a pipeline begins


def method_names() -> tuple[str, ...]:
    """Return the names of all methods: "auto", "sketch", built-in and registered methods."""
    return tuple(dict.fromkeys(["auto", "sketch", *_BUILT_IN, *plugin_names("methods")]))


@dataclass(frozen=True)
class Method:
    """Method that reads the records, and the package that registers it.

    Attributes
    ----------
    name : str
    cluster : callable
        `cluster(run, n_clusters, ...)`, which returns a `ClusterModel`.
    origin : str or None
        Distribution and version of another package; None for methods of this library.
    """

    name: str
    cluster: Callable[..., ClusterModel]
    origin: str | None = None

    @classmethod
    def find(cls, name: str) -> Method:
        """Return the method of this name, and import the package that registers it."""
        require_one_of("method", name, method_names()[2:])
        plugin = None if name in _BUILT_IN else find_plugin("methods", name)
        if plugin is None:
            return cls(name, _BUILT_IN[name])
        if not callable(plugin.part):
            raise ParameterError(
                f"`method={name!r}`: {plugin.origin} registers an object that is not callable; "
                "expected a function cluster(run, n_clusters, ...)"
            )
        is_ours = plugin.distribution == "privsketch"
        return cls(name, plugin.part, None if is_ours else plugin.origin)

    @property
    def takes_noise(self) -> bool:
        """Whether the function has a parameter `noise`, which selects the kind of noise."""
        return "noise" in signature_of(self.cluster, f"method {self.name!r}").parameters

    @property
    def settings(self) -> dict[str, Setting]:
        """Settings of the method by name: the keyword parameters of its function."""
        return settings_of(self.cluster, without=(*RUN_OPTIONS, "n_nonzero", "loss"))

    def __call__(self, run: Run, n_clusters: int, **options: Any) -> ClusterModel:
        """Run the method. The receipt names the package that registers it.

        Charges: the budget of the run, once.
        """
        if self.origin is None:
            model = self.cluster(run, n_clusters, **options)
        else:
            model = self._foreign(self.origin, run, n_clusters, options)
        return replace(model, method=self.name, receipt=model.receipt.naming(self.origin))

    def _foreign(
        self, origin: str, run: Run, n_clusters: int, options: dict[str, Any]
    ) -> ClusterModel:
        """Run the method of another package, and name that package if it fails."""
        what, failure = f"`method={self.name!r}`", None
        try:
            model = self.cluster(run, n_clusters, **options)
        except PrivsketchError:
            raise
        except Exception as error:
            if os.environ.get(DEBUG) == "1" or _is_of_a_check(error):
                raise
            failure = failure_of(what, origin, self.cluster, error)
        if failure is not None:
            raise failure  # outside of the except block: the other error is not its context
        if not isinstance(model, ClusterModel):
            raise ParameterError(
                f"{what}: {origin} returned {type(model).__name__}; expected a ClusterModel, as "
                "run.model(...) makes one"
            )
        return model


def _is_of_a_check(error: Exception) -> bool:
    """Return whether `privsketch.testing`, which takes part in the noise, raised the error."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return str(modules[-1]).startswith("privsketch.testing")


@dataclass(frozen=True)
class Choice:
    """Method and the reason for it, which is empty if the caller named the method."""

    method: str
    reason: str = ""

    def annotate(self, receipt: Receipt) -> Receipt:
        """Return a receipt with the reason for the method, if there is one."""
        if not self.reason:
            return receipt
        choice = f"method {self.method!r} was chosen because {self.reason}"
        return replace(receipt, mechanism=f"{receipt.mechanism}; {choice}")


def choose_method(
    method: str,
    *,
    n_clusters: int,
    domain: Domain,
    budget: Budget,
    n_records: float | None,
    n_nonzero: int | None = None,
) -> Choice:
    """Return the named method, or for "auto" the one with the smallest error in random studies.

    Charges: nothing. No record is read.
    """
    require_one_of("method", method, method_names())
    require_count("n_clusters", n_clusters)
    if n_records is not None:
        n_records = require_records(n_records)
    if n_nonzero is not None and method not in ("auto", *_SPARSE_STARTS):
        raise _sparse_error(n_nonzero, method)
    if method not in ("auto", "sketch"):
        Method.find(method)  # raises an error before anything is spent
    if method != "auto":
        if n_nonzero is None:
            require_searchable(method, n_clusters)
        return Choice(method)
    dim = len(domain.half_widths)
    if n_nonzero is not None:
        require_count("n_nonzero", n_nonzero)
        return Choice("pipeline", f"at most {n_nonzero} of the {dim} entries of a record are not 0")
    columns = "1 encoded column" if dim == 1 else f"{dim} encoded columns"
    if n_clusters > MANY_CLUSTERS:
        return Choice("pipeline", f"{n_clusters} clusters are many for a search in counts of cells")
    if dim <= CELL_COLUMNS:
        return Choice("cells", f"the table has {columns}, few enough for counts on a grid")
    if n_records is None and dim <= (FEW_COLUMNS if budget.delta > 0 else PURE_FEW_COLUMNS):
        return Choice("cells", f"the table has {columns}, and the number of records is not stated")
    if n_records is not None and dim <= FORECAST_COLUMNS:
        has_few = dim <= FEW_COLUMNS
        cell_excess = expected_cell_excess(n_clusters, domain, budget, n_records)
        pipeline_excess = plan_pipeline(n_clusters, dim, budget, n_records).excess
        noise = mean_noise(Facts(n_clusters, dim, budget, n_records), _MEAN_SHARE)
        advantage = _CELLS_ADVANTAGE if has_few else 1.0
        is_open = has_few or noise > _LARGE_MEAN_NOISE
        if is_open and cell_excess < advantage * pipeline_excess:
            return Choice("cells", f"cells have the smaller expected error for {columns}")
        return Choice("pipeline", f"a pipeline has the smaller expected error for {columns}")
    return Choice("pipeline", f"the table has {columns}")


def forecast_run(
    method: str,
    n_clusters: int,
    domain: Domain,
    budget: Budget,
    n_records: float | None,
    loss: str = "squares",
) -> RunForecast | None:
    """Forecast a run from public facts; None for sketches and registered methods.

    Designs have the forecasts of sketches. Registered methods forecast their models only.
    """
    forecast = _FORECASTS[loss].get(method)
    if forecast is None:
        return None
    return RunForecast.of(forecast, PublicFacts(n_clusters, domain, budget, 1.0), n_records)


def expected_cell_excess(
    n_clusters: int, domain: Domain, budget: Budget, n_records: float
) -> float:
    """Return the expected excess error of cells, for touching clusters.

    It is the squared error over that of k-means without privacy, minus 1.
    """
    half_widths = enclosing_box(domain).half_widths
    try:
        noise = cell_noise_std(replace(budget, delta=0.0), "laplace")
    except ParameterError:  # noise of that size cannot be drawn
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


def method_of(name: str, n_nonzero: int | None = None) -> Method:
    """Return the method of this name, for sparse records if `n_nonzero` is stated."""
    method = Method.find(name)
    if n_nonzero is None:
        return method
    if name not in _SPARSE_STARTS:
        raise _sparse_error(n_nonzero, name)
    return replace(method, cluster=partial(cluster_sparse, start=_SPARSE_STARTS[name]))


def _sparse_error(n_nonzero: object, method: str) -> ParameterError:
    names = " or ".join(map(repr, _SPARSE_STARTS))
    return ParameterError(f"`n_nonzero={n_nonzero!r}` with `method={method!r}`: expected {names}")


def cluster_with(choice: str | Choice, data: Any, n_clusters: int, **options: Any) -> ClusterModel:
    """Cluster records with a method that reads them itself; `options` are those of `clustered`.

    Charges: the budget, once.
    """
    choice = Choice(choice) if isinstance(choice, str) else choice
    method = method_of(choice.method, options.get("n_nonzero"))
    if options.get("n_nonzero") is None:
        options.pop("n_nonzero", None)
    model = clustered(method, data, n_clusters, **options)
    return replace(model, reason=choice.reason, receipt=choice.annotate(model.receipt))
