"""Decode noisy counts: a density and k-means centers.

`path` fits mixtures of decreasing size. Each has too many or too few components, so the fits are
averaged, weighted by their plausibility under the counts and the prior. The average gives expected
counts. A released count that clearly differs from its expectation replaces it; others correct it as
far as their noise allows. `centers` clusters the result.

Near a fit, expected counts are linear in the unknowns, with derivatives J. The covariance of the
unknowns is the inverse of J'WJ, where W holds the information of each count. The fit follows some
of the noise: the squared misfit lacks the trace of J (J'WJ)^-1 J'. A center is the mean of its
cluster's share of every component, and moves with their centers and weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Indices
from privsketch.design.cautions import warn_of
from privsketch.design.validity import require_cells
from privsketch.learning.cells.boxes import Boxes, boxes_of
from privsketch.learning.cells.centers import kmeans
from privsketch.learning.cells.fit import (
    ELONGATION_SCALE,
    Components,
    Fit,
    Likelihood,
    criterion,
    likelihood_of,
)
from privsketch.learning.cells.partition import Partition, partition_of
from privsketch.learning.cells.path import MIN_LOG_CHANCE, search, significant_estimate
from privsketch.learning.concerns import unsupported_clusters
from privsketch.learning.kmeans.model import model_of
from privsketch.learning.lloyd import assign
from privsketch.learning.problem import Atoms
from privsketch.learning.uncertainty import uniform_deviations
from privsketch.models.clusters import ClusterModel
from privsketch.sketching.sketch import Sketch

TEMPERATURE = 8.0  # of the weights of fits, in units of -2 log p: fits of one path are dependent
MIN_PLAUSIBILITY = 0.02  # weight of a fit whose components place the records of a box
# Expected share of noise among the accepted differences from the fits. One mistake in all boxes
# instead costs 0.0012 +- 0.0003 of log cost where the model is right (equal Gaussians, d = 3 and
# 4). Elsewhere 0.02 to 0.15 are alike within the error of 30 data sets.
FALSE_SHARE = 0.05
MIN_SHARE = 1e-9  # of a label of a component, for derivatives
INFORMATION_RIDGE = 1e-6  # relative: no count tells the unknowns of twins apart
MAX_DERIVATIVES = 2_000_000  # numbers in a block of derivatives: 16 MB


def kmeans_of_cells(sketch: Sketch, n_clusters: int, rng: np.random.Generator) -> ClusterModel:
    """Learn cluster centers from a sketch of cells; see `learn_kmeans`."""
    design, boxes = sketch.design, boxes_of(sketch)
    require_cells(n_clusters, design.n_features, "n_clusters")
    warn_of(unsupported_clusters(n_clusters, design))
    solution = decode_cells(boxes, n_clusters, rng)
    half_widths = design.domain.half_widths
    errors = solution.standard_errors
    return model_of(
        sketch,
        centers=solution.centers,
        records=solution.records,
        density=density_of(solution, half_widths),
        errors=None if errors is None else np.minimum(errors, uniform_deviations(half_widths)),
        residual=(solution.residual, solution.expected_residual, solution.residual_spread),
        decoder="cells",
    )


def density_of(solution: CellSolution, half_widths: Floats) -> Atoms:
    """Return the density of a solution, its background as a Gaussian as wide as the domain."""
    atoms = solution.density
    if not solution.background > 0 and atoms.size:
        return atoms
    return Atoms(
        np.append(atoms.weights, max(solution.background, 0.0)),
        np.vstack([atoms.centers, np.zeros(len(half_widths))]),
        np.vstack([atoms.axis_variances(), uniform_deviations(half_widths) ** 2]),
    )


@dataclass(frozen=True)
class CellSolution:
    """Estimate of the records behind noisy counts.

    Attributes
    ----------
    density : Atoms
        The mixture of axis-parallel Gaussians that explains the counts best; weights in records.
    background : float
        Records spread evenly over the domain.
    counts : (n_boxes,) float64
        Estimated records of each box, at least zero.
    centers : (n_clusters, dim) float64
        K-means centers of the estimate.
    records : (n_clusters,) float64
        Records of each center's cluster.
    cost : float
        K-means cost of the estimate.
    standard_errors : (n_clusters, dim) float64, optional
        Standard errors of the centers, from noise and sampling.
    residual, expected_residual, residual_spread : float
        Squared misfit of the density over all boxes, in records^2; mean and standard deviation of
        the misfit that noise and sampling alone leave.
    """

    density: Atoms
    background: float
    counts: Floats
    centers: Floats
    records: Floats
    cost: float
    standard_errors: Floats | None
    residual: float
    expected_residual: float
    residual_spread: float


def decode_cells(boxes: Boxes, n_clusters: int, rng: np.random.Generator) -> CellSolution:
    """Fit a density and k-means centers to noisy counts. Charges nothing."""
    # The matrix products are small: threads would cost more than they bring.
    with one_thread():
        fits = search(boxes, n_clusters, rng)
        weights = plausibility(fits)
        expected = weights @ np.stack([fit.expected for fit in fits])
        background = float(weights @ [fit.components.weights[-1] for fit in fits])
        expected = without_background(boxes, expected, background)
        counts = posterior_counts(boxes, expected, rng)
        total = float(counts.sum())
        factor = 1.0 if boxes.total is None or not total > 0 else max(boxes.total, 0.0) / total
        counts = counts * factor
        has_records = counts.sum() > 0
        starts = [boxes.means(fit.components.centers, fit.components.shares) for fit in fits]
        least = min(MIN_PLAUSIBILITY, float(weights.max()))
        pairs = zip(weights, fits, strict=True)
        densities = [(float(weight), fit.components) for weight, fit in pairs if weight >= least]
        # Without any records, the domain is divided evenly.
        clustered_counts = counts if has_records else boxes.shares
        clusters = kmeans(boxes, clustered_counts, densities, starts, n_clusters, rng)
        centers, points = clusters.centers, clusters.points
        labels, costs = assign(points, centers)
        records = np.bincount(labels, points.weights, n_clusters) * has_records
        best = min(fits, key=criterion)
        components = best.components
        errors = linearised(boxes, best)
        parts = clusters.parts
        shares = shares_of_clusters(parts, components, points.positions, labels, centers)
        by_share = label_moves(parts, components, points.positions, labels, centers)
        return CellSolution(
            density=Atoms(
                components.weights[:-1] * factor,
                boxes.means(components.centers, components.shares),
                boxes.variances(components.widths**2, components.shares),
            ),
            background=float(components.weights[-1]) * factor,
            counts=counts,
            centers=centers,
            records=records,
            cost=float(costs.sum()) * has_records,
            standard_errors=standard_errors(boxes, errors, components, *shares, by_share),
            residual=errors.residual,
            expected_residual=errors.expected,
            residual_spread=errors.spread,
        )


def plausibility(fits: list[Fit]) -> Floats:
    """Return the weights of fits in their average; they sum to 1."""
    scores = np.array([criterion(fit) for fit in fits])
    weights = np.exp(-(scores - scores.min()) / TEMPERATURE)
    return np.asarray(weights / weights.sum())


def without_background(boxes: Boxes, expected: Floats, background: float) -> Floats:
    """Return expected counts without an even background that noise alone may have made.

    Its records go where the others are: in a wide domain most of an even background lies far from
    all clusters, where few records cost more than all others.
    """
    rest = np.maximum(expected - background * boxes.shares, 0.0)
    is_clear = background**2 > 2 * MIN_LOG_CHANCE * float(boxes.variance.sum())
    if is_clear or not rest.sum() > 0:
        return expected
    return np.asarray(rest * (expected.sum() / rest.sum()))


def posterior_counts(boxes: Boxes, expected: Floats, rng: np.random.Generator) -> Floats:
    """Return estimated records of each box, (n_boxes,): expected ones, corrected by the counts.

    Records that the fits miss in all go where the fits have records, as far as the counts do not
    say otherwise. A tree would spread them by volume, and most of the volume has none.
    """
    variance = boxes.variance + expected
    missed = float((boxes.counts - expected).sum())
    if missed**2 > 2 * MIN_LOG_CHANCE * variance.sum() and expected.sum() > 0:
        expected = expected * max(1 + missed / expected.sum(), 0.0)
        variance = boxes.variance + expected
    misses = boxes.counts - expected
    clear = significant_estimate(boxes, misses, variance, rng, FALSE_SHARE)
    clear -= float(misses.sum()) * boxes.shares
    mean = np.maximum(expected + clear, 0.0)
    trust = mean / np.maximum(mean + boxes.variance, np.finfo(float).tiny)
    return np.maximum(mean + trust * (boxes.counts - mean), 0.0)


@dataclass(frozen=True)
class Linearised:
    """Covariance of the unknowns of a fit, and its misfit.

    Attributes
    ----------
    covariance : (p, p) float64
        Covariance of weights with the background, centers, logarithms of widths, and shares.
    residual, expected, spread : float
        Squared misfit of all counts; mean and standard deviation of what noise and sampling leave.
    """

    covariance: Floats
    residual: float
    expected: float
    spread: float


def linearised(boxes: Boxes, fit: Fit) -> Linearised:
    """Return covariance and misfit of a fit."""
    partition, components = partition_of(boxes), fit.components
    likelihood = likelihood_of(boxes, fit.expected)
    information, squares = _products(partition, likelihood, components)
    size, dim = components.centers.shape
    # The prior of widths is part of what is known about them.
    of_widths = np.arange(size * (1 + dim) + 1, size * (1 + 2 * dim) + 1)
    information[of_widths, of_widths] += 0.5 / ELONGATION_SCALE**2
    unused = np.flatnonzero(information.diagonal() <= 0)  # centers along axes of labels
    information[unused, unused] = 1.0
    lengths = np.sqrt(np.maximum(information.diagonal(), 1e-300))
    scaled = information / lengths / lengths[:, None]
    scaled[np.diag_indices_from(scaled)] += INFORMATION_RIDGE
    inverse = cho_solve(cho_factor(scaled, lower=True), np.eye(len(scaled)))
    covariance = inverse / lengths / lengths[:, None]
    residual = float(np.square(boxes.counts - fit.expected).sum())
    followed = float(np.vdot(covariance, squares))
    total = float(likelihood.variance.sum())
    # Some of it stays, however many unknowns there are.
    expected = max(total - followed, 0.05 * total)
    tails = 3 * boxes.variance**2 / boxes.n_noises + np.maximum(fit.expected, 0.0)
    spread = math.sqrt(float((2 * likelihood.variance**2 + tails).sum()))
    return Linearised(covariance, residual, expected, spread)


def _products(
    partition: Partition, likelihood: Likelihood, components: Components
) -> tuple[Floats, Floats]:
    """Return J'WJ and J'J, computed block by block of boxes."""
    slopes = partition.slopes(components.centers, components.widths, components.shares)
    size, dim = components.centers.shape
    first_share = size * (1 + 2 * dim) + 1
    n_unknowns = first_share + components.shares.size
    information, squares = np.zeros((2, n_unknowns, n_unknowns))
    # A component without records would have no derivatives by its center.
    weights = np.maximum(components.weights[:-1], 1.0)[:, None]
    step = max(1, MAX_DERIVATIVES // n_unknowns)
    for begin in range(0, partition.n_boxes, step):
        intervals = [index[begin : begin + step] for index in partition.index]
        pairs = zip(partition.by_axis(slopes.values), intervals, strict=True)
        values = [factor[:, i] for factor, i in pairs]
        rows = np.empty((n_unknowns, len(intervals[0])))
        rows[: size + 1] = math.prod(values[1:], start=values[0])
        for kind, factors in enumerate((slopes.by_center, slopes.by_log_width)):
            first = size + 1 + kind * size * dim
            block = rows[first : first + size * dim].reshape(size, dim, -1)
            for d in range(dim):
                product = factors[:-1, partition.begins[d] + intervals[d]]
                other_axes = (value[:-1] for e, value in enumerate(values) if e != d)
                block[:, d] = weights * math.prod(other_axes, start=product)
        block = rows[first_share:].reshape(size, -1, len(intervals[0]))
        for index, column in enumerate(partition.label_columns):
            d = int(np.searchsorted(partition.begins, column, side="right")) - 1
            is_here = (intervals[d] == column - partition.begins[d]).astype(np.float64)
            other_axes = (value[:-1] for e, value in enumerate(values) if e != d)
            block[:, index] = weights * math.prod(other_axes, start=is_here)
        information += (rows * likelihood.information[begin : begin + step]) @ rows.T
        squares += rows @ rows.T
    return information, squares


def standard_errors(
    boxes: Boxes,
    errors_of_fit: Linearised,
    components: Components,
    shares: Floats,
    offsets: Floats,
    by_share: Floats,
) -> Floats:
    """Return standard errors of centers, (k, n_coordinates).

    `shares`, (k, size + 1), are the records of each component and of the background in each
    cluster; `offsets`, (k, size + 1, n_coordinates), are the distances of their means from the
    center. `by_share`, (k, n_coordinates, size * n_labels), is what shares of labels move.
    """
    (k, dim), n_axes = (len(shares), offsets.shape[2]), components.centers.shape[1]
    size = components.size
    records = shares.sum(axis=1)
    per_record = 1 / np.maximum(records, 1e-300)
    by_weight = offsets * (shares / np.maximum(components.weights, 1e-300))[:, :, None]
    derivatives = np.zeros((k, dim, len(errors_of_fit.covariance)))
    derivatives[:, :, : size + 1] = np.moveaxis(by_weight, 2, 1)
    first = size + 1
    for axis, coordinate in _number_coordinates(boxes):
        derivatives[:, coordinate, first + axis : first + size * n_axes : n_axes] = shares[:, :-1]
    derivatives[:, :, first + 2 * size * n_axes :] = by_share
    derivatives *= per_record[:, None, None]
    moved = derivatives @ errors_of_fit.covariance
    variances = np.einsum("kdp,kdp->kd", moved, derivatives)
    misfit = max(errors_of_fit.residual / errors_of_fit.expected, 1.0)
    errors = np.sqrt(np.maximum(variances, 0.0) * misfit)
    errors[records <= 0] = np.inf
    return np.asarray(np.minimum(errors, uniform_deviations(boxes.half_widths)))


def _number_coordinates(boxes: Boxes) -> list[tuple[int, int]]:
    """Return axis and coordinate of every number."""
    if not boxes.is_label.any():
        return [(d, d) for d in range(boxes.dim)]
    return [(d, axis.place.start) for d, axis in enumerate(boxes.axes) if axis.corners is None]


def label_moves(
    parts: Boxes, components: Components, positions: Floats, labels: Indices, centers: Floats
) -> Floats:
    """Return what a share of a label moves the sum of a cluster's records from its center.

    The result, (k, n_coordinates, size * n_labels), is in records per share.
    """
    partition = partition_of(parts)
    rows = partition.rows(partition.factors(*_shapes(components)))[:-1]
    (k, dim), moves = centers.shape, []
    offsets = positions - centers[labels]
    for axis in np.flatnonzero(parts.is_label):
        n_labels = int(partition.begins[axis + 1] - partition.begins[axis])
        group = labels * n_labels + partition.index[axis]
        sums = [
            [np.bincount(group, row * column, k * n_labels) for column in offsets.T] for row in rows
        ]
        moves.append(np.reshape(sums, (len(rows), dim, k, n_labels)))
    if not moves:
        return np.zeros((k, dim, 0))
    weights = np.maximum(components.weights[:-1], 1.0)[:, None, None, None]
    by_share = np.concatenate(moves, axis=3) * weights
    by_share /= np.maximum(components.shares, MIN_SHARE)[:, None, None, :]
    return by_share.transpose(2, 1, 0, 3).reshape(k, dim, -1)


def _shapes(components: Components) -> tuple[Floats, Floats, Floats]:
    return components.centers, components.widths, components.shares


def shares_of_clusters(
    parts: Boxes, components: Components, positions: Floats, labels: Indices, centers: Floats
) -> tuple[Floats, Floats]:
    """Return records of each component in each cluster, and their mean's offset from the center.

    `positions` and `labels` have a row for each of the parts of boxes.
    """
    partition = partition_of(parts)
    rows = partition.rows(partition.factors(*_shapes(components)))
    k, dim = centers.shape
    shares = np.zeros((k, len(rows)))
    offsets = np.zeros((k, len(rows), dim))
    for i, row in enumerate(rows):
        mass = np.bincount(labels, row, k)
        shares[:, i] = mass
        for d in range(dim):
            mean = np.bincount(labels, row * positions[:, d], k) / np.maximum(mass, 1e-300)
            offsets[:, i, d] = np.where(mass > 1e-9, mean - centers[:, d], 0.0)
    return shares * components.weights, offsets
