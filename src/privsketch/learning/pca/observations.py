"""The numbers to explain: second moments about the mean, where the mean is known.

The sum of (x - mu)(x - mu)' over n records is M - n mu mu'. A noisy mean has, on average,
n mu mu' too large by its own variance, which is known and taken back. Its error e of the sum
is one of the matrix, mu e' + e mu', and no noise of single values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privsketch._typing import Floats
from privsketch.learning.pca.measurements import (
    EntryMeasurements,
    Measurements,
    QuadraticMeasurements,
)
from privsketch.learning.pca.problem import MomentProblem, PCAProblem

LEAST_NOISE = 1e-7  # of the values' size: what a fit regards as exact


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
        At least 1.
    radius : float
        Records lie within this distance of the centre of the domain.
    repetition : float
        How often a record counts.
    count_deviation : float
        Standard deviation of `n_records`, relative to it.
    mean : (dim,) float64 or None
        Offset of the mean from the centre of the domain, if it was taken off.
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
        """As many records that count once vary as much, at least 1."""
        return max(self.n_records / self.repetition, 1.0)

    def mean_error(self, errors: Floats) -> Floats:
        """What errors of the sum of the records, (dim,), do to the values, (m,)."""
        if self.mean is None:
            return np.zeros(self.measurements.size)
        turned = np.outer(self.mean, errors)
        return self.measurements.of_matrix(turned + turned.T)

    def mean_spread(self) -> Floats:
        """Variances of the values because of the noise of the mean, (m,)."""
        if self.mean is None:
            return np.zeros(self.measurements.size)
        return self.mean_variance * _spread_by_mean(self.measurements, self.mean)


def observations_of(problem: PCAProblem) -> Observations:
    """What a fit explains."""
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
    floor = (LEAST_NOISE * largest) ** 2
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
    """The nearest point of the domain; a mean outside is noise."""
    return np.asarray(mean / max(1.0, float(np.linalg.norm(mean)) / radius))


def _spread_by_mean(measurements: Measurements, mean: Floats) -> Floats:
    """Variance of A(mu e' + e mu') for e of variance 1 in every coordinate, (m,)."""
    if isinstance(measurements, EntryMeasurements):
        squares = np.square(mean)
        both = squares[:, None] + squares[None, :] + 2 * np.diag(squares)
        return measurements.of_matrix(both)
    # 4 (w.mu)^2 |w|^2
    return np.asarray(4 * measurements.of_factor(mean[:, None]) * measurements.identity)
