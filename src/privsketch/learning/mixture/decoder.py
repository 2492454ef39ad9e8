"""Decode a Gaussian mixture: search until the sketch is explained, then fit with a prior.

Chi-square shows whether a mixture explains the sketch. If it does not, the search runs again from
other particles, until a mixture explains the sketch or two searches reach the best one. A misfit of
the best mixture counts as further noise (quasi-likelihood: errors grow by the square root of
chi-square per degree of freedom).

The last fit has a prior (see `prior`), whose center is the Gaussian of all records (see `whole`).
If its mixture does not explain the sketch, a richer one is fitted that may: full covariances, or
twice the components. The answer is then the mixture that is most likely for records of the richer
one (see `samples`), as it would be for the records themselves.

In units of the full covariance of the sums, the covariance of the errors is the inverse of Fisher's
information. Large sketches are fitted in units of variances alone, as if features were independent.
Then the covariance of one record's features comes from draws of the mixture (White's sandwich), and
the mean ratio of both, a number, corrects the weight of the sketch against the prior (Pauli,
Racugno and Ventura 2011).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from privsketch._base.errors import require_count
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.design.size import CovarianceType, mixture_unknowns
from privsketch.facts.layout import Layout
from privsketch.learning.mixture.descent import chart_of, jacobian, place_of_shares
from privsketch.learning.mixture.gaussians import Gaussians
from privsketch.learning.mixture.prior import make_prior, with_hierarchy
from privsketch.learning.mixture.samples import maximise_likelihood, responsibilities_of
from privsketch.learning.mixture.search import Candidate, Project, Search, make_distortion
from privsketch.learning.mixture.whole import moments_of
from privsketch.learning.problem import Problem

MAX_MIXTURE_SEARCHES = 5  # as many as LAST_RANKS distinguishes
MAX_CHI_SQUARE_EXCESS = 3.0  # standard deviations of chi-square above which the search continues
# Share outside the domain from which on the edge cuts a mixture, and least number of searches then:
# python -m benchmarks constants learning CUT_SEARCHES
MIN_CUT_SHARE = 0.02
CUT_SEARCHES = 3
SAME_SCORE = 0.01  # relative to chi-square: difference of the scores of equal mixtures
LAST_STEPS = 30  # Gauss-Newton steps with a prior; a guard: MIN_CHI_SQUARE_FALL ends them
# Public records that a mixture of another shape is fitted to: p unknowns lose p / (2 n) nats, 0.007
# for the 264 unknowns of four full covariances in 10 columns.
LIKELIHOOD_DRAWS = 20_000
ERROR_DRAWS = 2000  # sampled records: variances are known to about sqrt(2 / 2000) = 3 %


@dataclass(frozen=True)
class MixtureSolution:
    """A mixture that explains a sketch.

    Attributes
    ----------
    gaussians : Gaussians
        Weights in records, means relative to the domain's center, sorted by mean.
    means : (n_components, dim) float64
        Means of all coordinates of a record, those of blocks included.
    standard_errors : (n_components, dim) float64
        Standard errors of `means`, from noise, sampling and misfit.
    chi_square : float
        Squared residual in units of the covariance of noise and sampling.
    degrees_of_freedom : int
        Expected chi-square if the records follow the mixture.
    outside_share : float
        Share of the mixture's records outside the domain.
    n_init : int
        Number of searches that ran.
    """

    gaussians: Gaussians
    means: Floats
    standard_errors: Floats
    chi_square: float
    degrees_of_freedom: int
    outside_share: float
    n_init: int


def decode_mixture(
    problem: Problem,
    n_components: int,
    covariance_type: CovarianceType,
    rng: np.random.Generator,
    *,
    n_init: int = MAX_MIXTURE_SEARCHES,
    project: Project | None = None,
    dither: Floats | None = None,
) -> MixtureSolution:
    """Fit a mixture of `n_components` Gaussians to a sketch.

    Parameters
    ----------
    problem : Problem
        The sketch.
    n_components : int
        Number of components, at least 1.
    covariance_type : {"full", "tied", "diag", "spherical"}
    rng : numpy.random.Generator
        Draws the first particles. The result is a function of its state.
    n_init : int
        Maximum number of searches.
    project : callable, optional
        Moves points (n, dim) of numbers to the nearest point of the domain, in the coordinates of
        the problem. The domain is the box of the problem if left out, or if it has blocks.
    dither : (n_features,) float64, optional
        Dither of one-bit sketches in radians; harmonics are then corrected for.
    """
    box = problem.target()
    if project is None or problem.layout is not None:

        def project(points: Floats) -> Floats:
            return np.clip(points, box.low, box.high)

    # The matrix products are small: threads would cost more than they bring.
    with one_thread():
        distortion = make_distortion(project, len(box.low), dither, rng, problem.layout)
        search = Search(problem, n_components, covariance_type, distortion, rng)
        best, count = find_best(search, n_init)
        solution = finish(search, best, count)
        n_richer = n_components if covariance_type != "full" else 2 * n_components
        if not is_richer_worth(search, solution, n_richer):
            return solution
        full = Search(problem, n_richer, "full", distortion, rng)
        richer = finish(full, *find_best(full, n_init))
        return most_likely(search, solution, richer)


def is_richer_worth(search: Search, solution: MixtureSolution, n_components: int) -> bool:
    """Return whether a richer mixture may explain what this one does not."""
    dim = len(search.limits.low)
    if search.problem.layout is not None:
        return False
    freedom = solution.degrees_of_freedom
    limit = freedom + MAX_CHI_SQUARE_EXCESS * np.sqrt(2 * freedom)
    n_unknowns = mixture_unknowns(n_components, dim, "full")
    return solution.chi_square > limit and n_unknowns <= len(search.problem.moments)


def most_likely(
    search: Search, solution: MixtureSolution, richer: MixtureSolution
) -> MixtureSolution:
    """Return the mixture of the type of a solution that is most likely for a richer one.

    It is the solution itself unless the richer one explains the sketch better.
    """
    ratio = solution.chi_square / solution.degrees_of_freedom
    if richer.chi_square / richer.degrees_of_freedom > ratio:
        return solution
    kind = search.covariance_type
    records = draw(richer.gaussians, LIKELIHOOD_DRAWS, search.rng)
    weights = np.full(len(records), float(richer.gaussians.weights.sum()) / len(records))
    fits = []
    starts = (solution, richer)[: 1 + (len(richer.means) == search.n_components)]
    for start in starts:
        share = responsibilities_of(records, start.gaussians)[0]
        fits.append(maximise_likelihood(records, weights, share, kind, search.limits.smallest))
    winner = int(np.argmax([value for _, value in fits]))
    gaussians = fits[winner][0]
    order = np.lexsort(gaussians.means.T[::-1])
    gaussians = gaussians.subset(order)
    return replace(
        solution,
        gaussians=gaussians,
        means=gaussians.means,
        standard_errors=(solution, richer)[winner].standard_errors[order],
    )


def find_best(search: Search, n_init: int) -> tuple[Candidate, int]:
    """Search until a run explains the sketch or two runs reach the best mixture.

    Two narrow components may pass for a cluster that the edge cuts, which justifies more searches.
    """
    require_count("n_init", n_init)
    freedom = search.degrees_of_freedom
    limit = freedom + MAX_CHI_SQUARE_EXCESS * np.sqrt(2 * freedom)
    best = search.polish(*search.descend_and_prune(0, search.sums))
    count = 1
    while count < n_init:
        is_cut = best.outside_share > MIN_CUT_SHARE
        if best.fit.chi_square <= limit and (count >= CUT_SEARCHES or not is_cut):
            break
        # The distortion of the best mixture so far helps a later search.
        candidate = search.polish(*search.descend_and_prune(count, best.sums))
        count += 1
        is_same = abs(candidate.score - best.score) < SAME_SCORE * best.fit.chi_square
        if candidate.score < best.score:
            best = candidate
        if is_same and not is_cut:
            break
    return best, count


def finish(search: Search, best: Candidate, n_init: int) -> MixtureSolution:
    """Return the best mixture after a last fit with shrinkage, and its errors."""
    dispersion = max(best.fit.chi_square / search.degrees_of_freedom, 1.0)
    best = replace(best, weighting=best.weighting.scaled(dispersion))
    if best.weighting.factor.ndim == 1:
        adjust = composite_ratio(search, best, dispersion)
        best = replace(best, weighting=best.weighting.scaled(adjust))
    prior = make_prior(best.fit.gaussians, whole_of(search, best, dispersion))
    best = replace(best, fit=search.newton(best, LAST_STEPS, prior))
    errors = error_covariance(search, best, dispersion)
    half_widths = (search.limits.high - search.limits.low) / 2
    prior = with_hierarchy(prior, best.fit.gaussians, errors, half_widths)
    best = replace(best, fit=search.newton(best, LAST_STEPS, prior))
    if best.sums is not search.sums:
        best = search.correct(best, prior)
    errors = error_covariance(search, best, dispersion)
    gaussians = best.fit.gaussians
    layout = search.problem.layout
    variances = variances_of_means(gaussians, errors, layout)
    order = np.lexsort(np.hstack([gaussians.means, gaussians.shares]).T[::-1])
    gaussians = replace(gaussians, weights=gaussians.weights * search.unit).subset(order)
    return MixtureSolution(
        gaussians=gaussians,
        means=gaussians.means
        if layout is None
        else layout.means(gaussians.means, gaussians.shares),
        standard_errors=np.sqrt(variances)[order],
        chi_square=best.fit.chi_square * dispersion,
        degrees_of_freedom=search.degrees_of_freedom,
        outside_share=best.outside_share,
        n_init=n_init,
    )


def whole_of(search: Search, best: Candidate, dispersion: float) -> Gaussians:
    """Return the Gaussian of all records, near a fit or near the overview, whichever is wider.

    The overview may have settled on one of few distant clusters, and the fit on noise. A mean of
    squared distances of the components beyond that of all records shows that neither Gaussian
    holds them: their means are then added.
    """
    moments = moments_of(best.fit.gaussians)
    near = search.find_whole(moments, best.sums, dispersion)
    again = search.find_whole(search.whole, best.sums, dispersion)
    whole = max(near, again, key=lambda one: float(np.linalg.slogdet(one.covariances[0])[1]))
    steps = best.fit.gaussians.means - moments.means
    shares = best.fit.gaussians.weights / max(float(best.fit.gaussians.weights.sum()), 1e-300)
    between = (steps.T * shares) @ steps
    matrix = whole.covariances[0]
    if np.trace(np.linalg.solve(matrix, between)) <= search.whole.dim:
        return whole
    return replace(whole, means=moments.means, covariances=(matrix + between)[None])


def variances_of_means(gaussians: Gaussians, errors: Floats, layout: Layout | None) -> Floats:
    """Return the variances (size, dim) of the errors of the means of all coordinates.

    Means of a block are linear in its shares.
    """
    size, dim = gaussians.means.shape
    first, last = place_of_shares(gaussians)
    variances = np.diag(errors)[size:first].reshape(size, dim)
    if layout is None:
        return variances
    result = np.empty((size, layout.dim))
    result[:, layout.numbers] = variances
    indices = np.arange(first, last).reshape(size, -1)
    for block, part in layout.parts:
        for row, columns in zip(result, indices[:, part], strict=True):
            inner = errors[np.ix_(columns, columns)]
            row[block.place] = np.einsum("lc,lm,mc->c", block.means, inner, block.means)
    return np.maximum(result, 0.0)


def error_covariance(search: Search, candidate: Candidate, dispersion: float) -> Floats:
    """Return the (p, p) covariance of the errors of weights, means, shares and log entries.

    A misfit counts as further noise: `dispersion` is chi-square per degree of freedom.
    """
    fit = candidate.fit
    chart = chart_of(fit.gaussians, candidate.sums.ends)
    inverse = _inverse(fit.information)
    if candidate.weighting.factor.ndim == 1:
        inverse = sandwich(search, candidate, dispersion, inverse)
    return chart.expand(chart.expand(inverse).T).T


def composite_ratio(search: Search, candidate: Candidate, dispersion: float) -> float:
    """Return the mean ratio of the variance of the errors to that without correlations."""
    information = candidate.fit.information
    errors = sandwich(search, candidate, dispersion, _inverse(information))
    return max(float(np.sum(errors * information)) / len(information), 1e-3)


def sandwich(search: Search, candidate: Candidate, dispersion: float, inverse: Floats) -> Floats:
    """Return the covariance of errors of a fit in units of variances (White's sandwich)."""
    fit, deviations = candidate.fit, candidate.weighting.factor
    sums, problem, unit = candidate.sums, search.problem, search.unit
    slopes = chart_of(fit.gaussians, sums.ends).restrict(jacobian(sums, fit.gaussians))
    gain = inverse @ (slopes / deviations[:, None] ** 2).T  # (p_free, 2 m)
    records = draw(fit.gaussians, ERROR_DRAWS, search.rng, problem.layout)
    phases = records @ problem.frequencies.T
    shifts = np.concatenate([np.cos(phases), np.sin(phases)], axis=1) @ gain.T
    n_records = float(fit.gaussians.weights.sum()) * unit
    sampling = np.atleast_2d(np.cov(shifts.T)) * (n_records * problem.repetition * dispersion)
    noise = problem.noise_variance * dispersion
    return np.asarray((sampling + noise * (gain @ gain.T)) / unit**2)


def draw(
    gaussians: Gaussians, n_draws: int, rng: np.random.Generator, layout: Layout | None = None
) -> Floats:
    """Return independent draws of the mixture, (n_draws, dim)."""
    share = gaussians.weights + 1e-300
    label = rng.choice(gaussians.size, size=n_draws, p=share / share.sum())
    factors = np.linalg.cholesky(gaussians.matrices())
    normal = rng.standard_normal((n_draws, gaussians.dim))
    points = gaussians.means[label]
    for k in range(gaussians.size):
        rows = label == k
        points[rows] += normal[rows] @ factors[k].T
    if layout is None:
        return points
    return layout.records(points, gaussians.shares[label], rng)


def _inverse(information: Floats) -> Floats:
    # Unknowns that the sums do not determine get a huge, but finite, error.
    diagonal = np.diag(information)
    scale = np.sqrt(np.maximum(diagonal, 1e-12 * float(np.max(diagonal)) + 1e-100))
    correlation = information / np.outer(scale, scale)
    ridge = 1e-9
    while True:
        correlation.flat[:: len(correlation) + 1] += ridge
        try:
            inverse = cho_solve(cho_factor(correlation), np.eye(len(scale)))
        except np.linalg.LinAlgError:
            ridge *= 10
            continue
        return np.asarray(inverse / np.outer(scale, scale))
