"""One Gaussian for all records, and coordinates in which it is round.

Searches place round atoms. Columns that nearly repeat each other, or nearly constant ones, leave
thin clouds that no round atom resembles. A Gaussian that is fitted to the low frequencies shows
the mean and the covariance of all records. In its coordinates, `x = center + A y`, all records
have covariance 1, so that a search is as easy as with independent columns of one scale.

Which frequencies are low depends on the direction: where the Gaussian is narrow, all are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.types import Floats
from privsketch.design.size import CovarianceType
from privsketch.learning.mixture.descent import Limits, gauss_newton, make_limits
from privsketch.learning.mixture.gaussians import Gaussians, Sums, quadratics
from privsketch.learning.mixture.prior import make_prior
from privsketch.learning.mixture.weighting import Weighting

WHOLE_PASSES = 4  # fits, each with the taper of the one before; the overview is right to a factor
WHOLE_STEPS = 12  # Gauss-Newton steps of a pass: a guard
MIN_TAPER = 0.05  # of frequencies that count, as in `sharpen` of the joint decoder
MAX_DEVIATIONS = 10.0  # of a mean: a share p lies within p^-0.5, so that 1 % are never cut


@dataclass(frozen=True)
class Coordinates:
    """The affine map `x = center + factor y`."""

    center: Floats  # (dim,)
    factor: Floats  # (dim, dim)

    @classmethod
    def plain(cls, dim: int) -> Coordinates:
        """Return the coordinates of x itself."""
        return cls(np.zeros(dim), np.eye(dim))

    def sums(self, sums: Sums, kind: CovarianceType) -> Sums:
        """Return the sums as moments of y."""
        m = len(sums.frequencies)
        turn = np.exp(-1j * (sums.frequencies @ self.center))
        values = (sums.values[:m] + 1j * sums.values[m:]) * turn
        frequencies = sums.frequencies @ self.factor
        return replace(
            sums,
            frequencies=frequencies,
            quadratic=quadratics(frequencies, kind),
            values=np.concatenate([values.real, values.imag]),
        )

    def limits(self, frequencies: Floats) -> Limits:
        """Return limits of components in y, for frequencies of y."""
        bound = np.full(len(self.center), MAX_DEVIATIONS)
        return make_limits(frequencies, -bound, bound)

    def back(self, gaussians: Gaussians, limits: Limits) -> Gaussians:
        """Return components of y as components of x, with means within the limits of x."""
        means = self.center + gaussians.means @ self.factor.T
        if gaussians.has_matrices:
            covariances = self.factor @ gaussians.covariances @ self.factor.T
            covariances = covariances + limits.smallest * np.eye(gaussians.dim)
        else:
            covariances = gaussians.covariances * np.square(np.diag(self.factor))
            if gaussians.covariance_type == "spherical":
                covariances = covariances.mean(axis=1, keepdims=True)
            covariances = np.maximum(covariances, limits.smallest)
        means = np.clip(means, limits.low, limits.high)
        return replace(gaussians, means=means, covariances=covariances)


def make_coordinates(whole: Gaussians, kind: CovarianceType) -> Coordinates:
    """Return coordinates in which a Gaussian is as round as components of a kind allow."""
    matrix = whole.covariances[0]
    if kind in ("full", "tied"):
        values, vectors = np.linalg.eigh(matrix)
        factor = vectors * np.sqrt(values)
    else:
        variances = np.diag(matrix)
        factor = np.diag(np.sqrt(variances))
        if kind == "spherical":
            factor = np.eye(len(matrix)) * np.sqrt(variances.mean())
    return Coordinates(whole.means[0], factor)


def moments_of(gaussians: Gaussians) -> Gaussians:
    """Return the Gaussian with the moments of a mixture, with a full covariance matrix."""
    shares = (gaussians.weights + 1e-300) / np.sum(gaussians.weights + 1e-300)
    mean = shares @ gaussians.means
    steps = gaussians.means - mean
    covariance = np.tensordot(shares, gaussians.matrices(), 1) + (steps.T * shares) @ steps
    weight, in_blocks = gaussians.weights.sum(keepdims=True), (shares @ gaussians.shares)[None]
    return Gaussians(weight, mean[None], covariance[None], "full", in_blocks)


def fit_whole(sums: Sums, start: Gaussians, limits: Limits, deviation: float) -> Gaussians:
    """Return the Gaussian of all records, with a full covariance matrix.

    `deviation` is the standard error of a sum, in the unit of the sums.
    """
    if start.dim == 0:
        return start
    rows, columns = np.tril_indices(start.dim)
    quadratic = quadratics(sums.frequencies, "full")
    m, whole, prior = len(quadratic), start, make_prior(start)
    n_needed = min(m, 2 * len(rows) + start.dim + 8)
    for _ in range(WHOLE_PASSES):
        taper = np.exp(quadratic @ whole.covariances[0][rows, columns] / -2)
        least = min(MIN_TAPER, float(np.partition(taper, -n_needed)[-n_needed]))
        keep = np.flatnonzero(taper >= least)
        low = Sums(
            sums.frequencies[keep],
            quadratic[keep],
            sums.labels[:, :, keep],
            sums.ends,
            sums.values[np.concatenate([keep, keep + m])],
        )
        weighting = Weighting(np.tile(deviation / np.maximum(taper[keep], 1e-3), 2))
        fit = gauss_newton(low, whole, limits, weighting, n_steps=WHOLE_STEPS, prior=prior)
        whole = fit.gaussians
    return whole
