"""Samples of densities with categories, flags and cycles, and standard errors of their clusters.

Centers are k-means centers of samples, so that labels, which lie on corners, are divided among
clusters like records. A center is the mean of a cell, and the cell is fixed: then a parameter
theta moves the mean T of a cell V by

    dT / dtheta = E[1_V (x - T) d log p(x) / dtheta] / P(V),

an expectation over samples of the density p. Labels are drawn in exact proportions, and at least a
tenth of them evenly, with weights: a share of zero has an error too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csc_array

from privsketch._base.types import Floats, Indices
from privsketch.facts.layout import Layout
from privsketch.learning.kmeans.density import (
    BETTER_COST,
    LLOYD_LIMITS,
    MAX_DIVIDED,
    TRIAL_SAMPLES,
    UNDIVIDED_SHARE,
)
from privsketch.learning.lloyd import Points, assign, total_cost
from privsketch.learning.problem import Atoms
from privsketch.learning.uncertainty import Solution, tangent

PRODUCT_SAMPLES = 100_000  # labels are noise of fewer samples: with some hundred 1.3 points, not .2
SEEDS = 8  # starts of k-means++ beside the centers of the solution; each takes some milliseconds
STEP = 10  # one sample of so many serves the first rounds
LAST_LIMITS = 6, 1e-6  # rounds of all samples, and relative fall of the cost for another one
SCORE_SAMPLES = 16_000  # of standard errors
MIN_EACH = 800  # samples of each component
EVEN_SHARE = 0.1  # of the samples of a component, drawn evenly over all labels
MIN_SHARE = 1e-9  # of a label in weights of samples and in scores
# Scores of narrow components would be noise of the samples: they are taken at widths of at least
# the standard error of the width, up to this share of the squared range.
MAX_SQUARED_WIDTH = 0.01
LEAST_ERROR = 0.004  # of the range of a number: fitted Gaussians are no exact description
LEAST_SHARE_ERROR = 0.001  # what samples of the density leave


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


def cluster_products(
    solution: Solution,
    layout: Layout,
    limits: tuple[Floats, Floats],
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Return the k-means centers (k, dim) of a density of products, and their records (k,).

    Lloyd's algorithm starts from the centers of the solution, and from seeds of k-means++ where the
    density has other components, or clusters divide one. One sample of some brings the centers near
    their place.
    """
    density, n_clusters = solution.density, len(solution.centers)
    # Antithetic pairs stay together if steps divide their distance.
    n_each = max(PRODUCT_SAMPLES // density.size, MIN_EACH) // (2 * STEP) * 2 * STEP
    points = draw_products(layout, density, density.axis_variances(), limits, n_each, rng).points
    first = points.subset(slice(None, None, STEP))
    centers, labels = _lloyd(first, solution.centers, *LLOYD_LIMITS)
    cells = labels * density.size + first.source
    masses = np.bincount(cells, first.weights, n_clusters * density.size).reshape(n_clusters, -1)
    is_divided = bool((masses.max(axis=0) < UNDIVIDED_SHARE * masses.sum(axis=0)).any())
    is_guessed = density.size != n_clusters or (is_divided and n_clusters <= MAX_DIVIDED)
    if is_guessed and first.weights.sum() > 0:
        from sklearn.cluster import kmeans_plusplus

        step = max(1, len(first.weights) // (TRIAL_SAMPLES * n_clusters))
        few = first.subset(slice(None, None, step))
        starts = [centers]
        for _ in range(SEEDS):
            seed = int(rng.integers(2**31))
            seeds, _ = kmeans_plusplus(
                few.positions, n_clusters, sample_weight=few.weights, random_state=seed
            )
            starts.append(_lloyd(few, seeds, *LLOYD_LIMITS)[0])
        best = min(starts, key=partial(total_cost, few))
        if best is not centers:
            best, _ = _lloyd(first, best, *LLOYD_LIMITS)
            # The density is an estimate: a slightly lower cost on it means nothing.
            is_better = total_cost(first, best) < BETTER_COST * total_cost(first, centers)
            centers = best if is_better else centers
    centers, labels = _lloyd(points, centers, *LAST_LIMITS)
    records = np.bincount(labels, points.weights, n_clusters).astype(np.float64)
    return np.clip(centers, *limits), records


def _lloyd(
    points: Points, centers: Floats, n_rounds: int, tolerance: float
) -> tuple[Floats, Indices]:
    """Return centers and labels as `lloyd` does, with sums of many columns at once."""
    previous = np.inf
    for _ in range(n_rounds):
        labels, costs = assign(points, centers)
        sums = _grouped(len(centers), labels, points.weights) @ points.positions
        mass = np.bincount(labels, points.weights, len(centers))
        is_served = mass > 0
        centers = centers.copy()
        centers[is_served] = sums[is_served] / mass[is_served, None]
        cost = float(costs.sum())
        if cost >= previous * (1 - tolerance):
            break
        previous = cost
    return centers, labels


def _grouped(n_groups: int, groups: Indices, weights: Floats) -> csc_array:
    """Return the matrix whose products are weighted sums over the rows of each group."""
    starts = np.arange(len(groups) + 1)
    return csc_array((weights, groups, starts), shape=(n_groups, len(groups)))


def least_errors(layout: Layout, ranges: Floats) -> Floats:
    """Return the error of the coordinates that no further records or budget would lower, (dim,)."""
    errors = LEAST_ERROR * ranges
    for block in layout.blocks:
        if block.spread == 0:
            errors[block.place] = LEAST_SHARE_ERROR * ranges[block.place]
    return errors


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
    density = solution.density
    variances = _score_variances(solution, layout, (limits[1] - limits[0])[layout.numbers])
    if variances is None:
        return None
    n_each = max(SCORE_SAMPLES // density.size, MIN_EACH)
    draws = draw_products(layout, density, variances, limits, n_each, rng)
    labels, _ = assign(draws.points, centers)
    scores = _scores(density, variances, draws)
    gradients = [
        _by_parameters(layout, density, draws, scores, np.flatnonzero(labels == cluster))
        for cluster in range(len(centers))
    ]
    errors = solution.uncertainty.errors_along(np.concatenate(gradients))
    if errors is None:
        return None
    errors = errors.reshape(centers.shape)
    errors[np.bincount(labels, draws.points.weights, len(centers)) <= 0] = np.inf
    return errors


def _score_variances(solution: Solution, layout: Layout, ranges: Floats) -> Floats | None:
    """Return the variances (size, n_numbers) of the density, at least their standard errors."""
    density = solution.density
    first, n = density.weights.size + density.centers.size, density.variances.size
    n_unknowns = density.flat().size - density.size * len(layout.blocks)
    errors = solution.uncertainty.errors_along(np.eye(n, n_unknowns, first))
    if errors is None:
        return None
    unsure = np.minimum(errors.reshape(density.variances.shape), MAX_SQUARED_WIDTH * ranges**2)
    variances = np.maximum(np.maximum(density.variances, unsure), 1e-12)
    return np.broadcast_to(variances, density.centers.shape)


def _scores(density: Atoms, variances: Floats, draws: Draws) -> Floats:
    """Return derivatives of log density by weight, mean and variances of the own component.

    They are (n, 1 + 2 n_numbers), a row for each sample.
    """
    normal = draws.normal.reshape(len(draws.points.source), -1)
    own = variances[draws.points.source]
    by_weight = 1 / np.maximum(density.weights, 1e-300)[draws.points.source, None]
    return np.hstack([by_weight, normal / np.sqrt(own), (np.square(normal) - 1) / (2 * own)])


def _by_parameters(
    layout: Layout, density: Atoms, draws: Draws, scores: Floats, rows: Indices
) -> Floats:
    """Return derivatives of one center by all parameters, (dim, n_parameters).

    `rows` are the samples of its cell. Parameters are in the order of `uncertainty.assess`.
    """
    points, (size, n_numbers) = draws.points.subset(rows), density.centers.shape
    dim, weights = layout.dim, points.weights / max(float(points.weights.sum()), 1e-300)
    moved = (points.positions - weights @ points.positions) * weights[:, None]
    products = np.zeros((dim, size, 1 + 2 * n_numbers))
    ends = np.searchsorted(points.source, np.arange(size + 1))  # samples are in order of component
    for k, (first, end) in enumerate(pairwise(ends)):
        products[:, k] = moved[first:end].T @ scores[rows[first:end]]
    by_weight, by_center, by_variance = np.split(products, [1, 1 + n_numbers], axis=2)
    if density.shared:
        by_variance = by_variance.sum(axis=1)
    parts = [by_weight, by_center, by_variance]
    for (_, part), corners in zip(layout.parts, draws.corners, strict=True):
        n_corners = part.stop - part.start
        cells = points.source * n_corners + corners.ravel()[rows]
        sums = _grouped(size * n_corners, cells, np.ones(len(rows))) @ moved
        shares = np.maximum(density.shares[:, part], MIN_SHARE)
        by_share = sums.T.reshape(dim, size, n_corners) / shares
        parts.append(by_share @ tangent(n_corners))
    return np.concatenate([each.reshape(dim, -1) for each in parts], axis=1)
