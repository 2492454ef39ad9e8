"""Private linear and logistic regression for one holder, as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
from scipy.special import logit
from sklearn.base import ClassifierMixin, RegressorMixin

from privsketch._base.errors import ParameterError, RecordError
from privsketch._base.types import Floats
from privsketch.estimators.base import documented
from privsketch.estimators.supervised import DEFAULT_TARGET, PrivateLinear
from privsketch.estimators.validation import target_cells
from privsketch.facts.columns import Column, Number
from privsketch.facts.labels import Category, Flag, Labelled
from privsketch.facts.schema import Schema
from privsketch.learning.concerns import COUNT_DEVIATIONS
from privsketch.learning.regression.learner import learn_classifier, learn_regression
from privsketch.models.classifier import ClassifierModel
from privsketch.tables.batches import column_values


@documented
@dataclass(repr=False, eq=False, kw_only=True)
class PrivateLinearRegression(RegressorMixin, PrivateLinear):  # type: ignore[misc]
    """Linear regression with differential privacy for one record.

    `fit` releases noisy second moments of X and y together and learns the regression from them.
    Every fitted attribute is a function of that release and of public facts, so all of them may be
    published. What `predict` says about a table is exact, and as sensitive as the table.

    Parameters
    ----------
    {budget}
    domain : Box or Schema
        Bounds of the columns of X, or public facts about them; no default. A schema may have the
        target as one of its columns. Values outside are moved to the bounds.
    target : (float, float), Number, Date, Flag or str
        Public bounds of y, or a column that states them; with a schema that has the target, its
        name. No default: bounds are never read off y. Values outside are moved to them. Missing
        ones are refused unless a schema or the column has a rule:
        `ps.Number("y", 0, 9, missing="drop")`.
    neighbours : {"add-remove", "replace"}
    n_records : float, optional
        Public order of magnitude of the number of records. Never taken from X.
    noise : {"gaussian", "laplace"}, optional
        Gaussian if delta > 0, else Laplace, if left out.
    clip : {"corner", "uniform"}, optional
        "uniform" takes a smaller ball of records, as in `Design.plan`, with less noise. It bends
        coefficients where records lie near corners of the bounds.
    {reading}
    {seed}

    Attributes
    ----------
    coef_ : (n_terms,) float64
        Coefficients to predict with, in the units of X: one for each column if all of them are
        numbers, else for each of `terms_`. Noise draws them towards zero.
        `model_.interval()` and `model_.table()` have estimates with intervals to report.
    intercept_ : float
    terms_ : tuple of str
        What the coefficients multiply: numbers, days of dates, labels against the most frequent
        one.
    r2_ : float
        Share of the variance of y that is explained, from the release.
    {concerns}
    receipt_ : Receipt
        What the fit cost: one charge of (epsilon, delta).
    sketch_ : Sketch
        The release itself. `privsketch.learn_regression` learns from it with other columns, free of
        charge.
    model_ : RegressionModel
        The model learned from it.
    {seen}

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(20, 90, size=(20_000, 1))
    >>> y = 90 + 0.4 * X[:, 0] + rng.normal(0, 10, 20_000)
    >>> model = ps.PrivateLinearRegression(epsilon=1.0, delta=1e-6, domain=ps.Box(18, 100),
    ...                                    target=(60, 200)).fit(X, y)
    >>> model.receipt_.epsilon, model.receipt_.delta
    (1.0, 1e-06)
    >>> bool(abs(model.coef_[0] - 0.4) < 0.03), bool(abs(model.predict([[50]])[0] - 110) < 2)
    (True, True)
    """

    def fit(self, X: Any, y: Any = None, **others: Any) -> Self:
        """Release second moments of X and y, and learn the regression from them.

        Charges: epsilon and delta, once.

        Parameters
        ----------
        X : Table, array or data frame; (n_records, n_columns)
        y : (n_records,) array of numbers, optional
            Left out if the schema names a column of X as the target.
        """
        model = learn_regression(self._sketch_of("regression", X, y, others))
        self.coef_ = model.coef
        self.intercept_ = model.intercept
        self.r2_ = model.r2
        return self._keep(model)

    def _target_column(self, schema: Schema | None) -> Column:
        example = "target=ps.Number('pressure', 60, 200)"
        found = self._stated_column(schema, example)
        if found is not None:
            return found
        bounds = self.target if isinstance(self.target, tuple | list) else ()
        if len(bounds) != 2:
            raise ParameterError(
                "target", self.target, "PrivateLinearRegression needs public bounds of y, which "
                "are never read off y", f"state `target=(low, high)`, `{example}`, or the name of "
                "a column of the schema",
            )  # fmt: skip
        return Number(DEFAULT_TARGET, *bounds)

    def predict(self, X: Any) -> Floats:
        """Return predictions for the rows of X, (n,), in the units of y; days of dates.

        They are exact: as sensitive as the rows of X themselves. X is cut to the bounds of a
        schema, and not to those of a box, where predictions are `X @ coef_ + intercept_`.
        """
        rows = self._rows(X)
        return np.asarray(self.model_.predict(rows))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R^2 of the predictions for X.

        It is an exact statement about X and y, as sensitive as their rows. For the records of `fit`
        it is a release without a charge: publish scores of other records only.
        """
        values = np.asarray(self._own_y(X, y))
        if np.issubdtype(values.dtype, np.datetime64):
            values = values.astype("datetime64[s]").astype(np.float64) / 86_400
        return float(super().score(X, values, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # noise decides over a few hundred records
        return tags


@documented
@dataclass(repr=False, eq=False, kw_only=True)
class PrivateLogisticRegression(ClassifierMixin, PrivateLinear):  # type: ignore[misc]
    """Logistic regression with differential privacy for one record, for two classes or more.

    `fit` releases noisy second moments of X and y together. Scores are fitted to them by least
    squares, and logistic curves to released numbers, so that probabilities are calibrated. Every
    fitted attribute is a function of that release and of public facts, so all of them may be
    published. What `predict` says about a table is exact, and as sensitive as the table.

    Parameters
    ----------
    {budget}
    domain : Box or Schema
        Bounds of the columns of X, or public facts about them; no default. A schema may have the
        target as one of its columns. Values outside are moved to the bounds.
    classes : list of str, int or bool, optional
        All labels of y, in the order of `classes_`: they are never read off y. With two classes,
        another label is a cell that cannot be read, and refused unless a schema says otherwise
        (`unreadable="missing"`); with more, it counts as none of them. A missing one is refused.
    target : str, Category or Flag, optional
        In place of `classes`: the column of the labels, or its name in the schema. Other and
        missing labels are then what the schema says.
    neighbours : {"add-remove", "replace"}
    n_records : float, optional
        Public order of magnitude of the number of records. Never taken from X.
    noise : {"gaussian", "laplace"}, optional
        Gaussian if delta > 0, else Laplace, if left out.
    clip : {"corner", "uniform"}, optional
        "uniform" takes a smaller ball of records, as in `Design.plan`, with less noise.
    {reading}
    {seed}

    Attributes
    ----------
    classes_ : (n_classes,) ndarray
        The classes that were stated.
    coef_, intercept_ : (n_scores, n_terms), (n_scores,) float64
        Log odds to predict with, in the units of X: of the second of two classes, or of each class
        against the rest. `predict_proba` is their logistic function, normalised over classes.
        Results to report are differences of probability with intervals, not odds ratios:
        `model_.table()`.
    terms_ : tuple of str
        What the coefficients multiply: numbers, days of dates, labels against the most frequent
        one.
    {concerns}
    receipt_ : Receipt
        What the fit cost: one charge of (epsilon, delta).
    sketch_ : Sketch
        The release itself. `privsketch.learn_classifier` learns from it with other columns, free of
        charge.
    model_ : ClassifierModel
        The model learned from it.
    {seen}

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(20, 90, size=(20_000, 1))
    >>> y = np.where(rng.random(20_000) < 1 / (1 + np.exp(5 - X[:, 0] / 15)), "ill", "well")
    >>> model = ps.PrivateLogisticRegression(epsilon=1.0, delta=1e-6, domain=ps.Box(18, 100),
    ...                                      classes=["well", "ill"]).fit(X, y)
    >>> model.predict([[25], [85]]).tolist()
    ['well', 'ill']
    >>> bool(abs(model.coef_[0, 0] - 1 / 15) < 0.02)
    True
    """

    classes: Sequence[Any] | None = None

    def fit(self, X: Any, y: Any = None, **others: Any) -> Self:
        """Release second moments of X and y, and learn the classifier from them.

        Charges: epsilon and delta, once.

        Parameters
        ----------
        X : Table, array or data frame; (n_records, n_columns)
        y : (n_records,) array of labels, optional
            Left out if the schema names a column of X as the target.
        """
        model = learn_classifier(self._sketch_of("classification", X, y, others))
        column = cast(Schema, model.target_schema).columns[0]
        if self.classes is not None:
            labels = Category(column.name, list(self.classes)).values
            self.classes_ = _as_labels(self.classes)
        elif isinstance(column, Flag):
            labels, self.classes_ = ("no", "yes"), np.array([False, True])
        else:
            labels = cast(Category, column).values
            self.classes_ = np.array(labels)
        self._label_column = self._reading(column)
        self._fitted_classes = self._stated_classes
        # Other and missing labels are no classes.
        self._parts = list(range(len(labels)))
        parts = [0] if len(model.coef) == 1 else self._parts
        self.coef_ = model.calibration[parts, 1:] * model.coef[parts]
        self.intercept_ = model.calibration[parts, 0] - self.coef_ @ model.center
        return self._keep(replace(model, concerns=(*model.concerns, *self._unlisted(model))))

    def _unlisted(self, model: ClassifierModel) -> list[str]:
        """Return a concern if more labels than noise explains are none of the stated classes."""
        rest = [place for place in range(model.n_classes) if place not in self._parts]
        if self.classes is None or not rest:
            return []
        share, error = float(model.shares[rest[0]]), float(model.share_errors[rest[0]])
        if share <= COUNT_DEVIATIONS * error:
            return []
        return [f"about {share:.1%} of the labels of y are none of the stated classes"]

    def _target_column(self, schema: Schema | None) -> Column:
        example = "target=ps.Category('ward', ['north', 'south'])"
        found = self._stated_column(schema, example)
        if (found is None and self.target is not None) or (
            found is not None and not isinstance(found, Labelled)
        ):
            raise ParameterError(
                "target", self.target, "expected a category or a flag", f"such as `{example}`"
            )
        if (found is None) == (self.classes is None):
            raise ParameterError(
                f"classes={self.classes!r}, target={self.target!r}: PrivateLogisticRegression "
                "needs the classes, which are never read off y; state one of the two: "
                f"`classes=[...]` with all labels, `{example}`, or the name of a column of the "
                "schema"
            )
        if found is not None:
            return found
        if not isinstance(self.classes, list | tuple | np.ndarray):
            raise ParameterError("classes", self.classes, "expected a list of labels, in order")
        known = Category(DEFAULT_TARGET, list(self.classes))
        if len(known.values) < 2:
            raise ParameterError("classes", self.classes, "expected two labels at least")
        return Flag(DEFAULT_TARGET) if len(known.values) == 2 else known

    def _reading(self, target: Column) -> Column:
        """Return the column by which labels of y are read: two stated classes are a flag's."""
        if self.classes is None or isinstance(target, Category):
            return target
        return Category(target.name, list(self.classes))

    def _cells(self, cells: Any, target: Column, schema: Schema) -> Any:
        """Return the cells of y; those of two stated classes as 0 and 1.

        Another label is a cell that cannot be read.
        """
        cells, column = _numbered(cells, self._stated_classes), self._reading(target)
        if column is target:
            return cells
        values = column_values(column, cells, schema.unreadable)
        if schema.unreadable == "missing":
            return np.where(values > 1, np.nan, values)
        if (values > 1).any():
            raise RecordError(
                "y: a label is none of the two `classes`, whose types count: True is not 1; list "
                "all labels, or state a Category as `target=`, which counts others as 'other'"
            )
        return values

    @property
    def _stated_classes(self) -> list[Any]:
        return [] if self.classes is None else list(self.classes)

    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities of the classes for the rows of X, (n, n_classes).

        They are exact: as sensitive as the rows of X themselves. With labels that are no class,
        probabilities are those of a record that has one of the classes.
        """
        rows = self._rows(X)
        found = self.model_.predict_proba(rows)[:, self._parts]
        total = found.sum(axis=1, keepdims=True)
        none = np.broadcast_to(1 / found.shape[1], found.shape)
        return np.asarray(np.divide(found, total, out=none.copy(), where=total > 0))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class for each row of X, as sensitive as the rows."""
        places = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[places])

    def decision_function(self, X: Any) -> Floats:
        """Return log odds: of the second of two classes, (n,), else of each class, (n, n_classes).

        The rows of X are cut to the bounds of a schema, and not to those of a box, where these are
        `X @ coef_.T + intercept_`.
        """
        rows = self._rows(X)
        scores = self.model_.decision_function(rows)
        if scores.shape[1] == 1:
            return np.asarray(scores[:, 0])
        if len(self._parts) > 2:
            return np.asarray(scores[:, self._parts])
        found = np.clip(self.predict_proba(X)[:, 1], 1e-300, 1 - 1e-16)
        return np.asarray(logit(found))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of the rows of X whose class in y is the predicted one.

        It is an exact statement about X and y, as sensitive as their rows. For the records of `fit`
        it is a release without a charge: publish scores of other records only.
        """
        found = self.predict_proba(X).argmax(axis=1)
        cells = _numbered(target_cells(self._own_y(X, y)), self._fitted_classes)
        truth = column_values(self._label_column, cells, "missing")
        if len(truth) != len(found):
            raise RecordError("X and y have inconsistent numbers of samples")
        return float(np.average(found == truth, weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # noise decides over a few hundred records
        return tags


def _as_labels(classes: Sequence[Any]) -> npt.NDArray[Any]:
    """Return stated classes as an array; those of several types keep theirs."""
    is_plain = len({type(label) for label in classes}) == 1
    return np.array(list(classes), dtype=None if is_plain else object)


def _numbered(cells: Any, classes: Sequence[Any]) -> Any:
    """Return booleans as 0 and 1 if no stated class is one.

    Each cell for itself: another type of one must not change how others are read.
    """
    has_booleans = any(isinstance(label, bool | np.bool_) for label in classes)
    if len(classes) == 0 or has_booleans:
        return cells
    if cells.dtype.kind == "b":
        return cells.astype("Int8" if hasattr(cells, "iloc") else np.int8)
    if cells.dtype != object and not hasattr(cells.dtype, "categories"):
        return cells
    numbered = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        numbered[place] = int(cell) if isinstance(cell, bool | np.bool_) else cell
    return numbered
