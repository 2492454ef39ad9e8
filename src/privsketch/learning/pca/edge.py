"""How large the noise alone makes a component look.

A direction v improves the fit at the rate v' A*(g) v, g the slopes of the loss. The largest
such rate, over all directions, under noise alone is found by simulation with public
randomness: "parallel analysis" (J. Horn, 1965) with noise whose law is known, that of the
mean included. The sampling of records adds to it where they vary evenly in all directions:
the second moments of n Gaussian records of total variance s in every direction vary by
s^2 / n off the diagonal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privsketch._typing import Floats
from privsketch.learning.pca.loss import squares_of
from privsketch.learning.pca.observations import Observations

N_DRAWS, N_DRAWS_WIDE = 100, 20  # the largest eigenvalues of wide matrices vary little
WIDE = 50  # columns
DEVIATIONS = 2.0  # above the mean of the draws: one false alarm in some thirty
QUANTILE = 0.97  # of the draws, where the noise has heavy tails


def top_rate(observations: Observations, slopes: Floats) -> float:
    """The largest rate at which another direction would improve a fit of least squares.

    Of squares also where the noise is Laplace's: Huber's slopes say little about residuals
    far beyond the noise.
    """
    matrix = observations.measurements.adjoint(-slopes)
    return float(np.linalg.eigvalsh(matrix)[-1])


@dataclass(frozen=True)
class Edge:
    """What `top_rate` hardly exceeds where nothing but noise is left.

    Attributes
    ----------
    noise : float
        Edge of the privacy noise.
    sampling : float
        Edge of one record's share of isotropic records: it is `sampling * s / sqrt(n)` for
        n records of total variance s in every direction.
    """

    noise: float
    sampling: float

    def at(self, isotropic: float, n_records: float) -> float:
        """The edge of both."""
        return math.hypot(self.noise, self.sampling * isotropic / math.sqrt(n_records))


def noise_edge(observations: Observations, rng: np.random.Generator) -> Edge:
    """Edges by simulation; variances of independent parts add."""
    measurements, loss = observations.measurements, squares_of(observations)
    deviations = np.sqrt(observations.variances)
    level = loss.whiten(measurements.identity)
    noise: list[float] = []
    sampling: list[float] = []
    for _ in range(N_DRAWS if measurements.dim <= WIDE else N_DRAWS_WIDE):
        unit = deviations * _unit_noise(observations.noise, measurements.size, rng)
        of_mean = _unit_noise(observations.noise, measurements.dim, rng)
        unit += observations.mean_error(math.sqrt(observations.mean_variance) * of_mean)
        normal = rng.standard_normal((measurements.dim, measurements.dim))
        symmetric = measurements.of_matrix((normal + normal.T) / np.sqrt(2))
        for rates, errors in ((noise, unit), (sampling, symmetric)):
            whitened = loss.whiten(errors)
            # The isotropic part is fitted, whatever it is.
            whitened -= level * (level @ whitened) / max(float(level @ level), 1e-300)
            rates.append(top_rate(observations, -loss.pull(whitened)))
    return Edge(_above(noise), _above(sampling))


def _above(rates: list[float]) -> float:
    return max(
        float(np.mean(rates) + DEVIATIONS * np.std(rates)), float(np.quantile(rates, QUANTILE))
    )


def _unit_noise(noise: str, size: int, rng: np.random.Generator) -> Floats:
    """Noise of variance 1. The cube's components are nearly Gaussian for this purpose."""
    if noise == "laplace":
        return rng.laplace(scale=np.sqrt(0.5), size=size)
    return rng.standard_normal(size)
