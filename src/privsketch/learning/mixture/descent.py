"""Descents in the weights, means and covariances of all components.

The first is plain least squares on the moments, by L-BFGS-B. Variances are variables with a lower
bound; a matrix is `L L' + smallest I` with a triangular L, positive definite for any L. Variables
are scaled by the diagonal of the Gauss-Newton matrix: their curvatures differ by orders of
magnitude.

The second takes damped Gauss-Newton steps on the generalised least squares cost. Variables are
weights, means and the logarithm of the covariances (of variances, or of the whole matrix). Every
step keeps covariances positive definite. In logarithms a fit is nearly linear, and its errors are
nearly normal. The matrix of the last step is Fisher's information: its inverse is the covariance of
the errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import Bounds, minimize

from privsketch._base.types import Floats
from privsketch.learning.mixture.gaussians import (
    Gaussians,
    Sums,
    Weighting,
    cost_and_gradient,
    entries,
    features,
)
from privsketch.learning.refine import WEIGHT_CAP

MIN_VARIANCE = 1e-4  # least variance over the square of the shortest wavelength over 2 pi
MIN_CHI_SQUARE_FALL = 0.02  # a change of chi-square that no statistics would notice
MIN_RELATIVE_FALL = 1e-4  # the same, relative to chi-square, if a misfit dwarfs all errors
MAX_DAMPING = 1e6  # steps of a millionth of Newton's end the search


@dataclass(frozen=True)
class Limits:
    """Bounds of components: the box of the means, and the smallest variance."""

    low: Floats
    high: Floats
    smallest: float  # variance

    @property
    def largest(self) -> Floats:
        """Largest variances of distributions on the intervals of the box, (dim,)."""
        return np.maximum(np.square(self.high - self.low) / 4, 4 * self.smallest)


def make_limits(frequencies: Floats, low: Floats, high: Floats) -> Limits:
    """Return limits for a design, which cannot resolve widths far below its shortest wavelength."""
    highest = float(np.max(np.square(frequencies).sum(axis=1), initial=0.0))
    fallback = float(np.max(high - low)) ** 2
    return Limits(low, high, MIN_VARIANCE / highest if highest > 0 else fallback)


def pack(gaussians: Gaussians, limits: Limits) -> Floats:
    """Return all components as one vector of variables."""
    if not gaussians.has_matrices:
        shapes = gaussians.covariances
    else:
        rows, columns = np.tril_indices(gaussians.dim)
        values, vectors = np.linalg.eigh(gaussians.covariances)
        # At L = 0 the gradient by L vanishes: never start there.
        values = np.maximum(values - limits.smallest, 0.1 * limits.smallest)
        roots = vectors * np.sqrt(values)[:, None, :]
        shapes = np.linalg.cholesky(roots @ roots.transpose(0, 2, 1))[:, rows, columns]
    return np.concatenate([gaussians.weights, gaussians.means.ravel(), shapes.ravel()])


def unpack(variables: Floats, like: Gaussians, limits: Limits) -> Gaussians:
    """Return the components of a vector of variables, of the size and kind of `like`."""
    size, dim = like.means.shape
    shapes = variables[size * (dim + 1) :]
    if like.has_matrices:
        factors = as_factors(shapes, dim)
        covariances = factors @ factors.transpose(0, 2, 1) + limits.smallest * np.eye(dim)
    else:
        covariances = shapes.reshape(like.covariances.shape)
    means = variables[size : size * (dim + 1)].reshape(size, dim)
    return replace(like, weights=variables[:size], means=means, covariances=covariances)


def as_factors(shapes: Floats, dim: int) -> Floats:
    """Return lower triangles, (any, dim, dim), from their entries."""
    rows, columns = np.tril_indices(dim)
    factors = np.zeros((shapes.size // len(rows), dim, dim))
    factors[:, rows, columns] = shapes.reshape(-1, len(rows))
    return factors


def objective(
    variables: Floats, sums: Sums, like: Gaussians, limits: Limits
) -> tuple[float, Floats]:
    """Return cost and gradient by the variables."""
    value, gradient = cost_and_gradient(sums, unpack(variables, like, limits))
    size, dim = like.means.shape
    by_shape = gradient.covariances
    if like.has_matrices:
        # d S = dL L' + L dL'; an off-diagonal entry stands for two cells of S.
        rows, columns = np.tril_indices(dim)
        by_matrix = as_factors(by_shape, dim)
        by_matrix = by_matrix + by_matrix.transpose(0, 2, 1)
        product = by_matrix @ as_factors(variables[size * (dim + 1) :], dim)
        by_shape = product[:, rows, columns]
    return value, np.concatenate([gradient.weights, gradient.means.ravel(), by_shape.ravel()])


def descend(
    sums: Sums, gaussians: Gaussians, limits: Limits, *, n_iterations: int
) -> tuple[Gaussians, float]:
    """Descend jointly in all variables; return the components and their cost."""
    size, dim = gaussians.means.shape
    start = pack(gaussians, limits)
    scale = _curvature_scales(sums, gaussians, start)
    if gaussians.has_matrices:
        rows, _ = np.tril_indices(dim)
        upper_shape = np.tile(np.sqrt(limits.largest)[rows], len(gaussians.covariances))
        lower_shape = -upper_shape
    else:
        largest = limits.largest
        if gaussians.covariance_type == "spherical":
            largest = np.max(largest, keepdims=True)
        upper_shape = np.tile(largest, size)
        lower_shape = np.full(upper_shape.shape, limits.smallest)
    lower = np.concatenate([np.zeros(size), np.tile(limits.low, size), lower_shape])
    upper = np.concatenate([np.full(size, WEIGHT_CAP), np.tile(limits.high, size), upper_shape])

    def scaled(x: Floats) -> tuple[float, Floats]:
        value, gradient = objective(x / scale, sums, gaussians, limits)
        return value, gradient / scale

    result = minimize(
        scaled,
        np.clip(start, lower, upper) * scale,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(lower * scale, upper * scale),
        options={"maxiter": n_iterations, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-10},
    )
    # Dividing by the scale may exceed the bounds by one rounding.
    solution = np.clip(np.asarray(result.x, dtype=np.float64) / scale, lower, upper)
    return unpack(solution, gaussians, limits), float(result.fun)


def _curvature_scales(sums: Sums, gaussians: Gaussians, variables: Floats) -> Floats:
    """Return square roots of the Gauss-Newton diagonal."""
    size, dim = gaussians.means.shape
    m = len(sums.frequencies)
    matrix = features(sums.frequencies, sums.quadratic, gaussians)
    energy = np.square(matrix[:, :m]) + np.square(matrix[:, m:])
    # A component of next to no weight would have next to no curvature: floor it.
    floor = max(0.1 * float(np.mean(gaussians.weights)), 1e-8)
    weights = np.maximum(gaussians.weights, floor)[:, None]
    squares = np.square(sums.frequencies)
    by_mean = weights * np.sqrt(energy @ squares)
    if gaussians.has_matrices:
        rows, columns = np.tril_indices(dim)
        factors = as_factors(variables[size * (dim + 1) :], dim)
        # d(w'Sw) / dL_ab = 2 w_a (L'w)_b
        turned = np.einsum("ja,kab->kjb", sums.frequencies, factors)
        slopes = sums.frequencies[None, :, rows] * turned[:, :, columns]
        by_shape = np.sqrt(np.einsum("kj,kjq->kq", energy, np.square(slopes)))
    else:
        by_shape = np.sqrt(energy @ np.square(sums.quadratic)) / 2
    by_shape = weights * by_shape
    if gaussians.covariance_type == "tied":
        by_shape = np.sqrt(np.square(by_shape).sum(axis=0, keepdims=True))
    scales = np.concatenate([np.sqrt(energy.sum(axis=1)), by_mean.ravel(), by_shape.ravel()])
    return np.asarray(np.maximum(scales, 1e-8 * float(np.max(scales)) + 1e-100))


@dataclass(frozen=True)
class Prior:
    """Normal prior of the log entries: precisions and centers, one for each entry."""

    precisions: Floats  # (n_log_entries,), 0 for entries without a prior
    centers: Floats


@dataclass(frozen=True)
class Tilt:
    """First-order change of the edge's distortion as the variables leave an origin."""

    slopes: Floats  # (2 m, p)
    origin: Floats  # (p,)


