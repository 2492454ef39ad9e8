"""Principal components from noisy second moments: from numbers to a solution.

What a low-rank and an isotropic part leave, as a random matrix of no preferred direction.

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

from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.design.validity import pca_unknowns, require_components
from privsketch.learning.pca.convex import MAX_ITERATIONS, TOLERANCE, refit
from privsketch.learning.pca.factors import Factors, Loss, fit_factors, loss_of
from privsketch.learning.pca.measurements import EntryMeasurements
from privsketch.learning.pca.problem import Observations, PCAProblem, observations_of
from privsketch.learning.pca.search import Search, carried_components
from privsketch.learning.pca.uncertainty import spread_of, summarise

METHODS = ("auto", "burer-monteiro", "convex")
SAFE = 2.0  # values per unknown that a fit should have
SHOWING = 4.0  # standard errors that are said to show
MAX_SIZE = 2000  # values beyond which the covariance of R is cut to its diagonal
ROUNDS = 4  # at most: they end when the variance of R moves by less than 5 %; by trial


@dataclass(frozen=True, eq=False)
class PCASolution:
    """Principal components, in the records' units, per record.

    Attributes
    ----------
    components : (k, dim) float64
        Orthonormal rows, in order of variance.
    explained_variance, standard_errors : (k,) float64
    total_variance, noise_variance : float
        Of all columns together; and mean per direction of what the components leave.
    lost_variance : float
        Expected share of the best k components' variance that these miss.
    standing_out : int
        How many components stand out of the noise, as far as was looked.
    residual, expected_residual : float
        Squared misfit, in units of the noise, of the components asked for, those that stand
        out, and an isotropic part.
    mean : (dim,) float64 or None
        Offset of the mean from the center of the domain, None if it is not known.
    too_few : bool
        Whether there are too few records to say anything.
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
    """Principal components; their number from the values if `n_components` is None."""
    with one_thread():
        return _decode(observations_of(problem), n_components, rng, method, planned_components)


def _decode(
    observations: Observations,
    n_components: int | None,
    rng: np.random.Generator,
    method: str,
    planned: int,
) -> PCASolution:
    dim, size = observations.measurements.dim, observations.measurements.size
    wanted = planned if n_components is None else n_components
    most = min(carried_components(dim, size), max(2 * wanted, wanted + 3))
    most = max(most, wanted)
    search = Search(observations, wanted, rng)
    standing = search.standing_out(most)
    k = max(standing, 1) if n_components is None else n_components
    require_components(k, dim, size)
    # Components that were not asked for, but stand out, must not bend those that were; with
    # few features per unknown they are safer as a remainder.
    is_whole = isinstance(observations.measurements, EntryMeasurements)
    rank = max(k, standing if is_whole else min(standing, carried_components(dim, size, SAFE)))
    factors, matrix, loss, remainder, name = _fit(search, rank, method)
    eigenvalues, axes = np.linalg.eigh(matrix)
    eigenvalues, axes = eigenvalues[::-1], axes[:, ::-1]
    n_records, max_variance = observations.n_records, observations.radius**2
    spread = spread_of(observations, loss, remainder, axes, factors.rank, k)
    summary = summarise(eigenvalues, spread)
    total = min(max(float(np.trace(matrix)), 0.0), n_records * max_variance)
    order = np.argsort(-summary.explained, kind="stable")
    explained = _plausible(summary.explained[order], total, dim)
    errors = np.sqrt(spread.own[order] + _sampling(observations, explained, axes.T[order]))
    best = float(explained.sum() + summary.lost.sum())
    rest = max(total - float(explained.sum()), 0.0) / max(dim - k, 1)
    misfit, expected = _misfit(observations, factors)
    return PCASolution(
        components=signed(axes.T[order]),
        explained_variance=explained / n_records,
        standard_errors=np.minimum(errors / n_records, max_variance),
        total_variance=total / n_records,
        noise_variance=rest / n_records if k < dim else 0.0,
        lost_variance=_share(float(summary.lost.sum()), best, 1 - k / dim),
        standing_out=standing,
        residual=misfit,
        expected_residual=expected,
        mean=observations.mean,
        too_few=_too_few(observations, spread.own, standing),
        method=name,
    )


def _sampling(observations: Observations, explained: Floats, components: Floats) -> Floats:
    """Variances of explained sums, (k,): of Gaussian records, and by their number.

    All are divided by it, and the square of the mean twice.
    """
    by_count = explained
    if observations.mean is not None:
        by_count = explained - observations.n_records * np.square(components @ observations.mean)
    sampling = np.square(explained) * 2 / observations.effective_records
    return np.asarray(sampling + np.square(observations.count_deviation * by_count))


def _too_few(observations: Observations, own: Floats, standing: int) -> bool:
    """Whether records at the edge of the domain, all in one direction, would hardly show.

    Or there may be no records, and nothing stands out; or hardly more than none.
    """
    error = np.sqrt(float(np.mean(own))) / (observations.n_records * observations.radius**2)
    most = 1 / SHOWING if standing == 0 else 2 / SHOWING
    return bool(error > 1 / SHOWING or observations.count_deviation > most)


def _plausible(explained: Floats, total: float, dim: int) -> Floats:
    """Variances, descending, that are no less than the average of what is left, nor more.

    Components that drown in the noise hold what any direction does.
    """
    result = np.empty(len(explained))
    left = total
    for k, value in enumerate(explained):
        result[k] = min(max(float(value), left / (dim - k)), left)
        left -= result[k]
    return result


def _fit(search: Search, rank: int, method: str) -> tuple[Factors, Floats, Loss, float, str]:
    """Factors, estimate of the matrix, loss and remainder, and what the method is called."""
    observations = search.observations
    measurements = observations.measurements
    loss = loss_of(observations)
    if method == "convex":
        fit = search.convex(MAX_ITERATIONS, TOLERANCE)
        factors = refit(measurements, search.squares, fit, rank)
        return factors, factors.matrix(), search.squares, 0.0, "convex"
    if isinstance(measurements, EntryMeasurements) and observations.exact_law:
        # Every direction is measured: eigenvectors of the matrix itself, no model.
        matrix = measurements.matrix_of(observations.values)
        return search.fit(rank), matrix, loss, 0.0, "eigenvectors"
    unknowns = pca_unknowns(rank, measurements.dim)
    found = fit_with_remainder(observations, search.fit(rank), unknowns)
    return found.factors, found.matrix, found.loss, found.variance, "burer-monteiro"


def _misfit(observations: Observations, factors: Factors) -> tuple[float, float]:
    """Squared residuals in units of the noise, and what noise and sampling leave of them."""
    measurements = observations.measurements
    residuals = observations.values - factors.values(measurements)
    free = max(measurements.size - pca_unknowns(factors.rank, measurements.dim), 1)
    sampling = 2 * factors.isotropic**2 / observations.effective_records
    others = sampling * measurements.gram_diagonal + observations.mean_spread()
    inflation = 1 + float(np.mean(others / observations.variances))
    return float((np.square(residuals) / observations.variances).sum()), free * inflation


def _share(lost: float, best: float, most: float) -> float:
    """Lost variance as a share; what random directions would lose is the most."""
    return min(lost / best, most) if best > 0 else most


def signed(components: Floats) -> Floats:
    """Components whose largest coordinate is positive: a sign anyone can reproduce."""
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return np.asarray(components * np.where(signs == 0, 1.0, signs)[:, None])


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
