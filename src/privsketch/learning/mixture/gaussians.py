"""Gaussian components of a mixture, their moments, and the covariance of a sketch of them.

A component with weight a, mean c and covariance S contributes `a exp(i w.c - w'Sw / 2)`, its
characteristic function, to the moment at frequency w (Keriven et al. 2018, "Sketching for
large-scale learning of mixture models"). Covariances have scikit-learn's names: "spherical" (one
variance each), "diag" (one for each axis), "full", and "tied" (one full matrix that all share).
`w'Sw` is linear in the entries of S, so value and gradient are plain matrix products for all kinds.

Sums over n independent records have n times the covariance of one record's features, which a
mixture gives in closed form: products of cosines and sines are cosines and sines of `w_j +- w_l`,
where the characteristic function is known. Privacy noise adds its variance to the diagonal. Least
squares in units of that covariance (generalised least squares) uses the sums efficiently. Features
of neighbouring frequencies repeat each other, and plain least squares would count them twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from privsketch._base.types import Floats, Indices
from privsketch.design.size import CovarianceType
from privsketch.learning.pruning import merged_moments

MAX_DENSE_FEATURES = 2000  # with more, the covariance is replaced by its diagonal
BLOCK_ROWS = 48  # rows of a block that stays in the processor's cache
MIN_RECORD_VARIANCE = 1e-6  # of one record's moment: an upper bound of its fixed-point rounding


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Weighted Gaussian components.

    Attributes
    ----------
    weights : (size,) float64
        Non-negative, in any unit.
    means : (size, dim) float64
    covariances : float64
        (size, 1) spherical, (size, dim) diag, (size, dim, dim) full, (1, dim, dim) tied.
    """

    weights: Floats
    means: Floats
    covariances: Floats
    covariance_type: CovarianceType

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.weights)

    @property
    def dim(self) -> int:
        """Number of columns of a record."""
        return int(self.means.shape[1])

    @property
    def has_matrices(self) -> bool:
        """Whether covariances are matrices rather than variances along the axes."""
        return self.covariances.ndim == 3

    def matrices(self) -> Floats:
        """Return covariance matrices, (size, dim, dim)."""
        if self.has_matrices:
            return np.broadcast_to(self.covariances, (self.size, self.dim, self.dim)).copy()
        variances = np.broadcast_to(self.covariances, self.means.shape)
        return np.asarray(variances[:, :, None] * np.eye(self.dim))

    def subset(self, keep: Indices) -> Gaussians:
        """Return the components at the given indices."""
        shared = self.covariance_type == "tied"
        return replace(
            self,
            weights=self.weights[keep],
            means=self.means[keep],
            covariances=self.covariances if shared else self.covariances[keep],
        )

    def in_order(self) -> Gaussians:
        """Return the components sorted by mean, first coordinate first."""
        return self.subset(np.lexsort(self.means.T[::-1]))


def from_variances(
    weights: Floats, means: Floats, variances: Floats, covariance_type: CovarianceType
) -> Gaussians:
    """Return components of a covariance type from axis variances, (1 or size, 1 or dim).

    A tied matrix becomes their mean by weight.
    """
    size, dim = means.shape
    full = np.broadcast_to(variances, (size, dim)).astype(np.float64)
    if covariance_type == "spherical":
        covariances = full.mean(axis=1, keepdims=True)
    elif covariance_type == "diag":
        covariances = full
    elif covariance_type == "full":
        covariances = full[:, :, None] * np.eye(dim)
    else:
        share = (weights + 1e-300) / np.sum(weights + 1e-300)
        covariances = np.diag(share @ full)[None]
    return Gaussians(weights, means, covariances, covariance_type)


def quadratics(frequencies: Floats, covariance_type: CovarianceType) -> Floats:
    """Return the matrix Q, (m, q), for which `w'Sw = Q entries(S)` (see `entries`)."""
    if covariance_type == "spherical":
        return np.asarray(np.square(frequencies).sum(axis=1, keepdims=True))
    if covariance_type == "diag":
        return np.square(frequencies)
    rows, columns = np.tril_indices(frequencies.shape[1])
    twice = np.where(rows == columns, 1.0, 2.0)
    return np.asarray(frequencies[:, rows] * frequencies[:, columns] * twice)


def entries(covariances: Floats) -> Floats:
    """Return distinct entries, (size or 1, q): variances, or lower triangles row by row."""
    if covariances.ndim == 2:
        return covariances
    rows, columns = np.tril_indices(covariances.shape[1])
    return np.asarray(covariances[:, rows, columns])


