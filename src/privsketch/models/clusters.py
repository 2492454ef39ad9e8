"""The model of clusters, each around a center, and its file.

A sketch yields a density, with a measure of its fit and standard errors of its centers. Methods
that read the records several times release centers directly; fields that they lack are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.formats import require_fields
from privsketch._base.types import Floats
from privsketch.design.forecast import accuracy_text
from privsketch.facts.domain import Domain, domain_from_json
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema
from privsketch.models.base import (
    Model,
    as_rows,
    center_lines,
    diagonal_matrices,
    nearest,
    require_fingerprint,
    require_numbers,
    require_rows,
)
from privsketch.models.drawing.centers import plot_centers

DECODERS = ("joint", "cl-ompr")  # the choices of users
_KNOWN_DECODERS = (*DECODERS, "cells")
LOSSES = ("squares", "distances")
COUNTS = ("released", "public", "stated")
BAD_ESTIMATE, BAD_HIGH = 1.15, 2.0  # estimates and upper ends that are a concern


@dataclass(frozen=True)
class CostRatio:
    """Predicted k-means cost of centers over that of k-means on the records themselves.

    The prediction uses released numbers, and studies with known records (docs/learning.md).

    Attributes
    ----------
    estimate : float
        Median of the ratio.
    low, high : float
        Ends of a 90 % interval.
    """

    estimate: float
    low: float
    high: float

    @property
    def is_bad(self) -> bool:
        """Whether the cost is likely to be, or may well be, far above that of k-means."""
        return self.estimate > BAD_ESTIMATE or self.high > BAD_HIGH

    @property
    def texts(self) -> tuple[str, str, str]:
        """Estimate and ends with their significant digits."""
        return _times(self.estimate), _times(self.low), _times(self.high)

    def describe(self) -> str:
        """Return the ratio as text."""
        estimate, low, high = self.texts
        return f"about {estimate} times ({low} to {high}) that of k-means on the records themselves"


def _times(ratio: float) -> str:
    """Write a ratio with its significant digits."""
    return f"{ratio:.2f}" if ratio < 1.995 else f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:.0f}"


@dataclass(frozen=True, eq=False)
class Density:
    """The mixture of Gaussians behind the clusters of a sketch, and how well it fits.

    `ClusterModel` documents the fields.
    """

    width: float
    residual: float
    expected_residual: float
    residual_spread: float
    axis_widths: Floats
    mixture_weights: Floats
    mixture_means: Floats
    mixture_widths: Floats

    @property
    def misfit(self) -> float:
        """Residual over its expectation."""
        return self.residual / self.expected_residual

    @property
    def explains(self) -> bool:
        """Whether noise and sampling explain the residual."""
        return self.residual <= self.expected_residual + 4 * self.residual_spread


@dataclass(frozen=True, eq=False, repr=False)
class ClusterModel(Model):
    """Clusters, each around a center.

    Attributes
    ----------
    centers : (n_clusters, dim) float64
    weights : (n_clusters,) float64
        Share of the records in each cluster; sums to 1.
    n_records : float
        Estimated number of records.
    receipt : Receipt
        Cost of the run, or of the sketch, to which learning added nothing.
    method : str
        Name of the method: "sketch" or another one.
    reason : str
        Why the library chose the method; empty if the user did.
    loss : {"squares", "distances"}
        Loss that the centers minimise: squared distances (k-means) or distances (k-medians).
    columns : tuple of str, optional
    domain : Box or Ball, optional
        Set in which records lie; those outside were moved to its edge.
    concerns : tuple of str
        Reasons to doubt the clusters, as texts; empty if there are none.
    count : {"released", "public", "stated"}
        Origin of `n_records`: noisy, exact because "replace" makes it public, or from the user.
    width : float, optional
        Standard deviation of the clusters per coordinate, root mean square over them;
        next to 0 for the "cl-ompr" decoder, whose atoms have no width.
    standard_errors : (n_clusters, dim) float64, optional
        Standard errors of the centers' coordinates: how far the k-means optimum next to them may
        be, by privacy noise, sampling, and what the mixture misses of the records. None if they are
        unknown, or as wide as the clusters: very large fits, too much noise, or no sketch.
    residual, expected_residual, residual_spread : float, optional
        Squared misfit of the sketch, in records^2; mean and standard deviation of the misfit that
        noise and sampling alone leave. A residual far above its mean shows that the fit does not
        explain the sketch: clusters have other shapes, or the search got stuck.
    axis_widths : (n_clusters, dim) float64, optional
        Standard deviations of each cluster along the axes.
    mixture_weights, mixture_means, mixture_widths : (p,), (p, dim), (p, dim) float64, optional
        Gaussians that were fitted to the sketch, n_clusters of them or more. `centers` are the
        k-means centers of this mixture.
    decoder : {"joint", "cl-ompr", "cells"}, optional
    cost_ratio : CostRatio, optional
        Predicted cost of the centers on the records over that of k-means, for this number of
        clusters, with a 90 % interval. None without a sketch, and for "cl-ompr".
    expected_ratio : float, optional
        Forecast of the same ratio from public facts and the number of records, for clusters that
        touch or lie apart. None for sketches, for methods that make no forecast, and where records
        use so little of the domain that none holds.
    design_fingerprint : str
        Fingerprint of the sketch's design; empty without a sketch.
    schema : Schema, optional
        Encoding of tables. Centers, errors and widths are then those of encoded records; `table`
        returns them in the units of the table.
    """

    KIND: ClassVar[str] = "cluster-model"
    POINTS: ClassVar[str] = "centers"
    ARRAYS: ClassVar[tuple[str, ...]] = (
        "centers",
        "weights",
        "standard_errors",
        "axis_widths",
        "mixture_weights",
        "mixture_means",
        "mixture_widths",
    )
    ABSENT: ClassVar[tuple[str, ...]] = ARRAYS[2:]
    LATER: ClassVar[tuple[str, ...]] = ("cost_ratio", "expected_ratio")

    centers: Floats
    weights: Floats
    n_records: float
    receipt: Receipt
    method: str
    reason: str = ""
    loss: str = "squares"
    columns: tuple[str, ...] | None = None
    domain: Domain | None = None
    concerns: tuple[str, ...] = ()
    count: str = "released"
    width: float | None = None
    standard_errors: Floats | None = None
    residual: float | None = None
    expected_residual: float | None = None
    residual_spread: float | None = None
    axis_widths: Floats | None = None
    mixture_weights: Floats | None = None
    mixture_means: Floats | None = None
    mixture_widths: Floats | None = None
    decoder: str | None = None
    cost_ratio: CostRatio | None = None
    expected_ratio: float | None = None
    design_fingerprint: str = ""
    schema: Schema | None = None

    @property
    def density(self) -> Density | None:
        """Mixture behind the clusters and its fit; None without a sketch."""
        values = [getattr(self, name) for name in Density.__dataclass_fields__]
        return None if any(value is None for value in values) else Density(*values)

    @property
    def task(self) -> str:
        """Name of the problem."""
        return "k-means" if self.loss == "squares" else "k-medians"

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.centers)

    @property
    def misfit(self) -> float | None:
        """Residual over its expectation; None without a sketch."""
        return None if self.density is None else self.density.misfit

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the index of the nearest center for each row of X, (n,).

        With a schema, X has encoded records, which `privsketch.encode` makes from a table. The
        labels are exact and hence as sensitive as the rows themselves.
        """
        return nearest(as_rows(X, self.dim, "predict"), self.centers)

    def score(self, X: npt.ArrayLike) -> float:
        """Return minus the cost of X: squared distances to the centers, or distances, by `loss`.

        It is the sum over the rows of X as they are, none of them moved into the domain. With a
        schema, X has encoded records. The score is an exact statement about X, as sensitive as its
        rows. For the records that the model was learned from, it is a release that no budget
        covers.
        """
        rows = require_rows(as_rows(X, self.dim, "score"), "score")
        offsets = rows - self.centers[nearest(rows, self.centers)]
        squares = np.einsum("ij,ij->i", offsets, offsets)
        return -float((squares if self.loss == "squares" else np.sqrt(squares)).sum())

    def table(self, what: str = "centers") -> Any:
        """Return a pandas frame in the units of the table: a row per cluster, with its weight.

        Parameters
        ----------
        what : {"centers", "standard_errors", "widths"}
            Content of the columns: shares of the values of a category, the share of yes of a flag,
            days of a date, the geometric mean of a logarithmic number.
        """
        spreads = {"standard_errors": self.standard_errors, "widths": self.axis_widths}
        return self._weighted_frame(self.weights, what, spreads)

    def plot(self, columns: str | Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the centers in the units of the table, and return the Axes.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Names of columns; all if left out. One or two numbers or dates are drawn with the widths
            of the clusters and 90 % intervals of the centers, where these are known. Others, or
            more of them, are a table coloured by the position between public bounds.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        widths, errors = self.axis_widths, self.standard_errors
        shapes = None if widths is None else diagonal_matrices(widths**2)
        return plot_centers(
            self, self.centers, self.weights, shapes, errors, columns, ax, self.domain
        )

    def _opening_lines(self) -> list[str]:
        clusters = "1 cluster" if self.n_clusters == 1 else f"{self.n_clusters} clusters"
        what = f"{self.task:<11} {clusters} of about {self.n_records:.0f} records"
        lines = [what if self.decoder is None else f"{what}, decoder {self.decoder}"]
        because = f", because {self.reason}" if self.reason else ""
        lines.append(f"method      {self.method}{because}")
        if self.cost_ratio is not None:
            lines.append(f"accuracy    k-means cost {self.cost_ratio.describe()}")
        elif self.expected_ratio is not None:
            lines.append(f"accuracy    {accuracy_text(self.expected_ratio)}, as a forecast")
        if self.misfit is not None:
            lines.append(f"fit         misfit {self.misfit:.2f} of what noise and sampling leave")
        if self.width is not None and self.schema is None:
            lines.append(f"width       {self.width:.4g} per coordinate")
        if self.standard_errors is not None and self.schema is None:
            low, high = self.standard_errors.min(), self.standard_errors.max()
            lines.append(f"precision   standard errors of coordinates {low:.2g} to {high:.2g}")
        if self.domain is not None and self.schema is None:
            lines.append(f"domain      {self.domain.describe()}")
        return lines

    def _result_lines(self) -> list[str]:
        return center_lines(self.weights, *self.shown_rows(self.centers, self.standard_errors))

    def _html_table(self) -> str:
        return self._center_table("cluster", self.centers, self.weights, self.standard_errors)

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        centers = fields["centers"]
        if centers.ndim != 2 or centers.size == 0 or fields["weights"].shape != (len(centers),):
            raise ParameterError("centers and weights do not fit together")
        require_fingerprint(fields)
        absent = [name for name in _DENSITY_FIELDS if fields[name] is None]
        if absent and len(absent) < len(_DENSITY_FIELDS):
            raise ParameterError(f"{absent[0]} is missing")
        numbers = ("n_records",) if fields["expected_ratio"] is None else _EXPECTED_NUMBERS
        require_numbers(fields, numbers if absent else (*numbers, *_DENSITY_NUMBERS))
        if not absent:
            _require_density(fields)
        errors = fields["standard_errors"]
        if errors is not None and errors.shape != centers.shape:
            raise ParameterError("standard errors do not fit the centers")
        if errors is not None and (errors < 0).any():
            raise ParameterError("a standard error is below 0")
        if not all(isinstance(fields[name], str) for name in ("method", "reason")):
            raise ParameterError("method and reason must be texts")
        if fields["loss"] not in LOSSES or fields["count"] not in COUNTS:
            raise ParameterError("unknown loss or count")
        domain = None if fields["domain"] is None else domain_from_json(fields["domain"])
        if domain is not None and domain.dim != centers.shape[1]:
            raise ParameterError(f"domain: expected one of `dim={centers.shape[1]}` columns")
        return {"domain": domain, "cost_ratio": _checked_ratio(fields["cost_ratio"])}


def _checked_ratio(value: Any) -> CostRatio | None:
    """Return the ratio of a file."""
    if value is None:
        return None
    fields = require_fields(value, CostRatio.__dataclass_fields__, "cost_ratio")
    require_numbers(fields, tuple(CostRatio.__dataclass_fields__))
    ratio = CostRatio(**fields)
    if not 0 < ratio.low <= ratio.estimate <= ratio.high:
        raise ParameterError("cost_ratio: the estimate is not between its ends")
    return ratio


_EXPECTED_NUMBERS = ("n_records", "expected_ratio")
_DENSITY_NUMBERS = ("width", "residual", "expected_residual", "residual_spread")
_DENSITY_FIELDS = (*Density.__dataclass_fields__, "decoder")


def _require_density(fields: dict[str, Any]) -> None:
    """Raise unless the parts of a density fit together."""
    for names in (
        ("centers", "axis_widths", "weights"),
        ("mixture_means", "mixture_widths", "mixture_weights"),
    ):
        means, widths, weights = (fields[name] for name in names)
        if means.ndim != 2 or widths.shape != means.shape or weights.shape != (len(means),):
            raise ParameterError("centers, weights and widths do not fit together")
    receipt = fields["receipt"]
    is_registered = isinstance(receipt, dict) and "plugins" in receipt  # by another package
    if fields["decoder"] not in _KNOWN_DECODERS and not (
        is_registered and isinstance(fields["decoder"], str)
    ):
        raise ParameterError("unknown decoder")
