"""The problem of learning principal components: noisy second moments of the records.

A sketch has either sums of squares along public directions, or the entries of the second-moment
matrix. Both are linear in that matrix, about the center of the domain, in the units of the records.

If the mean was released, fits explain second moments about it. The sum of (x - mu)(x - mu)' over n
records is M - n mu mu'. A noisy mean makes n mu mu' too large by its known variance on average,
which is subtracted. An error e of the sum of records becomes an error mu e' + e mu' of the matrix,
which correlates the values.

Fits of principal components need only a measurement A, C -> w_j' C w_j or C -> its entries, and its
adjoint A*: <A(C), g> = <C, A*(g)> for every C and g. `gram` is A A*, the covariance
of the values of a random symmetric matrix without preferred direction (variance 1 on the diagonal,
1/2 off it).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Bits, Floats, Indices
from privsketch.features.moments import DIAGONAL, OFF_DIAGONAL, moment_count
from privsketch.sketching.sketch import Sketch

MIN_NOISE = 1e-7  # least deviation relative to the largest value, for sketches without noise


@dataclass(frozen=True, eq=False)
class QuadraticMeasurements:
    """Quadratic forms w_j' C w_j along public vectors (m, dim)."""

    vectors: Floats

    @property
    def dim(self) -> int:
        """Rows of the matrix."""
        return int(self.vectors.shape[1])

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.vectors)

    @cached_property
    def identity(self) -> Floats:
        """A(I), (m,): squared norms."""
        return np.asarray(np.einsum("jk,jk->j", self.vectors, self.vectors))

    def of_matrix(self, matrix: Floats) -> Floats:
        """Return A(C), (m,)."""
        return np.asarray(np.einsum("jk,jk->j", self.vectors @ matrix, self.vectors))

    def of_factor(self, factor: Floats) -> Floats:
        """Return A(U U'), (m,)."""
        products = self.vectors @ factor
        return np.asarray(np.einsum("jk,jk->j", products, products))

    def adjoint(self, weights: Floats) -> Floats:
        """Return A*(g), (dim, dim)."""
        return np.asarray((self.vectors * weights[:, None]).T @ self.vectors)

    def adjoint_times(self, weights: Floats, factor: Floats) -> Floats:
        """Return A*(g) U, (dim, rank)."""
        return np.asarray(self.vectors.T @ (weights[:, None] * (self.vectors @ factor)))

    @property
    def gram_diagonal(self) -> Floats:
        """Diagonal of A A*, (m,)."""
        return np.square(self.identity)

    def gram(self) -> Floats:
        """Return A A*, (m, m), or its diagonal (m,) if it has nothing else."""
        return np.asarray(np.square(self.vectors @ self.vectors.T))


@dataclass(frozen=True, eq=False)
class EntryMeasurements:
    """Entries C_ij, i <= j, of the upper triangle row by row."""

    dim: int

    @cached_property
    def _triangle(self) -> tuple[Indices, Indices]:
        first, second = np.triu_indices(self.dim)
        return first, second

    @property
    def size(self) -> int:
        """Number of values."""
        return moment_count(self.dim)

    @cached_property
    def on_diagonal(self) -> Bits:
        """(m,) mask of the diagonal entries."""
        first, second = self._triangle
        return np.asarray(first == second)

    @cached_property
    def identity(self) -> Floats:
        """A(I), (m,)."""
        return self.on_diagonal.astype(np.float64)

    def of_matrix(self, matrix: Floats) -> Floats:
        """Return A(C), (m,)."""
        return np.asarray(matrix[self._triangle])

    def of_factor(self, factor: Floats) -> Floats:
        """Return A(U U'), (m,)."""
        return self.of_matrix(factor @ factor.T)

    def adjoint(self, weights: Floats) -> Floats:
        """Return A*(g), (dim, dim)."""
        half = np.zeros((self.dim, self.dim))
        half[self._triangle] = weights / 2
        return half + half.T

    def adjoint_times(self, weights: Floats, factor: Floats) -> Floats:
        """Return A*(g) U, (dim, rank)."""
        return np.asarray(self.adjoint(weights) @ factor)

    def matrix_of(self, values: Floats) -> Floats:
        """Return the symmetric matrix that has these entries."""
        return self.adjoint(np.where(self.on_diagonal, values, 2 * values))

    @property
    def gram_diagonal(self) -> Floats:
        """Diagonal of A A*, (m,)."""
        return np.where(self.on_diagonal, 1.0, 0.5)

    def gram(self) -> Floats:
        """Return A A*, (m, m), or its diagonal (m,) if it has nothing else."""
        return self.gram_diagonal