def features(frequencies: Floats, quadratic: Floats, gaussians: Gaussians) -> Floats:
    """Return moments of every component at unit weight, (size, 2 m): cosines, then sines."""
    m = len(frequencies)
    phases = gaussians.means @ frequencies.T
    envelope = np.exp(entries(gaussians.covariances) @ quadratic.T / -2)
    result = np.empty((gaussians.size, 2 * m))
    np.multiply(np.cos(phases), envelope, out=result[:, :m])
    np.multiply(np.sin(phases), envelope, out=result[:, m:])
    return result


def moments(frequencies: Floats, gaussians: Gaussians) -> NDArray[np.complex128]:
    """Return the moments of the whole mixture, (m,)."""
    quadratic = quadratics(frequencies, gaussians.covariance_type)
    total = gaussians.weights @ features(frequencies, quadratic, gaussians)
    m = len(frequencies)
    return np.asarray(total[:m] + 1j * total[m:])


@dataclass(frozen=True)
class Sums:
    """Moments to explain, as real numbers: all cosines before all sines."""

    frequencies: Floats  # (m, dim)
    quadratic: Floats  # (m, q), see `quadratics`
    values: Floats  # (2 m,)


def make_sums(
    frequencies: Floats, values: NDArray[np.complex128], covariance_type: CovarianceType
) -> Sums:
    """Return complex moments as a target for components of one kind."""
    stacked = np.concatenate([values.real, values.imag])
    return Sums(frequencies, quadratics(frequencies, covariance_type), stacked)


def cost_and_gradient(sums: Sums, gaussians: Gaussians) -> tuple[float, Gaussians]:
    """Return the squared distance of mixture and sums, and its gradient by the components.

    The gradient by a covariance matrix is by its distinct entries, (size or 1, q).
    """
    matrix = features(sums.frequencies, sums.quadratic, gaussians)
    residual = gaussians.weights @ matrix - sums.values
    m = len(sums.frequencies)
    along = matrix * residual
    along = along[:, :m] + along[:, m:]
    across = matrix[:, :m] * residual[m:] - matrix[:, m:] * residual[:m]
    weights = gaussians.weights[:, None]
    by_entries = -weights * (along @ sums.quadratic)
    if gaussians.covariance_type == "tied":
        by_entries = by_entries.sum(axis=0, keepdims=True)
    gradient = replace(
        gaussians,
        weights=2 * along.sum(axis=1),
        means=2 * weights * (across @ sums.frequencies),
        covariances=by_entries,
    )
    return float(residual @ residual), gradient


def merge_pairs(gaussians: Gaussians, pairs: Indices) -> Gaussians:
    """Return one component for each pair, with the moments of both; a tied matrix stays."""
    covariances = None if gaussians.covariance_type == "tied" else gaussians.covariances
    weights, means, merged = merged_moments(gaussians.weights, gaussians.means, covariances, pairs)
    merged = gaussians.covariances if merged is None else merged
    return replace(gaussians, weights=weights, means=means, covariances=merged)


def sampling_covariance(frequencies: Floats, gaussians: Gaussians) -> Floats:
    """Return the (2 m, 2 m) covariance of one record's features, cosines before sines.

    With the envelopes `D-` and `D+` at the differences and the sums of the frequencies,
    P = (D- + D+) / 2, M = (D- - D+) / 2 and the cosines c and sines s of the mean's phases,

        E cos cos' = cc' P + ss' M,  E sin sin' = ss' P + cc' M,  E cos sin' = cs' P - sc' M.
    """
    m = len(frequencies)
    total = max(float(gaussians.weights.sum()), 1e-300)
    phases = gaussians.means @ frequencies.T
    cosines, sines = np.cos(phases), np.sin(phases)
    matrices = gaussians.covariances if gaussians.has_matrices else gaussians.matrices()
    result = np.zeros((2 * m, 2 * m))
    # Blocks below the diagonal.
    for first in range(0, m, BLOCK_ROWS):
        rows = slice(first, min(first + BLOCK_ROWS, m))
        columns = slice(0, rows.stop)
        cos_cos, sin_sin = result[rows, columns], result[m:, m:][rows, columns]
        cos_sin, sin_cos = result[:m, m:][rows, columns], result[m:, :m][rows, columns]
        plus = minus = np.empty(0)
        for k in range(gaussians.size):
            if k < len(matrices):
                plus, minus = _envelopes(frequencies[rows], frequencies[columns], matrices[k])
            share = gaussians.weights[k] / total
            c, s = share * cosines[k, rows, None], share * sines[k, rows, None]
            cosine_plus, sine_plus = cosines[k, columns] * plus, sines[k, columns] * plus
            cosine_minus, sine_minus = cosines[k, columns] * minus, sines[k, columns] * minus
            cos_cos += c * cosine_plus
            cos_cos += s * sine_minus
            sin_sin += s * sine_plus
            sin_sin += c * cosine_minus
            cos_sin += c * sine_plus
            cos_sin -= s * cosine_minus
            sin_cos += s * cosine_plus
            sin_cos -= c * sine_minus
        for below, above in (
            (cos_cos, result[:m, :m]),
            (sin_sin, result[m:, m:]),
            (cos_sin, result[m:, :m]),
            (sin_cos, result[:m, m:]),
        ):
            above[columns, rows] = below.T
    quadratic = quadratics(frequencies, gaussians.covariance_type)
    mean = gaussians.weights @ features(frequencies, quadratic, gaussians) / total
    result -= np.outer(mean, mean)
    return result