@dataclass(frozen=True)
class Fit:
    """Components, their squared residual in units of its covariance, and their information."""

    gaussians: Gaussians
    chi_square: float  # without the prior
    information: Floats  # (p, p) with the prior; weights, means, log entries


def logarithms(gaussians: Gaussians) -> Floats:
    """Return distinct entries of the logarithms of the covariances, (size or 1, q)."""
    if not gaussians.has_matrices:
        return np.log(gaussians.covariances)
    values, vectors = np.linalg.eigh(gaussians.covariances)
    values = np.log(np.maximum(values, 1e-300))
    return entries((vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1))


def variables(gaussians: Gaussians) -> Floats:
    """Return weights, means and log entries, (p,)."""
    logs = logarithms(gaussians)
    return np.concatenate([gaussians.weights, gaussians.means.ravel(), logs.ravel()])


def jacobian(sums: Sums, gaussians: Gaussians) -> Floats:
    """Return derivatives of the moments by weights, means and log entries, (2 m, p)."""
    m, dim = sums.frequencies.shape
    size = gaussians.size
    matrix = features(sums.frequencies, sums.quadratic, gaussians)
    weighted = gaussians.weights[:, None] * matrix
    cosines, sines = weighted[:, :m].T, weighted[:, m:].T  # (m, size)
    slopes = log_slopes(sums, gaussians)  # (size or 1, m, q)
    n_logs = slopes.shape[2] * len(slopes)
    result = np.empty((2 * m, size * (dim + 1) + n_logs))
    result[:, :size] = matrix.T
    by_mean = result[:, size : size * (dim + 1)].reshape(2 * m, size, dim)
    np.multiply(-sines[:, :, None], sums.frequencies[:, None, :], out=by_mean[:m])
    np.multiply(cosines[:, :, None], sums.frequencies[:, None, :], out=by_mean[m:])
    by_log = result[:, size * (dim + 1) :].reshape(2 * m, len(slopes), -1)
    for half, part in enumerate((cosines, sines)):
        if gaussians.covariance_type == "tied":
            part = part.sum(axis=1, keepdims=True)
        by_log[half * m : (half + 1) * m] = part[:, :, None] * slopes.transpose(1, 0, 2) / -2
    return result


