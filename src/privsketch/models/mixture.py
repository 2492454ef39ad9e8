"""A Gaussian mixture that was learned privately, and its file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from privsketch._base.errors import ParameterError, require_one_of
from privsketch._base.types import Floats
from privsketch.design.size import COVARIANCE_TYPES, CovarianceType
from privsketch.facts.columns import Date, Number
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
)
from privsketch.models.drawing.centers import plot_centers

_REDRAWS = 30  # of records outside of their bounds: leaves 1e-9 of those with an even chance
ROWS_PER_BLOCK = 8192  # 64 KB of float64 for each column


@dataclass(frozen=True, eq=False)
class GaussianMixtureModel(Model):
    """A Gaussian mixture learned from a sketch, or by noisy rounds of EM.

    Attributes
    ----------
    weights : (n_components,) float64
        Share of the records in each component; sums to 1.
    means : (n_components, dim) float64
    covariances : float64
        In scikit-learn's shapes: (n_components,) spherical, (n_components, dim) diag,
        (n_components, dim, dim) full, (dim, dim) tied. Always positive definite.
    covariance_type : {"full", "tied", "diag", "spherical"}
    standard_errors : (n_components, dim) float64
        Of the means, from privacy noise and from the sampling of records; larger by the
        square root of the misfit where there is one.
    residual, expected_residual : float or None
        Of a sketch: squared misfit in units of the variance of noise and sampling, and what it
        is on average if the records follow the mixture. A residual far above says that they do
        not, or that the search got stuck.
    n_records : float
        Number of records as the fit sees it.
    design_fingerprint : str
        That of the sketch's design; empty without a sketch.
    columns : tuple of str, optional
    concerns : tuple of str
        Reasons to doubt the mixture, in words; empty if there are none.
    receipt : Receipt
        What the sketch cost, to which learning added nothing, or all rounds.
    schema : Schema, optional
        How tables are encoded. Means, errors and covariances are then those of encoded records;
        `table`, `covariance_table` and `sample_table` have them in the units of the table.
    """

    KIND: ClassVar[str] = "gaussian-mixture-model"
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

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.means.shape[1])

    def covariance_matrices(self) -> Floats:
        """(n_components, dim, dim) covariances, whatever their type."""
        size, dim = self.means.shape
        if self.covariance_type in ("full", "tied"):
            return np.broadcast_to(self.covariances, (size, dim, dim)).copy()
        variances = self.covariances.reshape(size, -1)
        return diagonal_matrices(np.broadcast_to(variances, (size, dim)))

    def score_samples(self, X: npt.ArrayLike) -> Floats:
        """Logarithm of the density at each row of X, (n,). As sensitive as the rows."""
        rows = self._rows(X, "score_samples")
        return np.asarray(logsumexp(self._joint_logs(rows), axis=1))

    def score(self, X: npt.ArrayLike) -> float:
        """Mean of `score_samples`. An exact statement about X, not a private one."""
        scores = self.score_samples(X)
        if len(scores) == 0:
            raise ParameterError("score: X has no rows")
        return float(np.mean(scores))

    @property
    def _n_parameters(self) -> int:
        """Free numbers of the mixture: weights that sum to 1, means, and covariances."""
        size, dim = self.means.shape
        entries = dim * (dim + 1) // 2
        covariances = {
            "full": size * entries,
            "tied": entries,
            "diag": size * dim,
            "spherical": size,
        }
        return int(size - 1 + size * dim + covariances[self.covariance_type])

    def bic(self, X: npt.ArrayLike) -> float:
        """Bayesian information criterion for X; the lower, the better.

        An exact statement about X, as sensitive as its rows: of the records that the mixture was
        learned from it is a release that nobody paid for.
        """
        scores = self.score_samples(X)
        if len(scores) == 0:
            raise ParameterError("bic: X has no rows")
        return self._n_parameters * math.log(len(scores)) - 2 * float(scores.sum())

    def aic(self, X: npt.ArrayLike) -> float:
        """Akaike information criterion for X; the lower, the better. As sensitive as `bic`."""
        scores = self.score_samples(X)
        if len(scores) == 0:
            raise ParameterError("aic: X has no rows")
        return 2 * self._n_parameters - 2 * float(scores.sum())

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Probability of each component for each row of X, (n, n_components)."""
        logs = self._joint_logs(self._rows(X, "predict_proba"))
        return np.asarray(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)))

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Most probable component for each row of X, (n,).

        The labels are exact and hence as sensitive as the rows themselves.
        """
        logs = self._joint_logs(self._rows(X, "predict"))
        return np.asarray(logs.argmax(axis=1), dtype=np.int64)

    def sample(
        self, n_samples: int = 1, random_state: int | None = None
    ) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Synthetic records (n_samples, dim) and their components, in order of component.

        Functions of the model alone: they may be published. They are not clipped; those
        outside the domain are what `domain.project` is for.
        """
        if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer):
            raise ParameterError("n_samples", n_samples, "expected an integer")
        if n_samples < 1:
            raise ParameterError(f"`n_samples={n_samples}`: at least one is needed")
        rng = np.random.default_rng(public_seed(random_state))
        counts = rng.multinomial(n_samples, self.weights / self.weights.sum())
        factors = np.linalg.cholesky(self.covariance_matrices())
        labels = np.repeat(np.arange(self.n_components), counts)
        normal = rng.standard_normal((n_samples, self.means.shape[1]))
        records = self.means[labels]
        for k, factor in enumerate(factors):
            records[labels == k] += normal[labels == k] @ factor.T
        return records, labels.astype(np.int64)

    def sample_table(self, n_samples: int = 1, random_state: int | None = None) -> Any:
        """Synthetic records as a pandas frame, in the units of the table and in no order.

        Categories and flags are drawn by the shares of their component, numbers and dates within
        their bounds. A function of the model alone, that may be published.
        """
        return frame(self.sample_columns(n_samples, random_state))

    def sample_columns(
        self, n_samples: int = 1, random_state: int | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """The same as columns of a table, by their names."""
        records, component = self.sample(n_samples, random_state)
        rng = np.random.default_rng([public_seed(random_state), 1])
        order = rng.permutation(len(records))
        records, component = records[order], component[order]
        if self.schema is None:
            return dict(zip(self.column_names, records.T, strict=True))
        self._redraw_outside(records, component, rng)
        return records_of(self.schema, records, self.means[component], rng)

    def _redraw_outside(
        self, records: Floats, component: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> None:
        """Draw records again whose numbers or dates lie outside; what stays there is cut later."""
        if self.schema is None:
            return
        numbers = [place for c, place in self.schema.places() if isinstance(c, Number | Date)]
        places = np.r_[tuple(numbers)] if numbers else np.zeros(0, dtype=int)
        low, high = self.schema.box.center_vector, self.schema.box.half_widths
        factors = np.linalg.cholesky(self.covariance_matrices())
        for _ in range(_REDRAWS):
            beyond = np.abs(records - low)[:, places] > high[places]
            again = np.flatnonzero(beyond.any(axis=1))
            if len(again) == 0:
                return
            normal = rng.standard_normal((len(again), records.shape[1]))
            steps = np.einsum("nij,nj->ni", factors[component[again]], normal)
            records[again] = self.means[component[again]] + steps

    @property
    def widths(self) -> Floats:
        """Standard deviations of the components along the axes, (n_components, dim)."""
        return np.sqrt(np.diagonal(self.covariance_matrices(), axis1=1, axis2=2))

    def table(self, what: str = "means") -> Any:
        """Components as a pandas frame, in the units of the table: a row each, with their weight.

        Parameters
        ----------
        what : {"means", "standard_errors", "widths"}
            What the columns hold. Of categories, shares of their values; of flags, the share of
            yes; of dates, days; of logarithmic numbers, the geometric mean.
        """
        require_one_of("what", what, ("means", "standard_errors", "widths"))
        spread = {"means": None, "standard_errors": self.standard_errors, "widths": self.widths}
        found = self._frame(self.means, spread[what])
        found.insert(0, "weight", self.weights)
        return found

    def covariance_table(self, component: int) -> Any:
        """The covariance of one component as a pandas frame, in the units of the table.

        Days for dates, shares for categories and flags.
        """
        matrix = self.covariance_matrices()[component]
        names: Sequence[str] = self.column_names
        if self.schema is not None:
            matrix = field_covariance(self.schema, self.means[component], matrix)
            names = field_names(self.schema)
        found = frame(dict(zip(names, matrix, strict=True)))
        found.index = list(names)
        return found

    def _rows(self, X: npt.ArrayLike, name: str) -> Floats:
        return as_rows(X, self.means.shape[1], name)

    def _joint_logs(self, rows: Floats) -> Floats:
        """(n, n_components) log of weight times density."""
        dim = self.means.shape[1]
        factors = np.linalg.cholesky(self.covariance_matrices())
        with np.errstate(divide="ignore"):  # a component of no weight has no probability
            offsets = np.log(self.weights) - dim / 2 * np.log(2 * np.pi)
        offsets = offsets - np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        result = np.empty((len(rows), self.n_components))
        for first in range(0, len(rows), ROWS_PER_BLOCK):
            block = slice(first, first + ROWS_PER_BLOCK)
            for k, factor in enumerate(factors):
                steps = (rows[block] - self.means[k]).T
                white = solve_triangular(factor, steps, lower=True, check_finite=False)
                result[block, k] = offsets[k] - np.square(white).sum(axis=0) / 2
        return result

    def plot(self, columns: str | Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the components in the units of the table, and return the Axes.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Names of one or two numbers or dates, which are drawn with one-width ellipses and 90 %
            intervals of the means; of others, and of more, a table coloured by places between
            public bounds. All columns if left out.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        return plot_centers(
            self,
            self.means,
            self.weights,
            covariances=self.covariance_matrices(),
            errors=self.standard_errors,
            domain=None,
            columns=columns,
            ax=ax,
        )

    def _opening_lines(self) -> list[str]:
        """What it is and how well it fits, with which a description begins."""
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

    def describe(self) -> str:
        """The model in plain words, several lines."""
        lines = self._opening_lines()
        names, means = self.shown_rows(self.means, self.standard_errors)
        if self.schema is not None:
            lines += center_lines(self.weights, names, means)
            return "\n".join([*lines, *self.closing_lines()])
        more = "  ..." if len(names) > SHOWN_COLUMNS else ""
        head = "  ".join(f"{name[:9]:>9}" for name in names[:SHOWN_COLUMNS])
        lines.append(f"components  weight   {head}{more}")
        rows = zip(self.weights, self.means, self.standard_errors, self.widths, strict=True)
        for weight, mean, error, width in rows:
            lines.append(f"mean        {weight:6.1%}   {_numbers(mean)}")
            lines.append(f"  +-                 {_numbers(error)}")
            lines.append(f"  deviation          {_numbers(width)}")
        return "\n".join([*lines, *self.closing_lines()])

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields of a file in their own types."""
        _require_mixture(fields["covariance_type"], **{name: fields[name] for name in cls.ARRAYS})
        require_fingerprint(fields)
        no_sketch = fields["design_fingerprint"] == "" and all(
            fields[name] is None for name in _OF_A_SKETCH
        )
        require_numbers(fields, ("n_records",) if no_sketch else ("n_records", *_OF_A_SKETCH))
        return {}


_OF_A_SKETCH = ("residual", "expected_residual")


def _numbers(values: Floats) -> str:
    return "  ".join(f"{value:9.4g}" for value in values[:SHOWN_COLUMNS])


def _require_mixture(
    covariance_type: Any,
    weights: Floats,
    means: Floats,
    covariances: Floats,
    standard_errors: Floats,
) -> None:
    """Refuse numbers that are not a mixture."""
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
    arrays = (weights, means, covariances, standard_errors)
    if not all(np.isfinite(array).all() for array in arrays):
        raise ParameterError("a weight, mean or covariance is missing")
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
