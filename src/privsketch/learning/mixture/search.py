"""One search for a mixture: from round atoms to a fit of the sketch's numbers.

The joint decoder places more atoms than components, because searches with exactly as many may get
stuck. Covariances are then free, and the surplus is pruned with a descent after every step.
Gauss-Newton steps on the generalised least squares cost alternate with corrections of the sums for
two distortions.

The first is the edge of the domain. Records outside are moved to it, so that a component near the
edge is not Gaussian, and a fit of Gaussians would be pulled inwards. The second is the harmonics
of signs (the one-bit map). Both follow from the mixture: the edge's effect from draws outside the
domain, the harmonics in closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import nnls

from privsketch._base.types import Floats
from privsketch.design.size import CovarianceType, mixture_unknowns
from privsketch.facts.layout import Layout
from privsketch.learning.blocks import as_complex
from privsketch.learning.kmeans.joint import run_start, whole_box
from privsketch.learning.mixture.descent import (
    Fit,
    Limits,
    Tilt,
    descend,
    gauss_newton,
    log_changes,
    make_limits,
    place_of_shares,
    share_slopes,
    variables,
)
from privsketch.learning.mixture.gaussians import (
    Gaussians,
    Sums,
    Waves,
    features,
    from_variances,
    make_sums,
    make_waves,
    merge_pairs,
    mixture_moments,
    with_labels,
)
from privsketch.learning.mixture.prior import Prior
from privsketch.learning.mixture.weighting import Weighting, make_weighting
from privsketch.learning.mixture.whole import Coordinates, fit_whole, make_coordinates
from privsketch.learning.problem import Problem
from privsketch.learning.pruning import choose_disjoint, nearest_by_distance, neighbour_pairs
from privsketch.learning.refine import Overview, find_overview

# Atoms beyond the components: a share of these, and a least number.
# python -m benchmarks constants learning SURPLUS_SHARE moves both.
SURPLUS_SHARE = 0.3
MIN_SURPLUS = 3
REMOVED_AT_ONCE = 4  # one of so many surplus components goes in a step
# Rank, from the cheapest, of the removal of the last surplus component in each search: two
# components on a cluster that the edge cuts can look dearer than two clusters taken for one.
LAST_RANKS = (0, 1, 0, 2, 1)
# Iterations with free covariances, at first and after each removal, and after the last removal:
# python -m benchmarks constants learning FREE_ITERATIONS moves both.
FREE_ITERATIONS = 60
LAST_REMOVAL_ITERATIONS = 150
# Gauss-Newton steps of a polish and of a correction, and rounds of corrections for the distortion:
#   python -m benchmarks constants learning POLISH_STEPS
#   python -m benchmarks constants learning CORRECTION_STEPS
#   python -m benchmarks constants learning DISTORTION_ROUNDS
POLISH_STEPS = 8  # a guard: MIN_CHI_SQUARE_FALL ends them
CORRECTION_STEPS = 3
DISTORTION_ROUNDS = 8  # a guard: MAX_LAST_CHANGE ends them
# Rough rounds for one-bit sketches, which later corrections make nearly redundant:
# python -m benchmarks constants learning HARMONIC_ROUNDS
HARMONIC_ROUNDS = 4
MAX_LAST_CHANGE = 1.0  # squared change of the sums, in units of their errors, that ends the rounds
MAX_CHI_SQUARE_GROWTH = 1.1  # a correction that lets chi-square grow more is rejected
PARTNERS_PER_COMPONENT = 4  # merge partners tried per component
REMOVAL_RIDGE = 1e-6  # relative to the largest squared norm; keeps twins invertible
DRAWN_NUMBERS = 100_000  # normal numbers for all draws of a component
MAX_OUTSIDE_DRAWS = 2000  # draws outside the domain per component, fewer if MAX_PHASES binds
MAX_KEPT_NUMBERS = 10**8  # of waves at all harmonics
MAX_PHASES = 5_000_000  # draws x features of all components
# sgn cos t + i sgn sin t = (4 / pi) (exp(it) + exp(-3it) / -3 + exp(5it) / 5 + ...). At the
# lowest frequencies many orders count.
ALL_HARMONICS = tuple(order if order % 4 == 1 else -order for order in range(3, 64, 2))
Project = Callable[[Floats], Floats]


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
        """Return the sums without distortion, (2 m,), to first order in the fit's last steps."""
        if self.tilt is None:
            return self.sums.values
        step = variables(self.fit.gaussians) - self.tilt.origin
        return self.sums.values - self.tilt.slopes @ step


