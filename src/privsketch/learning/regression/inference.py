"""Coefficients to predict with, and coefficients with errors to infer with.

The posterior mean predicts best, but it is drawn towards zero, by an amount that depends on the
truth. Intervals are therefore about a second estimate: least squares along the directions whose
variance stands out of the noise, and the posterior mean along the others. On the noisy sums G of
(1, z)(1, z)', with columns D for the intercept and for the strong directions,

    beta = H D'G u,  H = (D'G D)^-1,  u = target minus what the weak directions explain,

and v = u - D beta gives the residuals v'(1, z). To first order in the noise N of G, beta errs by
H D'N v, whose covariance is exact for independent entries. Sampling adds the variance of the
residuals times H, and a weak direction the variance of its posterior. Count, mean and intercept are
part of G, so they need no formula of their own.

Sums of fitted values are too large by what the fit has learned of the noise. For a linear fit b =
F c Stein's identity gives that excess; F is the average filter of the posterior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats
from privsketch.learning.moments import Moments
from privsketch.learning.regression.posterior import Posterior, posterior_of
from privsketch.learning.regression.problem import LinearProblem

MIN_EXPLAINED = 0.02  # share of the variance below which nothing may be explained at all
MIN_VISIBLE = 20.0  # standard deviations of its noise that a sum of squares needs then
MIN_RESIDUAL = 1e-6  # least residual sum of squares, relative to that of the target
MIN_VARIANCE = 1e-9  # of a column, relative to the squared radius
MAX_COUNT_ERROR = 0.25  # of the number of records: beyond it nothing is known per record


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A coordinate as a linear function of k others, all about the center of the domain.

    Attributes
    ----------
    mean : (k + 1,) float64
        Mean of the predictors, within the shares that labels can have, then of the target, to
        predict with.
    coef, spread : (k,), (k, k) float64
        Posterior mean and covariance.
    estimate : (k + 1,) float64
        Intercept at the center, then coefficients, without shrinkage.
    covariance : (k + 1, k + 1) float64
        Covariance of `estimate`, by noise and sampling.
    influence : (dim + 1, k + 1) float64
        D H for intercept and coefficients: `estimate` moves by influence'N v for noise N.
    unexplained : (dim + 1,) float64
        v, with residuals v'(1, z) of the unshrunk fit.
    strong : (k, k) float64
        Projection on the strong directions.
    residuals : (dim + 1,) float64
        v, with residuals v'(1, z) of the posterior mean.
    residual_variance, residual_error, target_variance : float
        Variances per record, and the standard error of the first.
    r2, r2_error : float
    residual_square : float
        v'Gv of the unshrunk fit.
    explained, covered, covered_error : float
        Variance of the fitted values, and their covariance with the target with its error, all
        without what the fit learned of the noise.
    drowned : bool
        Whether noise leaves nothing to say about the target.
    """

    mean: Floats
    coef: Floats
    spread: Floats
    estimate: Floats
    covariance: Floats
    influence: Floats
    unexplained: Floats
    strong: Floats
    residuals: Floats
    residual_variance: float
    residual_error: float
    target_variance: float
    r2: float
    r2_error: float
    residual_square: float
    explained: float
    covered: float
    covered_error: float
    drowned: bool


@dataclass(frozen=True, eq=False)
class Estimate:
    """The part of `LinearFit` to infer with."""

    estimate: Floats
    covariance: Floats
    influence: Floats
    unexplained: Floats
    strong: Floats
    residual_square: float


