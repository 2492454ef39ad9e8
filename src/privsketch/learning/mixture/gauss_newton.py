"""Damped Gauss-Newton steps on the generalised least squares cost.

Variables are weights, means and the logarithm of the covariances (of variances, or of
the whole matrix): every step leaves covariances positive definite, and in logarithms a
fit is close to linear and its errors close to normal. The matrix of the last step is
Fisher's information: its inverse is the covariance of the errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from privsketch._base.types import Floats
from privsketch.learning.mixture.covariance import Weighting
from privsketch.learning.mixture.descent import MAX_WEIGHT, Limits
from privsketch.learning.mixture.gaussians import Gaussians, Sums, entries, features

NEGLIGIBLE = 0.02  # a change of chi-square that no statistics would notice
RELATIVE = 1e-4  # the same where a misfit dwarfs all errors
MAX_DAMPING = 1e6  # steps are then about a millionth of Newton's: the search is at its end


@dataclass(frozen=True)
class Prior:
    """Normal beliefs about the logarithms: precisions and centers, one for each entry."""

    precisions: Floats  # (n_log_entries,), 0 where nothing is believed
    centers: Floats


@dataclass(frozen=True)
class Tilt:
    """What the model gains, to first order, as variables leave an origin: the edge's part."""

    slopes: Floats  # (2 m, p)
    origin: Floats  # (p,)


@dataclass(frozen=True)
class Fit:
    """Components, what they leave of the sums in units of its covariance, and their errors."""

    gaussians: Gaussians
    chi_square: float  # without the prior
    information: Floats  # (p, p) with the prior; weights, means, log entries


def logarithms(gaussians: Gaussians) -> Floats:
    """(size or 1, q) distinct entries of the logarithms of the covariances."""
    if not gaussians.has_matrices:
        return np.log(gaussians.covariances)
    values, vectors = np.linalg.eigh(gaussians.covariances)
    values = np.log(np.maximum(values, 1e-300))
    return entries((vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1))


def variables(gaussians: Gaussians) -> Floats:
    """(p,) weights, means and log entries."""
    logs = logarithms(gaussians)
    return np.concatenate([gaussians.weights, gaussians.means.ravel(), logs.ravel()])


def jacobian(sums: Sums, gaussians: Gaussians) -> Floats:
    """(2 m, p) derivatives of the moments by weights, means and log entries."""
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
    """(size or 1, m, q) derivatives of `w'Sw` by the entries of log S."""
    if not gaussians.has_matrices:
        return np.asarray(sums.quadratic[None] * gaussians.covariances[:, None, :])
    vectors, ratio = _spectral_ratios(gaussians.covariances)
    turned = sums.frequencies @ vectors  # (size, m, dim)
    inner = turned[:, :, :, None] * turned[:, :, None, :] * ratio[:, None]
    back = vectors[:, None] @ inner @ vectors.transpose(0, 2, 1)[:, None]
    rows, columns = np.tril_indices(gaussians.dim)
    return np.asarray(back[:, :, rows, columns] * np.where(rows == columns, 1.0, 2.0))


def log_changes(gaussians: Gaussians) -> Floats:
    """(size or 1, q, dim, dim) derivatives of the covariance matrices by the entries of log S."""
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
    """Eigenvectors, and what turns changes of log S into changes of S in their basis.

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
    """The components after a step in the variables, kept within their limits."""
    size, dim = gaussians.means.shape
    weights = np.clip(gaussians.weights + step[:size], 0.0, MAX_WEIGHT)
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
    """Descend by damped steps (Levenberg and Marquardt) until nothing noticeable is gained."""
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
                done = value - new_value < max(NEGLIGIBLE, RELATIVE * value)
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
    """The solution for a positive definite matrix; no step at all if rounding spoils it."""
    try:
        step = cho_solve(cho_factor(matrix, check_finite=False), right, check_finite=False)
    except LinAlgError:
        return np.zeros(len(right))
    return step if np.isfinite(step).all() else np.zeros(len(right))
