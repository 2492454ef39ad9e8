"""Fits of every rank from one start, and how many components stand out of the noise.

The start is the matrix itself where its entries were released; one gradient step from
nothing ("spectral") where there are many values per unknown; and the convex fit where there
are few: at 1.4 values per unknown a quarter of the searches from a spectral start ended far
off, and none of those from the convex one.
"""

from __future__ import annotations

import numpy as np

from privsketch._typing import Floats
from privsketch.design.recipe import pca_unknowns
from privsketch.learning.pca.convex import ConvexFit, fit_convex
from privsketch.learning.pca.edge import noise_edge, top_rate
from privsketch.learning.pca.factors import TOLERANCE, Factors, fit_factors, leading
from privsketch.learning.pca.loss import Loss, loss_of, squares_of
from privsketch.learning.pca.measurements import EntryMeasurements, Measurements
from privsketch.learning.pca.observations import Observations

ROUGH = 1e-5  # relative fall of the cost per step
MANY = 4  # values per unknown from which a spectral start is safe
PENALTY = 0.25  # of the noise edge
LAST = 3.0  # standard errors from which a last direction stands out
START_ITERATIONS, START_TOLERANCE = 100, 1e-3


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
        if measurements.size >= MANY * pca_unknowns(rank, measurements.dim):
            return _one_step(measurements, self.squares)
        return self.convex(START_ITERATIONS, START_TOLERANCE).matrix()

    def convex(self, max_iterations: int, tolerance: float) -> ConvexFit:
        """The convex fit, of least squares: Huber's function and shrinkage do not go together.

        The penalty shrinks what it finds, by more than the noise, and Huber's function
        takes the difference for outliers. At the full edge only true directions enter, but
        shrinkage bends them; at a quarter of it noise and shrinkage bend them about equally.
        """
        return fit_convex(
            self.observations.measurements,
            self.squares,
            PENALTY * self.edge.noise,
            max_iterations=max_iterations,
            tolerance=tolerance,
        )

    def fit(self, rank: int) -> Factors:
        """The best U U' + s I with U of this rank."""
        start = self._rough.get(rank, leading(self.start, rank))
        return self._improved(start, self.loss, TOLERANCE)

    def _rough_fit(self, rank: int) -> Factors:
        """One of least squares that is good enough to see what it leaves.

        Squares, as for the edge: a fit by Huber's function leaves more of them.
        """
        self._rough[rank] = self._improved(leading(self.start, rank), self.squares, ROUGH)
        return self._rough[rank]

    def _improved(self, start: Factors, loss: Loss, tolerance: float) -> Factors:
        measurements = self.observations.measurements
        # The eigenvectors of a matrix with Gaussian noise are the best fit already.
        if isinstance(measurements, EntryMeasurements) and self.observations.exact_law:
            return start
        return fit_factors(measurements, loss, start, tolerance=tolerance)

    def standing_out(self, most: int) -> int:
        """Number of components that stand out of the noise, at most `most`."""
        dim = self.observations.measurements.dim
        for rank in range(most):
            factors = self._rough_fit(rank)
            if rank == dim - 1:
                return dim if self._has_last(factors) else rank
            prediction = factors.values(self.observations.measurements)
            rate = top_rate(self.observations, self.squares(prediction)[1])
            edge = self.edge.at(factors.isotropic, self.observations.effective_records)
            # The largest eigenvalue of noise grows with the root of the dimension left.
            if rate <= edge * np.sqrt(1 - rank / dim):
                return rank
        return most

    def _has_last(self, factors: Factors) -> bool:
        """Whether the last direction, which none is left to compare with, is above noise."""
        axis = np.linalg.svd(factors.factor)[0][:, -1:]
        whitened = self.squares.whiten(self.observations.measurements.of_factor(axis))
        return bool(factors.isotropic * np.linalg.norm(whitened) > LAST)


def carried_components(dim: int, n_values: int, per_unknown: float = 1.0) -> int:
    """The largest rank with so many values for every unknown, at least 1."""
    ranks = range(1, dim + 1)
    return max((r for r in ranks if per_unknown * pca_unknowns(r, dim) <= n_values), default=1)


def _one_step(measurements: Measurements, loss: Loss) -> Floats:
    """The isotropic matrix that explains the values best, and a step along its gradient."""
    unit = loss.whiten(measurements.identity)
    level = float(unit @ loss.whiten(loss.values)) / max(float(unit @ unit), 1e-300)
    residuals = loss.values - level * measurements.identity
    direction = measurements.adjoint(residuals)
    along = measurements.of_matrix(direction)
    length = float(along @ residuals) / max(float(along @ along), 1e-300)
    return np.asarray(level * np.eye(measurements.dim) + length * direction)
