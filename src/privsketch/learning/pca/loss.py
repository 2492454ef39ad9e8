"""The cost of misfit: squares for Gaussian noise, Huber's function for Laplace noise.

Residuals are brought to unit variance by a `whitener` first: one number for each, or a
symmetric matrix where they are correlated. Laplace noise has heavy tails; beyond
`threshold` standard deviations Huber's function grows linearly. With two to ten values per
unknown, the threshold below is within a few per cent of the best one (P. Huber, "Robust
regression", 1973; with fewer values least squares is best, with many the median).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privsketch._typing import Floats
from privsketch.learning.pca.observations import Observations

HUBER = 0.8  # standard deviations of the noise


@dataclass(frozen=True, eq=False)
class Loss:
    """sum of rho(T (prediction - values)), T the whitener.

    Attributes
    ----------
    values : (m,) float64
    whitener : (m,) or (m, m) float64
        Diagonal of T, or T.
    threshold : float
        Of Huber's function; infinite for squares.
    """

    values: Floats
    whitener: Floats
    threshold: float

    def whiten(self, residuals: Floats) -> Floats:
        """T r, (m,)."""
        if self.whitener.ndim == 1:
            return np.asarray(self.whitener * residuals)
        return np.asarray(self.whitener @ residuals)

    def pull(self, scores: Floats) -> Floats:
        """T' s, (m,)."""
        if self.whitener.ndim == 1:
            return np.asarray(self.whitener * scores)
        return np.asarray(self.whitener.T @ scores)

    def scores(self, whitened: Floats) -> Floats:
        """Derivative of rho, (m,)."""
        return np.clip(whitened, -self.threshold, self.threshold)

    def __call__(self, prediction: Floats) -> tuple[float, Floats]:
        """Cost, and its derivative in the prediction, (m,)."""
        whitened = self.whiten(prediction - self.values)
        scores = self.scores(whitened)
        # rho(e) = c |e| - c^2 / 2 beyond c, e^2 / 2 within: scores (e - scores / 2) in both.
        cost = float(scores @ (whitened - scores / 2))
        return cost, self.pull(scores)


def squares_of(observations: Observations) -> Loss:
    """Least squares in units of the privacy noise, whatever its law."""
    return Loss(observations.values, 1 / np.sqrt(observations.variances), np.inf)


def loss_of(observations: Observations) -> Loss:
    """The loss under privacy noise alone."""
    threshold = np.inf if observations.exact_law else HUBER
    return replace(squares_of(observations), threshold=threshold)
