"""Clusters, each around a center, and their file: the model of all ways to find them.

From a sketch comes a density, which knows how well it fits and how sure its centers are. Methods
that read the records several times release centers directly; what they cannot know is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_one_of
from privsketch._base.formats import require_fields
from privsketch._base.types import Floats
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
)
from privsketch.models.drawing.centers import plot_centers

DECODERS = ("joint", "cl-ompr")  # that can be asked for by name
_KNOWN_DECODERS = (*DECODERS, "cells")
LOSSES = ("squares", "distances")
COUNTS = ("released", "public", "stated")
BAD_ESTIMATE, BAD_HIGH = 1.15, 2.0  # cost ratios that are a reason to be careful


@dataclass(frozen=True)
class CostRatio:
    """K-means cost of centers over that of k-means on the records themselves, as foretold.

    From what was released, and from studies with known records (docs/learning.md).

    Attributes
    ----------
    estimate : float
        The ratio is as often above as below.
    low, high : float
        Ends of a 90 % interval.
    """

    estimate: float
    low: float
    high: float

    @property
    def is_bad(self) -> bool:
        """Whether the cost is likely, or may well be, far above that of k-means."""
        return self.estimate > BAD_ESTIMATE or self.high > BAD_HIGH

    @property
    def texts(self) -> tuple[str, str, str]:
        """Estimate and ends with the digits that matter."""
        return _times(self.estimate), _times(self.low), _times(self.high)

    def describe(self) -> str:
        """The ratio in words."""
        estimate, low, high = self.texts
        return f"about {estimate} times ({low} to {high}) that of k-means on the records themselves"


def _times(ratio: float) -> str:
    """A ratio with the digits that matter."""
    return f"{ratio:.2f}" if ratio < 1.995 else f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:.0f}"


@dataclass(frozen=True, eq=False)
class Density:
    """The mixture of Gaussians behind clusters of a sketch, and how well it fits.

    Fields are those of `ClusterModel`.
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
        """Whether the residual is what noise and sampling may well leave."""
        return self.residual <= self.expected_residual + 4 * self.residual_spread


