"""Principal components learned from a sketch, and their file."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
    turned_lines,
)
from privsketch.models.drawing.components import draw_variances, plot_loadings, plot_variances

FITS = ("eigenvectors", "burer-monteiro", "convex")


@dataclass(frozen=True, eq=False)
class PCAModel(Model):
    """Principal components learned from a sketch.

    Attributes
    ----------
    components : (n_components, dim) float64
        Orthonormal rows in order of variance; the largest coordinate of each is positive.
    explained_variance : (n_components,) float64
        Variance of the records along each component.
    standard_errors : (n_components,) float64
        Of the explained variances, from privacy noise and from the sampling of records.
    mean : (dim,) float64
        What the variances are about: the released mean, or the center of the domain.
    centered : bool
        Whether `mean` is that of the records.
    total_variance : float
        Of all columns together.
    noise_variance : float
        Mean variance per direction of what the components leave, as in probabilistic PCA.
    lost_variance : float
        Share of the variance along the best components that these are expected to miss,
        because of the noise.
    n_standing_out : int
        How many components stand out of the noise, as far as was looked.
    residual, expected_residual : float
        Squared misfit, in units of the noise, of the components, of others that stand out, and
        of an even rest; and what noise and sampling leave on average. See `misfit`.
    n_records : float
        Number of records: exact, noisy, or the planned one if the sketch has none.
    method : {"eigenvectors", "burer-monteiro", "convex"}
    design_fingerprint : str
        That of the sketch's design; empty without a sketch.
    columns : tuple of str, optional
    concerns : tuple of str
        Reasons to doubt the components, in words; empty if there are none.
    receipt : Receipt
        What the sketch cost. Learning added nothing.
    schema : Schema, optional
        How tables are encoded. Components, variances and the mean are then those of encoded
        records; `table` has them in the units of the table.
    """

    KIND: ClassVar[str] = "pca-model"
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
        """`residual` over `expected_residual`: far above 1 if the rest is not even.

        With quadratic features such a rest bends the components; eigenvectors of second
        moments are none the worse for it.
        """
        return self.residual / self.expected_residual

    @property
    def fit_words(self) -> str:
        """How the components were found, and how well they explain what was released."""
        if self.method == "eigenvectors":
            return "eigenvectors of all second moments"
        return f"misfit {self.misfit:.2f} of what noise and sampling leave ({self.method})"

    @property
    def more_words(self) -> str:
        """How many components stand out beyond those asked for; empty if none does."""
        more = self.n_standing_out - self.n_components
        if more <= 0:
            return ""
        which, them = ("component stands", "it") if more == 1 else ("components stand", "them")
        return f'{more} more {which} out of the noise; ask for {them}, or for "auto"'

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.components.shape[1])

    def transform(self, X: npt.ArrayLike) -> Floats:
        """Coordinates of the rows of X along the components, (n, n_components).

        Exact, and hence as sensitive as the rows themselves.
        """
        rows = as_rows(X, self.components.shape[1], "transform")
        return np.asarray((rows - self.mean) @ self.components.T)

    def inverse_transform(self, X: npt.ArrayLike) -> Floats:
        """The points that have these coordinates along the components, (n, dim)."""
        rows = as_rows(X, self.n_components, "inverse_transform")
        return np.asarray(rows @ self.components + self.mean)

    def score_samples(self, X: npt.ArrayLike) -> Floats:
        """Logarithm of the density of probabilistic PCA at each row of X, (n,).

        A normal density with the explained variances along the components and `noise_variance`
        in all other directions. Where noise leaves no variance in some direction there is no
        density, and all rows have minus infinity. As sensitive as the rows.
        """
        rows = as_rows(X, self.dim, "score_samples") - self.mean
        left, noise = self.dim - self.n_components, self.noise_variance
        variances = np.maximum(self.explained_variance, noise)
        if (left > 0 and noise <= 0) or variances.min() <= 0:
            return np.full(len(rows), -np.inf)
        along = rows @ self.components.T
        squares, volume = np.square(along) @ (1 / variances), np.log(variances).sum()
        if left > 0:
            squares = squares + np.square(rows - along @ self.components).sum(axis=1) / noise
            volume += left * math.log(noise)
        return np.asarray(-(self.dim * math.log(2 * math.pi) + volume + squares) / 2)

    def score(self, X: npt.ArrayLike) -> float:
        """Mean of `score_samples`. An exact statement about X, not a private one."""
        scores = self.score_samples(X)
        if len(scores) == 0:
            raise ParameterError("score: X has no rows")
        return float(np.mean(scores))

    def loadings(self) -> tuple[tuple[str, ...], Floats]:
        """Names of fields, and how far each moves along the components, (n_components, n_fields).

        For one standard deviation of the records along a component, in the units of the table:
        years, shares of a category, days.
        """
        steps = self.components * np.sqrt(self.explained_variance)[:, np.newaxis]
        if self.schema is None:
            return tuple(self.column_names), steps
        moved = steps @ slopes(self.schema, self.mean).T
        # A cycle about whose middle nothing is known has no direction to move in.
        unknown = np.isnan(field_values(self.schema, self.mean[np.newaxis]))[0]
        return field_names(self.schema), np.where(unknown, np.nan, moved)

    def table(self, what: str = "components") -> Any:
        """Components as a pandas frame, a row each.

        Parameters
        ----------
        what : {"components"}
            How far each column moves with one standard deviation along the component, in the
            units of the table, beside the variance and its share.
        """
        require_one_of("what", what, ("components",))
        names, values = self.loadings()
        found = frame(dict(zip(names, values.T, strict=True)))
        found.insert(0, "variance", self.explained_variance)
        found.insert(1, "share", self.explained_variance_ratio)
        return found

    def readable_loadings(self) -> tuple[list[str], list[list[str]], Floats]:
        """Names of fields, words for each component and field, and tones by which to colour them.

        Tones (n_components, n_fields), from -1 to 1, are what a field contributes to a component,
        which has no unit.
        """
        most = max(float(np.abs(self.components).max()), 1e-300)
        shades = self.components / most
        if self.schema is None:
            texts = [[f"{value:.3f}" for value in row] for row in self.components]
            return [as_line(name) for name in self.column_names], texts, shades
        names, steps = self.loadings()
        words: list[list[str]] = [[] for _ in steps]
        tones = np.empty(steps.shape)
        both = zip(self.schema.places(), field_columns(self.schema), strict=True)
        for (column, place), (_, fields) in both:
            is_label = fields.stop - fields.start > 1
            strengths = np.linalg.norm(shades[:, place], axis=1)[:, np.newaxis]
            tone = shades[:, place] if is_label else strengths
            # What is unknown has no sign.
            tones[:, fields] = np.copysign(tone, np.nan_to_num(steps[:, fields]))
            for row, step in zip(words, steps[:, fields], strict=True):
                row += [step_text(column, float(value)) for value in step]
        return list(names), words, tones

    def plot(self, what: str = "variances", ax: Any = None) -> Any:
        """Draw variances with 90 % intervals, or loadings as a table; return the Axes.

        Parameters
        ----------
        what : {"variances", "loadings"}
            Loadings are coloured by what a column contributes to a component; with a schema they
            say how far it moves with one standard deviation, in the units of the table.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        require_one_of("what", what, ("variances", "loadings"))
        return (plot_variances if what == "variances" else plot_loadings)(self, ax)

    def draw_variances(self, axis: Any) -> None:
        """Draw the variances on an axis; with a schema as shares, since units of columns differ."""
        draw_variances(axis, self)

    def _opening_lines(self) -> list[str]:
        """What they are and how well they fit, with which a description begins."""
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

    def describe(self) -> str:
        """The model in plain words, several lines."""
        lines = self._opening_lines()
        if self.schema is not None:
            return "\n".join([*lines, *self._unit_lines(self.schema), *self.closing_lines()])
        names, rows = [as_line(name) for name in self.column_names], self.components
        more = "  ..." if len(names) > 6 else ""
        head = "  ".join(f"{name[:9]:>9}" for name in names[:6])
        lines.append(f"            variance     +-       share   {head}{more}")
        parts = zip(
            self.explained_variance,
            self.standard_errors,
            self.explained_variance_ratio,
            rows,
            strict=True,
        )
        for variance, error, part, component in parts:
            numbers = "  ".join(f"{value:9.3f}" for value in component[:6])
            lines.append(f"            {variance:9.4g}  {error:8.2g}  {part:6.1%}   {numbers}")
        return "\n".join([*lines, *self.closing_lines()])

    def _unit_lines(self, schema: Schema) -> list[str]:
        """How far each column moves with one standard deviation along the components."""
        names, steps = self.loadings()
        columns = [column for column, _ in field_columns(schema) for _ in column.fields]
        rows = [
            [step_text(column, float(step), with_unit=True) for column, step in both]
            for both in (zip(columns, row, strict=True) for row in steps)
        ]
        heads = [f"{part:.1%}" for part in self.explained_variance_ratio]
        return turned_lines("share", heads, names, rows)

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields of a file in their own types."""
        _require_components(**{name: fields[name] for name in cls.ARRAYS})
        _require_plain(fields)
        require_fingerprint(fields)
        require_numbers(fields, _NUMBERS)
        return {}


_NUMBERS = (
    "total_variance",
    "noise_variance",
    "lost_variance",
    "residual",
    "expected_residual",
    "n_records",
)


def _require_components(
    components: Floats, explained_variance: Floats, standard_errors: Floats, mean: Floats
) -> None:
    """Refuse numbers that are not principal components."""
    if components.ndim != 2 or components.size == 0:
        raise ParameterError("components must be a table")
    size, dim = components.shape
    if explained_variance.shape != (size,) or standard_errors.shape != (size,):
        raise ParameterError("components, variances and errors do not fit together")
    if mean.shape != (dim,):
        raise ParameterError("the mean does not fit the components")
    arrays = (components, explained_variance, standard_errors, mean)
    if not all(np.isfinite(array).all() for array in arrays):
        raise ParameterError("a component, variance or mean is missing")
    if (explained_variance < 0).any() or (standard_errors < 0).any():
        raise ParameterError("variances and errors must not be negative")
    if np.abs(components @ components.T - np.eye(size)).max() > 1e-6:
        raise ParameterError("components must be orthonormal")


def _require_plain(fields: dict[str, Any]) -> None:
    if type(fields["centered"]) is not bool:
        raise ParameterError("centered must be true or false")
    if type(fields["n_standing_out"]) is not int or fields["n_standing_out"] < 0:
        raise ParameterError("n_standing_out must be a whole number")
    if fields["method"] not in FITS:
        raise ParameterError("unknown method")