def fit_linear(problem: LinearProblem) -> LinearFit:
    """Fit a linear function to the sums of a problem."""
    moments, noise, basis = problem.moments, problem.noise, problem.basis
    n_records, square = moments.n_records, problem.square
    posterior = posterior_of(
        problem.matrix, problem.products, square, n_records / moments.repetition, noise
    )
    b, trace = posterior.mean, float(np.trace(posterior.filter))
    # -E b'N b of a ridge: the fit follows the noise of the matrix as well as that of c.
    excess = 2 * noise.matrix**2 * (trace * (b @ b) + b @ posterior.filter @ b)
    fitted = float(b @ problem.matrix @ b + excess)
    covered = float(b @ problem.products - noise.products**2 * trace)
    variance = max(square, noise.square) / n_records
    residual = (square - 2 * covered + fitted) / n_records
    residual = min(max(residual, 0.0), variance)
    squares = np.append(np.square(basis @ b), 1.0)
    error = math.sqrt(2 * squares @ problem.variance @ squares)  # at most that of v'N v
    r2, r2_error = _explained_share(problem, squares, residual, variance)
    unshrunk = infer(problem, posterior)
    center = problem.likely_center
    mean = np.append(basis @ (basis.T @ center[:-1]), center[-1])
    return LinearFit(
        mean=mean,
        coef=basis @ b,
        spread=basis @ posterior.covariance @ basis.T,
        estimate=unshrunk.estimate,
        covariance=unshrunk.covariance,
        influence=unshrunk.influence,
        unexplained=unshrunk.unexplained,
        strong=unshrunk.strong,
        residuals=_residuals(problem, b),
        residual_variance=residual,
        residual_error=error / n_records,
        target_variance=variance,
        r2=r2,
        r2_error=r2_error,
        residual_square=unshrunk.residual_square,
        explained=max(fitted / n_records, 0.0),
        covered=covered / n_records,
        covered_error=noise.products * math.sqrt(b @ b) / n_records,
        drowned=_is_drowned(problem, fitted / n_records, variance),
    )


def _residuals(problem: LinearProblem, b: Floats) -> Floats:
    """Return v, (dim + 1,), with residuals v'(1, z) about their mean for coefficients b."""
    coef = problem.basis @ b
    v = np.zeros(len(problem.moments.matrix))
    v[problem.predictors], v[problem.target] = -coef, 1.0
    v[0] = -(problem.center[-1] - problem.center[:-1] @ coef)
    return v


def _explained_share(
    problem: LinearProblem, squares: Floats, residual: float, variance: float
) -> tuple[float, float]:
    """Return R^2 and its standard error, by noise and by sampling, for squares of v, (k + 1,).

    The noise of the residual sum of squares v'N v and that of the target's share an entry.
    """
    moments, n_records = problem.moments, problem.moments.n_records
    share = min(max(1 - residual / variance, 0.0), 1.0)
    noise = 2 * squares @ problem.variance @ squares - np.diag(problem.variance) @ squares**2
    of_target = problem.noise.square**2
    noise += of_target * ((1 - share) ** 2 - 2 * (1 - share))
    sampling = 4 * share * (1 - share) ** 2 * moments.repetition / n_records
    return share, math.sqrt(max(float(noise), 0.0) / (n_records * variance) ** 2 + sampling)


def _is_drowned(problem: LinearProblem, fitted: float, variance: float) -> bool:
    """Return whether noise leaves nothing to say about the target, or about the records at all.

    Then next to nothing is explained of a sum of squares that may itself be noise.
    """
    moments = problem.moments
    visible = moments.n_records * variance > MIN_VISIBLE * problem.noise.square
    of_count = math.sqrt(float(moments.variance[0, 0])) / moments.n_records
    unexplained = fitted < MIN_EXPLAINED * variance and not visible
    return bool(unexplained or of_count > MAX_COUNT_ERROR)


def infer(problem: LinearProblem, posterior: Posterior) -> Estimate:
    """Return the estimate without shrinkage along strong directions, and its covariance."""
    moments, basis = problem.moments, problem.basis
    values, axes = np.linalg.eigh(problem.matrix)
    strong = values > problem.noise.edge * math.sqrt(len(values))
    along, across = basis @ axes[:, strong], basis @ axes[:, ~strong]
    weak = axes[:, ~strong].T @ posterior.mean
    size, n_strong = len(moments.matrix), int(strong.sum())
    design, v = np.zeros((size, n_strong + 1)), np.zeros(size)
    design[0, 0], design[problem.predictors, 1:] = 1.0, along
    v[problem.predictors], v[problem.target] = -across @ weak, 1.0
    gram = design.T @ moments.matrix @ design
    inverse = np.linalg.pinv(gram, hermitian=True)
    beta = inverse @ (design.T @ moments.matrix @ v)
    v = v - design @ beta
    square = abs(float(moments.matrix[problem.target, problem.target]))
    square = max(float(v @ moments.matrix @ v), MIN_RESIDUAL * square)
    noise = design.T @ moments.noise_along(v) @ design
    sampling = square / max(moments.n_records - len(beta), 1.0) * moments.repetition
    covariance = inverse @ (noise + sampling * gram) @ inverse
    # An error of a weak direction moves the intercept at the center by the mean along it.
    shift = np.vstack([-problem.center[:-1] @ across, across])
    of_weak = axes[:, ~strong].T @ posterior.covariance @ axes[:, ~strong]
    lift = np.zeros((len(basis) + 1, n_strong + 1))
    lift[0, 0], lift[1:, 1:] = 1.0, along
    return Estimate(
        estimate=lift @ beta + np.append(0.0, across @ weak),
        covariance=lift @ covariance @ lift.T + shift @ of_weak @ shift.T,
        influence=design @ inverse @ lift.T,
        unexplained=v,
        strong=along @ along.T,
        residual_square=square,
    )


