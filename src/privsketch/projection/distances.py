"""Squared distances between records, estimated from released rows: JLL Algorithm 2, corrected.

    D(i, j) = |Z_i - Z_j|^2 - 2 k s2

for k components with noise of variance s2 in each. Given the matrix P, it is unbiased for the
squared distance |a P|^2 of the projected records, a = x_i - x_j; averaged over P, for |a|^2.
The published variance of D (Claim 7) is wrong; docs/projection.md, "Distances", has the correct
one and the measured coverage of the intervals.

All of this is post-processing and costs no budget.

Law of D. D = |a P + N|^2 - k v, where every component of N is the noise of two rows, of variance v.
Its first three cumulants depend only on the true distance t: on t = |a P|^2 given the matrix, and
on t = |a|^2 if the matrix is random too, where a P is N(0, t / k) in every component. As the spread
grows with t, an interval is the set of all t that make D plausible, not D plus or minus a spread
(docs/projection.md, "Distances").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from privsketch._base.errors import ParameterError, require_count, require_one_of
from privsketch._base.types import Floats, Indices

INTERVAL_METHODS = ("gamma", "chebyshev")
VALUES_AT_ONCE = 2**20  # 8 MB of distances in memory
_INTERVAL_POINTS = 4096  # true distances between which the ends of intervals are interpolated
_MIN_POWER = 0.05  # smaller powers are nearly the logarithm


class KnownNoise(Protocol):
    """Noise of a release, as `Projection` and `ReleaseDescription` state it."""

    @property
    def noise_variance(self) -> float:
        """Variance of the noise of one released number."""

    @property
    def noise_fourth_moment(self) -> float:
        """Fourth moment of the noise of one released number."""


@dataclass(frozen=True, eq=False)
class Released:
    """Released rows and the moments of their noise, without carried columns.

    Parameters
    ----------
    values : (n, k) float64
    noise : Projection or ReleaseDescription, optional
        Projection that released them, or the description beside their file; None for exact points
        of the released space, such as public centers.
    """

    values: Floats
    noise: KnownNoise | None

    def __post_init__(self) -> None:
        try:
            values = np.asarray(self.values, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(
                "values: expected a table of numbers; from a frame with carried columns, select "
                "frame[list(description.columns)]"
            ) from None
        if values.ndim != 2 or values.shape[1] == 0 or not np.isfinite(values).all():
            raise ParameterError(
                f"values: expected a table of finite numbers, (n, components), got shape "
                f"{values.shape} or missing values"
            )
        object.__setattr__(self, "values", values)
        columns = getattr(self.noise, "n_components", values.shape[1])
        if columns != values.shape[1]:
            raise ParameterError(
                f"values: got {values.shape[1]} columns, the release has {columns}; pass only the "
                "released columns"
            )
        variance, fourth = self.variance, self.fourth_moment
        has_moments = variance > 0 or self.noise is None
        if not (has_moments and 0 <= variance * variance <= fourth < math.inf):
            raise ParameterError(
                f"noise: no noise has variance {variance!r} and fourth moment {fourth!r}"
            )

    @property
    def n_components(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    @property
    def variance(self) -> float:
        """Variance of the noise of one number."""
        return 0.0 if self.noise is None else float(self.noise.noise_variance)

    @property
    def fourth_moment(self) -> float:
        """Fourth moment of the noise of one number."""
        return 0.0 if self.noise is None else float(self.noise.noise_fourth_moment)

    def squared_norms(self) -> Floats:
        """Return unbiased squared distances (n,) from the records to the center of the domain."""
        squares: Floats = np.einsum("ij,ij->i", self.values, self.values)
        return squares - self.n_components * self.variance


def require_released(name: str, value: object) -> Released:
    """Return the value, or raise a ParameterError if it is not `Released`."""
    if isinstance(value, Released):
        return value
    raise ParameterError(f"{name}: expected Released(values, noise), got {type(value).__name__}")


@dataclass(frozen=True, eq=False)
class Distances:
    """Unbiased squared distances between the rows of one release, or from them to other rows.

    `others` may be another release with the same matrix, or exact points of the released space; by
    default it is the rows themselves. The methods compute distances in memory of the size of their
    result.

    Distances of near rows are often negative, and averages need negative ones. `clip` replaces them
    by 0, for algorithms that require it, which makes small distances too large on average.
    """

    rows: Released
    others: Released | None = None
    clip: bool = False

    def __post_init__(self) -> None:
        require_released("rows", self.rows)
        if self.others is self.rows:
            object.__setattr__(self, "others", None)
        require_released("others", self.columns)
        if self.columns.n_components != self.rows.n_components:
            raise ParameterError(
                f"others: got {self.columns.n_components} components, rows have "
                f"{self.rows.n_components}; distances need the same matrix"
            )
        names = {getattr(side.noise, "matrix_name", None) for side in (self.rows, self.columns)}
        if len(names - {None}) > 1:
            raise ParameterError(
                "others: released with another matrix, so distances are meaningless; use one seed, "
                "or one fitted estimator, for both releases"
            )
        if self.rows.noise is None and self.columns.noise is None:
            raise ParameterError("`noise=None` on both sides: exact points have exact distances")

    @property
    def columns(self) -> Released:
        """Rows at the other end of the distances."""
        return self.rows if self.others is None else self.others

    @property
    def law(self) -> DistanceLaw:
        """Law of the distances."""
        sides = (self.rows, self.columns)
        noises = [(side.variance, side.fourth_moment) for side in sides]
        return DistanceLaw.of(self.rows.n_components, noises)

    def pairs(self, first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
        """Return distances (m,) from the rows `first` to the rows `second`, given by index."""
        left = _row_indices("first", first, len(self.rows.values))
        right = _row_indices("second", second, len(self.columns.values))
        if len(left) != len(right):
            raise ParameterError(f"first, second: {len(left)} and {len(right)} rows; not pairs")
        squares = np.empty(len(left))
        step = max(1, VALUES_AT_ONCE // self.rows.n_components)
        for start in range(0, len(left), step):
            part = slice(start, start + step)
            gap = self.rows.values[left[part]] - self.columns.values[right[part]]
            np.einsum("ij,ij->i", gap, gap, out=squares[part])
        return self._correct(squares, left, right)

    def block(self, rows: Any = None, columns: Any = None) -> Floats:
        """Return distances from `rows` to `columns`: slices or row indices, by default all."""
        left = _row_indices("rows", rows, len(self.rows.values))
        right = _row_indices("columns", columns, len(self.columns.values))
        # A slice of a table is not a copy.
        selection = slice(None) if columns is None else columns
        targets = self.columns.values[selection if isinstance(selection, slice) else right]
        squares = np.einsum("ij,ij->i", targets, targets)
        distances = np.empty((len(left), len(right)))
        step = _strip_rows(len(right))
        for start in range(0, len(left), step):
            strip = distances[start : start + step]
            indices = left[start : start + step]
            sources = self.rows.values[indices]
            np.matmul(sources, targets.T, out=strip)
            strip *= -2
            strip += np.einsum("ij,ij->i", sources, sources)[:, np.newaxis]
            strip += squares
            self._correct(strip, indices[:, np.newaxis], right)
        return distances

    def blocks(self, n_rows: int | None = None) -> Iterator[tuple[slice, Floats]]:
        """Yield slices of rows with their distances to all columns."""
        total, width = len(self.rows.values), len(self.columns.values)
        step = _strip_rows(width) if n_rows is None else require_count("n_rows", n_rows)
        for start in range(0, total, step):
            part = slice(start, min(start + step, total))
            yield part, self.block(part, slice(None))

    def matrix(self) -> Floats:
        """Return all distances, exactly symmetric among rows of one release."""
        if self.others is not None:
            return self.block()
        n = len(self.rows.values)
        distances = np.empty((n, n))
        step = _strip_rows(n)
        for start in range(0, n, step):
            end = min(start + step, n)
            strip = self.block(slice(start, end), slice(start, None))
            corner = strip[:, : end - start]
            corner += corner.T.copy()
            corner /= 2
            distances[start:end, start:] = strip
            distances[start:, start:end] = strip.T
        return distances

    def _correct(self, squares: Floats, left: Indices, right: Indices) -> Floats:
        """Subtract the mean of the noise in place; the distance of a row to itself becomes 0."""
        squares -= self.law.excess
        if self.others is None:
            squares[left == right] = 0
        return np.maximum(squares, 0, out=squares) if self.clip else squares

    def variance(self, true: npt.ArrayLike, *, given_matrix: bool = False) -> Floats:
        """Return the variance of D for a true squared distance.

        Matrix and noise are random for |a|^2; only the noise is, given the matrix, for |a P|^2. The
        former takes the noise variance as fixed, but "realised" noise depends on the matrix, which
        adds a little. It also requires that both points are images of records, as the origin is.
        """
        values = as_floats("true", true)
        if not (values >= 0).all():
            raise ParameterError("true: squared distances are at least 0")
        return self.law.cumulants(values, given_matrix)[0]

    def interval(
        self,
        found: npt.ArrayLike,
        *,
        level: float = 0.95,
        given_matrix: bool = False,
        method: str = "gamma",
    ) -> tuple[Floats, Floats]:
        """Return the ends of confidence intervals for |a|^2, or for |a P|^2 given the matrix.

        They contain the true values under which a distance as small or as large as the unclipped
        distance in `found` is not too improbable; each true value has its own variance. Ends are at
        least 0, and the upper end for a negative distance is that for 0.

        Parameters
        ----------
        found : array of unclipped distances
        level : float
            Probability that an interval contains the true value, for each interval separately.
        given_matrix : bool
        method : {"gamma", "chebyshev"}
            "gamma" approximates a power of D + excess by a gamma variable with the same first three
            cumulants; this is exact for |a|^2 and Gaussian noise, and least accurate for k < 5.
            "chebyshev" uses only the variance, as JLL does: it keeps the level for every law and is
            very wide. Its upper ends for |a|^2 are infinite for k <= 2 / (1 - level).
        """
        require_one_of("method", method, INTERVAL_METHODS)
        is_number = isinstance(level, int | float | np.number)
        if not (is_number and 0 < level < 1):
            raise ParameterError("level", level, "expected a number between 0 and 1")
        values = as_floats("found", found)
        if not np.isfinite(values).all():
            raise ParameterError("found: expected finite distances")
        if method == "gamma":
            return self.law.gamma_interval(values, level, given_matrix)
        return self.law.chebyshev_interval(values, level, given_matrix)


def _strip_rows(width: int) -> int:
    return max(8, VALUES_AT_ONCE // max(1, width))


def _row_indices(name: str, selection: Any, count: int) -> Indices:
    all_rows = np.arange(count)
    if selection is None:
        return all_rows
    error = ParameterError(f"{name}: expected a slice, or a list of indices of {count} rows")
    try:
        index = selection if isinstance(selection, slice) else np.asarray(selection)
        if not isinstance(index, slice) and index.size == 0:
            index = index.astype(np.intp)  # an empty list becomes an array of floats
        indices = np.atleast_1d(all_rows[index])
    except (IndexError, TypeError, ValueError):
        raise error from None
    if indices.ndim != 1:
        raise error
    return indices


def as_floats(name: str, values: npt.ArrayLike) -> Floats:
    """Convert to float64, or raise a ParameterError."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{name}: expected numbers") from None


