"""Samples of densities with categories, flags and cycles, and standard errors of their clusters.

Centers are k-means centers of samples, so that labels, which lie on corners, are divided among
clusters like records. A center is the mean of a cell, and the cell is fixed: then a parameter
theta moves the mean T of a cell V by

    dT / dtheta = E[1_V (x - T) d log p(x) / dtheta] / P(V),

an expectation over samples of the density p. Labels are drawn in exact proportions, and at least a
tenth of them evenly, with weights: a share of zero has an error too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from privsketch._base.types import Floats, Indices
from privsketch.facts.layout import Layout
from privsketch.learning.lloyd import Points, assign
from privsketch.learning.problem import Atoms
from privsketch.learning.uncertainty import Solution, tangent

PRODUCT_SAMPLES = 100_000  # labels are noise of fewer samples: with some hundred 1.3 points, not .2
SCORE_SAMPLES = 16_000  # of standard errors
MIN_EACH = 800  # samples of each component
EVEN_SHARE = 0.1  # of the samples of a component, drawn evenly over all labels
MIN_SHARE = 1e-9  # of a label in weights of samples and in scores
# Scores of narrow components would be noise of the samples: they are taken at widths of at least
# the standard error of the width, up to this share of the squared range.
MAX_SQUARED_WIDTH = 0.01
LEAST_ERROR = 0.004  # of the range of a coordinate; 0.4 points of a share


@dataclass(frozen=True)
class Draws:
    """Samples of products, the same number of each component.

    Attributes
    ----------
    points : Points
        Samples in all coordinates, with their weights and components.
    normal : (size, n, n_numbers) float64
        Standard normal numbers of the samples.
    corners : (n_blocks, size, n) int
        Corner of each block.
    """

    points: Points
    normal: Floats
    corners: Indices


def draw_products(
    layout: Layout,
    density: Atoms,
    variances: Floats,
    limits: tuple[Floats, Floats],
    n_each: int,
    rng: np.random.Generator,
) -> Draws:
    """Draw samples of products with the given variances (size, n_numbers), inside of `limits`.

    Numbers are antithetic pairs, whose second moments are those of the component.
    """
    n_pairs = max(n_each // 2, 1)
    size, n_numbers = density.centers.shape
    normal = rng.standard_normal((size, n_pairs, n_numbers))
    if 0 < n_numbers < n_pairs:
        for rows in normal:
            factor = cholesky(rows.T @ rows / n_pairs, lower=True)
            rows[:] = solve_triangular(factor, rows.T, lower=True).T
    normal = np.concatenate([normal, -normal], axis=1)
    positions = np.empty((size, 2 * n_pairs, layout.dim))
    low, high = (limit[layout.numbers] for limit in limits)
    numbers = density.centers[:, None] + np.sqrt(variances)[:, None] * normal
    positions[:, :, layout.numbers] = np.clip(numbers, low, high)
    weights = np.ones((size, n_pairs))
    corners = np.empty((len(layout.blocks), size, n_pairs), np.intp)
    for number, (block, part) in enumerate(layout.parts):
        shares = np.maximum(density.shares[:, part], MIN_SHARE)
        drawn = (1 - EVEN_SHARE) * shares + EVEN_SHARE / shares.shape[1]
        for k, steps in enumerate(np.cumsum(drawn, axis=1)):
            even = (np.arange(n_pairs) + rng.random()) / n_pairs
            corner = np.minimum(np.searchsorted(steps / steps[-1], even), len(steps) - 1)
            corners[number, k] = rng.permutation(corner)
        weights *= np.take_along_axis(shares / drawn, corners[number], axis=1)
        records = block.draw(corners[number].ravel(), rng).reshape(size, n_pairs, -1)
        positions[:, :, block.place] = np.tile(records, (1, 2, 1))
    weights = np.tile(weights, (1, 2))
    weights *= density.weights[:, None] / weights.sum(axis=1, keepdims=True)
    points = Points(
        positions.reshape(-1, layout.dim), weights.ravel(), np.repeat(np.arange(size), 2 * n_pairs)
    )
    return Draws(points, normal, np.tile(corners, (1, 1, 2)))


def errors_of_products(
    solution: Solution,
    layout: Layout,
    centers: Floats,
    limits: tuple[Floats, Floats],
    rng: np.random.Generator,
) -> Floats | None:
    """Return standard errors of the centers of cells, (k, dim); None for a fit that is too large.

    Centers without samples have an infinite error.
    """
    density, told = solution.density, solution.uncertainty
    ranges = limits[1] - limits[0]
    variances = _score_variances(solution, layout, ranges[layout.numbers])
    if variances is None:
        return None
    n_each = max(SCORE_SAMPLES // density.size, MIN_EACH)
    draws = draw_products(layout, density, variances, limits, n_each, rng)
    labels, _ = assign(draws.points, centers)
    k, dim = centers.shape
    gradients, is_empty = [], np.zeros(k, dtype=bool)
    for cluster in range(k):
        weights = draws.points.weights * (labels == cluster)
        mass = float(weights.sum())
        is_empty[cluster] = mass <= 0
        weights /= max(mass, 1e-300)
        offsets = draws.points.positions - weights @ draws.points.positions
        moved = (offsets * weights[:, None]).reshape(density.size, -1, dim)
        gradients.append(_by_parameters(layout, density, variances, draws, moved))
    errors = told.errors_along(np.concatenate(gradients))
    if errors is None:
        return None
    errors = errors.reshape(k, dim)
    errors[is_empty] = np.inf
    return errors


def _score_variances(solution: Solution, layout: Layout, ranges: Floats) -> Floats | None:
    """Return the variances (size, n_numbers) of the density, at least their standard errors."""
    density = solution.density
    first, n = density.weights.size + density.centers.size, density.variances.size
    n_parameters = density.flat().size - density.size * len(layout.blocks)
    errors = solution.uncertainty.errors_along(np.eye(n, n_parameters, first))
    if errors is None:
        return None
    unsure = np.minimum(errors.reshape(density.variances.shape), MAX_SQUARED_WIDTH * ranges**2)
    variances = np.maximum(np.maximum(density.variances, unsure), 1e-12)
    return np.broadcast_to(variances, density.centers.shape)


def _by_parameters(
    layout: Layout, density: Atoms, variances: Floats, draws: Draws, moved: Floats
) -> Floats:
    """Return derivatives of one center by all parameters, (dim, n_parameters).

    `moved`, (size, n, dim), are offsets of the samples from the center, times their weights in its
    cell. Parameters are in the order of `uncertainty.assess`.
    """
    dim = moved.shape[2]
    scores = draws.normal / np.sqrt(variances)[:, None]
    by_weight = moved.sum(axis=1) / np.maximum(density.weights, 1e-300)[:, None]
    by_center = np.einsum("kne,knd->dke", scores, moved, optimize=True)
    scores = (np.square(draws.normal) - 1) / (2 * variances)[:, None]
    by_variance = np.einsum("kne,knd->dke", scores, moved, optimize=True)
    if density.shared:
        by_variance = by_variance.sum(axis=1)
    parts = [by_weight.T, by_center, by_variance]
    size, n = moved.shape[:2]
    for (_, part), corners in zip(layout.parts, draws.corners, strict=True):
        n_corners = part.stop - part.start
        cells = (np.arange(size)[:, None] * n_corners + corners).ravel()
        rows = moved.reshape(size * n, dim)
        sums = [np.bincount(cells, column, size * n_corners) for column in rows.T]
        shares = np.maximum(density.shares[:, part], MIN_SHARE)
        by_share = np.stack(sums).reshape(dim, size, n_corners) / shares
        parts.append(by_share @ tangent(n_corners))
    return np.concatenate([each.reshape(dim, -1) for each in parts], axis=1)


def product_samples(
    solution: Solution, layout: Layout, limits: tuple[Floats, Floats], rng: np.random.Generator
) -> Points:
    """Return samples of the density of a solution, from which its centers are computed."""
    density = solution.density
    n_each = max(PRODUCT_SAMPLES // density.size, MIN_EACH)
    draws = draw_products(layout, density, density.axis_variances(), limits, n_each, rng)
    order = rng.permutation(len(draws.points.weights))
    return replace(
        draws.points,
        positions=draws.points.positions[order],
        weights=draws.points.weights[order],
        source=draws.points.source[order],
    )
