"""The numbers to explain: second moments about the mean, where the mean is known.

The sum of (x - mu)(x - mu)' over n records is M - n mu mu'. A noisy mean has, on average,
n mu mu' too large by its own variance, which is known and taken back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privsketch.learning.pca_measurements import (
    EntryMeasurements,
    Measurements,
    QuadraticMeasurements,
)
from privsketch.learning.pca_problem import MomentProblem, PCAProblem

Floats = npt.NDArray[np.float64]
LEAST_NOISE = 1e-7  # of the values' size: what a fit regards as exact


@dataclass(frozen=True, eq=False)
class Observations:
    """Noisy values of linear measurements of a second-moment matrix.

    Attributes
    ----------
    measurements : Measurements
    values, variances : (m,) float64
        The variances are those of privacy noise.
    noise : str
        Law of the noise.
    n_records : float
        At least 1.
    count_deviation : float
        Standard deviation of the noise of `n_records`, relative to it.
    mean : (dim,) float64 or None
        Offset of the mean from the centre of the domain, if it was taken off.
    """

    measurements: Measurements
    values: Floats
    variances: Floats
    noise: str
    n_records: float
    count_deviation: float
    mean: Floats | None

    @property
    def exact_law(self) -> bool:
        """Whether least squares is the likelihood."""
        return self.noise != "laplace"


def observations_of(problem: PCAProblem, planned_records: float) -> Observations:
    """What a fit explains; `planned_records` where no count was released."""
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
    count = planned_records if problem.n_records is None else problem.n_records
    n_records = max(float(count), 1.0)
    mean = None
    if problem.mean is not None:
        mean = _inside(problem.mean / n_records, problem.radius)
        own = n_records * problem.mean_variance / n_records**2
        values = values - n_records * measurements.of_matrix(np.outer(mean, mean))
        values = values + own * measurements.identity
        # A(mu e' + e mu') for noise e of the mean, in every coordinate of the same size.
        variances = variances + problem.mean_variance * _spread_by_mean(measurements, mean)
        # S S' / n for the noisy sum S is off by what the count n is.
        by_count = measurements.of_matrix(np.outer(mean, mean))
        variances = variances + problem.count_variance * np.square(by_count)
    largest = max(float(np.abs(values).max(initial=0.0)), 1e-6 * problem.radius**2)
    floor = (LEAST_NOISE * largest) ** 2
    return Observations(
        measurements=measurements,
        values=values,
        variances=np.maximum(variances, floor),
        noise=problem.noise,
        n_records=n_records,
        count_deviation=math.sqrt(problem.count_variance) / n_records,
        mean=mean,
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
