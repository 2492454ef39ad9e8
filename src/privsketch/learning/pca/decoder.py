"""Principal components from noisy second moments: from numbers to a solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._typing import Floats
from privsketch.design.recipe import pca_unknowns, require_components
from privsketch.learning.pca.convex import MAX_ITERATIONS, TOLERANCE, refit
from privsketch.learning.pca.factors import Factors
from privsketch.learning.pca.loss import Loss, loss_of
from privsketch.learning.pca.measurements import EntryMeasurements
from privsketch.learning.pca.observations import Observations, observations_of
from privsketch.learning.pca.problem import PCAProblem
from privsketch.learning.pca.remainder import fit_with_remainder
from privsketch.learning.pca.search import Search, carried_components
from privsketch.learning.pca.uncertainty import spread_of, summarise
from privsketch.learning.threads import one_thread

METHODS = ("auto", "burer-monteiro", "convex")
SAFE = 2.0  # values per unknown that a fit should have
SHOWING = 4.0  # standard errors that are said to show


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
        Offset of the mean from the centre of the domain, None if it is not known.
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
    n_records, most_variance = observations.n_records, observations.radius**2
    spread = spread_of(observations, loss, remainder, axes, factors.rank, k)
    summary = summarise(eigenvalues, spread)
    total = min(max(float(np.trace(matrix)), 0.0), n_records * most_variance)
    order = np.argsort(-summary.explained, kind="stable")
    explained = _plausible(summary.explained[order], total, dim)
    errors = np.sqrt(spread.own[order] + _sampling(observations, explained, axes.T[order]))
    best = float(explained.sum() + summary.lost.sum())
    rest = max(total - float(explained.sum()), 0.0) / max(dim - k, 1)
    misfit, expected = _misfit(observations, factors)
    return PCASolution(
        components=signed(axes.T[order]),
        explained_variance=explained / n_records,
        standard_errors=np.minimum(errors / n_records, most_variance),
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