def log_slopes(sums: Sums, gaussians: Gaussians) -> Floats:
    """Return derivatives of `w'Sw` by the entries of log S, (size or 1, m, q)."""
    if not gaussians.has_matrices:
        return np.asarray(sums.quadratic[None] * gaussians.covariances[:, None, :])
    vectors, ratio = _spectral_ratios(gaussians.covariances)
    turned = sums.frequencies @ vectors  # (size, m, dim)
    inner = turned[:, :, :, None] * turned[:, :, None, :] * ratio[:, None]
    back = vectors[:, None] @ inner @ vectors.transpose(0, 2, 1)[:, None]
    rows, columns = np.tril_indices(gaussians.dim)
    return np.asarray(back[:, :, rows, columns] * np.where(rows == columns, 1.0, 2.0))


def log_changes(gaussians: Gaussians) -> Floats:
    """Return derivatives of covariances by the entries of log S, (size or 1, q, dim, dim)."""
    dim = gaussians.dim
    if gaussians.covariance_type == "spherical":
        return np.asarray(gaussians.covariances[:, :, None, None] * np.eye(dim))
    if gaussians.covariance_type == "diag":
        cells = np.eye(dim)[:, :, None] * np.eye(dim)[:, None, :]  # (q, dim, dim)
        return np.asarray(gaussians.covariances[:, :, None, None] * cells)
    rows, columns = np.tril_indices(dim)
    basis = np.zeros((len(rows), dim, dim))
    basis[np.arange(len(rows)), rows, columns] = 1.0
    basis[np.arange(len(rows)), columns, rows] = 1.0
    vectors, ratio = _spectral_ratios(gaussians.covariances)
    back = vectors.transpose(0, 2, 1)[:, None]
    return np.asarray(
        vectors[:, None] @ (ratio[:, None] * (back @ basis @ vectors[:, None])) @ back
    )


def _spectral_ratios(matrices: Floats) -> tuple[Floats, Floats]:
    """Return eigenvectors, and factors from changes of log S to changes of S in their basis.

    With eigenvalues l, d S_ij = d(log S)_ij (l_i - l_j) / (log l_i - log l_j) (Daleckii
    and Krein).
    """
    values, vectors = np.linalg.eigh(matrices)
    values = np.maximum(values, 1e-300)
    half = (np.log(values)[:, :, None] - np.log(values)[:, None, :]) / 2
    mean = np.sqrt(values[:, :, None] * values[:, None, :])
    # The ratio is mean sinh(half) / half, smooth at equal ones.
    near = np.abs(half) < 1e-4
    safe = np.where(near, 1.0, np.clip(half, -300, 300))
    return vectors, np.asarray(mean * np.where(near, 1 + half**2 / 6, np.sinh(safe) / safe))


