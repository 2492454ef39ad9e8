"""What a low-rank and an isotropic part leave, as a random matrix of no preferred direction.

Spectra rarely end: C = U U' + s I + R. Taking R for a Gaussian matrix with variance t on
its diagonal and t / 2 off it, the values vary by `noise + t A A*`. Residuals are whitened by
that, so U is not bent towards R, and t is the one under which the whitened residuals look
most like noise (marginal likelihood). A fit of low rank at high noise has t = 0.

The part of R that the values show, t A*(V^-1 residuals), is added to the estimate. It
matters for slow spectra: with m = 180 features of 20 columns and eigenvalues 1, 1/2, 1/3 ...
the share of variance lost falls from 1.7 % to 0.4 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._typing import Floats
from privsketch.learning.pca.factors import Factors, fit_factors
from privsketch.learning.pca.loss import Loss, loss_of
from privsketch.learning.pca.measurements import EntryMeasurements
from privsketch.learning.pca.observations import Observations

MAX_SIZE = 2000  # values beyond which the covariance of R is cut to its diagonal
ROUNDS = 4


@dataclass(frozen=True, eq=False)
class RemainderFit:
    """C = U U' + s I + R.

    Attributes
    ----------
    factors : Factors
    variance : float
        t, of the diagonal of R.
    loss : Loss
        That of the last round, whitened for noise and R.
    matrix : (dim, dim) float64
        The estimate of C, R included.
    """

    factors: Factors
    variance: float
    loss: Loss
    matrix: Floats


def fit_with_remainder(observations: Observations, factors: Factors, unknowns: int) -> RemainderFit:
    """Refit factors that were fitted to noise alone, with what they leave beside them."""
    measurements, loss = observations.measurements, loss_of(observations)
    variance, spectrum = 0.0, None
    for _ in range(ROUNDS):
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
    """Of A A* in units of the noise: eigenvalues (m,) and axes, or None if it is diagonal."""

    values: Floats
    axes: Floats | None
    is_cut: bool = False


def _spectrum(observations: Observations) -> _Spectrum:
    deviations = np.sqrt(observations.variances)
    is_full = not isinstance(observations.measurements, EntryMeasurements)
    if observations.measurements.size > MAX_SIZE and is_full:
        diagonal = observations.measurements.gram_diagonal
        return _Spectrum(diagonal / observations.variances, None, is_cut=True)
    gram = observations.measurements.gram()
    if gram.ndim == 1:
        return _Spectrum(gram / observations.variances, None)
    values, axes = np.linalg.eigh(gram / deviations[:, None] / deviations)
    return _Spectrum(np.maximum(values, 0.0), axes)


def _is_noise(residuals: Floats, unknowns: int, exact_law: bool) -> bool:
    """Whether residuals in units of the noise are no larger than noise leaves."""
    free = max(len(residuals) - unknowns, 1)
    spread = np.sqrt((2 if exact_law else 5) * free)  # kurtosis 3, or 6
    return bool(residuals @ residuals <= free + spread)


def _likely_variance(spectrum: _Spectrum, residuals: Floats, unknowns: int) -> float:
    """The t of greatest marginal likelihood; 0 if none is better."""
    rotated = residuals if spectrum.axes is None else spectrum.axes.T @ residuals
    # The fit has taken its share of the residuals.
    squares = np.square(rotated) * (len(residuals) / max(len(residuals) - unknowns, 1))
    grid = np.append(0.0, np.geomspace(1e-4, 1e14, 181) / max(float(spectrum.values.max()), 1e-300))
    totals = 1 + grid[:, None] * spectrum.values
    costs = np.log(totals).sum(axis=1) + (squares / totals).sum(axis=1)
    return float(grid[int(np.argmin(costs))])


def _whitened(loss: Loss, spectrum: _Spectrum, variance: float, observations: Observations) -> Loss:
    """The loss with noise and R whitened: (I + t A A*)^(-1/2), symmetric, after the noise.

    Symmetric, so that a small R changes the residuals little and Huber's threshold still
    is one of single values.
    """
    damping = 1 / np.sqrt(1 + variance * spectrum.values)
    deviations = np.sqrt(observations.variances)
    # The heavy tails are those of the noise alone: Huber's threshold stays at as many of
    # its standard deviations, which are fewer of both together.
    threshold = loss_of(observations).threshold * float(np.mean(1 / damping))
    if spectrum.axes is None:
        whitener = damping / deviations
    else:
        whitener = (spectrum.axes * damping) @ spectrum.axes.T / deviations
    return Loss(loss.values, whitener, threshold)
