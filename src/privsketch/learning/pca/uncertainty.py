"""What noise does to principal components: variances of eigenvalues, and of turns.

To first order an error E of the second-moment matrix moves the eigenvalue of v by v'E v,
and turns v towards q by q'E v / gap. A fit of rank r only errs along its tangents

    (v_a v_b' + v_b v_a') / sqrt 2,   (v_a q' + q v_a') / sqrt 2,   the isotropic rest,

an orthonormal set; with J their values, whitened for noise and remainder, the errors along
them have the covariance (J'J)^-1 - t I, t the variance of the remainder: what the remainder
has along a tangent belongs to the matrix, and is no error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.design.pca import cross_variance, robust_gain
from privsketch.design.validity import pca_unknowns
from privsketch.learning.pca.factors import Loss
from privsketch.learning.pca.measurements import EntryMeasurements, QuadraticMeasurements
from privsketch.learning.pca.problem import Observations

MAX_DESIGN = 4 * 10**6  # numbers in J; beyond, averages over directions


@dataclass(frozen=True, eq=False)
class Spread:
    """Variances of the errors of a second-moment matrix.

    Attributes
    ----------
    own : (k,) float64
        Of v_a'E v_a.
    cross : (k, dim - k) float64
        Of q'E v_a, q every other axis.
    """

    own: Floats
    cross: Floats


def spread_of(
    observations: Observations, loss: Loss, remainder: float, axes: Floats, rank: int, k: int
) -> Spread:
    """Errors of a fit of this rank whose matrix has these axes, (dim, dim) in columns."""
    spread = _spread_of(observations, loss, remainder, axes, rank, k)
    if observations.mean is None:
        return spread
    # mu e' + e mu' for errors e of the sum of the records: e has no preferred direction.
    along = np.square(axes.T @ observations.mean) * observations.mean_variance
    return Spread(spread.own + 4 * along[:k], spread.cross + along[:k, None] + along[None, k:])


def _spread_of(
    observations: Observations, loss: Loss, remainder: float, axes: Floats, rank: int, k: int
) -> Spread:
    """Those from the noise of the values."""
    measurements = observations.measurements
    dim, size = measurements.dim, measurements.size
    unknowns = pca_unknowns(rank, dim)
    gain = robust_gain(observations.noise, unknowns / size)
    if isinstance(measurements, EntryMeasurements):
        return _of_entries(observations, measurements.on_diagonal, axes, k, gain)
    if isinstance(measurements, QuadraticMeasurements) and size * unknowns <= MAX_DESIGN:
        found = _of_tangents(measurements, loss, remainder, axes, rank, k, gain)
        if found is not None:
            return found
    scale = float(np.mean(np.square(measurements.identity)))
    average = cross_variance(
        dim,
        rank,
        feature_map="quadratic",
        n_features=size,
        noise=observations.noise,
        variance=float(np.mean(observations.variances)) / max(scale, 1e-300),
    )
    return Spread(np.full(k, 2 * average), np.full((k, dim - k), average))


def _of_entries(
    observations: Observations,
    on_diagonal: npt.NDArray[np.bool_],
    axes: Floats,
    k: int,
    gain: float,
) -> Spread:
    """Entries are independent: the variance of q'E v is a sum over them."""
    variances = gain * observations.variances
    diagonal, off = float(variances[on_diagonal].mean()), float(variances[on_diagonal].mean()) / 2
    if not on_diagonal.all():
        off = float(variances[~on_diagonal].mean())
    squares = np.square(axes)
    common = squares[:, :k].T @ squares  # sum of v_i^2 q_i^2
    cross = off + common[:, k:] * (diagonal - 2 * off)
    return Spread(2 * off + np.diagonal(common) * (diagonal - 2 * off), cross)


def _of_tangents(
    measurements: QuadraticMeasurements,
    loss: Loss,
    remainder: float,
    axes: Floats,
    rank: int,
    k: int,
    gain: float,
) -> Spread | None:
    """From the covariance of the errors along the tangents; None if there is none."""
    products = measurements.vectors @ axes
    first, second = np.triu_indices(rank, m=products.shape[1])
    columns = products[:, first] * products[:, second]
    columns[:, first != second] *= np.sqrt(2)
    n_tangents = columns.shape[1]
    if rank < products.shape[1]:
        rest = np.square(products[:, rank:]).sum(axis=1) / np.sqrt(products.shape[1] - rank)
        columns = np.column_stack([columns, rest])
    if loss.whitener.ndim == 1:
        columns = loss.whitener[:, None] * columns
    else:
        columns = loss.whitener @ columns
    try:
        covariance = np.linalg.inv(columns.T @ columns)
    except np.linalg.LinAlgError:
        return None
    variances = np.diagonal(covariance)[:n_tangents] * gain
    variances = np.maximum(variances - remainder, 1e-6 * np.abs(variances))
    if not np.isfinite(variances).all():
        return None
    table = np.zeros((rank, products.shape[1]))
    table[first, second] = variances
    own = np.diagonal(table)[:k].copy()
    return Spread(own, table[:k, k:] / 2)


@dataclass(frozen=True, eq=False)
class Summary:
    """Variances along the components found.

    Attributes
    ----------
    explained : (k,) float64
        Of the records along each component.
    lost : (k,) float64
        By how much it is expected to fall short of the best component's.
    """

    explained: Floats
    lost: Floats


def summarise(eigenvalues: Floats, spread: Spread) -> Summary:
    """Variances along the components from eigenvalues (dim,) of a noisy matrix, descending.

    Noise enlarges the first eigenvalues: one that is t above the rest comes out at
    t + N / t, N the sum of variances towards all others, and its vector holds t - N / t
    (spiked random matrices: F. Benaych-Georges, R. Nadakuditi, 2011).
    """
    k = len(spread.own)
    if k == len(eigenvalues):
        return Summary(np.maximum(eigenvalues, 0.0), np.zeros(k))
    rest = float(eigenvalues[k:].mean())
    seen = np.maximum(eigenvalues[:k] - rest, 0.0)
    total = spread.cross.sum(axis=1)
    true = (seen + np.sqrt(np.maximum(np.square(seen) - 4 * total, 0.0))) / 2
    shrink = true / np.maximum(seen, 1e-300)
    gaps = shrink[:, None] * (eigenvalues[:k, None] - eigenvalues[None, k:])
    gaps = np.maximum(gaps, 0.0)
    # A vector can turn no further than to the other axis.
    turned = spread.cross / np.maximum(np.square(gaps) + spread.cross, 1e-300)
    lost = np.minimum((gaps * turned).sum(axis=1), true)
    return Summary(np.maximum(rest + true - lost, 0.0), lost)