Measurements = QuadraticMeasurements | EntryMeasurements


@dataclass(frozen=True, eq=False, kw_only=True)
class _Moments:
    """Fields of both kinds of problems, which `QuadraticProblem` documents."""

    noise: str
    radius: float
    n_records: float = 1.0
    mean: Floats | None = None
    mean_variance: float = 0.0
    count_variance: float = 0.0
    repetition: float = 1.0


@dataclass(frozen=True, eq=False)
class QuadraticProblem(_Moments):
    """Sums of quadratic features.

    Parameters
    ----------
    vectors : (m, dim) float64
        Public directions w_j.
    values : (m,) float64
        Noisy sums over the records of `(w_j.(x - center))^2`.
    noise_variance : float
        Variance of the noise of every value.
    noise : {"gaussian", "laplace", "cube"}
        Law of the noise.
    radius : float
        Records lie within this distance of the center.
    n_records : float
        Number of records: exact, noisy, or the planned one.
    mean : (dim,) float64 or None
        Noisy sum over the records of `x - center`; None if it was not released.
    mean_variance : float
        Variance of the noise per coordinate of `mean`.
    count_variance : float
        Variance of `n_records` about the number of records that make up the sums.
    repetition : float
        How often a record counts; sums vary like those over n_records / repetition.
    """

    vectors: Floats
    values: Floats
    noise_variance: float

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.vectors.shape[1])


@dataclass(frozen=True, eq=False)
class MomentProblem(_Moments):
    """The second-moment matrix.

    Parameters
    ----------
    matrix : (dim, dim) float64
        Noisy sum over the records of `(x - center)(x - center)'`, symmetric.
    diagonal_variance, off_diagonal_variance : float
        Variance of the noise of an entry.
    noise, radius, n_records, mean, mean_variance, count_variance, repetition
        As in `QuadraticProblem`.
    """

    matrix: Floats
    diagonal_variance: float
    off_diagonal_variance: float

    @property
    def dim(self) -> int:
        """Number of columns."""
        return len(self.matrix)


PCAProblem = QuadraticProblem | MomentProblem


def problem_of_pca(sketch: Sketch) -> PCAProblem:
    """Return the sketch as a problem for learners of principal components."""
    design = sketch.design
    if "pca" not in design.mapping.tasks:
        raise ParameterError(
            f"this sketch has {design.feature_map!r} features, which are not for principal "
            "components; plan a design with `task='pca'`"
        )
    radius = float(design.domain.half_widths[0])
    released = sketch.record_sums()
    mean, mean_variance = (None, 0.0) if released is None else released
    noise_variance = sketch.noise_variance * radius**4
    common: dict[str, Any] = {
        "noise": design.noise,
        "radius": radius,
        "n_records": sketch.assumed_records,
        "mean": mean,
        "mean_variance": mean_variance,
        "count_variance": _count_variance(sketch),
        "repetition": sketch.repetition,
    }
    if design.feature_map == "quadratic":
        values = sketch.quadratic_sums()
        return QuadraticProblem(
            vectors=design.frequencies.vectors(design.domain),
            values=values,
            noise_variance=noise_variance + _masking(sketch, float(values.mean())),
            **common,
        )
    matrix = sketch.second_moments()
    masking = _masking(sketch, float(np.trace(matrix)) / len(matrix))
    return MomentProblem(
        matrix=matrix,
        diagonal_variance=noise_variance + masking,
        off_diagonal_variance=noise_variance * (DIAGONAL / OFF_DIAGONAL) ** 2 + masking / 3,
        **common,
    )


def _masking(sketch: Sketch, square: float) -> float:
    """Return the variance that masks add to a sum of squares of this size.

    Each record adds its squared square, on average three times the squared mean, as for Gaussian
    records.
    """
    if sketch.masking_variance == 0:
        return 0.0
    return sketch.masking_variance * 3 * (square / max(sketch.assumed_records, 1.0)) ** 2


