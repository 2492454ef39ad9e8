"""The model of a Gaussian mixture that was learned privately, and its file.

Components are Gaussian in numbers and dates. A category or a flag has shares of its labels in each
component, and a cycle a wrapped normal law. Both follow from the component's mean: the coordinates
of a label's mean are shares, and the mean of a cycle is the nearer to the circle, the more its
values agree. Within a component such columns are independent of each other and of the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from privsketch._base.errors import ParameterError, require_count
from privsketch._base.types import Floats, Indices
from privsketch.design.size import COVARIANCE_TYPES, CovarianceType, mixture_unknowns
from privsketch.facts.columns import Cycle
from privsketch.facts.labels import Labelled
from privsketch.facts.layout import drawn_corners
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema
from privsketch.facts.units import field_covariance, field_names, frame, records_of
from privsketch.features.frequencies import public_seed
from privsketch.models.base import (
    SHOWN_COLUMNS,
    Model,
    as_rows,
    center_lines,
    diagonal_matrices,
    require_fingerprint,
    require_numbers,
    require_rows,
)
from privsketch.models.drawing.centers import plot_centers

_MAX_REDRAWS = 30  # of records out of bounds: 1e-9 of those with an even chance remain
_MIN_SHARE = 1e-9  # probability of a label that a component does not have
_MIN_SCATTER = 1e-6  # least variance in blocks over the squared radius: matrices stay definite
_ANGLE_DEVIATIONS = 1e-3, 3.0  # least and most; with 3 radians a law is even to within 2 %
_TURNS = 4  # of wrapped normal laws, on either side
_ROWS_PER_BLOCK = 8192  # 64 KB of float64 for each column


@dataclass(frozen=True, eq=False, repr=False)
class GaussianMixtureModel(Model):
    """A Gaussian mixture learned from a sketch.

    Attributes
    ----------
    weights : (n_components,) float64
        Share of the records in each component; sums to 1.
    means : (n_components, dim) float64
    covariances : float64
        In scikit-learn's shapes: (n_components,) spherical, (n_components, dim) diag,
        (n_components, dim, dim) full, (dim, dim) tied. Always positive definite. They count for
        numbers and dates; those of categories, flags and cycles follow from the means.
    covariance_type : {"full", "tied", "diag", "spherical"}
    standard_errors : (n_components, dim) float64
        Standard errors of the means, from privacy noise and from the sampling of records. If there
        is a misfit, they are multiplied by its square root.
    residual, expected_residual : float or None
        With a sketch: squared misfit in units of the variance of noise and sampling, and its
        expectation if the records follow the mixture. A residual far above it means that they do
        not, or that the search got stuck.
    n_records : float
        Estimated number of records.
    design_fingerprint : str
        Fingerprint of the sketch's design; empty without a sketch.
    columns : tuple of str, optional
    concerns : tuple of str
        Reasons to doubt the mixture, as texts; empty if there are none.
    receipt : Receipt
        Cost of the sketch, to which learning added nothing.
    schema : Schema, optional
        Encoding of tables. Means, errors and covariances are then those of encoded records;
        `table`, `covariance_table` and `sample_table` return them in the units of the table.
    """

    KIND: ClassVar[str] = "gaussian-mixture-model"
    POINTS: ClassVar[str] = "means"
    ARRAYS: ClassVar[tuple[str, ...]] = ("weights", "means", "covariances", "standard_errors")

    weights: Floats
    means: Floats
    covariances: Floats
    covariance_type: CovarianceType
    standard_errors: Floats
    residual: float | None
    expected_residual: float | None
    n_records: float
    design_fingerprint: str
    receipt: Receipt
    columns: tuple[str, ...] | None = None
    concerns: tuple[str, ...] = ()
    schema: Schema | None = None

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.means)

    @property
    def misfit(self) -> float | None:
        """Residual over its expectation; None without a sketch."""
        if self.residual is None or self.expected_residual is None:
            return None
        return self.residual / self.expected_residual

    def covariance_matrices(self) -> Floats:
        """Return (n_components, dim, dim) covariances, whatever their type."""
        size, dim = self.means.shape
        if self.covariance_type in ("full", "tied"):
            matrices = np.broadcast_to(self.covariances, (size, dim, dim)).copy()
        else:
            variances = self.covariances.reshape(size, -1)
            matrices = diagonal_matrices(np.broadcast_to(variances, (size, dim)))
        for column, place in self._blocks:
            matrices[:, place], matrices[:, :, place] = 0.0, 0.0
            matrices[:, place, place] = _scatter(column, self.means[:, place])
        return matrices

    @property
    def _blocks(self) -> list[tuple[Labelled | Cycle, slice]]:
        """Categories, flags and cycles, with their coordinates."""
        if self.schema is None:
            return []
        return [
            (column, place)
            for column, place in self.schema.places()
            if isinstance(column, Labelled | Cycle)
        ]

    @property
    def _numbers(self) -> Indices:
        """Coordinates of all other columns."""
        is_number = np.ones(self.dim, dtype=bool)
        for _, place in self._blocks:
            is_number[place] = False
        return np.flatnonzero(is_number)

    def score_samples(self, X: npt.ArrayLike) -> Floats:
        """Return the logarithm of the density at each row of X, (n,). As sensitive as the rows.

        With categories and flags it is a density of the numbers times probabilities of the labels.
        A label that a component does not have counts as one record in 10^9. The density of a cycle
        is along its circle.
        """
        logs = self._joint_logs(as_rows(X, self.dim, "score_samples"))
        return np.asarray(logsumexp(logs, axis=1))

    def score(self, X: npt.ArrayLike) -> float:
        """Return the mean of `score_samples`. An exact statement about X, not a private one."""
        return float(np.mean(require_rows(self.score_samples(X), "score")))

    @property
    def _n_parameters(self) -> int:
        """Number of free parameters: weights that sum to 1, means, and covariances."""
        n = mixture_unknowns(self.n_components, len(self._numbers), self.covariance_type)
        in_blocks = (
            len(column.labels) - 1 if isinstance(column, Labelled) else 2
            for column, _ in self._blocks
        )
        return n + self.n_components * sum(in_blocks)

    def bic(self, X: npt.ArrayLike) -> float:
        """Return the Bayesian information criterion for X; the lower, the better.

        It is an exact statement about X, as sensitive as its rows. For the records that the mixture
        was learned from, it is a release that no budget covers.
        """
        scores = require_rows(self.score_samples(X), "bic")
        return self._n_parameters * math.log(len(scores)) - 2 * float(scores.sum())

    def aic(self, X: npt.ArrayLike) -> float:
        """Return the Akaike information criterion for X; as sensitive as `bic`."""
        scores = require_rows(self.score_samples(X), "aic")
        return 2 * self._n_parameters - 2 * float(scores.sum())

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Return the probability of each component for each row of X, (n, n_components)."""
        logs = self._joint_logs(as_rows(X, self.dim, "predict_proba"))
        return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the most probable component for each row of X, (n,).

        The labels are exact and hence as sensitive as the rows themselves.
        """
        logs = self._joint_logs(as_rows(X, self.dim, "predict"))
        return np.asarray(logs.argmax(axis=1), dtype=np.int64)

    def sample(
        self, n_samples: int = 1, random_state: int | None = None
    ) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return synthetic records (n_samples, dim) and their components, in order of component.

        They depend on the model alone and may be published. Categories and flags are drawn by the
        shares of their component. Numbers are not clipped: `domain.project` moves those outside of
        the domain into it.
        """
        n_samples = require_count("n_samples", n_samples)
        rng = np.random.default_rng(public_seed(random_state))
        counts = rng.multinomial(n_samples, self.weights / self.weights.sum())
        factors = np.linalg.cholesky(self.covariance_matrices())
        labels = np.repeat(np.arange(self.n_components), counts)
        normal = rng.standard_normal((n_samples, self.means.shape[1]))
        records = self.means[labels]
        for k, factor in enumerate(factors):
            records[labels == k] += normal[labels == k] @ factor.T
        for column, place in self._blocks:
            records[:, place] = _draw(column, self.means[labels, place], rng)
        return records, labels.astype(np.int64)

    def sample_table(self, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Return synthetic records as a pandas frame, in the units of the table and in no order.

        Numbers and dates are drawn within their bounds. The records depend on the model alone and
        may be published.
        """
        return frame(self.sample_columns(n_samples, random_state))

    def sample_columns(
        self, n_samples: int = 1, random_state: int | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the records of `sample_table` as columns by name."""
        records, component = self.sample(n_samples, random_state)
        rng = np.random.default_rng([public_seed(random_state), 1])
        order = rng.permutation(len(records))
        records, component = records[order], component[order]
        if self.schema is None:
            return dict(zip(self.column_names, records.T, strict=True))
        self._redraw_outside(records, component, rng)
        return records_of(self.schema, records)

    def _redraw_outside(
        self, records: Floats, component: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> None:
        """Redraw records whose numbers or dates are out of bounds, until few are left to clip."""
        if self.schema is None:
            return
        axes = self._numbers
        middle, half_widths = self.schema.box.center_vector, self.schema.box.half_widths
        factors = np.linalg.cholesky(self.covariance_matrices())
        for _ in range(_MAX_REDRAWS):
            is_outside = np.abs(records - middle)[:, axes] > half_widths[axes]
            rows = np.flatnonzero(is_outside.any(axis=1))
            if len(rows) == 0:
                return
            normal = rng.standard_normal((len(rows), records.shape[1]))
            steps = np.einsum("nij,nj->ni", factors[component[rows]], normal)
            records[np.ix_(rows, axes)] = (self.means[component[rows]] + steps)[:, axes]

    @property
    def widths(self) -> Floats:
        """Standard deviations of the components along the axes, (n_components, dim)."""
        return np.sqrt(np.diagonal(self.covariance_matrices(), axis1=1, axis2=2))

    def table(self, what: str = "means") -> Any:
        """Return a pandas frame in the units of the table: a row per component, with its weight.

        Parameters
        ----------
        what : {"means", "standard_errors", "widths"}
            Content of the columns: shares of the values of a category, the share of yes of a flag,
            days of a date, the geometric mean of a logarithmic number.
        """
        spreads = {"standard_errors": self.standard_errors, "widths": self.widths}
        return self._weighted_frame(self.weights, what, dict(spreads))

    def covariance_table(self, component: int) -> Any:
        """Return the covariance of one component as a pandas frame, in the units of the table.

        Dates are in days, categories and flags in shares.
        """
        matrix = self.covariance_matrices()[component]
        names: Sequence[str] = self.column_names
        if self.schema is not None:
            matrix = field_covariance(self.schema, self.means[component], matrix)
            names = field_names(self.schema)
        table = frame(dict(zip(names, matrix, strict=True)))
        table.index = list(names)
        return table

    def _joint_logs(self, rows: Floats) -> Floats:
        """Return (n, n_components) logarithms of weight times density."""
        axes = self._numbers
        factors = np.linalg.cholesky(self.covariance_matrices()[:, axes[:, None], axes])
        with np.errstate(divide="ignore"):  # a component of no weight has no probability
            offsets = np.log(self.weights) - len(axes) / 2 * np.log(2 * np.pi)
        offsets = offsets - np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        result = np.empty((len(rows), self.n_components))
        for first in range(0, len(rows), _ROWS_PER_BLOCK):
            block = slice(first, first + _ROWS_PER_BLOCK)
            for k, factor in enumerate(factors):
                steps = (rows[block] - self.means[k])[:, axes].T
                white = solve_triangular(factor, steps, lower=True, check_finite=False)
                result[block, k] = offsets[k] - np.square(white).sum(axis=0) / 2
            for column, place in self._blocks:
                result[block] += _log_probabilities(
                    column, rows[block, place], self.means[:, place]
                )
        return result

    def plot(self, columns: str | Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the components in the units of the table, and return the Axes.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Names of columns; all if left out. One or two numbers or dates are drawn with one-width
            ellipses and 90 % intervals of the means. Others, or more of them, are a table coloured
            by the position between public bounds.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        covariances, errors = self.covariance_matrices(), self.standard_errors
        return plot_centers(self, self.means, self.weights, covariances, errors, columns, ax)

    def _opening_lines(self) -> list[str]:
        lines = [
            f"mixture     {self.n_components} Gaussian components of about "
            f"{self.n_records:.0f} records, covariances {self.covariance_type}",
        ]
        if self.misfit is not None:
            lines.append(
                f"fit         misfit {self.misfit:.2f} of what noise and sampling leave on average"
            )
        return lines

    def _html_table(self) -> str:
        return self._center_table("component", self.means, self.weights, self.standard_errors)

    def _result_lines(self) -> list[str]:
        names, means = self.shown_rows(self.means, self.standard_errors)
        if self.schema is not None:
            return center_lines(self.weights, names, means)
        more = "  ..." if len(names) > SHOWN_COLUMNS else ""
        head = "  ".join(f"{name[:9]:>9}" for name in names[:SHOWN_COLUMNS])
        lines = [f"components  weight   {head}{more}"]
        rows = zip(self.weights, self.means, self.standard_errors, self.widths, strict=True)
        for weight, mean, error, width in rows:
            lines.append(f"mean        {weight:6.1%}   {_numbers(mean)}")
            lines.append(f"  +-                 {_numbers(error)}")
            lines.append(f"  deviation          {_numbers(width)}")
        return lines

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        _require_mixture(fields["covariance_type"], **{name: fields[name] for name in cls.ARRAYS})
        require_fingerprint(fields)
        residuals = ("residual", "expected_residual")
        has_sketch = fields["design_fingerprint"] != ""
        has_sketch = has_sketch or any(fields[name] is not None for name in residuals)
        require_numbers(fields, ("n_records", *residuals) if has_sketch else ("n_records",))
        return {}


def _scatter(column: Labelled | Cycle, means: Floats) -> Floats:
    """Return covariances (n, c, c) of records of a column whose coordinates have these means."""
    ridge = _MIN_SCATTER * column.radius**2 * np.eye(means.shape[1])
    if isinstance(column, Cycle):
        squares = np.square(column.strength(means))[:, np.newaxis, np.newaxis]
        lengths = np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-300)
        along = means / lengths
        along = along[:, :, np.newaxis] * along[:, np.newaxis]
        # Of a wrapped normal law of mean length r: (1 - r^2)^2 / 2 along, (1 - r^4) / 2 across.
        across = (1 - squares**2) / 2 * (np.eye(2) - along)
        return np.asarray(column.radius**2 * ((1 - squares) ** 2 / 2 * along + across) + ridge)
    corners, shares = _corners(column), column.shares(means)
    centers = shares @ corners
    squares = np.einsum("nl,la,lb->nab", shares, corners, corners)
    return np.asarray(squares - centers[:, :, np.newaxis] * centers[:, np.newaxis] + ridge)


def _corners(column: Labelled) -> Floats:
    """Return the coordinates of the labels, (n_labels, c)."""
    return column.encode(np.arange(float(len(column.labels)))).T


def _draw(column: Labelled | Cycle, means: Floats, rng: np.random.Generator) -> Floats:
    """Draw a record of a column for each of the mean coordinates, (n, c)."""
    if isinstance(column, Labelled):
        return _corners(column)[drawn_corners(column.shares(means), rng)]
    angles = np.arctan2(means[:, 1], means[:, 0])
    angles += _angle_deviations(column, means) * rng.standard_normal(len(means))
    return column.radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _log_probabilities(column: Labelled | Cycle, rows: Floats, means: Floats) -> Floats:
    """Return logarithms (n, n_components) of probabilities of labels, or of a cycle's density."""
    if isinstance(column, Labelled):
        shares = np.maximum(column.shares(means), _MIN_SHARE)
        return np.asarray(np.log(shares).T[column.shares(rows).argmax(axis=1)])
    deviations = _angle_deviations(column, means)
    steps = np.arctan2(rows[:, 1:], rows[:, :1]) - np.arctan2(means[:, 1], means[:, 0])
    turns = steps[:, :, np.newaxis] + 2 * np.pi * np.arange(-_TURNS, _TURNS + 1)
    logs = logsumexp(-np.square(turns / deviations[:, np.newaxis]) / 2, axis=2)
    return np.asarray(logs - np.log(deviations * column.radius * math.sqrt(2 * np.pi)))


def _angle_deviations(column: Cycle, means: Floats) -> Floats:
    """Return standard deviations (n,) of the angles of wrapped normal laws with these means."""
    least, most = (math.exp(-(deviation**2) / 2) for deviation in _ANGLE_DEVIATIONS[::-1])
    return np.asarray(np.sqrt(-2 * np.log(np.clip(column.strength(means), least, most))))


def _numbers(values: Floats) -> str:
    return "  ".join(f"{value:9.4g}" for value in values[:SHOWN_COLUMNS])


def _require_mixture(
    covariance_type: Any,
    weights: Floats,
    means: Floats,
    covariances: Floats,
    standard_errors: Floats,
) -> None:
    """Raise unless the arrays are a mixture."""
    if covariance_type not in COVARIANCE_TYPES:
        raise ParameterError("unknown covariance_type")
    if means.ndim != 2 or means.size == 0:
        raise ParameterError("means must be a table")
    size, dim = means.shape
    shapes = {
        "spherical": (size,),
        "diag": (size, dim),
        "full": (size, dim, dim),
        "tied": (dim, dim),
    }
    fits = covariances.shape == shapes[covariance_type] and weights.shape == (size,)
    if not fits or standard_errors.shape != means.shape:
        raise ParameterError("weights, means and covariances do not fit together")
    if (weights < 0).any() or abs(weights.sum() - 1) > 1e-6 or (standard_errors < 0).any():
        raise ParameterError("weights must be shares, and errors must not be negative")
    if covariance_type in ("full", "tied"):
        skew = np.abs(covariances - np.swapaxes(covariances, -1, -2)).max()
        if skew > 1e-9 * np.abs(covariances).max():
            raise ParameterError("covariances must be symmetric")
        positive = bool((np.linalg.eigvalsh(covariances) > 0).all())
    else:
        positive = bool((covariances > 0).all())
    if not positive:
        raise ParameterError("covariances must be positive definite")
