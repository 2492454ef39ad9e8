"""Posterior mean of the coefficients of a regression, from noisy centered sums of products.

The sums are A = sum x x', c = sum x y and yy = sum y^2 over n records, all with noise. With true
coefficients b,

    c - A_noisy b = (noise of c) - (noise of A) b + sum x e,

where e are residuals. Along an eigenvector of A with eigenvalue a_k these have variances

    w_k = sc^2 + so^2 (|b|^2 + b_k^2)   and   (1 - r) Y a_k / n,

if sc and so are the standard deviations of the entries of c and A, Y is the true sum of y^2, and
x explains the share r of it. Independent priors b_k ~ N(0, t_k), with t_k = r Y a_k^-p / sum_j
a_j^(1-p), then give independent Gaussian posteriors. The sum of (x'b)^2 is r Y on average, whatever
p is. For p = 1 each direction explains as much as the others, which is ridge regression; for p = 0
coefficients are of equal size, which is a Wiener filter, bounded where noise has made a_k small or
negative.

Nobody knows r, p and Y, so the posterior is averaged over a grid of them: r and p have uniform
priors, Y the Gaussian law of its noise. Each point of the grid has a closed form. |b|^2 in w_k is
that of the posterior itself, after two rounds that begin with the prior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats

SHAPES = np.array(
    [0.0, 0.5, 1.0]
)  # p: from coefficients of one size to directions that count alike
SHARES = (np.arange(20) + 0.5) / 20  # r: shares of the variance that are explained
STEPS = np.arange(-4, 5) / 2  # Y about its noisy value, in standard deviations of the noise
MIN_SQUARE = 0.02  # least Y, as a share of its upper end: a noisy square may be negative
ROUNDS = 2  # of the variance of the noise, which depends on the coefficients


@dataclass(frozen=True, eq=False)
class Posterior:
    """Average of the posteriors over the grid.

    Attributes
    ----------
    mean : (d,) float64
        Coefficients.
    filter : (d, d) float64
        F, with `mean` near F c: its trace is the number of coefficients that noise leaves.
    covariance : (d, d) float64
    """

    mean: Floats
    filter: Floats
    covariance: Floats


@dataclass(frozen=True)
class EntryNoise:
    """Standard deviations of the noise: of an entry off the diagonal of A, of c, and of yy."""

    matrix: float
    products: float
    square: float

    @property
    def edge(self) -> float:
        """Largest eigenvalue of a symmetric matrix of such noise, per square root of its size."""
        return 2 * self.matrix


def posterior_of(
    matrix: Floats, products: Floats, square: float, n_records: float, noise: EntryNoise
) -> Posterior:
    """Return the posterior of coefficients.

    Parameters
    ----------
    matrix : (d, d) float64
        A, symmetric; noise may have made it indefinite.
    products : (d,) float64
        c.
    square : float
        yy; noise may have made it negative.
    n_records : float
        Number of independent records.
    noise : EntryNoise
        All three above 0.
    """
    values, axes = np.linalg.eigh(matrix)
    along = axes.T @ products
    # Half of the noise's edge: below it an eigenvalue says nothing, and may be negative.
    values = np.maximum(values, noise.edge / 2 * math.sqrt(len(values)))
    prior, left, square_of = _grid(values, square, noise.square)
    sampling = left * square_of / n_records * values
    of_products, of_matrix = noise.products**2, noise.matrix**2
    spread = of_products + of_matrix * (prior.sum(axis=1, keepdims=True) + prior)
    for _ in range(ROUNDS):
        total = spread + sampling
        variance = total + prior * values**2
        mean, remaining = prior * values * along / variance, prior * total / variance
        squares = mean**2 + remaining
        spread = of_products + of_matrix * (squares.sum(axis=1, keepdims=True) + squares)
    evidence = -0.5 * (np.log(variance) + along**2 / variance).sum(axis=1)
    evidence -= 0.5 * ((square_of[:, 0] - square) / noise.square) ** 2
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    average = weights @ mean
    gain = weights @ (prior * values / variance)
    covariance = weights @ (remaining + (mean - average) ** 2)
    return Posterior(axes @ average, (axes * gain) @ axes.T, (axes * covariance) @ axes.T)


def _grid(values: Floats, square: float, deviation: float) -> tuple[Floats, Floats, Floats]:
    """Return the prior variances (g, d), 1 - r (g, 1) and Y (g, 1) at all points of the grid."""
    lowest = MIN_SQUARE * max(square + 2 * deviation, 1e-300)
    squares = np.unique(np.maximum(square + deviation * STEPS, lowest))
    shapes, shares, totals = np.meshgrid(SHAPES, SHARES, squares, indexing="ij")
    p, r, total = shapes.reshape(-1, 1), shares.reshape(-1, 1), totals.reshape(-1, 1)
    relative = values / values.max()  # powers of large numbers overflow
    powers = relative**-p
    prior = r * total * powers / (values * powers).sum(axis=1, keepdims=True)
    return prior, 1 - r, total
