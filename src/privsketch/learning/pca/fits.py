"""Fits of a low-rank and an isotropic part, C = U U' + s I, to noisy measurements of a matrix.

Records that vary along a few directions, and a little in all others, have such second moments. The
factor U, (dim, rank), makes C positive without a constraint (S. Burer, R. Monteiro, 2003). What
remains is a smooth cost of dim x rank unknowns and a bound, s >= 0, for L-BFGS-B. Its local minima
are harmless from the starts of `search`.

The cost of residuals is squares for Gaussian noise, and Huber's function for Laplace noise, whose
tails are heavy. A `whitener` first scales residuals to unit variance: a number for each, or a
matrix if they are correlated. Beyond `threshold` standard deviations Huber's function is linear.
With two to ten values per unknown, HUBER_THRESHOLD is within a few per cent of the best one
(P. Huber, "Robust regression", 1973). With fewer values least squares is best, with many the
median.

The convex fit needs no start and no rank. It minimises, over positive semidefinite L and s >= 0,

    loss(A(L + s I)) + penalty trace(L),

the nuclear-norm fit of low-rank matrices (E. Candes, Y. Plan, 2011; for rank-one measurements
Y. Chen, Y. Chi, A. Goldsmith, 2015). With the penalty at the noise edge (`search`), only directions
that stand out of the noise enter. A smaller penalty admits some noise and bends the others less.
The algorithm is accelerated proximal gradient with restarts (A. Beck, M. Teboulle, 2009;
B. O'Donoghue, E. Candes, 2015). Its proximal step lowers all eigenvalues by a constant and cuts
them at zero.

Spectra rarely end, so a fit can include a remainder: C = U U' + s I + R. R is modelled as a
Gaussian matrix with variance t on its diagonal and t / 2 off it, so the values vary by
`noise + t A A*`. Residuals are whitened by that covariance, which keeps R from bending U. The
marginal likelihood of the whitened residuals determines t. A fit of low rank at high noise has
t = 0.

The part of R that the values show, t A*(V^-1 residuals), is added to the estimate. It matters for
slow spectra: with m = 180 features of 20 columns and eigenvalues 1, 1/2, 1/3 ... the share of
variance lost falls from 1.7 % to 0.4 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from privsketch._base.types import Floats
from privsketch.learning.pca.problem import EntryMeasurements, Measurements, Observations

# Relative fall of the cost per step that ends a fit, and a guard; all digits are cheap:
#   python -m benchmarks constants learning FACTOR_TOLERANCE
#   python -m benchmarks constants learning FACTOR_ITERATIONS
FACTOR_TOLERANCE = 1e-10
FACTOR_ITERATIONS = 1000
HUBER_THRESHOLD = 0.8  # standard deviations of the noise
# Relative change per step that ends a convex fit, and a guard:
#   python -m benchmarks constants learning CONVEX_TOLERANCE
#   python -m benchmarks constants learning CONVEX_ITERATIONS
CONVEX_TOLERANCE = 1e-6
CONVEX_ITERATIONS = 1000
MAX_FULL_VALUES = 2000  # values beyond which the covariance of R is cut to its diagonal
# A guard: rounds end when the variance of R changes by less than 5 %.
# python -m benchmarks constants learning REMAINDER_ROUNDS
REMAINDER_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class Factors:
    """C = U U' + s I.

    Attributes
    ----------
    factor : (dim, rank) float64
    isotropic : float
        The level s, at least 0.
    """

    factor: Floats
    isotropic: float

    @property
    def rank(self) -> int:
        """Number of columns of the factor."""
        return int(self.factor.shape[1])

    def matrix(self) -> Floats:
        """Return the sum, (dim, dim)."""
        return np.asarray(self.factor @ self.factor.T + self.isotropic * np.eye(len(self.factor)))

    def values(self, measurements: Measurements) -> Floats:
        """Return A(C), (m,)."""
        return np.asarray(
            measurements.of_factor(self.factor) + self.isotropic * measurements.identity
        )


def leading(matrix: Floats, rank: int) -> Factors:
    """Return the factors nearest to a symmetric matrix: its first eigenvectors, others averaged."""
    variances, axes = np.linalg.eigh(matrix)
    variances, axes = variances[::-1], axes[:, ::-1]
    isotropic = max(float(variances[rank:].mean()), 0.0) if rank < len(matrix) else 0.0
    # Columns of length zero would not change: their gradient vanishes.
    least = 1e-3 * max(float(variances[0]), float(np.abs(variances).max()) * 1e-3, 1e-150)
    lengths = np.sqrt(np.maximum(variances[:rank] - isotropic, least))
    return Factors(axes[:, :rank] * lengths, isotropic)


def cost_and_gradient(
    measurements: Measurements, loss: Loss, factors: Factors
) -> tuple[float, Floats, float]:
    """Return the cost, and its derivatives in U, (dim, rank), and in s."""
    cost, slopes = loss(factors.values(measurements))
    by_factor = 2 * measurements.adjoint_times(slopes, factors.factor)
    return cost, by_factor, float(slopes @ measurements.identity)


def fit_factors(
    measurements: Measurements, loss: Loss, start: Factors, *, tolerance: float = FACTOR_TOLERANCE
) -> Factors:
    """Return the factors of least cost near a start, to a relative fall `tolerance` per step."""
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
            "maxiter": FACTOR_ITERATIONS,
            "maxfun": 2 * FACTOR_ITERATIONS,
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
        Threshold of Huber's function; infinite for squares.
    """

    values: Floats
    whitener: Floats
    threshold: float

    def whiten(self, residuals: Floats) -> Floats:
        """Return T r, (m,) or (m, columns)."""
        return _product(self.whitener, residuals)

    def pull(self, scores: Floats) -> Floats:
        """Return T' s, (m,)."""
        return _product(self.whitener.T, scores)

    def scores(self, whitened: Floats) -> Floats:
        """Return the derivative of rho, (m,)."""
        return np.clip(whitened, -self.threshold, self.threshold)

    def __call__(self, prediction: Floats) -> tuple[float, Floats]:
        """Return the cost, and its derivative in the prediction, (m,)."""
        whitened = self.whiten(prediction - self.values)
        scores = self.scores(whitened)
        # rho(e) = c |e| - c^2 / 2 beyond c, e^2 / 2 within: scores (e - scores / 2) in both.
        cost = float(scores @ (whitened - scores / 2))
        return cost, self.pull(scores)


