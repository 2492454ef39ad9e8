"""Base classes of all estimators: public facts, checks of tables, one release, tags.

scikit-learn checks the tables, but its messages may quote a cell of the table, and an error may end
up in a log that others read. Errors here are rewritten so that they quote no record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from privsketch._base.errors import ParameterError, RecordError
from privsketch._base.types import Floats
from privsketch.design.cautions import stated_cautions, warn_of
from privsketch.design.plan import plan_design
from privsketch.design.recipe import Design
from privsketch.estimators.validation import (
    columns_on_spark,
    names_of,
    note_columns,
    seen,
    validated,
    width_of,
)
from privsketch.facts.budget import Budget, Neighbours
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema, schema_of
from privsketch.facts.units import field_values
from privsketch.ledger.entry import Counted, LedgerName, counted_refusals
from privsketch.models.clusters import ClusterModel
from privsketch.sketching.build import sketch
from privsketch.sketching.engines.threads import threads_or_default
from privsketch.sketching.sketch import Sketch
from privsketch.tables.reading import read_points
from privsketch.tables.table import Table, checked_missing

_Class = TypeVar("_Class", bound=type)
# Shared descriptions of parameters and attributes, by the mark that stands for them.
_SHARED = {
    "budget": """epsilon : float
        Privacy budget of one `fit`; no default.
    delta : float
        0 for pure differential privacy; no default.""",
    "domain": """domain : Schema, Box or Ball
        Public facts about the table, or bounds of the records; no default. The `dim` of a box or a
        ball may be left out. With a schema X may have text, dates and missing values, and arrays
        of results are those of encoded records; `model_.table()` is in the units of the table.""",
    "reading": """missing : {"error", "center"}
        Refuse missing and infinite values, or put them at the center of the domain.
    n_threads : int, optional
        Number of threads; by default all cores.
    ledger : (path, name), optional
        A `Ledger`'s file and the name of the data set that the records belong to. Every release is
        refused above its limit, and entered before noise is drawn. By default the ledger that
        PRIVSKETCH_LEDGER names.""",
    "seed": """random_state : int, optional
        Governs public randomness only: frequencies, directions, starts of a search. The noise has
        no seed, so two fits differ.""",
    "X": """Parameters
        ----------
        X : Table, array, data frame or, for k-means, sparse matrix; (n_records, n_columns)
        y : ignored""",
    "clusters": """receipt_ : Receipt
        What the fit cost, with its parts: one charge of (epsilon, delta) in all.
    model_ : ClusterModel
        The model, which can be saved.""",
    "concerns": """concerns_ : tuple of str
        Reasons to doubt the model, in words, which `fit` issues as warnings; empty if there are
        none.""",
    "seen": """n_features_in_ : int
    feature_names_in_ : ndarray of str
        Defined when X has string column names.""",
}


def documented(estimator: _Class) -> _Class:
    """Fill in the shared parts of docstrings of an estimator: {budget}, {domain} and others."""
    for thing in (estimator, vars(estimator)["fit"]):
        page = thing.__doc__ or ""
        for mark, text in _SHARED.items():
            page = page.replace(f"{{{mark}}}", text)
        thing.__doc__ = page
    return estimator


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Parameters and steps that all estimators have in common.

    Constructors only store, as scikit-learn asks; dataclasses write them.
    """

    epsilon: float | None = None
    delta: float | None = None
    domain: Domain | Schema | None = None
    missing: str = "error"
    n_threads: int | None = None
    random_state: int | None = None
    ledger: LedgerName = None

    def _public_facts(self, neighbours: Neighbours) -> tuple[Budget, Domain | Schema]:
        """Return budget and domain; raise an error if one is missing, as none has a default."""
        for name in ("epsilon", "delta", "domain"):
            if getattr(self, name) is None:
                raise ParameterError(
                    f"{name}: {type(self).__name__} needs epsilon=, delta= (0 for pure "
                    "differential privacy) and domain= (public bounds of the records); none is "
                    "taken from X. `privsketch --explain epsilon` says which epsilon to take"
                )
        if not isinstance(self.domain, Box | Ball | Schema):
            raise ParameterError("domain", self.domain, "expected a Schema, a Box or a Ball")
        budget = Budget(self.epsilon, self.delta, neighbours)  # type: ignore[arg-type]
        schema = schema_of(self.domain)
        if schema is not None:
            checked_missing(self.missing, schema)
            return schema.charged(budget), schema
        return budget, self.domain

    def _table_in(
        self, X: Any, domain: Domain | Schema, *, sparse: bool = False
    ) -> tuple[Table, Domain | Schema, int]:
        """Return a table for `fit`, the domain of its records, and their number of coordinates.

        A Table stays as it is, and so does everything with a schema, which reads tables of any
        kind; other arrays and frames are checked as scikit-learn does, and become arrays.
        """
        table = Table.of(X)
        self._require_missing(table)
        if isinstance(domain, Schema):
            seen(self, X, domain)
            return table, domain, domain.dim
        table = table.stating(missing=self.missing)
        if table.kind == "spark":
            width = columns_on_spark(self, table.data)
            return table, domain.with_dim(width), width
        if isinstance(X, Table):
            width = width_of(table, domain.dim)
            note_columns(self, names_of(table) or range(width))
            return table, domain.with_dim(width), width
        with counted_refusals(self.ledger, what="fit"):
            array = validated(self, table.data, reset=True, sparse=sparse, kind=table.kind)
        table = Table(array, missing=self.missing)
        return table, domain.with_dim(array.shape[1]), int(array.shape[1])

    def _require_missing(self, table: Table) -> None:
        """Refuse a Table that states another rule for missing values than the estimator."""
        if table.missing not in ("error", self.missing):
            raise ParameterError(
                f"`missing={table.missing!r}` in the Table: state it in the estimator, whose "
                "`predict` needs it too"
            )

    def _warn(self, domain: Domain | Schema, budget: Budget, n_records: float | None) -> None:
        """Warn about a doubtful domain or budget before anything is spent."""
        warn_of(stated_cautions(domain, budget, n_records, self._columns()))

    def _columns(self) -> tuple[str, ...] | None:
        """Return the names of the columns, which are public, for the model and its report."""
        schema = schema_of(self.domain)
        if schema is not None:
            return schema.coordinates
        names = tuple(str(name) for name in getattr(self, "feature_names_in_", []))
        return names if names and len(set(names)) == len(names) else None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = self.missing == "center"
        return tags


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateLearner(PrivateEstimator):
    """An estimator whose `fit` pays once and keeps a model.

    `predict` and others go by the model and the domain it was learned for, `_fitted_domain`.
    """

    neighbours: Neighbours = "add-remove"
    n_records: float | None = None

    def _public_records(self, table: Table, domain: Domain | Schema) -> float | None:
        """Return the number of records if it is stated, or public under "replace".

        With a schema the table has not been read yet.
        """
        if self.n_records is not None or self.neighbours == "add-remove":
            return self.n_records
        kinds = ("array", "pandas", "sparse")
        is_counted = not isinstance(domain, Schema) and table.kind in kinds
        return int(table.data.shape[0]) or None if is_counted else None

    def _planned(
        self,
        task: str,
        n_components: int | None,
        domain: Domain | Schema,
        budget: Budget,
        **choices: Any,
    ) -> Design:
        """Plan the design of a fit; the planner chooses parameters that are None."""
        return plan_design(
            task=task,
            n_components=n_components,
            domain=domain,
            budget=budget,
            random_state=self.random_state,
            columns=self._columns(),
            **{"n_records": self.n_records, **choices},
        )

    def _released(self, table: Table, design: Design) -> Sketch:
        """Release the sketch of a table, and keep it with its receipt as `sketch_`, `receipt_`.

        Charges: the design's budget, once.
        """
        if self.n_threads is not None and table.kind == "spark":
            raise ParameterError(
                f"`n_threads={self.n_threads}` with a Spark DataFrame: its workers use one thread "
                "each; leave it out"
            )
        engine = threads_or_default(self.n_threads)
        released = sketch(table, design, engine=engine, ledger=Counted(self.ledger))
        # Keep what was paid for, even if learning is interrupted.
        self.sketch_: Sketch | None = released
        self.receipt_: Receipt = released.receipt
        return released

    def _finished(self, concerns: tuple[str, ...]) -> Self:
        """Keep the concerns of the model, and warn of them; the last step of every fit."""
        self._fitted_domain = self.domain
        self.concerns_ = concerns
        warn_of(concerns)
        return self

    def _run_facts(self) -> dict[str, Any]:
        """Return the options of a clustering run, besides domain and budget."""
        checked_missing(self.missing)
        return {
            "n_threads": self.n_threads,
            "random_state": self.random_state,
            "ledger": Counted(self.ledger),
        }

    def _points(self, X: Any) -> tuple[Floats, npt.NDArray[np.bool_]] | None:
        """Return the points of X by the schema of `fit`, and the mask of rows that it keeps.

        None without a schema.
        """
        schema = schema_of(self._fitted_domain)
        return None if schema is None else read_points(X, schema)

    def _completed(self, X: Any) -> npt.NDArray[Any]:
        """Return X as a table for a fitted estimator, missing values filled as in `fit`."""
        check_is_fitted(self, "model_")
        points = self._points(X)
        if points is None:
            return self._filled(validated(self, X, reset=False))
        if not points[1].all():
            raise RecordError(
                "X: a row has a missing value, and the schema leaves such records out; leave "
                "those rows out of X"
            )
        return points[0]

    def _blocks(self, X: Any) -> Iterable[npt.NDArray[Any]]:
        """Yield the rows of X as `_completed` returns them, some at a time."""
        yield self._completed(X)

    def _filled(self, table: Any) -> npt.NDArray[Any]:
        """Return a table, or a matrix of SciPy, as an array, missing values filled as in `fit`."""
        rows = np.asarray(table.toarray() if hasattr(table, "tocsr") else table)
        if self.missing == "center" and isinstance(self._fitted_domain, Box | Ball):
            center = self._fitted_domain.with_dim(rows.shape[1]).center_vector
            rows = np.where(np.isfinite(rows), rows, center)
        return rows


