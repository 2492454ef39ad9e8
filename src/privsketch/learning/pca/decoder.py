"""Decode principal components from noisy second moments, with their errors.

To first order an error E of the second-moment matrix moves the eigenvalue of v by v'E v, and turns
v towards q by q'E v / gap. A fit of rank r errs only along its tangents

    (v_a v_b' + v_b v_a') / sqrt 2,   (v_a q' + q v_a') / sqrt 2,   the isotropic rest,

which are an orthonormal set. Let J be their values, whitened for noise and remainder, and t the
variance of the remainder. The errors along the tangents have the covariance (J'J)^-1 - t I: the
remainder along a tangent belongs to the matrix, and is no error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._base.threads import one_thread
from privsketch._base.types import Bits, Floats
from privsketch.design.pca import cross_variance, robust_gain
from privsketch.design.validity import pca_unknowns, require_components
from privsketch.learning.pca.fits import (
    CONVEX_ITERATIONS,
    CONVEX_TOLERANCE,
    Factors,
    RemainderFit,
    fit_with_remainder,
    refit,
)
from privsketch.learning.pca.problem import (
    EntryMeasurements,
    Observations,
    PCAProblem,
    QuadraticMeasurements,
    observations_of,
)
from privsketch.learning.pca.search import Search, supported_components

PCA_METHODS = ("auto", "burer-monteiro", "convex")
SAFE_RATIO = 2.0  # values per unknown of a well determined fit
VISIBLE_ERRORS = 4.0  # standard errors that are visible
MAX_TANGENT_NUMBERS = 4 * 10**6  # of J; for more, averages over directions replace it


@dataclass(frozen=True, eq=False)
class PCASolution:
    """Principal components, in the records' units, per record.

    Attributes
    ----------
    components : (k, dim) float64
        Orthonormal rows, in order of variance.
    explained_variance, standard_errors : (k,) float64
    total_variance, noise_variance : float
        Variance of all columns together, and mean variance per remaining direction.
    lost_variance : float
        Share of the variance along the best k components that these are expected to miss.
    standing_out : int
        Number of components that stand out of the noise, among those that were tested.
    residual, expected_residual : float
        Squared misfit, in units of the noise, of the requested components, others that stand out,
        and an isotropic part.
    mean : (dim,) float64 or None
        Offset of the mean from the center of the domain; None if it was not released.
    too_few : bool
        Whether there are too few records for any result.
    method : {"eigenvectors", "burer-monteiro", "convex"}
    """

    components: Floats
    explained_variance: Floats
    standard_errors: Floats
    total_variance: float
    noise_variance: float
    lost_variance: float
    standing_out: int
    residual: float
    expected_residual: float
    mean: Floats | None
    too_few: bool
    method: str


def decode_pca(
    problem: PCAProblem,
    n_components: int | None,
    rng: np.random.Generator,
    *,
    method: str = "auto",
    planned_components: int = 1,
) -> PCASolution:
    """Fit principal components; the values determine their number if `n_components` is None."""
    with one_thread():
        observations = observations_of(problem)
        dim, size = observations.measurements.dim, observations.measurements.size
        planned = planned_components if n_components is None else n_components
        limit = min(supported_components(dim, size), max(2 * planned, planned + 3))
        search = Search(observations, planned, rng)
        standing = search.standing_out(max(limit, planned))
        k = max(standing, 1) if n_components is None else n_components
        require_components(k, dim, size)
        # Further components that stand out must not bend the requested ones; with few features per
        # unknown they are safer as a remainder.
        rank = max(k, standing)
        if not isinstance(observations.measurements, EntryMeasurements):
            rank = max(k, min(standing, supported_components(dim, size, SAFE_RATIO)))
        fit, name = _fit(search, rank, method)
        factors, matrix = fit.factors, fit.matrix
        eigenvalues, axes = np.linalg.eigh(matrix)
        eigenvalues, axes = eigenvalues[::-1], axes[:, ::-1]
        n_records, max_variance = observations.n_records, observations.radius**2
        spread = spread_of(observations, fit, axes, k)
        summary = summarise(eigenvalues, spread)
        total = min(max(float(np.trace(matrix)), 0.0), n_records * max_variance)
        order = np.argsort(-summary.explained, kind="stable")
        explained = _plausible(summary.explained[order], total, dim)
        errors = np.sqrt(spread.diagonal[order] + _sampling(observations, explained, axes.T[order]))
        lost = float(summary.lost.sum())
        best = float(explained.sum()) + lost
        remaining = max(total - float(explained.sum()), 0.0) / max(dim - k, 1)
        misfit, expected = _misfit(observations, factors)
        return PCASolution(
            components=signed(axes.T[order]),
            explained_variance=explained / n_records,
            standard_errors=np.minimum(errors / n_records, max_variance),
            total_variance=total / n_records,
            noise_variance=remaining / n_records if k < dim else 0.0,
            lost_variance=min(lost / best, 1 - k / dim) if best > 0 else 1 - k / dim,
            standing_out=standing,
            residual=misfit,
            expected_residual=expected,
            mean=observations.mean,
            too_few=_too_few(observations, spread.diagonal, standing),
            method=name,
        )


def _sampling(observations: Observations, explained: Floats, components: Floats) -> Floats:
    """Return variances of explained sums, (k,), from sampling and from the number of records.

    The sums are divided by this number, and the square of the mean twice.
    """
    by_count = explained
    if observations.mean is not None:
        by_count = explained - observations.n_records * np.square(components @ observations.mean)
    sampling = np.square(explained) * 2 / observations.effective_records
    return np.asarray(sampling + np.square(observations.count_deviation * by_count))


def _too_few(observations: Observations, diagonal: Floats, standing: int) -> bool:
    """Return whether even records on the edge of the domain, in one direction, would hardly show.

    It also holds if there may be next to no records: none if no component stands out.
    """
    error = np.sqrt(float(np.mean(diagonal))) / (observations.n_records * observations.radius**2)
    max_deviation = (1 if standing == 0 else 2) / VISIBLE_ERRORS
    return bool(error > 1 / VISIBLE_ERRORS or observations.count_deviation > max_deviation)


def _plausible(explained: Floats, total: float, dim: int) -> Floats:
    """Return descending variances, each between the average and the total of what remains.

    A component that drowns in the noise gets the average of all directions.
    """
    result = np.empty(len(explained))
    remaining = total
    for k, value in enumerate(explained):
        result[k] = min(max(float(value), remaining / (dim - k)), remaining)
        remaining -= result[k]
    return result


def _fit(search: Search, rank: int, method: str) -> tuple[RemainderFit, str]:
    """Return the fit of a matrix, and the name of the method."""
    observations = search.observations
    measurements = observations.measurements
    if method == "convex":
        fit = search.convex(CONVEX_ITERATIONS, CONVEX_TOLERANCE)
        factors = refit(measurements, search.squares, fit, rank)
        return RemainderFit(factors, 0.0, search.squares, factors.matrix()), "convex"
    if isinstance(measurements, EntryMeasurements) and observations.exact_law:
        # Every direction is measured: eigenvectors of the matrix itself, no model.
        matrix = measurements.matrix_of(observations.values)
        return RemainderFit(search.fit(rank), 0.0, search.loss, matrix), "eigenvectors"
    unknowns = pca_unknowns(rank, measurements.dim)
    return fit_with_remainder(observations, search.fit(rank), unknowns), "burer-monteiro"


def _misfit(observations: Observations, factors: Factors) -> tuple[float, float]:
    """Return squared residuals in units of the noise, and their expectation."""
    measurements = observations.measurements
    residuals = observations.values - factors.values(measurements)
    free = max(measurements.size - pca_unknowns(factors.rank, measurements.dim), 1)
    sampling = 2 * factors.isotropic**2 / observations.effective_records
    further = sampling * measurements.gram_diagonal + observations.mean_spread()
    inflation = 1 + float(np.mean(further / observations.variances))
    return float((np.square(residuals) / observations.variances).sum()), free * inflation


def signed(components: Floats) -> Floats:
    """Return components whose largest coordinate is positive: a reproducible sign."""
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return np.asarray(components * np.where(signs == 0, 1.0, signs)[:, None])


@dataclass(frozen=True, eq=False)
class Spread:
    """Variances of the errors of a second-moment matrix.

    Attributes
    ----------
    diagonal : (k,) float64
        Variances of v_a'E v_a.
    cross : (k, dim - k) float64
        Variances of q'E v_a for every other axis q.
    """

    diagonal: Floats
    cross: Floats


def spread_of(observations: Observations, fit: RemainderFit, axes: Floats, k: int) -> Spread:
    """Return errors of a fit whose matrix has these axes, (dim, dim) in columns."""
    spread = _spread_by_noise(observations, fit, axes, k)
    if observations.mean is None:
        return spread
    # mu e' + e mu' for errors e of the sum of the records: e has no preferred direction.
    along = np.square(axes.T @ observations.mean) * observations.mean_variance
    return Spread(spread.diagonal + 4 * along[:k], spread.cross + along[:k, None] + along[None, k:])


def _spread_by_noise(observations: Observations, fit: RemainderFit, axes: Floats, k: int) -> Spread:
    """Return the errors that the noise of the values causes."""
    measurements = observations.measurements
    dim, size = measurements.dim, measurements.size
    rank = fit.factors.rank
    unknowns = pca_unknowns(rank, dim)
    gain = robust_gain(observations.noise, unknowns / size)
    if isinstance(measurements, EntryMeasurements):
        return _of_entries(observations, measurements.on_diagonal, axes, k, gain)
    if isinstance(measurements, QuadraticMeasurements) and size * unknowns <= MAX_TANGENT_NUMBERS:
        spread = _of_tangents(measurements, fit, axes, k, gain)
        if spread is not None:
            return spread
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
    observations: Observations, on_diagonal: Bits, axes: Floats, k: int, gain: float
) -> Spread:
    """Return errors from independent entries: the variance of q'E v is a sum over them."""
    variances = gain * observations.variances
    diagonal, off = float(variances[on_diagonal].mean()), float(variances[on_diagonal].mean()) / 2
    if not on_diagonal.all():
        off = float(variances[~on_diagonal].mean())
    squares = np.square(axes)
    common = squares[:, :k].T @ squares  # sum of v_i^2 q_i^2
    cross = off + common[:, k:] * (diagonal - 2 * off)
    return Spread(2 * off + np.diagonal(common) * (diagonal - 2 * off), cross)