def partial_correlations(
    fit: LinearFit, moments: Moments, effects: Floats
) -> tuple[Floats, Floats]:
    """Return correlations of the target with terms given all others, and their standard errors.

    `effects` (n_terms, k) are coefficients of terms by those of coordinates. Let x and y be the
    residuals of a term and of the target by all other terms, and S their sums of products. To first
    order noise changes S_ab by a'N b, so that x y / sqrt(xx yy) is linear in N as well. Sampling
    adds (1 - r^2)^2 / n. The error is at least that of the coefficient, relative to its size.
    """
    terms = fit.influence[:, 1:] @ effects.T
    inverse = np.einsum("it,ij,jt->t", terms, moments.matrix, terms)
    inverse = np.maximum(inverse, 1e-300)
    coef = effects @ fit.estimate[1:]
    of_target = np.square(coef) + fit.residual_square * inverse  # yy / xx
    of_target = np.maximum(of_target, 1e-300)
    values = coef / np.sqrt(of_target)
    variances = np.einsum("ti,ij,tj->t", effects, fit.covariance[1:, 1:], effects)
    errors = np.sqrt(np.maximum(variances, 0.0) / of_target)
    diagonal = np.diag(moments.variance)
    for place, value in enumerate(values):
        x = terms[:, place] / inverse[place] * math.sqrt(inverse[place])
        y = fit.unexplained * math.sqrt(inverse[place]) + coef[place] * x
        y /= math.sqrt(of_target[place])
        change = (np.outer(x, y) + np.outer(y, x)) / 2
        change -= value / 2 * (np.outer(x, x) + np.outer(y, y))
        squares = np.square(change)
        noise = 2 * float((moments.variance * squares).sum()) - float(diagonal @ np.diag(squares))
        sampling = (1 - value**2) ** 2 * moments.repetition / moments.n_records
        errors[place] = max(errors[place], math.sqrt(max(noise, 0.0) + sampling))
    return values, errors


def residual_correlations(fit: LinearFit, moments: Moments) -> tuple[Floats, Floats]:
    """Return correlations of the residuals with all coordinates, (dim,), and their errors.

    Both are released numbers: sums G v of the residuals with coordinates, which least squares makes
    0 for predictors. One that differs from 0 by several errors is what the fit leaves out. The
    error has the noise of the sum, and 1 / sqrt(n) by sampling.
    """
    n_records, v = moments.n_records, fit.residuals
    mean = moments.matrix[0, 1:] / n_records
    of_all = moments.matrix @ v
    sums = of_all[1:] - mean * of_all[0]
    variances = np.diag(moments.matrix)[1:] / n_records - np.square(mean)
    least = np.sqrt(np.diag(moments.variance)[1:]) / n_records
    floor = MIN_VARIANCE * moments.radius**2  # a column may be constant, or noise may say so
    left = max(fit.residual_variance, fit.residual_error, floor)
    scale = np.sqrt(np.maximum(variances, np.maximum(least, floor)) * left)
    change = np.column_stack([-mean, np.eye(len(mean))])
    noise = np.einsum("ij,jk,ik->i", change, moments.noise_along(v), change)
    errors = np.sqrt(np.maximum(noise, 0.0)) / n_records / scale
    sampling = moments.repetition / n_records
    correlations = np.clip(sums / n_records / scale, -1.0, 1.0)
    return correlations, np.minimum(np.sqrt(np.square(errors) + sampling), 1.0)