def _product(matrix: Floats, values: Floats) -> Floats:
    """Return a matrix, or a diagonal, times a vector or columns."""
    if matrix.ndim == 2:
        return np.asarray(matrix @ values)
    return np.asarray(matrix.reshape(-1, *[1] * (values.ndim - 1)) * values)


def squares_of(observations: Observations) -> Loss:
    """Return least squares in units of the privacy noise, whatever its law."""
    return Loss(observations.values, 1 / np.sqrt(observations.variances), np.inf)


def loss_of(observations: Observations) -> Loss:
    """Return the loss under privacy noise alone."""
    threshold = np.inf if observations.exact_law else HUBER_THRESHOLD
    return replace(squares_of(observations), threshold=threshold)


@dataclass(frozen=True, eq=False)
class ConvexFit:
    """L + s I: `low_rank` (dim, dim) is positive semidefinite, `isotropic` at least 0."""

    low_rank: Floats
    isotropic: float

    def matrix(self) -> Floats:
        """Return the sum, (dim, dim)."""
        return np.asarray(self.low_rank + self.isotropic * np.eye(len(self.low_rank)))


def fit_convex(
    measurements: Measurements,
    loss: Loss,
    penalty: float,
    *,
    max_iterations: int = CONVEX_ITERATIONS,
    tolerance: float = CONVEX_TOLERANCE,
) -> ConvexFit:
    """Return the minimiser, to a relative change below `tolerance` per step."""
    dim = measurements.dim
    # s I as a coordinate of unit length beside L.
    unit = measurements.identity / np.sqrt(dim)
    low = ahead_low = np.zeros((dim, dim))
    level = ahead_level = 0.0
    momentum, curvature = 1.0, _least_curvature(measurements, loss)
    cost = loss(np.zeros(measurements.size))[0]
    for _ in range(max_iterations):
        before, slopes = loss(measurements.of_matrix(ahead_low) + ahead_level * unit)
        by_low, by_level = measurements.adjoint(slopes), float(slopes @ unit)
        while True:
            new_low = _shrunk(ahead_low - by_low / curvature, penalty / curvature)
            new_level = max(ahead_level - by_level / curvature, 0.0)
            smooth = loss(measurements.of_matrix(new_low) + new_level * unit)[0]
            step, step_level = new_low - ahead_low, new_level - ahead_level
            square = float(np.square(step).sum()) + step_level**2
            bound = before + float((by_low * step).sum()) + by_level * step_level
            if smooth <= bound + curvature / 2 * square + 1e-12 * abs(before):
                break
            curvature *= 1.5
        new_cost = smooth + penalty * float(np.trace(new_low))
        if new_cost > cost and momentum > 1:  # the momentum overshot
            momentum, ahead_low, ahead_level = 1.0, low, level
            continue
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = (momentum - 1) / next_momentum
        ahead_low = new_low + ahead * (new_low - low)
        ahead_level = new_level + ahead * (new_level - level)
        moved = np.hypot(np.linalg.norm(new_low - low), new_level - level)
        size = np.hypot(np.linalg.norm(new_low), new_level)
        low, level, cost, momentum = new_low, new_level, new_cost, next_momentum
        if moved <= tolerance * size:
            break
    return ConvexFit(low, level / float(np.sqrt(dim)))