def _of_tangents(
    measurements: QuadraticMeasurements, fit: RemainderFit, axes: Floats, k: int, gain: float
) -> Spread | None:
    """Return errors from the covariance along the tangents; None if it is singular."""
    rank = fit.factors.rank
    products = measurements.vectors @ axes
    first, second = np.triu_indices(rank, m=products.shape[1])
    columns = products[:, first] * products[:, second]
    columns[:, first != second] *= np.sqrt(2)
    n_tangents = columns.shape[1]
    if rank < products.shape[1]:
        isotropic = np.square(products[:, rank:]).sum(axis=1) / np.sqrt(products.shape[1] - rank)
        columns = np.column_stack([columns, isotropic])
    columns = fit.loss.whiten(columns)
    try:
        covariance = np.linalg.inv(columns.T @ columns)
    except np.linalg.LinAlgError:
        return None
    variances = np.diagonal(covariance)[:n_tangents] * gain
    variances = np.maximum(variances - fit.variance, 1e-6 * np.abs(variances))
    if not np.isfinite(variances).all():
        return None
    table = np.zeros((rank, products.shape[1]))
    table[first, second] = variances
    return Spread(np.diagonal(table)[:k].copy(), table[:k, k:] / 2)


@dataclass(frozen=True, eq=False)
class Summary:
    """Variances along the components found.

    Attributes
    ----------
    explained : (k,) float64
        Variance of the records along each component.
    lost : (k,) float64
        Expected shortfall from the variance of the best component.
    """

    explained: Floats
    lost: Floats


