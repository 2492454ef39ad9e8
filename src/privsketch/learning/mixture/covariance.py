"""How the numbers of a sketch vary together, and the cost that knows it.

Sums over n independent records have n times the covariance of one record's features,
which a mixture gives in closed form: products of cosines and sines are cosines and sines
of `w_j +- w_l`, where the characteristic function is known. Privacy noise adds its
variance to the diagonal. Least squares in units of that covariance (generalised least
squares) is the efficient use of the sums; features of neighbouring frequencies repeat
each other, and plain least squares would count them as independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from privsketch._base.types import Floats
from privsketch.learning.mixture.gaussians import Gaussians, features, quadratics

MAX_FEATURES = 2000  # above, the covariance is replaced by its diagonal
BLOCK = 48  # rows
RIDGE = 1e-6  # of a record's variance: no moment is known better than its fixed-point rounding


def sampling_covariance(frequencies: Floats, gaussians: Gaussians) -> Floats:
    """(2 m, 2 m) covariance of one record's features, cosines before sines.

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
    # Blocks below the diagonal, small enough for the processor's cache.
    for first in range(0, m, BLOCK):
        rows = slice(first, min(first + BLOCK, m))
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
    """(2 m,) the diagonal of `sampling_covariance`."""
    total = max(float(gaussians.weights.sum()), 1e-300)
    quadratic = quadratics(frequencies, gaussians.covariance_type)
    mean = gaussians.weights @ features(frequencies, quadratic, gaussians) / total
    m = len(frequencies)
    double = gaussians.weights @ features(2 * frequencies, 4 * quadratic, gaussians) / total
    # cos^2 = (1 + cos 2) / 2, sin^2 = (1 - cos 2) / 2
    squares = np.concatenate([1 + double[:m], 1 - double[:m]]) / 2
    return np.asarray(np.maximum(squares - np.square(mean), 0.0))


def _envelopes(left: Floats, right: Floats, matrix: Floats) -> tuple[Floats, Floats]:
    """Half the sum and half the difference of the envelopes at `w_j - w_l` and `w_j + w_l`."""
    turned = left @ matrix
    cross = turned @ right.T
    own_left = np.einsum("jd,jd->j", turned, left) / 2
    own_right = np.einsum("jd,jd->j", right @ matrix, right) / 2
    base = own_left[:, None] + own_right
    minus = cross - base
    np.exp(minus, out=minus)
    plus = np.negative(cross, out=cross)
    plus -= base
    np.exp(plus, out=plus)
    return (minus + plus) / 2, (minus - plus) / 2


@dataclass(frozen=True)
class Weighting:
    """The covariance of the sums, as what makes them independent with variance 1.

    `factor` is the Cholesky factor, (2 m, 2 m), or the standard deviations alone, (2 m,).
    """

    factor: Floats

    def whiten(self, values: Floats) -> Floats:
        """Values (2 m, ...) in independent units."""
        if self.factor.ndim == 1:
            deviations = self.factor.reshape(-1, *[1] * (values.ndim - 1))
            return np.asarray(values / deviations)
        return np.asarray(solve_triangular(self.factor, values, lower=True, check_finite=False))

    def scaled(self, dispersion: float) -> Weighting:
        """The same for a covariance `dispersion` times as large."""
        return Weighting(self.factor * np.sqrt(dispersion))

    @property
    def log_determinant(self) -> float:
        """Of the covariance."""
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
    """Covariance of the sums under a mixture, in squared units of the weights.

    `noise_variance` is what is added to each real component, in records^2: one number, or
    one for each.
    """
    n_records = max(n_records, 1.0)
    extra = np.broadcast_to(noise_variance + RIDGE * n_records, 2 * len(frequencies))
    if len(frequencies) > MAX_FEATURES:
        variances = n_records * sampling_variances(frequencies, gaussians) + extra
        return Weighting(np.sqrt(variances) / unit)
    covariance = sampling_covariance(frequencies, gaussians)
    covariance *= n_records
    covariance.flat[:: len(covariance) + 1] += extra
    return Weighting(cholesky(covariance, lower=True, check_finite=False) / unit)