def refit(measurements: Measurements, loss: Loss, fit: ConvexFit, rank: int) -> Factors:
    """Refit the convex fit without its shrinkage, by least squares on its first directions.

    The penalty lowers all eigenvalues. The span of their directions is kept, and the matrix on it
    and the isotropic part are fitted again, linearly.
    """
    axes = np.linalg.eigh(fit.low_rank)[1][:, ::-1][:, :rank]
    first, second = np.triu_indices(rank)
    columns = []
    for a, b in zip(first, second, strict=True):
        pair = np.outer(axes[:, a], axes[:, b])
        columns.append(loss.whiten(measurements.of_matrix(pair + pair.T)))
    if rank < measurements.dim:
        columns.append(loss.whiten(measurements.identity))
    design = np.stack(columns, axis=1)
    solution = np.linalg.lstsq(design, loss.whiten(loss.values), rcond=None)[0]
    block = np.zeros((rank, rank))
    block[first, second] = solution[: len(first)]
    lengths, turn = np.linalg.eigh(block + block.T)
    isotropic = max(float(solution[-1]), 0.0) if rank < measurements.dim else 0.0
    return Factors(axes @ turn * np.sqrt(np.maximum(lengths, 0.0)), isotropic)


def _shrunk(matrix: Floats, by: float) -> Floats:
    """Return the matrix with eigenvalues lowered by a constant and cut at zero."""
    lengths, axes = np.linalg.eigh(matrix)
    lengths = np.maximum(lengths - by, 0.0)
    return np.asarray((axes * lengths) @ axes.T)


def _least_curvature(measurements: Measurements, loss: Loss) -> float:
    """Return the curvature of the loss along the identity, a lower bound to begin with."""
    level = loss.whiten(measurements.identity)
    return max(float(level @ level) / measurements.dim / 4, 1e-300)


@dataclass(frozen=True, eq=False)
class RemainderFit:
    """C = U U' + s I + R.

    Attributes
    ----------
    factors : Factors
    variance : float
        Variance t of the diagonal of R.
    loss : Loss
        Loss of the last round, whitened for noise and R.
    matrix : (dim, dim) float64
        Estimate of C with R.
    """

    factors: Factors
    variance: float
    loss: Loss
    matrix: Floats


