"""Covariance of a sketch of a mixture, as the weighting of its fit.

Sums over n independent records have n times the covariance of one record's features, which a
mixture gives in closed form: products of cosines and sines are cosines and sines of `w_j +- w_l`,
where the characteristic function is known. Privacy noise adds its variance to the diagonal. Least
squares in units of that covariance (generalised least squares) uses the sums efficiently. Features
of neighbouring frequencies repeat each other, and plain least squares would count them twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from privsketch._base.types import Floats
from privsketch.facts.layout import Block, Layout
from privsketch.learning.blocks import Complex
from privsketch.learning.mixture.gaussians import Gaussians, Waves, features, make_waves

MAX_DENSE_FEATURES = 2000  # with more, the covariance is replaced by its diagonal
BLOCK_ROWS = 48  # rows of a block that stays in the processor's cache
MIN_POINTS = 80  # of a cycle, for its narrow clouds
MIN_RECORD_VARIANCE = 1e-6  # of one record's moment: an upper bound of its fixed-point rounding


def sampling_covariance(
    frequencies: Floats, gaussians: Gaussians, layout: Layout | None = None
) -> Floats:
    """Return the (2 m, 2 m) covariance of one record's features, cosines before sines.

    With the envelopes `D-` and `D+` at the differences and the sums of the frequencies,
    P = (D- + D+) / 2, M = (D- - D+) / 2 and the cosines c and sines s of the mean's phases,

        E cos cos' = cc' P + ss' M,  E sin sin' = ss' P + cc' M,  E cos sin' = cs' P - sc' M.
    """
    waves = make_waves(frequencies, gaussians.covariance_type, layout)
    total = max(float(gaussians.weights.sum()), 1e-300)
    if layout is None:
        result = _products_of_numbers(frequencies, gaussians, total)
    else:
        result = _products_with_labels(frequencies, waves, gaussians, layout)
    mean = gaussians.weights @ features(waves, gaussians) / total
    result -= np.outer(mean, mean)
    return result


def _products_of_numbers(frequencies: Floats, gaussians: Gaussians, total: float) -> Floats:
    """Return mean products of one record's features, (2 m, 2 m), without blocks."""
    m = len(frequencies)
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
    return result


def _products_with_labels(
    frequencies: Floats, waves: Waves, gaussians: Gaussians, layout: Layout
) -> Floats:
    """Return mean products of one record's features, (2 m, 2 m), of components with blocks.

    They are real and imaginary parts of the characteristic functions at w_j + w_l and w_j - w_l.
    Those of a block are `sum_q p_q e_q(w_j) e_q(+-w_l)` over points q of mass p_q.
    """
    m, total = len(frequencies), max(float(gaussians.weights.sum()), 1e-300)
    phasors = np.exp(1j * (gaussians.means @ waves.frequencies.T))
    points = [_points(block, frequencies[:, block.place]) for block, _ in layout.parts]
    masses = [
        gaussians.shares[:, part] @ mass
        for (_, part), (_, mass) in zip(layout.parts, points, strict=True)
    ]
    matrices = gaussians.covariances if gaussians.has_matrices else gaussians.matrices()
    result = np.zeros((2 * m, 2 * m))
    for first in range(0, m, BLOCK_ROWS):
        rows = slice(first, min(first + BLOCK_ROWS, m))
        columns = slice(0, rows.stop)
        at_sums = np.zeros((rows.stop - first, rows.stop), dtype=np.complex128)
        at_differences = np.zeros_like(at_sums)
        half_sum = half_difference = np.empty(0)
        for k in range(gaussians.size):
            if k < len(matrices):
                half_sum, half_difference = _envelopes(
                    waves.frequencies[rows], waves.frequencies[columns], matrices[k]
                )
            left = gaussians.weights[k] / total * phasors[k, rows, None]
            plus = left * phasors[k, columns] * (half_sum - half_difference)
            minus = left * phasors[k, columns].conj() * (half_sum + half_difference)
            for (wave, _), mass in zip(points, masses, strict=True):
                weighted = wave[rows] * mass[k]
                plus *= weighted @ wave[columns].T
                minus *= weighted @ wave[columns].conj().T
            at_sums += plus
            at_differences += minus
        for place, offset, values in (
            (rows, 0, (at_differences.real + at_sums.real) / 2),  # cos cos'
            (rows, m, (at_sums.imag - at_differences.imag) / 2),  # cos sin'
        ):
            result[place, offset : offset + rows.stop] = values
            result[offset : offset + rows.stop, place] = values.T
        sines = slice(m + first, m + rows.stop)
        for offset, values in (
            (0, (at_sums.imag + at_differences.imag) / 2),  # sin cos'
            (m, (at_differences.real - at_sums.real) / 2),  # sin sin'
        ):
            result[sines, offset : offset + rows.stop] = values
            result[offset : offset + rows.stop, sines] = values.T
    return result


def _points(block: Block, frequencies: Floats) -> tuple[Complex, Floats]:
    """Return waves (m, n) of points of a block, and the mass of each corner on them, (corners, n).

    Labels are points. The clouds of a cycle have equally spaced points, enough for sums of two
    frequencies: the rule of trapezes is exact for waves that turn less than n times.
    """
    if block.spread == 0:
        return block.waves(frequencies).T, np.eye(len(block.corners))
    radius = float(np.linalg.norm(block.corners[0]))
    reach = 2 * radius * float(np.linalg.norm(frequencies, axis=1).max(initial=0.0))
    angles = 2 * np.pi * np.arange(MIN_POINTS + 2 * int(reach)) / (MIN_POINTS + 2 * int(reach))
    circle = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    corners = np.arctan2(block.corners[:, 1], block.corners[:, 0])
    offsets = (angles - corners[:, None] + np.pi) % (2 * np.pi) - np.pi
    mass = np.exp(-np.square(offsets / block.spread) / 2)
    return np.exp(1j * (frequencies @ circle.T)), mass / mass.sum(axis=1, keepdims=True)


def sampling_variances(
    frequencies: Floats, gaussians: Gaussians, layout: Layout | None = None
) -> Floats:
    """Return the diagonal of `sampling_covariance`, (2 m,)."""
    total = max(float(gaussians.weights.sum()), 1e-300)
    waves = make_waves(frequencies, gaussians.covariance_type, layout)
    mean = gaussians.weights @ features(waves, gaussians) / total
    m = len(frequencies)
    doubled = make_waves(2 * frequencies, gaussians.covariance_type, layout)
    double = gaussians.weights @ features(doubled, gaussians) / total
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
    layout: Layout | None = None,
) -> Weighting:
    """Return the covariance of the sums under a mixture, in squared units of the weights.

    `noise_variance` is the variance of the noise in records^2: one number for all real components,
    or one for each.
    """
    n_records = max(n_records, 1.0)
    extra = np.broadcast_to(noise_variance + MIN_RECORD_VARIANCE * n_records, 2 * len(frequencies))
    if len(frequencies) > MAX_DENSE_FEATURES:
        variances = n_records * sampling_variances(frequencies, gaussians, layout) + extra
        return Weighting(np.sqrt(variances) / unit)
    covariance = sampling_covariance(frequencies, gaussians, layout)
    covariance *= n_records
    covariance.flat[:: len(covariance) + 1] += extra
    return Weighting(cholesky(covariance, lower=True, check_finite=False) / unit)
