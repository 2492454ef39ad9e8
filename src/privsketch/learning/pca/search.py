"""Fits of every rank from one start, and the number of components that stand out of the noise.

If the entries of the matrix were released, the start is the matrix itself. With many values per
unknown it is one gradient step from zero ("spectral"), with few the convex fit. At 1.4 values per
unknown, a quarter of the searches from a spectral start ended far off, and none from a convex one.

A direction v improves the fit at the rate v' A*(g) v, where g are the slopes of the loss.
Simulation with public randomness gives the largest such rate under noise alone: "parallel
analysis" (J. Horn, 1965) with noise of a known law, that of the mean included. Sampling adds to it:
for n isotropic Gaussian records of total variance s in every direction, second moments vary by
s^2 / n off the diagonal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats
from privsketch.design.validity import pca_unknowns
from privsketch.learning.pca.fits import (
    FACTOR_TOLERANCE,
    ConvexFit,
    Factors,
    Loss,
    fit_convex,
    fit_factors,
    leading,
    loss_of,
    squares_of,
)
from privsketch.learning.pca.problem import EntryMeasurements, Measurements, Observations

ROUGH_TOLERANCE = 1e-5  # relative fall of the cost per step
SPECTRAL_RATIO = 4  # values per unknown from which a spectral start is safe
PENALTY_SHARE = 0.25  # penalty of the convex fit over the noise edge
LAST_DEVIATIONS = 3.0  # standard errors from which a last direction stands out
# Relative change per step that ends the convex fit of a start, and a guard; rough starts serve:
#   python -m benchmarks constants learning START_TOLERANCE
#   python -m benchmarks constants learning START_ITERATIONS
START_TOLERANCE = 1e-3
START_ITERATIONS = 100
EDGE_DRAWS, WIDE_EDGE_DRAWS = 100, 20  # the largest eigenvalues of wide matrices vary little
MIN_WIDE_DIM = 51  # columns of a wide matrix
EDGE_DEVIATIONS = 2.0  # above the mean of the draws: one false alarm in about thirty
EDGE_QUANTILE = 0.97  # of the draws: the same for noise with heavy tails


class Search:
    """Fits of one set of observations."""

    def __init__(self, observations: Observations, rank: int, rng: np.random.Generator) -> None:
        self.observations = observations
        self.loss, self.squares = loss_of(observations), squares_of(observations)
        self.edge = noise_edge(observations, rng)
        self.start = self._start(rank)
        self._rough: dict[int, Factors] = {}

    def _start(self, rank: int) -> Floats:
        measurements = self.observations.measurements
        if isinstance(measurements, EntryMeasurements):
            return measurements.matrix_of(self.observations.values)
        if measurements.size >= SPECTRAL_RATIO * pca_unknowns(rank, measurements.dim):
            return _one_step(measurements, self.squares)
        return self.convex(START_ITERATIONS, START_TOLERANCE).matrix()

    def convex(self, max_iterations: int, tolerance: float) -> ConvexFit:
        """Return the convex fit of least squares; Huber's function does not suit shrinkage.

        The penalty shrinks components by more than the noise, and Huber's function takes the
        difference for outliers. With a penalty at the noise edge only true directions enter, but
        shrinkage bends them. At a quarter of it noise and shrinkage bend them about equally.
        """
        return fit_convex(
            self.observations.measurements,
            self.squares,
            PENALTY_SHARE * self.edge.noise,
            max_iterations=max_iterations,
            tolerance=tolerance,
        )

    def fit(self, rank: int) -> Factors:
        """Return the best U U' + s I with U of this rank."""
        start = self._rough.get(rank, leading(self.start, rank))
        return self._improved(start, self.loss, FACTOR_TOLERANCE)

    def _rough_fit(self, rank: int) -> Factors:
        """Return a least-squares fit that is precise enough for its residuals.

        The noise edge is one of squares too; a fit by Huber's function leaves more of them.
        """
        self._rough[rank] = self._improved(leading(self.start, rank), self.squares, ROUGH_TOLERANCE)
        return self._rough[rank]

    def _improved(self, start: Factors, loss: Loss, tolerance: float) -> Factors:
        measurements = self.observations.measurements
        # The eigenvectors of a matrix with Gaussian noise are the best fit already.
        if isinstance(measurements, EntryMeasurements) and self.observations.exact_law:
            return start
        return fit_factors(measurements, loss, start, tolerance=tolerance)

    def standing_out(self, most: int) -> int:
        """Return the number of components that stand out of the noise, at most `most`."""
        dim = self.observations.measurements.dim
        for rank in range(most):
            factors = self._rough_fit(rank)
            if rank == dim - 1:
                return dim if self._has_last(factors) else rank
            prediction = factors.values(self.observations.measurements)
            rate = top_rate(self.observations, self.squares(prediction)[1])
            edge = self.edge.at(factors.isotropic, self.observations.effective_records)
            # The largest eigenvalue of noise grows with the root of the remaining dimensions.
            if rate <= edge * np.sqrt(1 - rank / dim):
                return rank
        return most

    def _has_last(self, factors: Factors) -> bool:
        """Return whether the last direction, which has no others to compare with, exceeds noise."""
        axis = np.linalg.svd(factors.factor)[0][:, -1:]
        whitened = self.squares.whiten(self.observations.measurements.of_factor(axis))
        return bool(factors.isotropic * np.linalg.norm(whitened) > LAST_DEVIATIONS)