def fit_with_remainder(observations: Observations, factors: Factors, unknowns: int) -> RemainderFit:
    """Refit factors that assume privacy noise alone, with a remainder R beside them."""
    measurements, loss = observations.measurements, loss_of(observations)
    variance, spectrum = 0.0, None
    for _ in range(REMAINDER_ROUNDS):
        residuals = (observations.values - factors.values(measurements)) / np.sqrt(
            observations.variances
        )
        if spectrum is None:
            if _is_noise(residuals, unknowns, observations.exact_law):
                break
            spectrum = _spectrum(observations)
        previous, variance = variance, _likely_variance(spectrum, residuals, unknowns)
        if variance == 0 or abs(variance - previous) <= 0.05 * previous:
            break
        loss = _whitened(loss, spectrum, variance, observations)
        factors = fit_factors(measurements, loss, factors)
    matrix = factors.matrix()
    if spectrum is not None and variance > 0 and not spectrum.is_cut:
        slopes = loss(factors.values(measurements))[1]
        matrix = matrix - variance * measurements.adjoint(slopes)
    return RemainderFit(factors, variance, loss, matrix)


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Spectrum of A A* in units of the noise: eigenvalues (m,), and axes unless it is diagonal."""

    values: Floats
    axes: Floats | None
    is_cut: bool = False


def _spectrum(observations: Observations) -> _Spectrum:
    deviations = np.sqrt(observations.variances)
    is_full = not isinstance(observations.measurements, EntryMeasurements)
    if observations.measurements.size > MAX_FULL_VALUES and is_full:
        diagonal = observations.measurements.gram_diagonal
        return _Spectrum(diagonal / observations.variances, None, is_cut=True)
    gram = observations.measurements.gram()
    if gram.ndim == 1:
        return _Spectrum(gram / observations.variances, None)
    values, axes = np.linalg.eigh(gram / deviations[:, None] / deviations)
    return _Spectrum(np.maximum(values, 0.0), axes)


def _is_noise(residuals: Floats, unknowns: int, exact_law: bool) -> bool:
    """Return whether residuals in units of the noise are no larger than noise leaves."""
    free = max(len(residuals) - unknowns, 1)
    spread = np.sqrt((2 if exact_law else 5) * free)  # kurtosis 3, or 6
    return bool(residuals @ residuals <= free + spread)


def _likely_variance(spectrum: _Spectrum, residuals: Floats, unknowns: int) -> float:
    """Return the t of greatest marginal likelihood; 0 if none is better."""
    rotated = residuals if spectrum.axes is None else spectrum.axes.T @ residuals
    # The fit has absorbed a share of the residuals.
    squares = np.square(rotated) * (len(residuals) / max(len(residuals) - unknowns, 1))
    grid = np.append(0.0, np.geomspace(1e-4, 1e14, 181) / max(float(spectrum.values.max()), 1e-300))
    totals = 1 + grid[:, None] * spectrum.values
    costs = np.log(totals).sum(axis=1) + (squares / totals).sum(axis=1)
    return float(grid[int(np.argmin(costs))])


def _whitened(loss: Loss, spectrum: _Spectrum, variance: float, observations: Observations) -> Loss:
    """Return the loss whitened for noise and R: (I + t A A*)^(-1/2) after the noise.

    The matrix is symmetric, so that a small R changes the residuals little and Huber's threshold
    still applies to single values.
    """
    damping = 1 / np.sqrt(1 + variance * spectrum.values)
    deviations = np.sqrt(observations.variances)
    # Only the noise has heavy tails: Huber's threshold stays at its multiple of the noise, which is
    # a smaller multiple of noise and R together.
    threshold = loss_of(observations).threshold * float(np.mean(1 / damping))
    if spectrum.axes is None:
        whitener = damping / deviations
    else:
        whitener = (spectrum.axes * damping) @ spectrum.axes.T / deviations
    return Loss(loss.values, whitener, threshold)
