"""The fit of a low-rank and an isotropic part, C = U U' + s I, U of shape (dim, rank).

Records that vary along a few directions and a little in all others have such second
moments. The factor U frees the fit of the constraint that C be positive (S. Burer,
R. Monteiro, 2003): what is left is a smooth cost of dim x rank unknowns and a bound, s >= 0,
for L-BFGS-B. Its local minima are harmless from the starts of `search`.

The cost of misfit: squares for Gaussian noise, Huber's function for Laplace noise.

Residuals are brought to unit variance by a `whitener` first: one number for each, or a
symmetric matrix where they are correlated. Laplace noise has heavy tails; beyond
`threshold` standard deviations Huber's function grows linearly. With two to ten values per
unknown, the threshold below is within a few per cent of the best one (P. Huber, "Robust
regression", 1973; with fewer values least squares is best, with many the median).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from privsketch._base.types import Floats
from privsketch.learning.pca.measurements import Measurements
from privsketch.learning.pca.problem import Observations

MAX_ITERATIONS = 1000  # a guard: TOLERANCE is to end a fit; by trial
TOLERANCE = 1e-10  # relative fall of the cost per step; by trial
HUBER = 0.8  # standard deviations of the noise


@dataclass(frozen=True, eq=False)
class Factors:
    """C = U U' + s I.

    Attributes
    ----------
    factor : (dim, rank) float64
    isotropic : float
        At least 0.
    """

    factor: Floats
    isotropic: float

    @property
    def rank(self) -> int:
        """Columns of the factor."""
        return int(self.factor.shape[1])

    def matrix(self) -> Floats:
        """(dim, dim) the sum."""
        return np.asarray(self.factor @ self.factor.T + self.isotropic * np.eye(len(self.factor)))

    def values(self, measurements: Measurements) -> Floats:
        """A(C), (m,)."""
        return np.asarray(
            measurements.of_factor(self.factor) + self.isotropic * measurements.identity
        )


def leading(matrix: Floats, rank: int) -> Factors:
    """The factors nearest to a symmetric matrix: its first eigenvectors, the rest averaged."""
    variances, axes = np.linalg.eigh(matrix)
    variances, axes = variances[::-1], axes[:, ::-1]
    rest = max(float(variances[rank:].mean()), 0.0) if rank < len(matrix) else 0.0
    # Columns of length zero would stay so: the gradient vanishes there.
    least = 1e-3 * max(float(variances[0]), float(np.abs(variances).max()) * 1e-3, 1e-150)
    lengths = np.sqrt(np.maximum(variances[:rank] - rest, least))
    return Factors(axes[:, :rank] * lengths, rest)


def cost_and_gradient(
    measurements: Measurements, loss: Loss, factors: Factors
) -> tuple[float, Floats, float]:
    """Cost, and its derivatives in U, (dim, rank), and in s."""
    cost, slopes = loss(factors.values(measurements))
    by_factor = 2 * measurements.adjoint_times(slopes, factors.factor)
    return cost, by_factor, float(slopes @ measurements.identity)


def fit_factors(
    measurements: Measurements, loss: Loss, start: Factors, *, tolerance: float = TOLERANCE
) -> Factors:
    """The factors of least cost near a start, to a relative fall below `tolerance` per step."""
    shape = start.factor.shape
    square = float(np.square(start.factor).sum()) + shape[0] * start.isotropic
    size = max(np.sqrt(square), 1e-100)

    def unpack(point: Floats) -> Factors:
        return Factors(point[:-1].reshape(shape) * size, float(point[-1]) * size**2)

    def cost(point: Floats) -> tuple[float, Floats]:
        value, by_factor, by_level = cost_and_gradient(measurements, loss, unpack(point))
        return value, np.append(by_factor.ravel() * size, by_level * size**2)

    first = np.append((start.factor / size).ravel(), start.isotropic / size**2)
    result = minimize(
        cost,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] * (len(first) - 1) + [(0.0, None)],
        options={
            "maxiter": MAX_ITERATIONS,
            "maxfun": 2 * MAX_ITERATIONS,
            "maxcor": 20,
            "ftol": tolerance,
            "gtol": 1e-7,
        },
    )
    return unpack(np.asarray(result.x))


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
