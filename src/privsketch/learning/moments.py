"""One view of every sketch with second moments: noisy sums of (1, z)(1, z)', and their noise.

z is an encoded record minus a public center. The sums over n records are

    G = [ n        sum z'   ]
        [ sum z    sum z z' ],

with independent noise of known variance in each entry. Regressions, classifiers and summaries are
functions of G and of these variances, so they take sketches of one holder, merged ones and totals
of sealed studies alike. A design planned for principal components serves as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Bits, Floats
from privsketch.facts.domain import enclosing_ball
from privsketch.facts.labels import Labelled
from privsketch.facts.schema import Schema
from privsketch.features.fixedpoint import RECORD_MAX, RECORD_UNIT
from privsketch.features.moments import MOMENT_RADIUS, MOMENT_UNIT, ROUNDING_VARIANCE
from privsketch.features.taxicab import to_coordinates
from privsketch.learning.pca.problem import MomentProblem, problem_of_pca
from privsketch.sketching.sketch import Sketch


@dataclass(frozen=True, eq=False)
class Moments:
    """Noisy sums over records of (1, z)(1, z)', where z is an encoded record minus `center`.

    Attributes
    ----------
    matrix : (dim + 1, dim + 1) float64
        The sums as released, without bias, symmetric. Entry (0, 0) is the number of records, which
        noise may have made negative. If the mean was not released, the sums of z are 0: everything
        is then about the center.
    variance : (dim + 1, dim + 1) float64
        Variances of the noise of the entries, symmetric; 0 where a number is exact or missing.
    center : (dim,) float64
        Public point about which the sums are taken.
    n_records : float
        Number of records: exact if public, else the released one, but no fewer than 1 or than the
        trace needs, because no record is farther than `radius` from the center.
    repetition : float
        How often a record counts, or how many a person has at most: sampling moves the sums like
        those over n_records / repetition independent records.
    radius : float
        Largest distance of a record from the center.
    noise : str
        Law of the noise.
    has_mean : bool
        Whether the sums of z were released.
    schema : Schema or None
        Encoding of tables.
    columns : tuple of str or None
        Names of the coordinates.
    conversion, released_variance : (dim + 1, dim + 1) float64 or None
        T and the variances of independent entries of M, where `matrix` is T M T'. Noise of `matrix`
        is then correlated, which `noise_along` knows. None if M was released as it is.
    """

    matrix: Floats
    variance: Floats
    center: Floats
    n_records: float
    repetition: float
    radius: float
    noise: str
    has_mean: bool
    schema: Schema | None = None
    columns: tuple[str, ...] | None = None
    conversion: Floats | None = None
    released_variance: Floats | None = None

    @classmethod
    def of(cls, sketch: Sketch) -> Moments:
        """Return the second moments of a sketch; raise ParameterError for one that has none.

        The task of the design does not matter.
        """
        if not isinstance(sketch, Sketch):
            raise ParameterError(f"sketch: expected a Sketch, got {type(sketch).__name__}")
        name = sketch.design.feature_map
        if name not in _VIEWS:
            raise ParameterError(
                f"this sketch has {name!r} features, which do not determine the second moments of "
                "all columns; plan a design with `task='regression'`, or for components with "
                "`feature_map='second-moments'` and `mean='released'`"
            )
        return _VIEWS[name](sketch)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.center)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates; x1, x2, ... if they have none."""
        return self.columns or tuple(f"x{place + 1}" for place in range(self.dim))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of a record."""
        return self.coordinates if self.schema is None else self.schema.names

    def places(self, name: str) -> slice:
        """Return the coordinates of a column; its rows in `matrix` are one further down."""
        if self.schema is not None:
            for column, place in self.schema.places():
                if column.name == name:
                    return place
        elif name in self.coordinates:
            first = self.coordinates.index(name)
            return slice(first, first + 1)
        known = ", ".join(map(repr, self.names[:12])) + (", ..." if len(self.names) > 12 else "")
        raise ParameterError("column", name, f"expected one of {known}")

    def noise_along(self, vector: Floats) -> Floats:
        """Return the covariance of N v, (dim + 1, dim + 1), for the noise N of `matrix`.

        N is symmetric with independent entries, so N v has the covariances V_ij v_i v_j and the
        variances sum_k V_ik v_k^2. Of T M T' it is T times that of M along T'v, times T'.
        """
        variance, turn = self.released_variance, self.conversion
        if variance is None or turn is None:
            return _along(self.variance, vector)
        return np.asarray(turn @ _along(variance, turn.T @ vector) @ turn.T)


def _along(variance: Floats, vector: Floats) -> Floats:
    """Return the covariance of N v for a symmetric N with independent entries."""
    covariance = variance * np.outer(vector, vector)
    np.fill_diagonal(covariance, variance @ np.square(vector))
    return np.asarray(covariance)


def _of_second_moments(sketch: Sketch) -> Moments:
    """Return the moments of a ball: matrix, mean and count have noise of their own each."""
    problem, design = cast(MomentProblem, problem_of_pca(sketch)), sketch.design
    dim, diagonal = problem.dim, np.diag_indices(problem.dim)
    matrix, variance = np.zeros((dim + 1, dim + 1)), np.zeros((dim + 1, dim + 1))
    matrix[0, 0], variance[0, 0] = problem.n_records, problem.count_variance
    matrix[1:, 1:] = problem.matrix
    variance[1:, 1:] = problem.off_diagonal_variance
    variance[1:, 1:][diagonal] = problem.diagonal_variance
    if problem.mean is not None:
        matrix[0, 1:] = matrix[1:, 0] = problem.mean
        variance[0, 1:] = variance[1:, 0] = problem.mean_variance
        if design.schema is not None:
            matrix, scales = _unrounded(sketch, matrix, _label_ends(design.schema))
            variance *= np.square(np.outer(scales, scales))
    return Moments(
        matrix=matrix,
        variance=variance + _rounding_variance(design.schema, matrix, problem.radius),
        center=design.domain.center_vector,
        n_records=least_records(sketch, float(np.trace(problem.matrix)), problem.radius),
        repetition=problem.repetition * design.budget.unit.max_records,
        radius=problem.radius,
        noise=design.noise,
        has_mean=problem.mean is not None,
        schema=design.schema,
        columns=design.columns,
    )


def _label_ends(schema: Schema) -> Floats:
    """Return the two values of each coordinate of a label about the center, (2, dim); else NaN."""
    ends = np.full((2, schema.dim), np.nan)
    for column, place in schema.places():
        if isinstance(column, Labelled):
            ends[0, place] = column.lowest - column.center
            ends[1, place] = column.highest - column.center
    return ends


def _unrounded(sketch: Sketch, matrix: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """Return the sums as if labels had not been rounded, and factors (dim + 1,) of their noise.

    Records are rounded to integers, and coarser ones in squares and products than in sums. Rounding
    of numbers is random. That of a label is not: its coordinate has two public values, `ends`, and
    the integers of both are known. So z is an affine function of the integers, and sums of them
    give those of z exactly. Otherwise a label that nobody has would seem to vary.
    """
    radius = float(sketch.design.domain.half_widths[0])
    integers = np.rint(ends * RECORD_UNIT / radius)
    coarse = np.rint(integers * (MOMENT_RADIUS / RECORD_MAX))
    is_label: Bits = coarse[1] > coarse[0]  # not of a weight that rounds to nothing
    shift, scale = _affine(coarse * (radius / MOMENT_UNIT), ends, is_label)
    of_sums = _affine(integers * (radius / RECORD_UNIT), ends, is_label)
    n_records = matrix[0, 0]
    sums = n_records * of_sums[0] + of_sums[1] * matrix[0, 1:]
    inner = matrix[1:, 1:].copy()
    if sketch.n_records is not None:  # what `second_moments` takes off for random rounding
        rounding = max(sketch.n_records, 0.0) * ROUNDING_VARIANCE * (radius / MOMENT_UNIT) ** 2
        inner[np.diag_indices(len(inner))] += np.where(is_label, rounding, 0.0)
    crossed = np.outer(shift, sums - n_records * shift)  # scale times sums of rounded values
    inner = (
        n_records * np.outer(shift, shift) + crossed + crossed.T + inner * np.outer(scale, scale)
    )
    result = np.block(
        [[np.full((1, 1), n_records), sums[np.newaxis]], [sums[:, np.newaxis], inner]]
    )
    return result, np.append(1.0, scale)


def _rounding_variance(schema: Schema | None, matrix: Floats, radius: float) -> Floats:
    """Return the variance that random rounding of numbers adds to the sums.

    It is far below that of any noise, and all there is in a sketch without privacy.
    """
    random = np.ones(len(matrix) - 1)
    if schema is not None:
        random = np.isnan(_label_ends(schema)[0]).astype(np.float64)
    unit = ROUNDING_VARIANCE * (radius / MOMENT_UNIT) ** 2
    crossed = np.outer(random, np.maximum(np.diag(matrix)[1:], 0.0))
    variance = np.zeros_like(matrix)
    variance[1:, 1:] = unit * (crossed + crossed.T + 2 * np.diag(np.diag(crossed)))
    return variance


def _affine(rounded: Floats, ends: Floats, is_label: Bits) -> tuple[Floats, Floats]:
    """Return shift and scale, (dim,), that take the rounded values of labels to their ends."""
    width = np.where(is_label, rounded[1] - rounded[0], 1.0)
    scale = np.where(is_label, (ends[1] - ends[0]) / width, 1.0)
    shift = np.where(is_label, ends[0] - scale * rounded[0], 0.0)
    return shift, scale


def least_records(sketch: Sketch, trace: float, radius: float) -> float:
    """Return the number of records: a public one, or what was released and the trace allow.

    A noisy number may be far too small, and everything per record would explode.
    """
    if sketch.exact_count is not None:
        return max(float(sketch.assumed_records), 1.0)
    return max(float(sketch.assumed_records), trace / radius**2, 1.0)


def _of_taxicab(sketch: Sketch) -> Moments:
    """Return the moments of taxicab integers u, which T maps to (1, z): T M T'.

    Entries of M have independent noise of variances V. That of an entry of T M T' is the sum of
    squares of what T multiplies with, in which products off the diagonal occur twice on its
    diagonal.
    """
    design = sketch.design
    sums, noise = sketch.taxicab_moments()
    turn = to_coordinates(design.domain, design.column_kinds)
    squares = np.square(turn)
    matrix, variance = turn @ sums @ turn.T, squares @ noise @ squares.T
    crossed = squares @ (noise - np.diag(np.diag(noise))) @ squares.T
    variance[np.diag_indices(len(variance))] += np.diag(crossed)
    ball = design.schema.ball if design.schema is not None else enclosing_ball(design.domain)
    radius = float(ball.half_widths[0])
    return Moments(
        matrix=matrix,
        variance=variance,
        center=ball.center_vector,
        n_records=least_records(sketch, float(np.trace(matrix[1:, 1:])), radius),
        repetition=sketch.repetition * design.budget.unit.max_records,
        radius=radius,
        noise=design.noise,
        has_mean=True,
        schema=design.schema,
        columns=design.columns,
        conversion=turn,
        released_variance=noise,
    )


# Feature maps whose sums are second moments, and how their sketches become `Moments`.
_VIEWS: dict[str, Callable[[Sketch], Moments]] = {
    "second-moments": _of_second_moments,
    "taxicab": _of_taxicab,
}
