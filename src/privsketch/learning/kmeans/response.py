"""Standard errors of k-means centers: what moves them, and how far they move then.

A center is the mean of the records that are nearest to it. What is not known of the records moves
that mean; then borders between clusters move as well, and other records are nearest. To first order
centers answer a shift s of the means by

    (I - B)^-1 s,    B the derivative of Lloyd's map by the centers,

and a move e of centers that k-means would not make raises the cost by `sum_k n_k e_k'((I - B)e)_k`.
B is an integral of the density over the borders. With coordinates times sqrt(n_k) it is symmetric,
because Lloyd's algorithm descends a cost. Clusters that lie apart have B = 0; a cloud that clusters
divide has directions with eigenvalues next to 1, along which they move at hardly any cost.

Two things are known about shifts. Noise and sampling shift means as the linearised fit says. What
the density misses of the records is in no residual: noise hides it, or the fit gave way. But the
cost ratio, which random studies have calibrated, says what all of it costs. A model's expected
excess of cost, spread evenly over all coordinates times sqrt(n_k), is a second variance of shifts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats
from privsketch.learning.lloyd import Points

# Samples near a border are those of its slab, whose half-width is this share of the distance
# between the two centers. Half of a Gaussian answers 2 % too little with 0.1, 8 % with 0.25; over
# 270 sketches errors of 0.1, 0.25 and 0.5 held alike.
SLAB = 0.1
# Largest answer to a shift: beyond it the border's curvature decides. 5 to 20 hold alike.
MAX_ANSWER = 10.0
LEAST_SHARE = 1e-3  # of an average cluster's records: smaller clusters have the errors of this one


@dataclass(frozen=True)
class Response:
    """How centers answer shifts of their clusters' means.

    Attributes
    ----------
    moved : (k, dim) float64
        Variance of a center's coordinate where all shifts times sqrt(n_k) have variance 1.
    cost : float
        Mean over coordinates of the cost of such shifts.
    """

    moved: Floats
    cost: float


def response_of(points: Points, centers: Floats) -> Response:
    """Return the response of the centers of a density, of which `points` are samples."""
    (k, dim), weights = centers.shape, points.weights
    first, second = _two_nearest(points.positions, centers)
    records = np.maximum(np.bincount(first, weights, k), LEAST_SHARE * weights.sum() / k)
    matrix = np.zeros((k, dim, k, dim))
    if k > 1:
        _add_borders(matrix, points, centers, first, second)
    lengths = np.sqrt(np.repeat(records, dim))
    matrix = matrix.reshape(k * dim, k * dim) / np.outer(lengths, lengths)
    values, vectors = np.linalg.eigh(matrix)
    answers = 1 / (1 - np.clip(values, 0.0, 1 - 1 / MAX_ANSWER))
    moved = np.square(vectors) @ np.square(answers)
    return Response(moved.reshape(k, dim), float(answers.mean()))


def _two_nearest(positions: Floats, centers: Floats) -> tuple[Floats, Floats]:
    """Return the nearest and the second nearest center of each position."""
    scores = positions @ centers.T - 0.5 * np.einsum("ij,ij->i", centers, centers)
    first = scores.argmax(axis=1)
    scores[np.arange(len(scores)), first] = -np.inf
    return first, scores.argmax(axis=1)


def _add_borders(
    matrix: Floats, points: Points, centers: Floats, first: Floats, second: Floats
) -> None:
    """Add the integrals over all borders, in records.

    A move of center i passes the records at x on its border with j from one to the other at the
    rate (x - c_i) / |c_i - c_j|, and each of them changes the sum of its cluster by x - c.
    """
    k = len(centers)
    low, high = np.minimum(first, second), np.maximum(first, second)
    steps = centers[high] - centers[low]
    distances = np.maximum(np.sqrt(np.square(steps).sum(axis=1)), 1e-150)  # its square is above 0
    offsets = points.positions - (centers[low] + centers[high]) / 2
    heights = np.einsum("ij,ij->i", offsets, steps) / np.square(distances)  # in distances
    near = np.flatnonzero((np.abs(heights) < SLAB) & (points.weights > 0))
    border = low[near] * k + high[near]
    order = near[np.argsort(border, kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(np.sort(border))) + 1):
        if len(rows) == 0:
            continue
        i, j = int(low[rows[0]]), int(high[rows[0]])
        on_border = points.positions[rows] - heights[rows, None] * steps[rows]
        # A slab is 2 SLAB distances thick, and the rate has one distance more.
        density = points.weights[rows] / (2 * SLAB * distances[rows] ** 2)
        by_own, by_other = on_border - centers[i], on_border - centers[j]
        weighted = by_own * density[:, None]
        matrix[i, :, i] += weighted.T @ by_own
        matrix[j, :, j] += (by_other * density[:, None]).T @ by_other
        across = weighted.T @ by_other
        matrix[i, :, j] -= across
        matrix[j, :, i] -= across.T


def standard_errors(
    shifts: Floats, weights: Floats, response: Response, excess: float, within: float
) -> Floats | None:
    """Return standard errors of centers, (k, dim); None where the clusters say no more.

    Parameters
    ----------
    shifts : (k, dim)
        Standard deviations of the shifts of means by noise and sampling.
    weights : (k,)
        Shares of the records.
    excess : float
        Mean of the cost ratio less 1.
    within : float
        Mean squared distance of the density to its centers.
    """
    k, dim = shifts.shape
    shares = np.maximum(weights, LEAST_SHARE / k)[:, None]
    unknown = excess * within / (k * dim * response.cost) / shares
    variances = (np.square(shifts) + unknown) * response.moved
    # Errors as wide as the clusters: a center is known no better than one of its records.
    if not float(weights @ variances.sum(axis=1)) < within:
        return None
    return np.asarray(np.sqrt(variances))