def supported_components(dim: int, n_values: int, per_unknown: float = 1.0) -> int:
    """Return the largest rank with `per_unknown` values for every unknown, at least 1."""
    ranks = range(1, dim + 1)
    return max((r for r in ranks if per_unknown * pca_unknowns(r, dim) <= n_values), default=1)


def _one_step(measurements: Measurements, loss: Loss) -> Floats:
    """Return the best isotropic matrix after one step along its gradient."""
    unit = loss.whiten(measurements.identity)
    level = float(unit @ loss.whiten(loss.values)) / max(float(unit @ unit), 1e-300)
    residuals = loss.values - level * measurements.identity
    direction = measurements.adjoint(residuals)
    along = measurements.of_matrix(direction)
    length = float(along @ residuals) / max(float(along @ along), 1e-300)
    return np.asarray(level * np.eye(measurements.dim) + length * direction)


def top_rate(observations: Observations, slopes: Floats) -> float:
    """Return the largest rate at which another direction would improve a least-squares fit.

    Least squares serve Laplace noise too, because Huber's slopes say little about residuals far
    beyond the noise.
    """
    matrix = observations.measurements.adjoint(-slopes)
    return float(np.linalg.eigvalsh(matrix)[-1])


@dataclass(frozen=True)
class Edge:
    """Upper limit of `top_rate` for residuals that are noise.

    Attributes
    ----------
    noise : float
        Edge of the privacy noise.
    sampling : float
        Edge of sampling for one isotropic record of unit variance; it is `sampling * s / sqrt(n)`
        for n records of total variance s in every direction.
    """

    noise: float
    sampling: float

    def at(self, isotropic: float, n_records: float) -> float:
        """Return the edge of noise and sampling together."""
        return math.hypot(self.noise, self.sampling * isotropic / math.sqrt(n_records))


def noise_edge(observations: Observations, rng: np.random.Generator) -> Edge:
    """Return edges by simulation; variances of independent parts add."""
    measurements, loss = observations.measurements, squares_of(observations)
    deviations = np.sqrt(observations.variances)
    level = loss.whiten(measurements.identity)
    noise: list[float] = []
    sampling: list[float] = []
    for _ in range(EDGE_DRAWS if measurements.dim < MIN_WIDE_DIM else WIDE_EDGE_DRAWS):
        unit = deviations * _unit_noise(observations.noise, measurements.size, rng)
        of_mean = _unit_noise(observations.noise, measurements.dim, rng)
        unit += observations.mean_error(math.sqrt(observations.mean_variance) * of_mean)
        normal = rng.standard_normal((measurements.dim, measurements.dim))
        symmetric = measurements.of_matrix((normal + normal.T) / np.sqrt(2))
        for rates, errors in ((noise, unit), (sampling, symmetric)):
            whitened = loss.whiten(errors)
            # Fits always include the isotropic part.
            whitened -= level * (level @ whitened) / max(float(level @ level), 1e-300)
            rates.append(top_rate(observations, -loss.pull(whitened)))
    return Edge(_above(noise), _above(sampling))


def _above(rates: list[float]) -> float:
    return max(
        float(np.mean(rates) + EDGE_DEVIATIONS * np.std(rates)),
        float(np.quantile(rates, EDGE_QUANTILE)),
    )


def _unit_noise(noise: str, size: int, rng: np.random.Generator) -> Floats:
    """Return noise of variance 1; cube noise is nearly Gaussian for this purpose."""
    if noise == "laplace":
        return rng.laplace(scale=np.sqrt(0.5), size=size)
    return rng.standard_normal(size)
