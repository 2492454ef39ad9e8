"""The model of principal components learned from a sketch, and its file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_one_of
from privsketch._base.formats import as_line
from privsketch._base.notebook import table
from privsketch._base.types import Floats
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema
from privsketch.facts.units import (
    field_columns,
    field_names,
    field_values,
    frame,
    slopes,
    step_text,
)
from privsketch.models.base import (
    Model,
    as_rows,
    require_fingerprint,
    require_numbers,
    require_rows,
    turned_lines,
)
from privsketch.models.drawing.components import draw_variances, plot_loadings, plot_variances

FITS = ("eigenvectors", "burer-monteiro", "convex")


@dataclass(frozen=True, eq=False, repr=False)
class PCAModel(Model):
    """Principal components learned from a sketch.

    Attributes
    ----------
    components : (n_components, dim) float64
        Orthonormal rows in order of variance; the largest coordinate of each is positive.
    explained_variance : (n_components,) float64
        Variance of the records along each component.
    standard_errors : (n_components,) float64
        Standard errors of the explained variances, from privacy noise and sampling of records.
    mean : (dim,) float64
        Point around which variances are computed: the released mean, or the domain's center.
    centered : bool
        Whether `mean` is that of the records.
    total_variance : float
        Variance of all columns together.
    noise_variance : float
        Mean variance per remaining direction, as in probabilistic PCA.
    lost_variance : float
        Share of the variance along the best components that noise is expected to cost.
    n_standing_out : int
        Number of components that stand out of the noise, among those that were tested.
    residual, expected_residual : float
        Squared misfit, in units of the noise, of the components, others that stand out, and an
        isotropic part; its mean under noise and sampling alone. See `misfit`.
    n_records : float
        Number of records: exact, noisy, or the planned one if the sketch has none.
    method : {"eigenvectors", "burer-monteiro", "convex"}
    design_fingerprint : str
        Fingerprint of the sketch's design; empty without a sketch.
    columns : tuple of str, optional
    concerns : tuple of str
        Reasons to doubt the components, as texts; empty if there are none.
    receipt : Receipt
        Cost of the sketch. Learning added nothing.
    schema : Schema, optional
        Encoding of tables. Components, variances and the mean are then those of encoded records;
        `table` returns them in the units of the table.
    """

    KIND: ClassVar[str] = "pca-model"
    POINTS: ClassVar[str] = "components"
    ARRAYS: ClassVar[tuple[str, ...]] = (
        "components",
        "explained_variance",
        "standard_errors",
        "mean",
    )

    components: Floats
    explained_variance: Floats
    standard_errors: Floats
    mean: Floats
    centered: bool
    total_variance: float
    noise_variance: float
    lost_variance: float
    n_standing_out: int
    residual: float
    expected_residual: float
    n_records: float
    method: str
    design_fingerprint: str
    receipt: Receipt
    columns: tuple[str, ...] | None = None
    concerns: tuple[str, ...] = ()
    schema: Schema | None = None

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.components)

    @property
    def explained_variance_ratio(self) -> Floats:
        """Explained variances as shares of the total, (n_components,)."""
        return np.asarray(self.explained_variance / max(self.total_variance, 1e-300))

    @property
    def misfit(self) -> float:
        """Residual over its expectation: far above 1 if the remaining variance is not isotropic.

        With quadratic features this biases the components. Eigenvectors of second moments are not
        affected.
        """
        return self.residual / self.expected_residual

    @property
    def fit_words(self) -> str:
        """Text: method, and how well the components explain the released numbers."""
        if self.method == "eigenvectors":
            return "eigenvectors of all second moments"
        return f"misfit {self.misfit:.2f} of what noise and sampling leave ({self.method})"

    @property
    def more_words(self) -> str:
        """Text: number of further components that stand out; empty if there are none."""
        n_more = self.n_standing_out - self.n_components
        if n_more <= 0:
            return ""
        which, them = ("component stands", "it") if n_more == 1 else ("components stand", "them")
        return f'{n_more} more {which} out of the noise; ask for {them}, or for "auto"'

    def transform(self, X: npt.ArrayLike) -> Floats:
        """Return the coordinates of the rows of X along the components, (n, n_components).

        They are exact and hence as sensitive as the rows themselves.
        """
        rows = as_rows(X, self.dim, "transform")
        return np.asarray((rows - self.mean) @ self.components.T)

    def inverse_transform(self, X: npt.ArrayLike) -> Floats:
        """Return the points with these coordinates along the components, (n, dim)."""
        rows = as_rows(X, self.n_components, "inverse_transform")
        return np.asarray(rows @ self.components + self.mean)

    def score_samples(self, X: npt.ArrayLike) -> Floats:
        """Return the logarithm of the density of probabilistic PCA at each row of X, (n,).

        The density is normal, with the explained variances along the components and
        `noise_variance` in all other directions. If noise leaves no variance in some direction,
        there is no density, and all rows have minus infinity. As sensitive as the rows.
        """
        rows = as_rows(X, self.dim, "score_samples") - self.mean
        n_left, noise = self.dim - self.n_components, self.noise_variance
        variances = np.maximum(self.explained_variance, noise)
        if (n_left > 0 and noise <= 0) or variances.min() <= 0:
            return np.full(len(rows), -np.inf)
        along = rows @ self.components.T
        squares, volume = np.square(along) @ (1 / variances), np.log(variances).sum()
        if n_left > 0:
            squares = squares + np.square(rows - along @ self.components).sum(axis=1) / noise
            volume += n_left * math.log(noise)
        return np.asarray(-(self.dim * math.log(2 * math.pi) + volume + squares) / 2)

    def score(self, X: npt.ArrayLike) -> float:
        """Return the mean of `score_samples`. An exact statement about X, not a private one."""
        return float(np.mean(require_rows(self.score_samples(X), "score")))

    def loadings(self) -> tuple[tuple[str, ...], Floats]:
        """Return names of fields, and their moves along components, (n_components, n_fields).

        A step is one standard deviation of the records along a component. Moves are in the units of
        the table: years, shares of a category, days.
        """
        steps = self.components * np.sqrt(self.explained_variance)[:, np.newaxis]
        if self.schema is None:
            return tuple(self.column_names), steps
        moved = steps @ slopes(self.schema, self.mean).T
        # A cycle with an unknown mean has no direction to move in.
        unknown = np.isnan(field_values(self.schema, self.mean[np.newaxis]))[0]
        return field_names(self.schema), np.where(unknown, np.nan, moved)

    def table(self, what: str = "components") -> Any:
        """Return a pandas frame with a row for each component.

        Parameters
        ----------
        what : {"components"}
            How far each column moves with one standard deviation along the component, in the units
            of the table, beside the variance and its share.
        """
        require_one_of("what", what, ("components",))
        names, values = self.loadings()
        table = frame(dict(zip(names, values.T, strict=True)))
        table.insert(0, "variance", self.explained_variance)
        table.insert(1, "share", self.explained_variance_ratio)
        return table

    def readable_loadings(self) -> tuple[list[str], list[list[str]], Floats]:
        """Return names of fields, texts for each component and field, and tones to colour them by.

        Tones (n_components, n_fields), from -1 to 1, are contributions of a field to a component,
        which have no unit.
        """
        shades = self.components / max(float(np.abs(self.components).max()), 1e-300)
        if self.schema is None:
            texts = [[f"{value:.3f}" for value in row] for row in self.components]
            return [as_line(name) for name in self.column_names], texts, shades
        names, steps = self.loadings()
        words: list[list[str]] = [[] for _ in steps]
        tones = np.empty(steps.shape)
        columns = zip(self.schema.places(), field_columns(self.schema), strict=True)
        for (column, coordinates), (_, fields) in columns:
            is_label = fields.stop - fields.start > 1
            strengths = np.linalg.norm(shades[:, coordinates], axis=1)[:, np.newaxis]
            tone = shades[:, coordinates] if is_label else strengths
            # Unknown steps have no sign.
            tones[:, fields] = np.copysign(tone, np.nan_to_num(steps[:, fields]))
            for row, step in zip(words, steps[:, fields], strict=True):
                row += [step_text(column, float(value)) for value in step]
        return list(names), words, tones

    def plot(self, what: str = "variances", ax: Any = None) -> Any:
        """Draw variances with 90 % intervals, or loadings as a table; return the Axes.

        Parameters
        ----------
        what : {"variances", "loadings"}
            Loadings are coloured by the contribution of a column to a component. With a schema they
            show how far it moves with one standard deviation, in the units of the table.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        require_one_of("what", what, ("variances", "loadings"))
        return (plot_variances if what == "variances" else plot_loadings)(self, ax)

    def draw_variances(self, axis: Any) -> None:
        """Draw the variances on an axis; with a schema as shares, since units of columns differ."""
        draw_variances(axis, self)

    def _opening_lines(self) -> list[str]:
        about = "their mean" if self.centered else "the center of the domain, not their mean"
        share = float(self.explained_variance_ratio.sum())
        explained = (
            f"{share:.1%} of {self.total_variance:.4g} explained; "
            f"{self.noise_variance:.4g} per direction left"
        )
        if self.schema is not None:  # a variance over columns of several units has none
            left = self.noise_variance / max(self.total_variance, 1e-300)
            explained = f"{share:.1%} explained; {left:.1%} per direction left"
        return [
            f"components  {self.n_components} of about {self.n_records:.0f} records, about {about}",
            f"variance    {explained}",
            f"noise       costs about {100 * self.lost_variance:.2g} % of what the best components "
            "hold",
            f"fit         {self.fit_words}",
            *([f"more        {self.more_words}"] if self.more_words else []),
        ]

    def _html_table(self) -> str:
        names, texts, _ = self.readable_loadings()
        shares = [f"{part:.1%}" for part in self.explained_variance_ratio]
        cells = [[share, *row] for share, row in zip(shares, texts, strict=True)]
        heads = [f"{k + 1}" for k in range(self.n_components)]
        return table("component", heads, ["share", *names], cells)

    def _result_lines(self) -> list[str]:
        if self.schema is not None:
            return self._unit_lines(self.schema)
        names = [as_line(name) for name in self.column_names]
        more = "  ..." if len(names) > 6 else ""
        head = "  ".join(f"{name[:9]:>9}" for name in names[:6])
        lines = [f"            variance     +-       share   {head}{more}"]
        errors, shares = self.standard_errors, self.explained_variance_ratio
        parts = zip(self.explained_variance, errors, shares, self.components, strict=True)
        for variance, error, share, component in parts:
            numbers = "  ".join(f"{value:9.3f}" for value in component[:6])
            lines.append(f"            {variance:9.4g}  {error:8.2g}  {share:6.1%}   {numbers}")
        return lines

    def _unit_lines(self, schema: Schema) -> list[str]:
        """Return how far each column moves with one standard deviation along the components."""
        names, steps = self.loadings()
        columns = [column for column, _ in field_columns(schema) for _ in column.fields]
        to_text = partial(step_text, with_unit=True)
        rows = [list(map(to_text, columns, row.tolist())) for row in steps]
        heads = [f"{part:.1%}" for part in self.explained_variance_ratio]
        return turned_lines("share", heads, names, rows)

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        _require_components(**{name: fields[name] for name in cls.ARRAYS})
        if type(fields["centered"]) is not bool:
            raise ParameterError("centered must be true or false")
        if type(fields["n_standing_out"]) is not int or fields["n_standing_out"] < 0:
            raise ParameterError("n_standing_out must be a whole number")
        if fields["method"] not in FITS:
            raise ParameterError("unknown method")
        require_fingerprint(fields)
        require_numbers(fields, (*_VARIANCE_FIELDS, "residual", "expected_residual", "n_records"))
        return {}


_VARIANCE_FIELDS = ("total_variance", "noise_variance", "lost_variance")


def _require_components(
    components: Floats, explained_variance: Floats, standard_errors: Floats, mean: Floats
) -> None:
    """Raise unless the arrays are principal components."""
    if components.ndim != 2 or components.size == 0:
        raise ParameterError("components must be a table")
    size, dim = components.shape
    if explained_variance.shape != (size,) or standard_errors.shape != (size,):
        raise ParameterError("components, variances and errors do not fit together")
    if mean.shape != (dim,):
        raise ParameterError("the mean does not fit the components")
    if (explained_variance < 0).any() or (standard_errors < 0).any():
        raise ParameterError("variances and errors must not be negative")
    if np.abs(components @ components.T - np.eye(size)).max() > 1e-6:
        raise ParameterError("components must be orthonormal")
