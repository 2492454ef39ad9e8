"""The model of a regression learned from a sketch, and its file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_one_of
from privsketch._base.formats import as_line, count_text
from privsketch._base.notebook import table
from privsketch._base.types import Floats
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema
from privsketch.facts.terms import label_coordinate, term_values, values_of_term
from privsketch.facts.units import digits, frame
from privsketch.models.base import require_numbers, require_rows
from privsketch.models.drawing.regression import plot_coefficients, plot_residuals
from privsketch.models.linear import LinearModel, coefficient_lines, interval_of, require_shapes


@dataclass(frozen=True, eq=False, repr=False)
class RegressionModel(LinearModel):
    """A regression learned from a sketch, in the units of the table.

    `coef` and `intercept` are posterior means: they predict best, and are drawn towards zero where
    noise is large. `estimate` and its intervals are not: they are what to report. Coefficients are
    about one unit of a number, one day of a date, a factor of e of a logarithmic number, yes
    instead of no, or a label instead of the most frequent label of its category.

    Attributes
    ----------
    target : str
        Name of the column that is explained, or of a label's coordinate, such as "ward=A".
    coef : (n_terms,) float64
        Coefficients to predict with, in the order of `names`.
    intercept : float
        Prediction where all terms are 0.
    spread : (n_terms, n_terms) float64
        Covariance of the posterior of `coef`.
    center : (n_terms,) float64
        Mean of the terms.
    estimate : (n_terms,) float64, optional
        Coefficients without shrinkage. None if noise leaves nothing to say about the target.
    covariance : (n_terms, n_terms) float64, optional
        Covariance of `estimate`, by privacy noise and sampling; errors of records are taken to have
        one variance.
    partial_correlations, partial_errors : (n_terms,) float64, optional
        Correlations of the target with each term, given all others, and their standard errors.
    intercept_estimate, intercept_error : float, optional
        Intercept without shrinkage, and its standard error.
    identified : (n_terms,) float64
        Share of each coefficient's direction that stands out of the noise. Below 0.9 there is no
        interval: the estimate leans on the prior.
    residual_variance, residual_error : float
        Variance that the terms leave unexplained, and its standard error.
    target_variance : float
    r2, r2_error : float
        Share of the variance that is explained, and its standard error.
    residual_names : tuple of str
        Coordinates of all other columns of the sketch, those left out of the regression too.
    residual_correlations, residual_errors : (n_coordinates,) float64
        Correlations of the residuals with them, and standard errors. One that is far from 0 is what
        the regression leaves out.
    references : tuple of str
        Label with which others are compared, for each category: the most frequent one.
    n_records : float
        Number of records: exact, noisy, or the planned one if the sketch has none.
    target_schema : Schema, optional
        That of the target alone.
    design_fingerprint : str
    columns : tuple of str
        Names of the coordinates of the predictors.
    concerns : tuple of str
        Reasons to doubt the results, as texts; empty if there are none.
    receipt : Receipt
        Cost of the sketch. Learning added nothing.
    schema : Schema, optional
        Encoding of the predictors: `privsketch.encode(table, model.schema)` makes rows for
        `predict`.
    """

    KIND: ClassVar[str] = "regression-model"
    ARRAYS: ClassVar[tuple[str, ...]] = (
        *("coef", "spread", "center", "estimate", "covariance", "partial_correlations"),
        *("partial_errors", "identified", "residual_correlations", "residual_errors"),
    )
    ABSENT: ClassVar[tuple[str, ...]] = (
        *("estimate", "covariance", "partial_correlations", "partial_errors"),
    )

    target: str
    coef: Floats
    intercept: float
    spread: Floats
    center: Floats
    estimate: Floats | None
    covariance: Floats | None
    partial_correlations: Floats | None
    partial_errors: Floats | None
    intercept_estimate: float | None
    intercept_error: float | None
    identified: Floats
    residual_variance: float
    residual_error: float
    target_variance: float
    r2: float
    r2_error: float
    residual_names: tuple[str, ...]
    residual_correlations: Floats
    residual_errors: Floats
    references: tuple[str, ...]
    n_records: float
    target_schema: Schema | None
    design_fingerprint: str
    receipt: Receipt
    columns: tuple[str, ...] | None = None
    concerns: tuple[str, ...] = ()
    schema: Schema | None = None

    @property
    def drowned(self) -> bool:
        """Whether noise leaves nothing to say about the target."""
        return self.estimate is None

    @property
    def standard_errors(self) -> Floats:
        """Standard errors of `estimate`, (n_terms,); NaN without one."""
        if self.covariance is None:
            return np.full(len(self.coef), np.nan)
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def interval(self, level: float = 0.95) -> Floats:
        """Return intervals of the coefficients, (n_terms, 2): low, high.

        By noise and sampling. NaN where noise leaves none: see `identified`. Columns that were
        chosen after a look at their intervals no longer have this level.
        """
        if self.estimate is None:
            return np.full((len(self.coef), 2), np.nan)
        errors = np.where(self.is_identified, self.standard_errors, np.nan)
        return interval_of(self.estimate, errors, level)

    def partial_correlation(self, name: str, level: float = 0.95) -> tuple[float, float, float]:
        """Return the correlation of the target with a term given all others, low and high."""
        require_one_of("name", name, self.names)
        place = self.names.index(name)
        if self.partial_correlations is None or not self.is_identified[place]:
            return math.nan, math.nan, math.nan
        low, high = self._partial_interval(level)[place].tolist()
        return float(self.partial_correlations[place]), low, high

    def _partial_interval(self, level: float) -> Floats:
        if self.partial_correlations is None or self.partial_errors is None:
            return np.full((len(self.coef), 2), np.nan)
        errors = np.where(self.is_identified, self.partial_errors, np.nan)
        return np.clip(interval_of(self.partial_correlations, errors, level), -1.0, 1.0)

    def predict(self, X: npt.ArrayLike) -> Floats:
        """Return predictions of the target for the rows of X, (n,), in the units of the table.

        With a schema, X has encoded records of the predictors, which `privsketch.encode` makes.
        Dates are days since 1970-01-01; a logarithmic number has its geometric mean. Predictions
        are exact and hence as sensitive as the rows themselves.
        """
        return self._in_units(self.intercept + self._values(X, "predict") @ self.coef)

    def predict_interval(self, X: npt.ArrayLike, level: float = 0.95) -> Floats:
        """Return intervals for the targets of single records like the rows of X, (n, 2).

        They have the residuals of records, taken to be normal with one variance, and the error of
        the prediction.
        """
        values = self._values(X, "predict_interval")
        offsets = values - self.center
        wide = min(self.residual_variance + self.residual_error, self.target_variance)
        variance = wide + np.einsum("ij,jk,ik->i", offsets, self.spread, offsets)
        errors = np.sqrt(np.maximum(variance, 0.0))
        return self._in_units(interval_of(self.intercept + values @ self.coef, errors, level))

    def _in_units(self, terms: Floats) -> Floats:
        column = self._target_column
        return terms if column is None else values_of_term(column, terms)

    def score(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Return R^2 of the predictions for targets y, on the scale of the regression.

        y has values of the table: numbers, dates as datetime64, 0 and 1 for a flag or a label. An
        exact statement about X and y, not a private one.
        """
        fitted = self.intercept + require_rows(self._values(X, "score"), "score") @ self.coef
        values = self._targets(y, len(fitted))
        total = float(np.square(values - values.mean()).sum())
        left = float(np.square(values - fitted).sum())
        return 1 - left / total if total > 0 else float(left == 0)

    def _targets(self, y: npt.ArrayLike, size: int) -> Floats:
        """Return the target's term for values of the table."""
        column, given = self._target_column, np.asarray(y)
        if np.issubdtype(given.dtype, np.datetime64):
            given = given.astype("datetime64[s]").astype(np.float64)
        try:
            values = given.astype(np.float64)
        except (TypeError, ValueError):
            raise ParameterError("score: y is not a list of numbers") from None
        if values.shape != (size,) or not np.isfinite(values).all():
            raise ParameterError(f"score: expected {size} finite values of y, as X has rows")
        if column is None or label_coordinate(Schema((column,), missing="drop"), self.target):
            return values
        return term_values(column, values)

    def table(self, what: str = "coefficients", level: float = 0.95) -> Any:
        """Return a pandas frame of the results in the units of the table.

        Parameters
        ----------
        what : {"coefficients", "partial correlations", "residuals"}
            Coefficients without shrinkage: name, estimate, low, high, the label that a label is
            compared with, `identified` and the coefficient to predict with. Numbers are NaN where
            noise leaves none.
        level : float
            Level of the intervals.
        """
        require_one_of("what", what, ("coefficients", "partial correlations", "residuals"))
        if what == "residuals":
            interval = interval_of(self.residual_correlations, self.residual_errors, level)
            columns: dict[str, Any] = {"name": list(self.residual_names)}
            columns["estimate"] = self.residual_correlations
            low_high = np.clip(interval, -1.0, 1.0)
            return frame({**columns, "low": low_high[:, 0], "high": low_high[:, 1]})
        missing = np.full(len(self.coef), np.nan)
        if what == "coefficients":
            estimate, interval = self.estimate, self.interval(level)
        else:
            estimate, interval = self.partial_correlations, self._partial_interval(level)
        shown = self._coefficient_table(missing if estimate is None else estimate, interval)
        return frame({**shown, "coef": self.coef} if what == "coefficients" else shown)

    def plot(self, what: str = "coefficients", ax: Any = None) -> Any:
        """Draw results, and return the Axes.

        Parameters
        ----------
        what : {"coefficients", "residuals"}
            Coefficients with 95 % intervals, each relative to its own error, which makes units
            comparable; or correlations of the residuals with all columns.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        require_one_of("what", what, ("coefficients", "residuals"))
        if what == "residuals":
            return plot_residuals(self, ax)
        texts = [row[1] for row in self.shown_coefficients()]
        estimate = np.full(len(self.coef), np.nan) if self.estimate is None else self.estimate
        errors = np.where(self.is_identified, self.standard_errors, np.nan)
        return plot_coefficients(self.names, estimate, errors, texts, ax)

    def shown_coefficients(self) -> list[tuple[str, str, str]]:
        """Return name, estimate with interval, and remark for each term, as texts."""
        interval = self.interval()
        rows = []
        for place, name in enumerate(self.names):
            label = self.against[place]
            remark = f"against {label}" if label else ""
            if self.estimate is None or not self.is_identified[place]:
                rows.append((as_line(name), "drowned in noise", remark))
                continue
            error = float(self.standard_errors[place])
            numbers = (self.estimate[place], *interval[place])
            value, low, high = (digits(float(number), error) for number in numbers)
            rows.append((as_line(name), f"{value} ({low} to {high})", remark))
        return rows

    def _opening_lines(self) -> list[str]:
        size = count_text(len(self.coef), "term")
        lines = [
            f"regression  {as_line(self.target)} on {size}, about {self.n_records:.0f} records"
        ]
        if self.drowned:
            return [*lines, "fit         nothing: noise is larger than what the target varies"]
        low, high = np.clip(
            interval_of(np.array([self.r2]), np.array([self.r2_error]), 0.95)[0], 0, 1
        )
        fit = f"explains {self.r2:.1%} of the variance ({low:.1%} to {high:.1%})"
        return [*lines, f"fit         {fit}", "intervals   95 %, by noise and sampling"]

    def _result_lines(self) -> list[str]:
        return coefficient_lines("coefficient", self.shown_coefficients())

    def _html_table(self) -> str:
        rows = self.shown_coefficients()
        cells = [[estimate, remark] for _, estimate, remark in rows]
        return table("term", [name for name, _, _ in rows], ["coefficient", ""], cells)

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        shared = cls._checked_parts(fields)
        require_numbers(
            fields, ("residual_variance", "residual_error", "target_variance", "r2", "r2_error")
        )
        size = len(fields["identified"])
        names = fields["residual_names"]
        if not isinstance(names, list) or not all(type(name) is str for name in names):
            raise ParameterError("residual_names must be a list of names")
        require_shapes(
            fields,
            dict.fromkeys(("coef", "center", "estimate"), (size,))
            | dict.fromkeys(("partial_correlations", "partial_errors"), (size,))
            | dict.fromkeys(("spread", "covariance"), (size, size))
            | dict.fromkeys(("residual_correlations", "residual_errors"), (len(names),)),
        )
        absent = {fields[name] is None for name in (*cls.ABSENT, *_INTERCEPTS)}
        if len(absent) > 1:
            raise ParameterError("an estimate is missing")
        for name in ("intercept", *(() if True in absent else _INTERCEPTS)):
            if type(fields[name]) is not float or not math.isfinite(fields[name]):
                raise ParameterError(f"{name} must be a number")
        return {**shared, "residual_names": tuple(names)}


_INTERCEPTS = ("intercept_estimate", "intercept_error")
