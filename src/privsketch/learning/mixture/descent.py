"""Descents in the weights, means and covariances of all components.

The first is plain least squares on the moments, by L-BFGS-B. Variances are variables with a lower
bound; a matrix is `L L' + smallest I` with a triangular L, positive definite for any L. Variables
are scaled by the diagonal of the Gauss-Newton matrix: their curvatures differ by orders of
magnitude.

Shares of corners are variables between 0 and 2; their sum is settled after the descent.

The second takes damped Gauss-Newton steps on the generalised least squares cost. Variables are
weights, means and the logarithm of the covariances (of variances, or of the whole matrix). Every
step keeps covariances positive definite. In logarithms a fit is nearly linear, and its errors are
nearly normal. The matrix of the last step is Fisher's information: its inverse is the covariance of
the errors. Shares of a block sum to one: the largest of them follows from the others, and shares
that are 0 stay so where the cost would grow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import Bounds, minimize

from privsketch._base.types import Bits, Floats, Indices
from privsketch.learning.blocks import as_complex, as_real, parts_of
from privsketch.learning.mixture.gaussians import (
    Gaussians,
    Sums,
    Waves,
    cost_and_gradient,
    entries,
    features,
    logarithms,
    number_features,
    spectral_ratios,
    without_each_block,
)
from privsketch.learning.mixture.prior import Prior, make_prior
from privsketch.learning.mixture.weighting import Weighting
from privsketch.learning.refine import WEIGHT_CAP

NO_ENDS = np.zeros(0, dtype=np.int64)  # of blocks
MIN_VARIANCE = 1e-4  # least variance over the square of the shortest wavelength over 2 pi
MIN_CHI_SQUARE_FALL = 0.02  # a change of chi-square that no statistics would notice
MIN_RELATIVE_FALL = 1e-4  # the same, relative to chi-square, if a misfit dwarfs all errors
MAX_SHARE = 2.0  # of a corner during the first descent; at most 1 afterwards
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
    fallback = float(np.max(high - low, initial=0.0)) ** 2 or 1.0
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
    parts = gaussians.weights, gaussians.means.ravel(), gaussians.shares.ravel(), shapes.ravel()
    return np.concatenate(parts)


def unpack(variables: Floats, like: Gaussians, limits: Limits) -> Gaussians:
    """Return the components of a vector of variables, of the size and kind of `like`."""
    size, dim = like.means.shape
    first, last = place_of_shares(like)
    shapes = variables[last:]
    if like.has_matrices:
        factors = as_factors(shapes, dim)
        covariances = factors @ factors.transpose(0, 2, 1) + limits.smallest * np.eye(dim)
    else:
        covariances = shapes.reshape(like.covariances.shape)
    means = variables[size:first].reshape(size, dim)
    shares = variables[first:last].reshape(like.shares.shape)
    return replace(
        like, weights=variables[:size], means=means, covariances=covariances, shares=shares
    )


def place_of_shares(gaussians: Gaussians) -> tuple[int, int]:
    """Return the first index of the shares among all variables, and that of the covariances."""
    first = gaussians.size * (gaussians.dim + 1)
    return first, first + gaussians.shares.size


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
    dim = like.dim
    by_shape = gradient.covariances
    if like.has_matrices:
        # d S = dL L' + L dL'; an off-diagonal entry stands for two cells of S.
        rows, columns = np.tril_indices(dim)
        by_matrix = as_factors(by_shape, dim)
        by_matrix = by_matrix + by_matrix.transpose(0, 2, 1)
        product = by_matrix @ as_factors(variables[place_of_shares(like)[1] :], dim)
        by_shape = product[:, rows, columns]
    parts = gradient.weights, gradient.means.ravel(), gradient.shares.ravel(), by_shape.ravel()
    return value, np.concatenate(parts)


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
    zeros, n_shares = np.zeros(size), gaussians.shares.size
    most = np.full(n_shares, MAX_SHARE)
    lower = np.concatenate([zeros, np.tile(limits.low, size), np.zeros(n_shares), lower_shape])
    upper = np.concatenate([zeros + WEIGHT_CAP, np.tile(limits.high, size), most, upper_shape])

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
    return unpack(solution, gaussians, limits).normalised(sums.ends), float(result.fun)


def _curvature_scales(sums: Sums, gaussians: Gaussians, variables: Floats) -> Floats:
    """Return square roots of the Gauss-Newton diagonal."""
    dim, m = gaussians.dim, len(sums.frequencies)
    matrix = features(sums, gaussians)
    energy = np.square(matrix[:, :m]) + np.square(matrix[:, m:])
    # A component of next to no weight would have next to no curvature: floor it.
    floor = max(0.1 * float(np.mean(gaussians.weights)), 1e-8)
    weights = np.maximum(gaussians.weights, floor)[:, None]
    squares = np.square(sums.frequencies)
    by_mean = weights * np.sqrt(energy @ squares)
    if gaussians.has_matrices:
        rows, columns = np.tril_indices(dim)
        factors = as_factors(variables[place_of_shares(gaussians)[1] :], dim)
        # d(w'Sw) / dL_ab = 2 w_a (L'w)_b
        turned = np.einsum("ja,kab->kjb", sums.frequencies, factors)
        slopes = sums.frequencies[None, :, rows] * turned[:, :, columns]
        by_shape = np.sqrt(np.einsum("kj,kjq->kq", energy, np.square(slopes)))
    else:
        by_shape = np.sqrt(energy @ np.square(sums.quadratic)) / 2
    by_shape = weights * by_shape
    if gaussians.covariance_type == "tied":
        by_shape = np.sqrt(np.square(by_shape).sum(axis=0, keepdims=True))
    by_share = np.zeros(gaussians.shares.shape)
    if by_share.size:
        by_share += weights * np.linalg.norm(number_features(sums, gaussians), axis=1)[:, None]
    parts = np.sqrt(energy.sum(axis=1)), by_mean.ravel(), by_share.ravel(), by_shape.ravel()
    scales = np.concatenate(parts)
    return np.asarray(np.maximum(scales, 1e-8 * float(np.max(scales)) + 1e-100))


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
    value: float  # chi-square with the penalty of the prior
    information: Floats  # with the prior; weights, means, shares (see `Chart`), log entries


def variables(gaussians: Gaussians) -> Floats:
    """Return weights, means, shares and log entries, (p,)."""
    parts = gaussians.means, gaussians.shares, logarithms(gaussians)
    return np.concatenate([gaussians.weights, *(each.ravel() for each in parts)])


@dataclass(frozen=True)
class Chart:
    """Free variables of components: of the shares of a block, all but the largest.

    Attributes
    ----------
    free : (p_free,) int
        Indices of the free variables among all p.
    largest : (p_free,) int
        Index of the share that a free share is taken from, and -1 for other variables.
    is_zero : (p_free,) bool
        Whether the variable is a share of 0.
    """

    free: Indices
    largest: Indices
    is_zero: Bits

    def restrict(self, derivatives: Floats) -> Floats:
        """Return derivatives (n, p_free) by the free variables from those by all, (n, p)."""
        if (self.largest < 0).all():
            return derivatives
        result = derivatives[:, self.free]
        result[:, self.largest >= 0] -= derivatives[:, self.largest[self.largest >= 0]]
        return result

    def expand(self, steps: Floats) -> Floats:
        """Return steps (p, ...) of all variables from those of the free ones, (p_free, ...)."""
        taken = self.largest >= 0
        if not taken.any():
            return steps
        n_blocks = len(np.unique(self.largest[taken]))
        result = np.zeros((len(steps) + n_blocks, *steps.shape[1:]))
        result[self.free] = steps
        np.subtract.at(result, self.largest[taken], steps[taken])
        return result


def chart_of(gaussians: Gaussians, ends: Indices) -> Chart:
    """Return the free variables at given components."""
    first, last = place_of_shares(gaussians)
    n_variables = last + entries(gaussians.covariances).size
    largest = np.full(n_variables, -1)
    indices = np.arange(first, last).reshape(gaussians.shares.shape)
    for part in parts_of(ends):
        heads = indices[np.arange(gaussians.size), part.start + gaussians.shares[:, part].argmax(1)]
        largest[indices[:, part]] = heads[:, None]
    free = np.flatnonzero(largest != np.arange(n_variables))
    is_zero = np.zeros(n_variables, dtype=bool)
    is_zero[first:last] = gaussians.shares.ravel() <= 0
    return Chart(free, largest[free], is_zero[free])


def jacobian(sums: Sums, gaussians: Gaussians) -> Floats:
    """Return derivatives of the moments by weights, means, shares and log entries, (2 m, p)."""
    m, dim = sums.frequencies.shape
    size = gaussians.size
    matrix = features(sums, gaussians)
    weighted = gaussians.weights[:, None] * matrix
    cosines, sines = weighted[:, :m].T, weighted[:, m:].T  # (m, size)
    slopes = log_slopes(sums, gaussians)  # (size or 1, m, q)
    n_logs = slopes.shape[2] * len(slopes)
    first, last = place_of_shares(gaussians)
    result = np.empty((2 * m, last + n_logs))
    result[:, :size] = matrix.T
    by_mean = result[:, size:first].reshape(2 * m, size, dim)
    np.multiply(-sines[:, :, None], sums.frequencies[:, None, :], out=by_mean[:m])
    np.multiply(cosines[:, :, None], sums.frequencies[:, None, :], out=by_mean[m:])
    result[:, first:last] = share_slopes(sums, gaussians, number_features(sums, gaussians))
    by_log = result[:, last:].reshape(2 * m, len(slopes), slopes.shape[2])
    for half, part in enumerate((cosines, sines)):
        if gaussians.covariance_type == "tied":
            part = part.sum(axis=1, keepdims=True)
        by_log[half * m : (half + 1) * m] = part[:, :, None] * slopes.transpose(1, 0, 2) / -2
    return result


def share_slopes(waves: Waves, gaussians: Gaussians, numbers: Floats) -> Floats:
    """Return derivatives by the shares, (2 m, size n_corners).

    `numbers`, (size, 2 m), are the factors of the numbers.
    """
    result = np.zeros((numbers.shape[1], *gaussians.shares.shape))
    for part, others in without_each_block(numbers, waves, gaussians):
        corners = as_complex(waves.labels[part].reshape(part.stop - part.start, -1))
        products = as_real(gaussians.weights[:, None, None] * others[:, None] * corners)
        result[:, :, part] = products.transpose(2, 0, 1)
    return result.reshape(len(result), -1)


def log_slopes(sums: Sums, gaussians: Gaussians) -> Floats:
    """Return derivatives of `w'Sw` by the entries of log S, (size or 1, m, q)."""
    if not gaussians.has_matrices:
        return np.asarray(sums.quadratic[None] * gaussians.covariances[:, None, :])
    vectors, ratio = spectral_ratios(gaussians.covariances)
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
    vectors, ratio = spectral_ratios(gaussians.covariances)
    back = vectors.transpose(0, 2, 1)[:, None]
    return np.asarray(
        vectors[:, None] @ (ratio[:, None] * (back @ basis @ vectors[:, None])) @ back
    )


def moved(gaussians: Gaussians, step: Floats, limits: Limits, ends: Indices = NO_ENDS) -> Gaussians:
    """Return the components after a step in the variables, kept within their limits."""
    size, dim = gaussians.means.shape
    first, last = place_of_shares(gaussians)
    weights = np.clip(gaussians.weights + step[:size], 0.0, WEIGHT_CAP)
    means = gaussians.means + step[size:first].reshape(size, dim)
    shares = np.clip(gaussians.shares + step[first:last].reshape(size, -1), 0.0, 1.0)
    change = step[last:]
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
    new = replace(gaussians, means=means, covariances=covariances, shares=shares)
    return replace(new.normalised(ends), weights=weights)


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
    prior = make_prior(gaussians, is_flat=True) if prior is None else prior

    def residual_of(candidate: Gaussians) -> tuple[Floats, float]:
        model = candidate.weights @ features(sums, candidate)
        if tilt is not None:
            model = model + tilt.slopes @ (variables(candidate) - tilt.origin)
        residual = weighting.whiten(model - sums.values)
        return residual, float(residual @ residual) + prior.penalty(candidate)

    residual, value = residual_of(gaussians)
    damping, done = 1e-3, False
    for step_number in range(n_steps + 1):
        slopes = jacobian(sums, gaussians)
        chart = chart_of(gaussians, sums.ends)
        slopes = chart.restrict(slopes if tilt is None else slopes + tilt.slopes)
        slopes = weighting.whiten(slopes)
        information = slopes.T @ slopes
        diagonal = np.diag(information)
        diagonal = np.maximum(diagonal, 1e-9 * float(np.max(diagonal)) + 1e-300)
        pull = slopes.T @ residual
        prior.add_to(information, pull, gaussians)
        if done or step_number == n_steps:
            break
        still = np.flatnonzero(chart.is_zero & (pull > 0))
        pull[still] = 0.0
        while True:
            damped = information.copy()
            damped[still], damped[:, still] = 0.0, 0.0
            damped.flat[:: len(damped) + 1] = np.diag(information) + damping * diagonal
            step = chart.expand(_solved(damped, -pull))
            candidate = moved(gaussians, step, limits, sums.ends)
            new_residual, new_value = residual_of(candidate)
            if new_value < value:
                least = max(MIN_CHI_SQUARE_FALL, MIN_RELATIVE_FALL * value)
                done = value - new_value < least
                if done and prior.power:
                    # Damping in units of well-determined variables may hold up all others.
                    done = float(pull @ _solved(information, pull)) < 2 * least
                    damping = damping if done else damping / 100
                gaussians, residual, value = candidate, new_residual, new_value
                damping = max(damping / 10, 1e-9)
                break
            damping *= 10
            if damping > MAX_DAMPING:
                done = True
                break
    return Fit(gaussians, float(residual @ residual), value, information)


def _solved(matrix: Floats, right: Floats) -> Floats:
    """Return the solution for a positive definite matrix, or zeros if rounding spoils it."""
    try:
        step = cho_solve(cho_factor(matrix, check_finite=False), right, check_finite=False)
    except LinAlgError:
        return np.zeros(len(right))
    return step if np.isfinite(step).all() else np.zeros(len(right))