def sampling_variances(frequencies: Floats, gaussians: Gaussians) -> Floats:
    """Return the diagonal of `sampling_covariance`, (2 m,)."""
    total = max(float(gaussians.weights.sum()), 1e-300)
    quadratic = quadratics(frequencies, gaussians.covariance_type)
    mean = gaussians.weights @ features(frequencies, quadratic, gaussians) / total
    m = len(frequencies)
    double = gaussians.weights @ features(2 * frequencies, 4 * quadratic, gaussians) / total
    # cos^2 = (1 + cos 2) / 2, sin^2 = (1 - cos 2) / 2
    squares = np.concatenate([1 + double[:m], 1 - double[:m]]) / 2
    return np.asarray(np.maximum(squares - np.square(mean), 0.0))


def _envelopes(left: Floats, right: Floats, matrix: Floats) -> tuple[Floats, Floats]:
    """Return half the sum and half the difference of the envelopes at `w_j -+ w_l`."""
    turned = left @ matrix
    cross = turned @ right.T
    half_left = np.einsum("jd,jd->j", turned, left) / 2
    half_right = np.einsum("jd,jd->j", right @ matrix, right) / 2
    base = half_left[:, None] + half_right
    minus = cross - base
    np.exp(minus, out=minus)
    plus = np.negative(cross, out=cross)
    plus -= base
    np.exp(plus, out=plus)
    return (minus + plus) / 2, (minus - plus) / 2


@dataclass(frozen=True)
class Weighting:
    """Covariance of the sums, as the factor that whitens them.

    `factor` is the Cholesky factor, (2 m, 2 m), or the standard deviations alone, (2 m,).
    """

    factor: Floats

    def whiten(self, values: Floats) -> Floats:
        """Return values (2 m, ...) in units that make the sums independent with variance 1."""
        if self.factor.ndim == 1:
            deviations = self.factor.reshape(-1, *[1] * (values.ndim - 1))
            return np.asarray(values / deviations)
        return np.asarray(solve_triangular(self.factor, values, lower=True, check_finite=False))

    def scaled(self, dispersion: float) -> Weighting:
        """Return the weighting for a covariance `dispersion` times as large."""
        return Weighting(self.factor * np.sqrt(dispersion))

    @property
    def log_determinant(self) -> float:
        """Logarithm of the determinant of the covariance."""
        diagonal = self.factor if self.factor.ndim == 1 else np.diag(self.factor)
        return float(2 * np.log(diagonal).sum())


def make_weighting(
    frequencies: Floats,
    gaussians: Gaussians,
    *,
    n_records: float,
    noise_variance: float | Floats,
    unit: float,
) -> Weighting:
    """Return the covariance of the sums under a mixture, in squared units of the weights.

    `noise_variance` is the variance of the noise in records^2: one number for all real components,
    or one for each.
    """
    n_records = max(n_records, 1.0)
    extra = np.broadcast_to(noise_variance + MIN_RECORD_VARIANCE * n_records, 2 * len(frequencies))
    if len(frequencies) > MAX_DENSE_FEATURES:
        variances = n_records * sampling_variances(frequencies, gaussians) + extra
        return Weighting(np.sqrt(variances) / unit)
    covariance = sampling_covariance(frequencies, gaussians)
    covariance *= n_records
    covariance.flat[:: len(covariance) + 1] += extra
    return Weighting(cholesky(covariance, lower=True, check_finite=False) / unit)
