"""The model of a classifier learned from a sketch, and its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from privsketch._base.errors import ParameterError, require_one_of
from privsketch._base.formats import as_line, count_text
from privsketch._base.notebook import table
from privsketch._base.types import Floats
from privsketch.facts.labels import Flag, label_text
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema
from privsketch.facts.units import digits, frame
from privsketch.models.base import require_rows
from privsketch.models.drawing.regression import plot_calibration, plot_coefficients
from privsketch.models.linear import LinearModel, coefficient_lines, interval_of, require_shapes


@dataclass(frozen=True, eq=False, repr=False)
class ClassifierModel(LinearModel):
    """A classifier learned from a sketch, with calibrated probabilities.

    Coefficients are differences of probability, not odds ratios: by how much the share of a class
    differs where a term is larger by one. `predict_proba` turns the linear score of each class into
    a probability by a logistic curve that was fitted to released numbers.

    Attributes
    ----------
    target : str
        Name of the column with the classes.
    classes : tuple of str
        Labels of the column.
    coef : (n_parts, n_terms) float64
        Coefficients to predict with, a row for each class; one row, of the second class, if there
        are two.
    intercept : (n_parts,) float64
    calibration : (n_parts, 2) float64
        alpha and beta of the probability 1 / (1 + exp(-alpha - beta s)), where s is the score
        `(terms - center) @ coef`.
    center : (n_terms,) float64
        Mean of the terms.
    estimate, covariance : (n_parts, n_terms), (n_parts, n_terms, n_terms) float64
        Coefficients without shrinkage, and their covariances; intervals of a class in `drowned` do
        not exist.
    identified : (n_terms,) float64
        As in `RegressionModel`.
    drowned : tuple of bool
        Whether noise leaves nothing to say about a class, for each part.
    shares, share_errors : (n_classes,) float64
        Released shares of the classes, and their standard errors.
    groups : tuple of str
        Labels of the predictors that enough records have.
    group_predictions, group_shares, group_errors : (n_parts, n_groups) float64
        Mean probability of a class among the records with such a label, the released share of the
        class there, and its standard error: a look at calibration from released numbers alone.
    references, n_records, target_schema, design_fingerprint, columns, concerns, receipt, schema
        As in `RegressionModel`.
    """

    KIND: ClassVar[str] = "classifier-model"
    ARRAYS: ClassVar[tuple[str, ...]] = (
        *("coef", "intercept", "calibration", "center", "estimate", "covariance", "identified"),
        *("shares", "share_errors", "group_predictions", "group_shares", "group_errors"),
    )

    target: str
    classes: tuple[str, ...]
    coef: Floats
    intercept: Floats
    calibration: Floats
    center: Floats
    estimate: Floats
    covariance: Floats
    identified: Floats
    drowned: tuple[bool, ...]
    shares: Floats
    share_errors: Floats
    groups: tuple[str, ...]
    group_predictions: Floats
    group_shares: Floats
    group_errors: Floats
    references: tuple[str, ...]
    n_records: float
    target_schema: Schema | None
    design_fingerprint: str
    receipt: Receipt
    columns: tuple[str, ...] | None = None
    concerns: tuple[str, ...] = ()
    schema: Schema | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def part_names(self) -> tuple[str, ...]:
        """Class of each row of `coef`: the second of two, or all."""
        return self.classes[1:] if len(self.coef) == 1 else self.classes

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Return log odds for the rows of X, (n, n_parts): of each class against the rest.

        With a schema, X has encoded records of the predictors, which `privsketch.encode` makes.
        """
        scores = (self._values(X, "decision_function") - self.center) @ self.coef.T
        return np.asarray(self.calibration[:, 0] + self.calibration[:, 1] * scores)

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Return probabilities of the classes for the rows of X, (n, n_classes).

        With a schema, X has encoded records of the predictors, which `privsketch.encode` makes.
        Probabilities of several classes are found for each against the rest, and normalised.
        """
        found: Floats = expit(self.decision_function(X))
        if len(self.coef) == 1:
            return np.column_stack([1 - found[:, 0], found[:, 0]])
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the most probable class for each row of X, (n,): labels, or booleans of a flag.

        They are exact and hence as sensitive as the rows themselves.
        """
        places = self.predict_proba(X).argmax(axis=1)
        if self._is_flag:
            return np.asarray(places == 1)
        return np.asarray(np.array(self.classes, dtype=object)[places])

    @property
    def _is_flag(self) -> bool:
        return isinstance(self._target_column, Flag) and self.n_classes == 2

    def score(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Return the share of the rows of X whose class in y is the predicted one.

        y has labels of the table; booleans, 0 and 1, or "yes" and "no" for a flag. An exact
        statement about X and y, not a private one.
        """
        places = require_rows(self.predict_proba(X), "score").argmax(axis=1)
        given = np.asarray(y)
        if given.shape != (len(places),):
            raise ParameterError(f"score: expected {len(places)} labels in y, as X has rows")
        known = {label_text(label): place for place, label in enumerate(self.classes)}
        if self._is_flag:
            known |= {"true": 1, "1": 1, "false": 0, "0": 0}
        other = known.get("other", -1)
        truth = [known.get(label_text(label), other) for label in given.tolist()]
        return float(np.mean(places == np.array(truth)))

    @property
    def standard_errors(self) -> Floats:
        """Standard errors of `estimate`, (n_parts, n_terms); NaN where noise leaves none."""
        errors = np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 0.0))
        kept = self.is_identified[np.newaxis] & ~np.array(self.drowned)[:, np.newaxis]
        return np.where(kept, errors, np.nan)

    def interval(self, level: float = 0.95) -> Floats:
        """Return intervals of the differences of probability, (n_parts, n_terms, 2): low, high."""
        return interval_of(self.estimate, self.standard_errors, level)

    def table(self, what: str = "coefficients", level: float = 0.95) -> Any:
        """Return a pandas frame of the results.

        Parameters
        ----------
        what : {"coefficients", "classes"}
            Coefficients are differences of probability, not odds ratios: name, estimate, low, high,
            the label that a label is compared with, `identified`, the coefficient to predict with,
            and the class. Classes have their released shares.
        level : float
            Level of the intervals.
        """
        require_one_of("what", what, ("coefficients", "classes"))
        if what == "classes":
            interval = np.clip(interval_of(self.shares, self.share_errors, level), 0.0, 1.0)
            columns: dict[str, Any] = {"name": list(self.classes), "estimate": self.shares}
            return frame({**columns, "low": interval[:, 0], "high": interval[:, 1]})
        intervals, parts = self.interval(level), len(self.coef)
        estimates = np.where(np.isnan(self.standard_errors), np.nan, self.estimate)
        columns = {"name": list(self.names) * parts, "estimate": estimates.reshape(-1)}
        columns["low"], columns["high"] = intervals.reshape(-1, 2).T
        columns["against"] = list(self.against) * parts
        columns["identified"] = np.tile(self.identified, parts)
        columns["coef"] = self.coef.reshape(-1)
        columns["class"] = [label for label in self.part_names for _ in self.names]
        return frame(columns)

    def plot(self, what: str = "calibration", label: str | None = None, ax: Any = None) -> Any:
        """Draw results, and return the Axes.

        Parameters
        ----------
        what : {"calibration", "coefficients"}
            Released shares of a class among the records with each label of the predictors, beside
            their mean predicted probabilities; or differences of probability with 95 % intervals,
            each relative to its own error.
        label : str, optional
            The class; the second of two, or the most frequent one, if left out.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        require_one_of("what", what, ("calibration", "coefficients"))
        part = self._part(label)
        if what == "calibration":
            return plot_calibration(self, part, ax)
        errors = self.standard_errors[part]
        estimate = np.where(np.isnan(errors), np.nan, self.estimate[part])
        texts = [row[1] for row in self.shown_coefficients(part)]
        return plot_coefficients(self.names, estimate, errors, texts, ax)

    def _part(self, label: str | None) -> int:
        if label is None:
            return 0 if len(self.coef) == 1 else int(self.shares.argmax())
        require_one_of("label", label, self.part_names)
        return self.part_names.index(label)

    def shown_coefficients(self, part: int) -> list[tuple[str, str, str]]:
        """Return name, difference of probability with interval, and remark for each term."""
        intervals, rows = self.interval()[part], []
        for place, name in enumerate(self.names):
            label = self.against[place]
            remark = f"against {label}" if label else ""
            numbers = np.array([self.estimate[part, place], *intervals[place]])
            text = "drowned in noise"
            if not np.isnan(numbers).any():
                error = float(self.standard_errors[part, place])
                value, low, high = (digits(float(number), error) for number in numbers)
                text = f"{value} ({low} to {high})"
            rows.append((as_line(name), text, remark))
        return rows

    def _opening_lines(self) -> list[str]:
        shares = ", ".join(
            f"{as_line(label)} {share:.1%}"
            for label, share in zip(self.classes[:6], self.shares, strict=False)
        )
        more = ", ..." if self.n_classes > 6 else ""
        size = count_text(len(self.names), "term")
        about = f"{as_line(self.target)} by {size}, about {self.n_records:.0f} records"
        return [
            f"classifier  {about}",
            f"classes     {shares}{more}",
            "numbers     differences of probability, not odds ratios; 95 % intervals",
        ]

    def _result_lines(self) -> list[str]:
        part = self._part(None)
        title = f"P({as_line(self.part_names[part])})"
        return coefficient_lines(title, self.shown_coefficients(part))

    def _html_table(self) -> str:
        rows = [self.shown_coefficients(part) for part in range(len(self.coef))]
        heads = [name for name, _, _ in rows[0]]
        cells = [
            [*(row[place][1] for row in rows), rows[0][place][2]] for place in range(len(heads))
        ]
        names = [f"P({as_line(label)})" for label in self.part_names]
        return table("term", heads, [*names, ""], cells)

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        shared = cls._checked_parts(fields)
        for name in ("classes", "groups"):
            texts = fields[name]
            if not isinstance(texts, list) or not all(type(text) is str for text in texts):
                raise ParameterError(f"{name} must be a list of labels")
        drowned, size = fields["drowned"], len(fields["classes"])
        parts, terms, groups = 1 if size == 2 else size, len(fields["identified"]), fields["groups"]
        if size < 2 or not isinstance(drowned, list) or len(drowned) != parts:
            raise ParameterError("there must be two classes or more, each drowned or not")
        if not all(type(one) is bool for one in drowned):
            raise ParameterError("drowned must be true or false for each class")
        require_shapes(
            fields,
            dict.fromkeys(("coef", "estimate"), (parts, terms))
            | {"covariance": (parts, terms, terms), "center": (terms,)}
            | {"intercept": (parts,), "calibration": (parts, 2)}
            | dict.fromkeys(("shares", "share_errors"), (size,))
            | {
                name: (parts, len(groups))
                for name in ("group_predictions", "group_shares", "group_errors")
            },
        )
        texts = {name: tuple(fields[name]) for name in ("classes", "groups", "drowned")}
        return {**shared, **texts}