def summarise(eigenvalues: Floats, spread: Spread) -> Summary:
    """Return variances along the components from eigenvalues (dim,), descending.

    Noise enlarges the first eigenvalues. One that is t above the average of the last becomes
    t + N / t, where N is the sum of variances towards all other axes, and its vector holds
    t - N / t (spiked random matrices: F. Benaych-Georges, R. Nadakuditi, 2011).
    """
    k = len(spread.diagonal)
    if k == len(eigenvalues):
        return Summary(np.maximum(eigenvalues, 0.0), np.zeros(k))
    isotropic = float(eigenvalues[k:].mean())
    observed = np.maximum(eigenvalues[:k] - isotropic, 0.0)
    total = spread.cross.sum(axis=1)
    true = (observed + np.sqrt(np.maximum(np.square(observed) - 4 * total, 0.0))) / 2
    shrink = true / np.maximum(observed, 1e-300)
    gaps = shrink[:, None] * (eigenvalues[:k, None] - eigenvalues[None, k:])
    gaps = np.maximum(gaps, 0.0)
    # A vector can turn at most to the other axis.
    turned = spread.cross / np.maximum(np.square(gaps) + spread.cross, 1e-300)
    lost = np.minimum((gaps * turned).sum(axis=1), true)
    return Summary(np.maximum(isotropic + true - lost, 0.0), lost)