def _count_variance(sketch: Sketch) -> float:
    """Return the variance of the released number of records around that in the sums.

    It is the noise and, unless only the records that masks keep were counted, their number's.
    """
    noise, rate = sketch.design.sum_noise, sketch.design.record_rate
    variance = sketch.count_variance
    if noise.count == "released" and noise.count_law is None:
        return variance
    masked_variance = (1 - rate) * sketch.repetition  # per record, in units of its own
    return variance + masked_variance * max(sketch.assumed_records, 0.0)


@dataclass(frozen=True, eq=False)
class Observations:
    """Noisy values of linear measurements of a second-moment matrix.

    Attributes
    ----------
    measurements : Measurements
    values, variances : (m,) float64
        The variances are those of their own privacy noise.
    noise : str
        Law of the noise.
    n_records : float
        Number of records, at least 1.
    radius : float
        Records lie within this distance of the center of the domain.
    repetition : float
        How often a record counts.
    count_deviation : float
        Standard deviation of `n_records`, relative to it.
    mean : (dim,) float64 or None
        Offset of the mean from the center of the domain, which was subtracted; None without it.
    mean_variance : float
        Variance of the noise of n_records times the mean, per coordinate.
    """

    measurements: Measurements
    values: Floats
    variances: Floats
    noise: str
    n_records: float
    radius: float
    repetition: float
    count_deviation: float
    mean: Floats | None
    mean_variance: float

    @property
    def exact_law(self) -> bool:
        """Whether least squares is the likelihood."""
        return self.noise != "laplace"

    @property
    def effective_records(self) -> float:
        """Number of records, each counted once, that would vary as much; at least 1."""
        return max(self.n_records / self.repetition, 1.0)

    def mean_error(self, errors: Floats) -> Floats:
        """Return errors of the values, (m,), that errors of the sum of records, (dim,), cause."""
        if self.mean is None:
            return np.zeros(self.measurements.size)
        turned = np.outer(self.mean, errors)
        return self.measurements.of_matrix(turned + turned.T)

    def mean_spread(self) -> Floats:
        """Return variances of the values, (m,), that the noise of the mean causes."""
        if self.mean is None:
            return np.zeros(self.measurements.size)
        return self.mean_variance * _spread_by_mean(self.measurements, self.mean)


def observations_of(problem: PCAProblem) -> Observations:
    """Return the observations that a fit explains."""
    measurements: Measurements
    if isinstance(problem, MomentProblem):
        entries = EntryMeasurements(problem.dim)
        measurements, values = entries, entries.of_matrix(problem.matrix)
        variances = np.where(
            entries.on_diagonal, problem.diagonal_variance, problem.off_diagonal_variance
        )
    else:
        measurements, values = QuadraticMeasurements(problem.vectors), problem.values
        variances = np.full(len(values), problem.noise_variance)
    n_records = max(problem.n_records, 1.0)
    mean = None
    if problem.mean is not None:
        mean = _inside(problem.mean / n_records, problem.radius)
        values = values - n_records * measurements.of_matrix(np.outer(mean, mean))
        values = values + problem.mean_variance / n_records * measurements.identity
    largest = max(float(np.abs(values).max(initial=0.0)), 1e-6 * problem.radius**2)
    floor = (MIN_NOISE * largest) ** 2
    return Observations(
        measurements=measurements,
        values=values,
        variances=np.maximum(variances, floor),
        noise=problem.noise,
        n_records=n_records,
        radius=problem.radius,
        repetition=problem.repetition,
        count_deviation=math.sqrt(problem.count_variance) / n_records,
        mean=mean,
        mean_variance=problem.mean_variance,
    )


def _inside(mean: Floats, radius: float) -> Floats:
    """Return the nearest point of the domain; a mean outside is noise."""
    return np.asarray(mean / max(1.0, float(np.linalg.norm(mean)) / radius))


def _spread_by_mean(measurements: Measurements, mean: Floats) -> Floats:
    """Return variances of A(mu e' + e mu'), (m,), for e of variance 1 in every coordinate."""
    if isinstance(measurements, EntryMeasurements):
        squares = np.square(mean)
        both = squares[:, None] + squares[None, :] + 2 * np.diag(squares)
        return measurements.of_matrix(both)
    # 4 (w.mu)^2 |w|^2
    return np.asarray(4 * measurements.of_factor(mean[:, None]) * measurements.identity)
