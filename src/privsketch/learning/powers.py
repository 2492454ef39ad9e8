"""Third powers of residuals, for noise that is uniform in a cube.

Least squares are the best fit under Gaussian noise. Numbers that are uniform in an interval say
most about its middle by their ends: an estimate of least p-th powers of the residuals has
3 / (2 p - 1) of the variance of least squares. High powers ask for the exact ends, which sampling
and a density that is not quite right blur: the fourth gained as much as the third where clusters
explain a sketch, and lost where they do not quite. Sums of several releases are no longer
uniform, and keep their squares.
"""

from __future__ import annotations

import math

import numpy as np

from privsketch._base.types import Floats
from privsketch.learning.problem import Atoms, Target, features
from privsketch.learning.quasi_newton import minimise
from privsketch.learning.refine import MAX_WEIGHT, curvature_scales

POWER = 3
N_ITERATIONS = 100  # by trial
NEGLIGIBLE = 1e-6  # fall of the cost by one iteration, relative to it


def refine_powers(
    target: Target, atoms: Atoms, low: Floats, high: Floats, noise_std: float
) -> Atoms:
    """Descend from a fit of least squares to one of least third powers.

    `noise_std` is that of every number of the target: the noise reaches sqrt(3) times as far.
    """
    n, dim = atoms.centers.shape
    shape = atoms.variances.shape
    scale = np.concatenate([each.ravel() for each in curvature_scales(target, atoms)])
    largest = (high - low) ** 2 / 4
    if shape[1] == 1:
        largest = np.max(largest, keepdims=True)
    least = np.concatenate([np.zeros(n), np.tile(low, n), np.zeros(atoms.variances.size)])
    most = np.concatenate([np.full(n, MAX_WEIGHT), np.tile(high, n), np.tile(largest, shape[0])])
    least, most = least * scale, most * scale
    reach = math.sqrt(3) * noise_std

    def objective(x: Floats) -> tuple[float, Floats]:
        cost, gradient = cost_of_powers(target, _unpacked(x / scale, n, dim, shape), reach)
        parts = (gradient.weights, gradient.centers.ravel(), gradient.variances.ravel())
        return cost, np.concatenate(parts) / scale

    start = np.concatenate([atoms.weights, atoms.centers.ravel(), atoms.variances.ravel()])
    x, _, _ = minimise(
        objective,
        np.clip(start * scale, least, most),
        least,
        most,
        n_iterations=N_ITERATIONS,
        negligible=NEGLIGIBLE,
    )
    found = _unpacked(x / scale, n, dim, shape)
    return Atoms(found.weights, np.clip(found.centers, low, high), found.variances)


def _unpacked(x: Floats, n: int, dim: int, shape: tuple[int, ...]) -> Atoms:
    end = n * (1 + dim)
    return Atoms(x[:n], x[n:end].reshape(n, dim), x[end:].reshape(shape))


def cost_of_powers(target: Target, atoms: Atoms, reach: float) -> tuple[float, Atoms]:
    """Sum of 2/p reach^2 |residual / reach|^p, and its gradient in the shape of the atoms.

    With two for p these are the squares.
    """
    matrix = features(target, atoms.centers, atoms.variances)
    residual = (atoms.weights @ matrix - target.moments) / reach
    sizes = np.abs(residual)
    slopes = reach * residual * sizes ** (POWER - 2)
    m, dim = target.frequencies.shape
    exponents = target.exponents(atoms.variances)
    right = np.empty((2 * m, 1 + dim + exponents.shape[1]))
    right[:, 0] = slopes
    right[:m, 1 : dim + 1] = slopes[m:, None] * target.frequencies
    right[m:, 1 : dim + 1] = -slopes[:m, None] * target.frequencies
    right[:, dim + 1 :] = slopes[:, None] * np.vstack([exponents, exponents]) / -2
    products = 2 * (matrix @ right)
    by_variance = atoms.weights[:, None] * products[:, dim + 1 :]
    if atoms.shared:
        by_variance = by_variance.sum(axis=0, keepdims=True)
    by_center = atoms.weights[:, None] * products[:, 1 : dim + 1]
    cost = 2 / POWER * reach**2 * float(np.sum(sizes**POWER))
    return cost, Atoms(products[:, 0], by_center, by_variance)