class PredictsLabels:
    """Labels of rows, by the model of `fit`: of clusters and mixtures."""

    def predict(self: Any, X: Any) -> npt.NDArray[np.int64]:
        """Return the index of the nearest center, or the most probable component, of each row.

        The labels are exact: as sensitive as the rows of X themselves. Rows that a schema leaves
        out have the label -1.
        """
        check_is_fitted(self, "model_")
        points = self._points(X)
        if points is None:
            return np.asarray(self.model_.predict(self._completed(X)))
        rows, kept = points
        labels = self.model_.predict(np.where(kept[:, np.newaxis], rows, 0.0))
        return np.where(kept, labels, -1)

    def fit_predict(self: Any, X: Any, y: object = None, **kwargs: Any) -> npt.NDArray[np.int64]:
        """Fit on X, then predict its labels. Charges once; the labels are not private."""
        return np.asarray(self.fit(X).predict(X))


class MeasuresDistances(ClassNamePrefixFeaturesOutMixin, TransformerMixin):  # type: ignore[misc]
    """Distances of rows from the centers of `fit`."""

    def transform(self: Any, X: Any) -> Floats:
        """Return the distance of each row of X from each center, (n, n_clusters).

        With a schema these are distances between encoded records. They are exact: as sensitive as
        the rows of X themselves.
        """
        check_is_fitted(self, "model_")
        return np.concatenate([cdist(block, self.model_.centers) for block in self._blocks(X)])

    @property
    def _n_features_out(self: Any) -> int:
        return len(self.model_.centers)


class ScoresRows:
    """Scores of rows, by the density of the model of `fit`: of mixtures and components."""

    def score_samples(self: Any, X: Any) -> Floats:
        """Return the logarithm of the density at each row of X, (n,), as sensitive as the rows.

        For components it is that of probabilistic PCA.
        """
        rows = self._completed(X)
        return np.asarray(self.model_.score_samples(rows))

    def score(self: Any, X: Any, y: object = None) -> float:
        """Return the mean of `score_samples`.

        It is an exact statement about X, as sensitive as its rows. For the records of `fit` it is a
        release without a charge: publish scores of other records only.
        """
        rows = self._completed(X)
        return float(self.model_.score(rows))


def centers_of(model: ClusterModel) -> npt.NDArray[np.float64]:
    """Return the centers, in the units of the table if all its columns are numbers."""
    if model.schema is None or not model.schema.is_numeric:
        return model.centers
    return field_values(model.schema, model.centers)