def moved(gaussians: Gaussians, step: Floats, limits: Limits) -> Gaussians:
    """Return the components after a step in the variables, kept within their limits."""
    size, dim = gaussians.means.shape
    weights = np.clip(gaussians.weights + step[:size], 0.0, WEIGHT_CAP)
    means = gaussians.means + step[size : size * (dim + 1)].reshape(size, dim)
    change = step[size * (dim + 1) :]
    logs = logarithms(gaussians)
    logs = logs + np.clip(change.reshape(logs.shape), -2.0, 2.0)
    least, most = np.log(limits.smallest), np.log(limits.largest)
    if gaussians.has_matrices:
        rows, columns = np.tril_indices(dim)
        matrices = np.zeros((len(logs), dim, dim))
        matrices[:, rows, columns] = logs
        matrices[:, columns, rows] = logs
        values, vectors = np.linalg.eigh(matrices)
        values = np.exp(np.clip(values, least, float(np.max(most))))
        covariances = (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)
        covariances = (covariances + covariances.transpose(0, 2, 1)) / 2
    else:
        top = np.max(most, keepdims=True) if logs.shape[1] == 1 else most
        covariances = np.exp(np.clip(logs, least, top))
    means = np.clip(means, limits.low, limits.high)
    return replace(gaussians, weights=weights, means=means, covariances=covariances)


def gauss_newton(
    sums: Sums,
    gaussians: Gaussians,
    limits: Limits,
    weighting: Weighting,
    *,
    n_steps: int,
    prior: Prior | None = None,
    tilt: Tilt | None = None,
) -> Fit:
    """Descend by damped steps (Levenberg and Marquardt) until the gains are negligible."""
    n_logs = logarithms(gaussians).size
    if prior is None:
        prior = Prior(np.zeros(n_logs), np.zeros(n_logs))
    precisions = np.concatenate([np.zeros(gaussians.size * (gaussians.dim + 1)), prior.precisions])

    def residual_of(candidate: Gaussians) -> tuple[Floats, float, Floats]:
        model = candidate.weights @ features(sums.frequencies, sums.quadratic, candidate)
        if tilt is not None:
            model = model + tilt.slopes @ (variables(candidate) - tilt.origin)
        residual = weighting.whiten(model - sums.values)
        excess = logarithms(candidate).ravel() - prior.centers
        return residual, float(residual @ residual + prior.precisions @ excess**2), excess

    residual, value, excess = residual_of(gaussians)
    damping, done = 1e-3, False
    for step_number in range(n_steps + 1):
        slopes = jacobian(sums, gaussians)
        slopes = weighting.whiten(slopes if tilt is None else slopes + tilt.slopes)
        information = slopes.T @ slopes
        information.flat[:: len(information) + 1] += precisions
        if done or step_number == n_steps:
            break
        pull = slopes.T @ residual
        pull[-n_logs:] += prior.precisions * excess
        diagonal = np.diag(information)
        diagonal = np.maximum(diagonal, 1e-9 * float(np.max(diagonal)) + 1e-300)
        while True:
            damped = information.copy()
            damped.flat[:: len(damped) + 1] = np.diag(information) + damping * diagonal
            candidate = moved(gaussians, _solved(damped, -pull), limits)
            new_residual, new_value, new_excess = residual_of(candidate)
            if new_value < value:
                done = value - new_value < max(MIN_CHI_SQUARE_FALL, MIN_RELATIVE_FALL * value)
                gaussians, residual, excess = candidate, new_residual, new_excess
                value = new_value
                damping = max(damping / 10, 1e-9)
                break
            damping *= 10
            if damping > MAX_DAMPING:
                done = True
                break
    return Fit(gaussians, float(residual @ residual), information)


def _solved(matrix: Floats, right: Floats) -> Floats:
    """Return the solution for a positive definite matrix, or zeros if rounding spoils it."""
    try:
        step = cho_solve(cho_factor(matrix, check_finite=False), right, check_finite=False)
    except LinAlgError:
        return np.zeros(len(right))
    return step if np.isfinite(step).all() else np.zeros(len(right))