@dataclass(frozen=True, eq=False)
class ClusterModel(Model):
    """Clusters, each around a center.

    Attributes
    ----------
    centers : (n_clusters, dim) float64
    weights : (n_clusters,) float64
        Share of the records in each cluster; sums to 1.
    n_records : float
        Number of records as the method sees it.
    receipt : Receipt
        What the run cost, or the sketch, to which learning added nothing.
    method : str
        How the centers were found, "sketch" or another method's name, and `reason` why that way
        if it was chosen.
    loss : {"squares", "distances"}
        What the centers make small: squared distances (k-means) or distances (k-medians).
    columns : tuple of str, optional
    domain : Box or Ball, optional
        Where records were taken to lie; those outside were moved to its edge.
    concerns : tuple of str
        Reasons to doubt the clusters, in words; empty if there are none.
    count : {"released", "public", "stated"}
        What `n_records` is: noisy, exact because "replace" makes it public, or what the user said.
    width : float, optional
        Standard deviation of the clusters per coordinate, root mean square over them;
        next to 0 for the "cl-ompr" decoder, whose atoms have no width.
    standard_errors : (n_clusters, dim) float64, optional
        Of the centers' coordinates, from privacy noise and from the sampling of records;
        None where nobody can tell: very large fits, no records at all, or no sketch.
    residual, expected_residual, residual_spread : float, optional
        Squared misfit of the sketch, in records^2, and mean and standard deviation of what
        noise and sampling alone would leave. A residual far above says that the fit does not
        explain the sketch: clusters of other shapes, or a search that got stuck.
    axis_widths : (n_clusters, dim) float64, optional
        Standard deviations of each cluster along the axes.
    mixture_weights, mixture_means, mixture_widths : (p,), (p, dim), (p, dim) float64, optional
        The Gaussians fitted to the sketch, n_clusters of them or more; `centers` are
        the k-means centers of this mixture.
    decoder : {"joint", "cl-ompr", "cells"}, optional
    cost_ratio : CostRatio, optional
        What the centers cost on the records over what k-means would reach on them, for this number
        of clusters: an estimate with a 90 % interval. None without a sketch, and for "cl-ompr".
    design_fingerprint : str
        That of the sketch's design; empty without a sketch.
    schema : Schema, optional
        How tables are encoded. Centers, errors and widths are then those of encoded records;
        `table` has them in the units of the table.
    """

    KIND: ClassVar[str] = "cluster-model"
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
    LATER: ClassVar[tuple[str, ...]] = ("cost_ratio",)

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
    design_fingerprint: str = ""
    schema: Schema | None = None

    @property
    def density(self) -> Density | None:
        """What a sketch says beyond the centers; None without one."""
        values = [getattr(self, name) for name in Density.__dataclass_fields__]
        return None if any(value is None for value in values) else Density(*values)

    @property
    def task(self) -> str:
        """The problem by its name."""
        return "k-means" if self.loss == "squares" else "k-medians"

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.centers.shape[1])

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.centers)

    @property
    def misfit(self) -> float | None:
        """Residual over its expectation; None without a sketch."""
        return None if self.density is None else self.density.misfit

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Index of the nearest center for each row of X, (n,).

        With a schema, X has encoded records: `privsketch.encode` makes them of a table. The labels
        are exact and hence as sensitive as the rows themselves.
        """
        return nearest(as_rows(X, self.dim, "predict"), self.centers)

    def score(self, X: npt.ArrayLike) -> float:
        """Minus the cost of X about the centers: squared distances, or distances by `loss`.

        The sum over the rows of X as they are, none of them moved into the domain; with a schema,
        of encoded records. An exact statement about X, as sensitive as its rows: of the records
        that the model was learned from it is a release that nobody paid for.
        """
        rows = as_rows(X, self.dim, "score")
        if len(rows) == 0:
            raise ParameterError("score: X has no rows")
        away = rows - self.centers[nearest(rows, self.centers)]
        squares = np.einsum("ij,ij->i", away, away)
        return -float((squares if self.loss == "squares" else np.sqrt(squares)).sum())

    def table(self, what: str = "centers") -> Any:
        """Clusters as a pandas frame, in the units of the table: a row each, with their weight.

        Parameters
        ----------
        what : {"centers", "standard_errors", "widths"}
            What the columns hold. Of categories, shares of their values; of flags, the share of
            yes; of dates, days; of logarithmic numbers, the geometric mean.
        """
        require_one_of("what", what, ("centers", "standard_errors", "widths"))
        spread = None
        if what != "centers":
            spread = self.standard_errors if what == "standard_errors" else self.axis_widths
            if spread is None:
                raise ParameterError("what", what, f"method {self.method!r} tells none")
        found = self._frame(self.centers, spread)
        found.insert(0, "weight", self.weights)
        return found

    def plot(self, columns: str | Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the centers in the units of the table, and return the Axes.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Names of one or two numbers or dates, which are drawn with the widths of the clusters
            and 90 % intervals of the centers, where these are known; of others, and of more, a
            table coloured by places between public bounds. All columns if left out.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        widths = self.axis_widths
        return plot_centers(
            self,
            self.centers,
            self.weights,
            covariances=None if widths is None else diagonal_matrices(widths**2),
            errors=self.standard_errors,
            domain=self.domain,
            columns=columns,
            ax=ax,
        )

    def _opening_lines(self) -> list[str]:
        """What it is and how well it fits, with which a description begins."""
        clusters = "1 cluster" if self.n_clusters == 1 else f"{self.n_clusters} clusters"
        what = f"{self.task:<11} {clusters} of about {self.n_records:.0f} records"
        lines = [what if self.decoder is None else f"{what}, decoder {self.decoder}"]
        lines.append(f"method      {self.method}" + (f": {self.reason}" if self.reason else ""))
        if self.cost_ratio is not None:
            lines.append(f"accuracy    k-means cost {self.cost_ratio.describe()}")
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

    def describe(self) -> str:
        """The model in plain words, several lines."""
        names, rows = self.shown_rows(self.centers, self.standard_errors)
        lines = [*self._opening_lines(), *center_lines(self.weights, names, rows)]
        return "\n".join([*lines, *self.closing_lines()])

    def _html_table(self) -> str:
        return self._center_table("cluster", self.centers, self.weights, self.standard_errors)

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields of a file in their own types."""
        centers = fields["centers"]
        if centers.ndim != 2 or centers.size == 0 or fields["weights"].shape != (len(centers),):
            raise ParameterError("centers and weights do not fit together")
        require_fingerprint(fields)
        absent = [name for name in _OF_A_DENSITY if fields[name] is None]
        if absent and len(absent) < len(_OF_A_DENSITY):
            raise ParameterError(f"{absent[0]} is missing")
        require_numbers(fields, ("n_records",) if absent else ("n_records", *_NUMBERS))
        if not absent:
            _require_density(fields)
        errors = fields["standard_errors"]
        if errors is not None and errors.shape != centers.shape:
            raise ParameterError("standard errors do not fit the centers")
        given = [fields[name] for name in cls.ARRAYS if fields[name] is not None]
        if not all(np.isfinite(array).all() for array in given):
            raise ParameterError("a center, weight or width is missing")
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
    """A ratio as a file has it."""
    if value is None:
        return None
    found = require_fields(value, CostRatio.__dataclass_fields__, "cost_ratio")
    require_numbers(found, tuple(CostRatio.__dataclass_fields__))
    ratio = CostRatio(**found)
    if not 0 < ratio.low <= ratio.estimate <= ratio.high:
        raise ParameterError("cost_ratio: the estimate is not between its ends")
    return ratio


_NUMBERS = ("width", "residual", "expected_residual", "residual_spread")
_OF_A_DENSITY = (*Density.__dataclass_fields__, "decoder")


def _require_density(fields: dict[str, Any]) -> None:
    """Refuse a density whose parts do not fit together."""
    for names in (
        ("centers", "axis_widths", "weights"),
        ("mixture_means", "mixture_widths", "mixture_weights"),
    ):
        means, widths, weights = (fields[name] for name in names)
        if means.ndim != 2 or widths.shape != means.shape or weights.shape != (len(means),):
            raise ParameterError("centers, weights and widths do not fit together")
    if fields["decoder"] not in _KNOWN_DECODERS:
        raise ParameterError("unknown decoder")
