"""One search for a mixture: from round atoms to a fit of the sketch's numbers.

The joint decoder places more atoms than components are asked for; their covariances are
freed and the surplus is pruned away, with a descent after every step. (Exactly as many
atoms as components get stuck in half of the runs.) Then come Gauss-Newton steps on the
generalised least squares cost, in turn with what the edge of the domain and the
harmonics of signs do to the mixture found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.types import Floats
from privsketch.design.size import CovarianceType, mixture_unknowns
from privsketch.learning.kmeans.joint import run_start, whole_box
from privsketch.learning.mixture.covariance import Weighting, make_weighting
from privsketch.learning.mixture.descent import Limits, descend, make_limits, remove_cheapest
from privsketch.learning.mixture.distortion import Distortion
from privsketch.learning.mixture.gauss_newton import Fit, Prior, Tilt, gauss_newton, variables
from privsketch.learning.mixture.gaussians import Gaussians, Sums, from_variances, make_sums
from privsketch.learning.problem import Problem, make_target
from privsketch.learning.refine import Overview, find_overview

SURPLUS = 0.3  # further atoms per component; at least MIN_SURPLUS
MIN_SURPLUS = 3  # by trial, as SURPLUS; with none half of the searches get stuck
REMOVED_AT_ONCE = 4  # one out of so many surplus components
# Which way the last surplus component goes in each search, from the cheapest: two components
# on a cluster that the edge cuts can look dearer than two clusters taken for one.
LAST_RANKS = (0, 1, 0, 2, 1)
FREE_ITERATIONS = 60  # of covariances that were freed, and after each removal; by trial
FINAL_ITERATIONS = 150  # after the last removal; by trial
POLISH_STEPS = 8  # of Gauss-Newton, at most: NEGLIGIBLE ends them; by trial
CORRECTION_STEPS = 3  # of Gauss-Newton, in each of DISTORTION_ROUNDS; by trial
DISTORTION_ROUNDS = 8  # at most: SETTLED ends them; by trial
HARMONIC_ROUNDS = 4  # rough ones, of one-bit sketches only; by trial
SETTLED = 1.0  # squared change of the sums in units of their errors that ends the rounds
UNSETTLED = 1.1  # growth of chi-square that condemns a correction


@dataclass(frozen=True)
class Candidate:
    """The end of one search."""

    fit: Fit
    weighting: Weighting
    sums: Sums  # with the distortion taken out
    tilt: Tilt | None  # how the distortion changes with the fit
    outside_share: float

    @property
    def score(self) -> float:
        """Minus twice the log-likelihood of the sums."""
        return self.fit.chi_square + self.weighting.log_determinant

    def predicted(self) -> Floats:
        """(2 m,) the sums without distortion, as far as the fit foresaw it."""
        if self.tilt is None:
            return self.sums.values
        step = variables(self.fit.gaussians) - self.tilt.origin
        return self.sums.values - self.tilt.slopes @ step


class Search:
    """Everything that the steps of a decode share."""

    def __init__(
        self,
        problem: Problem,
        n_components: int,
        covariance_type: CovarianceType,
        distortion: Distortion,
        rng: np.random.Generator,
    ) -> None:
        self.problem, self.distortion, self.rng = problem, distortion, rng
        self.n_components, self.covariance_type = n_components, covariance_type
        self.overview: Overview = find_overview(problem, rng)
        self.unit = self.overview.weight
        self.sums = make_sums(problem.frequencies, problem.moments / self.unit, covariance_type)
        self.limits: Limits = make_limits(problem.frequencies, problem.low, problem.high)
        # The number of records is one more unknown.
        n_unknowns = mixture_unknowns(n_components, len(problem.low), covariance_type) + 1
        self.degrees_of_freedom = max(2 * len(problem.moments) - n_unknowns, 1)

    def descend_and_prune(self, number: int, sums: Sums) -> tuple[Gaussians, Sums]:
        """One search by plain least squares; every one with another surplus."""
        problem, limits = self.problem, self.limits
        surplus = max(MIN_SURPLUS, round(SURPLUS * self.n_components)) + number
        cosines, sines = sums.values.reshape(2, -1)
        target = make_target(problem.frequencies, cosines + 1j * sines)
        # One Gaussian fitted to few far clusters may settle on one of them.
        overview = self.overview
        origin = whole_box(overview, problem.low, problem.high) if number % 2 else overview
        atoms, _ = run_start(
            target.astype(np.float32),
            origin,
            self.n_components + surplus,
            problem.low,
            problem.high,
            self.rng,
        )
        variances = np.maximum(atoms.variances, 2 * limits.smallest)
        found = from_variances(atoms.weights, atoms.centers, variances, self.covariance_type)
        found, _ = descend(sums, found, limits, n_iterations=FREE_ITERATIONS)
        while found.size > self.n_components:
            surplus = found.size - self.n_components
            rank = LAST_RANKS[number % len(LAST_RANKS)] if surplus == 1 else 0
            for _ in range(max(surplus // REMOVED_AT_ONCE, 1)):
                found = remove_cheapest(sums, found, rank)
            n_iterations = FREE_ITERATIONS if found.size > self.n_components else FINAL_ITERATIONS
            found, _ = descend(sums, found, limits, n_iterations=n_iterations)
        return found, sums

    def weighting(self, gaussians: Gaussians) -> Weighting:
        """Covariance of the sums if this mixture is the truth."""
        return make_weighting(
            self.problem.frequencies,
            gaussians,
            n_records=float(gaussians.weights.sum()) * self.unit * self.problem.repetition,
            noise_variance=self.problem.noise_variance,
            unit=self.unit,
        )

    def polish(self, gaussians: Gaussians, sums: Sums) -> Candidate:
        """Generalised least squares, with the distortion taken out of the sums."""
        if self.distortion.dither is not None:
            # Harmonics exceed the errors by far: without them first, roughly.
            for _ in range(HARMONIC_ROUNDS):
                sums = self.undistorted(gaussians)[0]
                gaussians, _ = descend(sums, gaussians, self.limits, n_iterations=FREE_ITERATIONS)
        weighting = self.weighting(gaussians)
        fit = gauss_newton(sums, gaussians, self.limits, weighting, n_steps=POLISH_STEPS)
        candidate = Candidate(fit, weighting, sums, None, 0.0)
        corrected = self.correct(candidate)
        # A mixture with too much outside may not settle; its correction is worth nothing.
        settled = corrected.fit.chi_square < UNSETTLED * fit.chi_square
        return corrected if settled else candidate

    def undistorted(self, gaussians: Gaussians) -> tuple[Sums, float]:
        """The sums without the distortion this mixture has, and its share outside."""
        shift, share = self.distortion.shift(self.problem.frequencies, gaussians)
        return replace(self.sums, values=self.sums.values - shift), share

    def correct(self, found: Candidate, prior: Prior | None = None) -> Candidate:
        """Take the fitted mixture's distortion out of the sums and fit again, in turn."""
        for _ in range(DISTORTION_ROUNDS):
            gaussians = found.fit.gaussians
            sums, share = self.undistorted(gaussians)
            found = replace(found, outside_share=share)
            change = float(np.sum(found.weighting.whiten(sums.values - found.predicted()) ** 2))
            if change < SETTLED * max(found.fit.chi_square / self.degrees_of_freedom, 1.0):
                break
            tilt = None
            if share > 0:
                slopes = self.distortion.slopes(self.problem.frequencies, gaussians)
                tilt = Tilt(slopes, variables(gaussians))
            fit = self.newton(replace(found, sums=sums, tilt=tilt), CORRECTION_STEPS, prior)
            found = replace(found, fit=fit, sums=sums, tilt=tilt)
        return found

    def newton(self, found: Candidate, n_steps: int, prior: Prior | None = None) -> Fit:
        """Gauss-Newton steps from a candidate."""
        return gauss_newton(
            found.sums,
            found.fit.gaussians,
            self.limits,
            found.weighting,
            n_steps=n_steps,
            prior=prior,
            tilt=found.tilt,
        )