class Search:
    """State that all searches of a decoder share."""

    def __init__(
        self,
        problem: Problem,
        n_components: int,
        covariance_type: CovarianceType,
        distortion: Distortion,
        rng: np.random.Generator,
    ) -> None:
        self.problem, self.distortion, self.rng = problem, distortion, rng
        layout, box = problem.layout, problem.target()
        if len(box.low) == 0:
            covariance_type = "diag"  # without numbers there are no variances
        self.n_components, self.covariance_type = n_components, covariance_type
        self.overview: Overview = find_overview(problem, rng)
        self.unit = self.overview.weight
        moments = problem.moments / self.unit
        self.sums = make_sums(problem.frequencies, moments, covariance_type, layout)
        self.limits: Limits = make_limits(self.sums.frequencies, box.low, box.high)
        dim = len(box.low)
        variances = np.broadcast_to(self.overview.variances, (1, dim))
        start = from_variances(
            np.ones(1), self.overview.center[None], variances, "full", self.overview.shares
        )
        self.whole = self.find_whole(start, self.sums)
        self.coordinates = make_coordinates(self.whole, self.covariance_type)
        # The number of records is one more unknown.
        n_unknowns = mixture_unknowns(n_components, len(box.low), covariance_type) + 1
        n_unknowns += n_components * (len(self.sums.labels) - len(self.sums.ends))
        self.degrees_of_freedom = max(2 * len(problem.moments) - n_unknowns, 1)

    def find_whole(self, start: Gaussians, sums: Sums, dispersion: float = 1.0) -> Gaussians:
        """Return the Gaussian of all records, from a first guess."""
        count = max(float(start.weights.sum()) * self.unit, 1.0) * self.problem.repetition
        deviation = np.sqrt((self.problem.noise_variance + count / 2) * dispersion) / self.unit
        return fit_whole(sums, start, self.limits, deviation)

    def descend_and_prune(self, number: int, sums: Sums) -> tuple[Gaussians, Sums]:
        """Run one search by plain least squares; each search has a different surplus."""
        # One Gaussian that is fitted to few distant clusters may settle on one of them.
        whole = Coordinates.plain(len(self.limits.low)) if number % 2 else self.coordinates
        sums, given = whole.sums(sums, self.covariance_type), sums
        limits = self.limits if number % 2 else whole.limits(sums.frequencies)
        surplus = max(MIN_SURPLUS, round(SURPLUS_SHARE * self.n_components)) + number
        target = replace(
            self.problem.target(),
            frequencies=sums.frequencies,
            squares=np.square(sums.frequencies),
            moments=sums.values,
            low=limits.low,
            high=limits.high,
        ).astype(np.float32)
        origin = whole_box(self.overview, target)
        if not number % 2:
            ones = np.ones(self.overview.variances.shape)
            origin = replace(origin, center=np.zeros(len(limits.low)), variances=ones)
        atoms, _ = run_start(target, origin, self.n_components + surplus, self.rng)
        variances = np.maximum(atoms.variances, 2 * limits.smallest)
        gaussians = from_variances(
            atoms.weights, atoms.centers, variances, self.covariance_type, atoms.shares
        )
        gaussians, _ = descend(sums, gaussians, limits, n_iterations=FREE_ITERATIONS)
        while gaussians.size > self.n_components:
            surplus = gaussians.size - self.n_components
            rank = LAST_RANKS[number % len(LAST_RANKS)] if surplus == 1 else 0
            for _ in range(max(surplus // REMOVED_AT_ONCE, 1)):
                gaussians = remove_cheapest(sums, gaussians, rank, target.sides)
            is_last = gaussians.size == self.n_components
            n_iterations = LAST_REMOVAL_ITERATIONS if is_last else FREE_ITERATIONS
            gaussians, _ = descend(sums, gaussians, limits, n_iterations=n_iterations)
        return whole.back(gaussians, self.limits), given

    def weighting(self, gaussians: Gaussians) -> Weighting:
        """Return the covariance of the sums under this mixture."""
        return make_weighting(
            self.problem.frequencies,
            gaussians,
            n_records=float(gaussians.weights.sum()) * self.unit * self.problem.repetition,
            noise_variance=self.problem.noise_variance,
            unit=self.unit,
            layout=self.problem.layout,
        )

    def polish(self, gaussians: Gaussians, sums: Sums) -> Candidate:
        """Fit by generalised least squares, with the distortion taken out of the sums."""
        if self.distortion.dither is not None:
            # Harmonics far exceed the errors: remove them roughly first.
            for _ in range(HARMONIC_ROUNDS):
                sums = self.undistorted(gaussians)[0]
                gaussians, _ = descend(sums, gaussians, self.limits, n_iterations=FREE_ITERATIONS)
        weighting = self.weighting(gaussians)
        fit = gauss_newton(sums, gaussians, self.limits, weighting, n_steps=POLISH_STEPS)
        candidate = Candidate(fit, weighting, sums, None, 0.0)
        corrected = self.correct(candidate)
        # Corrections of a mixture with too much weight outside the domain may not converge.
        converged = corrected.fit.chi_square < MAX_CHI_SQUARE_GROWTH * fit.chi_square
        return corrected if converged else candidate

    def undistorted(self, gaussians: Gaussians) -> tuple[Sums, float]:
        """Return the sums without this mixture's distortion, and the mixture's share outside."""
        shift, share = self.distortion.shift(self.problem.frequencies, gaussians)
        return replace(self.sums, values=self.sums.values - shift), share

    def correct(self, candidate: Candidate, prior: Prior | None = None) -> Candidate:
        """Alternately subtract the mixture's distortion from the sums and fit again."""
        for _ in range(DISTORTION_ROUNDS):
            gaussians = candidate.fit.gaussians
            sums, share = self.undistorted(gaussians)
            candidate = replace(candidate, outside_share=share)
            change = float(
                np.sum(candidate.weighting.whiten(sums.values - candidate.predicted()) ** 2)
            )
            if change < MAX_LAST_CHANGE * max(
                candidate.fit.chi_square / self.degrees_of_freedom, 1.0
            ):
                break
            tilt = None
            if share > 0:
                slopes = self.distortion.slopes(self.problem.frequencies, gaussians)
                tilt = Tilt(slopes, variables(gaussians))
            fit = self.newton(replace(candidate, sums=sums, tilt=tilt), CORRECTION_STEPS, prior)
            candidate = replace(candidate, fit=fit, sums=sums, tilt=tilt)
        return candidate

    def newton(self, candidate: Candidate, n_steps: int, prior: Prior | None = None) -> Fit:
        """Take Gauss-Newton steps from a candidate."""
        return gauss_newton(
            candidate.sums,
            candidate.fit.gaussians,
            self.limits,
            candidate.weighting,
            n_steps=n_steps,
            prior=prior,
            tilt=candidate.tilt,
        )


def remove_cheapest(
    sums: Sums, gaussians: Gaussians, rank: int = 0, sides: Floats | float = 1.0
) -> Gaussians:
    """Remove one component, with the best weights for the components that stay.

    The removal is the deletion or the merge after which the others explain the sums best. `rank` 1
    selects the cheapest removal that touches other components than the cheapest one does, and so
    on: for twins, deleting either and merging both are equivalent. `sides`, (n_corners,), are the
    distances of the corners of each block.
    """
    size = gaussians.size
    places = np.hstack([gaussians.means, gaussians.shares * sides])
    steps = places[:, None] - places[None]
    nearest = nearest_by_distance(np.square(steps).sum(axis=2), PARTNERS_PER_COMPONENT)
    pairs = neighbour_pairs(nearest)
    candidates = join(gaussians, merge_pairs(gaussians, pairs))
    matrix = features(sums, candidates)
    inner, right = matrix @ matrix.T, matrix @ sums.values
    every = np.arange(size)
    options = [np.delete(every, i) for i in range(size)]
    for number, pair in enumerate(pairs):
        options.append(np.append(np.delete(every, pair), size + number))
    stay = np.array(options, dtype=np.intp)  # (options, size - 1)
    inners = inner[stay[:, :, None], stay[:, None, :]]
    rights = right[stay]
    ridge = REMOVAL_RIDGE * max(float(np.max(np.diag(inner))), 1e-100)
    solved = np.linalg.solve(inners + ridge * np.eye(size - 1), rights[:, :, None])[:, :, 0]
    # Squared length that the best weights explain: the option that explains most is the cheapest.
    order = np.argsort(-np.einsum("oi,oi->o", solved, rights), kind="stable")
    touched = np.vstack([np.stack([every, nearest[:, 0]], axis=1), pairs])
    ranked = choose_disjoint(order, needs=touched, touches=touched, n_options=rank + 1)
    best = stay[ranked[-1]]
    remaining = candidates.subset(best)
    return replace(remaining, weights=_best_weights(inner[np.ix_(best, best)], right[best], ridge))


def join(first: Gaussians, second: Gaussians) -> Gaussians:
    """Return the components of both; a tied covariance is that of the first."""
    covariances = first.covariances
    if first.covariance_type != "tied":
        covariances = np.concatenate([covariances, second.covariances])
    return Gaussians(
        np.concatenate([first.weights, second.weights]),
        np.concatenate([first.means, second.means]),
        covariances,
        first.covariance_type,
        np.concatenate([first.shares, second.shares]),
    )


def _best_weights(inner: Floats, right: Floats, ridge: float) -> Floats:
    """Return non-negative least-squares weights from a Gram matrix."""
    inner = inner + ridge * np.eye(len(inner))
    weights = cho_solve(cho_factor(inner), right)
    if np.any(weights < 0):
        factor = np.linalg.cholesky(inner)
        weights, _ = nnls(factor.T, np.linalg.solve(factor, right))
    return np.asarray(weights, dtype=np.float64)


@dataclass(frozen=True)
class _Outside:
    """Draws of one component outside the domain, and their projections."""

    component: int
    weight: float
    share: float  # of the component
    points: Floats  # (n, dim)
    inside: Floats  # (n, dim)

    def waves(self, frequencies: Floats) -> NDArray[np.float32]:
        """Return cosines and sines, (2 n, 2 m), of the projections and then of the draws.

        Single precision is plenty for an average of draws.
        """
        both = np.concatenate([self.inside, self.points])
        phases = (both @ frequencies.T).astype(np.float32)
        return np.concatenate([np.cos(phases), np.sin(phases)], axis=1)


@dataclass(frozen=True)
class Distortion:
    """The domain's projection, draws that estimate its effect, and the dither of signs.

    Only numbers leave the domain: factors of blocks multiply what its edge does. The same draws
    serve every mixture, so that the effect varies smoothly.
    """

    project: Project  # in the coordinates of the problem
    draws: Floats  # (n, dim) standard normal, in antithetic pairs
    dither: Floats | None  # (m,) radians; None for maps without harmonics
    layout: Layout | None = None  # of records; None if all coordinates are numbers
    kept: dict[int, Waves] = field(default_factory=dict)  # waves at multiples of the frequencies

    def shift(self, frequencies: Floats, gaussians: Gaussians) -> tuple[Floats, float]:
        """Return distorted minus plain moments, (2 m,), and the mixture's share outside."""
        result, share = self._edge(frequencies, gaussians)
        if self.dither is not None:
            result += self._harmonics(frequencies, gaussians, self.dither)
        return result, share

    def _edge(self, frequencies: Floats, gaussians: Gaussians) -> tuple[Floats, float]:
        waves = make_waves(frequencies, gaussians.covariance_type, self.layout)
        rows = np.zeros((gaussians.size, 2 * len(frequencies)))
        weight_outside = 0.0
        for piece in self._outside(waves.frequencies, gaussians):
            weight_outside += piece.weight
            signs = np.repeat(np.array([1.0, -1.0], np.float32), len(piece.points))
            row = piece.weight / len(piece.points) * (signs @ piece.waves(waves.frequencies))
            rows[piece.component] = row
        result = with_labels(rows, waves, gaussians).sum(axis=0)
        return result, weight_outside / max(float(gaussians.weights.sum()), 1e-300)

    def slopes(self, frequencies: Floats, gaussians: Gaussians) -> Floats:
        """Return derivatives of the edge's part of the shift by all variables, (2 m, p).

        A draw x moves with its component: by the step of the mean, and by `dS S^-1 (x - c) / 2` for
        a change dS of the covariance. Differences of projections give the projected steps.
        """
        all_waves = make_waves(frequencies, gaussians.covariance_type, self.layout)
        frequencies = all_waves.frequencies
        m, dim = frequencies.shape
        size = gaussians.size
        first, last = place_of_shares(gaussians)
        changes = log_changes(gaussians)  # (size or 1, q, dim, dim)
        n_logs = changes.shape[1]
        result = np.zeros((2 * m, last + len(changes) * n_logs))
        by_mean = result[:, size:first].reshape(2 * m, size, dim)
        by_log = result[:, last:].reshape(2 * m, len(changes), n_logs)
        rows = np.zeros((size, 2 * m))
        for piece in self._outside(frequencies, gaussians):
            k, n = piece.component, len(piece.points)
            waves = piece.waves(frequencies)
            signs = np.repeat(np.array([1.0, -1.0], np.float32), n)
            change = changes[k if len(changes) > 1 else 0]
            matrix = gaussians.matrices()[k]
            offsets = np.linalg.solve(matrix, (piece.points - gaussians.means[k]).T).T
            steps = np.concatenate(
                [
                    np.repeat(np.eye(dim)[:, None, :], n, axis=1),
                    np.einsum("nb,qab->qna", offsets, change) / 2,
                ]
            )  # (dim + q, n, dim)
            size_of_step = 1e-6 * np.sqrt(np.trace(matrix) / dim)
            flat = (piece.points + size_of_step * steps).reshape(-1, dim)
            projected = (self.project(flat).reshape(steps.shape) - piece.inside) / size_of_step
            both = np.concatenate([projected, -steps], axis=1).transpose(0, 2, 1)
            moved = (both.reshape(-1, 2 * n).astype(np.float32) @ waves).reshape(-1, dim, 2 * m)
            # d cos(w.x) = -sin(w.x) w.dx, d sin(w.x) = cos(w.x) w.dx
            derivative = np.concatenate(
                [
                    -np.einsum("paj,ja->jp", moved[:, :, m:], frequencies),
                    np.einsum("paj,ja->jp", moved[:, :, :m], frequencies),
                ]
            )
            derivative *= piece.weight / n
            rows[k] = piece.share / n * (signs @ waves)
            component = gaussians.subset(np.array([k]))
            derivative = with_labels(derivative.T, all_waves, component).T
            result[:, k] += with_labels(rows[[k]], all_waves, component)[0]
            by_mean[:, k] += derivative[:, :dim]
            by_log[:, k if len(changes) > 1 else 0] += derivative[:, dim:]
        result[:, first:last] = share_slopes(all_waves, gaussians, rows)
        return result

    def _outside(self, frequencies: Floats, gaussians: Gaussians) -> Iterator[_Outside]:
        """Yield the draws outside the domain, component by component."""
        factors = np.linalg.cholesky(gaussians.matrices())
        n_phases = len(frequencies) * gaussians.size
        max_draws = int(np.clip(MAX_PHASES // n_phases, 200, MAX_OUTSIDE_DRAWS))
        for k in np.flatnonzero(gaussians.weights > 0):
            points = gaussians.means[k] + self.draws @ factors[k].T
            inside = self.project(points)
            outside = np.flatnonzero((points != inside).any(axis=1))
            if len(outside):
                share = len(outside) / len(points)
                outside = outside[:max_draws]
                weight = float(gaussians.weights[k]) * share
                yield _Outside(int(k), weight, share, points[outside], inside[outside])

    def _harmonics(self, frequencies: Floats, gaussians: Gaussians, dither: Floats) -> Floats:
        """Return harmonics of the moments, with the dither of the first one removed."""
        total = np.zeros(len(frequencies), dtype=np.complex128)
        for order in ALL_HARMONICS:
            wave = np.exp(1j * (order - 1) * dither) / order
            total += wave * self._moments(order, frequencies, gaussians)
        return np.concatenate([total.real, total.imag])

    def _moments(
        self, order: int, frequencies: Floats, gaussians: Gaussians
    ) -> NDArray[np.complex128]:
        """Return the moments of the mixture at a multiple of the frequencies of the sketch, (m,).

        Waves of cycles are series of Bessel functions, and kept.
        """
        kind = gaussians.covariance_type
        if self.layout is None or not any(block.spread for block in self.layout.blocks):
            return mixture_moments(order * frequencies, gaussians, self.layout)
        waves = self.kept.get(order)
        if waves is None:
            waves = make_waves(order * frequencies, kind, self.layout)
            if waves.labels.size * len(ALL_HARMONICS) <= MAX_KEPT_NUMBERS:
                self.kept[order] = replace(waves, labels=waves.labels.astype(np.float32))
        return as_complex(gaussians.weights @ features(waves, gaussians)).astype(np.complex128)


def make_distortion(
    project: Project,
    dim: int,
    dither: Floats | None,
    rng: np.random.Generator,
    layout: Layout | None = None,
) -> Distortion:
    """Return the distortion of a design, with fresh draws."""
    half = rng.standard_normal((max(DRAWN_NUMBERS // max(2 * dim, 1), 500), dim))
    return Distortion(project, np.concatenate([half, -half]), dither, layout)
