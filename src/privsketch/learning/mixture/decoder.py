"""Decode a Gaussian mixture: search until the sketch is explained, then shrink.

Chi-square says whether a mixture explains the sketch: if it does not, the search is run
again from other particles, until one explains it or the best one has come up twice. The
covariances of the best one borrow from each other what the sketch leaves vague
(`shrinkage.py`). Where no mixture explains the sketch, its misfit counts as further noise
(quasi-likelihood: errors grow by the square root of chi-square per degree of freedom).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privsketch._typing import Floats
from privsketch.design.unknowns import CovarianceType
from privsketch.errors import ParameterError
from privsketch.learning.mixture.distortion import Project, make_distortion
from privsketch.learning.mixture.gauss_newton import moved
from privsketch.learning.mixture.gaussians import Gaussians
from privsketch.learning.mixture.search import POLISH_STEPS, Candidate, Search
from privsketch.learning.mixture.shrinkage import log_variance_prior, shrinking_step
from privsketch.learning.mixture.standard_errors import error_covariance
from privsketch.learning.problem import Problem
from privsketch.learning.threads import one_thread

DEFAULT_STARTS = 5
DOUBTFUL = 3.0  # standard deviations of chi-square above which the search goes on
CUT = 0.02  # share outside the domain above which one search is not enough
CUT_STARTS = 3
SAME = 0.01  # of chi-square: difference of the scores of two runs with the same end


@dataclass(frozen=True)
class MixtureSolution:
    """A mixture that explains a sketch.

    Attributes
    ----------
    gaussians : Gaussians
        Weights in records, means relative to the domain's centre, sorted by mean.
    standard_errors : (n_components, dim) float64
        Of the means, from noise, sampling and, where there is one, misfit.
    chi_square : float
        What is left of the sums, in units of the covariance of noise and sampling.
    degrees_of_freedom : int
        What it would be on average if the mixture were the truth.
    outside_share : float
        Share of the mixture's records outside the domain.
    n_starts : int
        Searches that were run.
    """

    gaussians: Gaussians
    standard_errors: Floats
    chi_square: float
    degrees_of_freedom: int
    outside_share: float
    n_starts: int


def decode_mixture(
    problem: Problem,
    n_components: int,
    covariance_type: CovarianceType,
    rng: np.random.Generator,
    *,
    n_starts: int = DEFAULT_STARTS,
    project: Project | None = None,
    dither: Floats | None = None,
) -> MixtureSolution:
    """Fit a mixture of `n_components` Gaussians to a sketch.

    Parameters
    ----------
    problem : Problem
        The sketch.
    n_components : int
        At least 1.
    covariance_type : {"full", "tied", "diag", "spherical"}
    rng : numpy.random.Generator
        Places the first particles. The result is a function of its state.
    n_starts : int
        Searches at most.
    project : callable, optional
        Moves points (n, dim) to the nearest point of the domain, as was done with the
        records, in the coordinates of the problem; to the box of the problem if left out.
    dither : (n_features,) float64, optional
        Radians, for sketches of signs; their harmonics are then accounted for.
    """
    if project is None:

        def project(points: Floats) -> Floats:
            return np.clip(points, problem.low, problem.high)

    # The matrix products are small: threads would cost more than they bring.
    with one_thread():
        distortion = make_distortion(project, len(problem.low), dither, rng)
        search = Search(problem, n_components, covariance_type, distortion, rng)
        best, count = find_best(search, n_starts)
        return finish(search, best, count)


def find_best(search: Search, n_starts: int) -> tuple[Candidate, int]:
    """Search until a run explains the sketch or the best has come up twice.

    Where the edge cuts a cluster, two narrow components may pass for it: then more
    searches are worth their time.
    """
    if n_starts < 1:
        raise ParameterError(f"n_starts={n_starts}: at least one start is needed")
    freedom = search.degrees_of_freedom
    limit = freedom + DOUBTFUL * np.sqrt(2 * freedom)
    best = search.polish(*search.descend_and_prune(0, search.sums))
    count = 1
    while count < n_starts:
        is_cut = best.outside_share > CUT
        if best.fit.chi_square <= limit and (count >= CUT_STARTS or not is_cut):
            break
        # A later search profits from what the best one says about the distortion.
        found = search.polish(*search.descend_and_prune(count, best.sums))
        count += 1
        same = abs(found.score - best.score) < SAME * best.fit.chi_square
        if found.score < best.score:
            best = found
        if same and not is_cut:
            break
    return best, count


def finish(search: Search, best: Candidate, n_starts: int) -> MixtureSolution:
    """Errors of the best fit, and a last fit with shrinkage."""
    dispersion = max(best.fit.chi_square / search.degrees_of_freedom, 1.0)
    best = replace(best, weighting=best.weighting.scaled(dispersion))
    best = replace(best, fit=search.newton(best, POLISH_STEPS))
    errors = errors_of(search, best, dispersion)
    half_widths = (search.problem.high - search.problem.low) / 2
    prior = log_variance_prior(best.fit.gaussians, errors, half_widths)
    if best.weighting.factor.ndim == 2:
        best = replace(best, fit=search.newton(best, POLISH_STEPS, prior))
        if best.sums is not search.sums:
            best = search.correct(best, prior)
        errors = errors_of(search, best, dispersion)
        found = best.fit.gaussians
    else:
        step = shrinking_step(best.fit.gaussians, errors, prior)
        found = moved(best.fit.gaussians, step, search.limits)
    size, dim = found.means.shape
    variances = np.diag(errors)[size : size * (dim + 1)].reshape(size, dim)
    order = np.lexsort(found.means.T[::-1])
    found = replace(found, weights=found.weights * search.unit).subset(order)
    return MixtureSolution(
        gaussians=found,
        standard_errors=np.sqrt(variances)[order],
        chi_square=best.fit.chi_square * dispersion,
        degrees_of_freedom=search.degrees_of_freedom,
        outside_share=best.outside_share,
        n_starts=n_starts,
    )


def errors_of(search: Search, found: Candidate, dispersion: float) -> Floats:
    """Covariance of the errors of the fit's variables, a misfit taken for further noise."""
    n_records = float(found.fit.gaussians.weights.sum()) * search.unit
    return error_covariance(
        found.fit,
        found.sums,
        found.weighting,
        n_records=n_records * search.problem.repetition * dispersion,
        noise_variance=search.problem.noise_variance * dispersion,
        unit=search.unit,
        rng=search.rng,
    )