@dataclass(frozen=True)
class DistanceLaw:
    """Law of D for k components; moments are those of one component of N."""

    n_components: int
    variance: float
    fourth_moment: float
    sixth_moment: float

    @classmethod
    def of(cls, n_components: int, noises: Sequence[tuple[float, float]]) -> DistanceLaw:
        """Return the law for independent noises, whose sum is N, by variance and fourth moment."""
        # Cumulants add up. The sixth is 10/3 c4^2 / c2 for Laplace and for Gaussian noise.
        c2 = sum(variance for variance, _ in noises)
        fourths = [(v, fourth - 3 * v * v) for v, fourth in noises if v > 0]
        c4 = sum(cumulant for _, cumulant in fourths)
        c6 = sum(10 / 3 * cumulant**2 / v for v, cumulant in fourths)
        return cls(n_components, c2, c4 + 3 * c2**2, c6 + 15 * c4 * c2 + 15 * c2**3)

    @property
    def excess(self) -> float:
        """Mean increase of a squared distance due to noise."""
        return self.n_components * self.variance

    def cumulants(self, t: Floats, given_matrix: bool) -> tuple[Floats, Floats]:
        """Return the variance and third cumulant of D."""
        k, v = self.n_components, self.variance
        square_variance = self.fourth_moment - v * v  # variance of N^2, then its third cumulant
        square_third = self.sixth_moment - 3 * v * self.fourth_moment + 2 * v**3
        variance, third = (
            4 * v * t + k * square_variance,
            12 * square_variance * t + k * square_third,
        )
        if not given_matrix:
            variance = variance + 2 * t**2 / k
            third = third + 24 * v * t**2 / k + 8 * t**3 / k**2
        return variance, third

    def quantile(self, probability: float, t: Floats, given_matrix: bool) -> Floats:
        """Return the quantile of D, approximately.

        (D + k v)^h is nearly normal for h = 1 - K1 K3 / (3 K2^2) (Jensen and Solomon, 1972),
        and so is the cube root of a gamma variable (Wilson and Hilferty): this takes the power
        3 h of a gamma variable, which is exact if D + k v is itself gamma.
        """
        mean = t + self.excess
        variance, third = self.cumulants(t, given_matrix)
        power = np.maximum(1 - mean * third / (3 * variance**2), _MIN_POWER)
        relative = variance / mean**2
        center = 1 + power * (power - 1) * relative / 2  # of ((D + k v) / mean)^h
        ratio = center / (power * np.sqrt(relative))
        root = (ratio + np.sqrt(ratio**2 + 4)) / 6  # 3 root - 1 / (3 root) = ratio
        shape = root**2
        cube = gammaincinv(shape, probability) / shape / (1 - 1 / (9 * shape)) ** 3
        return np.asarray(mean * (center * np.cbrt(cube)) ** (1 / power) - self.excess)

    def gamma_interval(
        self, distances: Floats, level: float, given_matrix: bool
    ) -> tuple[Floats, Floats]:
        """Return the t for which D so large, or so small, has probability (1 - level) / 2."""
        tail = (1 - level) / 2
        largest = max(float(distances.max(initial=0.0)), 0.0)
        top = 2 * (largest + self.excess)
        while self.quantile(tail, np.array(top), given_matrix) <= largest:
            top *= 2
        t = np.concatenate(
            [np.zeros(1), np.geomspace(1e-4 * self.excess, top, _INTERVAL_POINTS)], dtype=np.float64
        )
        ends = []
        for probability, values in ((1 - tail, distances), (tail, np.maximum(distances, 0))):
            curve = np.maximum.accumulate(self.quantile(probability, t, given_matrix))
            ends.append(np.interp(values, curve, t))
        return ends[0], ends[1]

    def chebyshev_interval(
        self, distances: Floats, level: float, given_matrix: bool
    ) -> tuple[Floats, Floats]:
        """Solve (D - t)^2 <= Var(t) / (1 - level), a quadratic inequality, for t."""
        factor = 1 / (1 - level)
        constant = factor * self.n_components * (self.fourth_moment - self.variance**2)
        slope = factor * 4 * self.variance
        leading = 1.0 if given_matrix else 1 - factor * 2 / self.n_components
        # leading t^2 - (2 D + slope) t + D^2 - constant <= 0
        positive = np.maximum(distances, 0)
        linear, last = 2 * positive + slope, positive**2 - constant
        root = np.sqrt(np.maximum(linear**2 - 4 * leading * last, 0))
        low = np.where(last > 0, 2 * last / (linear + root), 0.0)
        high = (linear + root) / (2 * leading) if leading > 0 else np.full_like(distances, math.inf)
        return low, high
