"""Decode noisy counts: a density and k-means centers.

`path` fits mixtures of decreasing size. Each has too many or too few components, so the fits are
averaged, weighted by their plausibility under the counts and the prior. The average gives expected
counts. A released count that clearly differs from its expectation replaces it; others correct it as
far as their noise allows. `centers` clusters the result.

Near a fit, expected counts are linear in the unknowns, with derivatives J. The covariance of the
unknowns is the inverse of J'WJ, where W holds the information of each count. The fit follows some
of the noise: the squared misfit lacks the trace of J (J'WJ)^-1 J'. A center is the mean of the
estimated records of its cluster, and moves with what is not known of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csc_array

from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Indices
from privsketch.design.cautions import warn_of
from privsketch.design.validity import require_cells
from privsketch.learning.cells.boxes import Boxes, boxes_of
from privsketch.learning.cells.centers import kmeans
from privsketch.learning.cells.fit import (
    ELONGATION_SCALE,
    NEAR,
    Components,
    Fit,
    criterion,
    likelihood_of,
    masses_of,
)
from privsketch.learning.cells.partition import Partition, partition_of
from privsketch.learning.cells.path import MIN_LOG_CHANCE, search, significant_estimate
from privsketch.learning.cells.sparse import merged
from privsketch.learning.concerns import unsupported_clusters
from privsketch.learning.kmeans.model import model_of
from privsketch.learning.lloyd import Points, assign
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


def kmeans_of_cells(sketch: Sketch, n_clusters: int, rng: np.random.Generator) -> ClusterModel:
    """Learn cluster centers from a sketch of cells; see `learn_kmeans`."""
    design, boxes = sketch.design, boxes_of(sketch)
    require_cells(n_clusters, design.n_features, "n_clusters")
    warn_of(unsupported_clusters(n_clusters, design))
    solution = decode_cells(boxes, n_clusters, rng)
    half_widths = design.domain.half_widths
    return model_of(
        sketch,
        centers=solution.centers,
        records=solution.records,
        density=density_of(solution, half_widths),
        shifts=np.minimum(solution.shifts, uniform_deviations(half_widths)),
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
    shifts : (n_clusters, dim) float64
        Standard deviations of the means of the clusters by noise and sampling, their borders fixed.
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
    shifts: Floats
    residual: float
    expected_residual: float
    residual_spread: float

    @property
    def excess(self) -> float:
        """Expected growth of the k-means cost by the shifts, over the cost; inf if nothing is."""
        is_used = self.records > 0
        if not (is_used.any() and self.cost > 0):
            return math.inf
        return (
            float(self.records[is_used] @ np.square(self.shifts[is_used]).sum(axis=1)) / self.cost
        )


def decode_cells(boxes: Boxes, n_clusters: int, rng: np.random.Generator) -> CellSolution:
    """Fit a density and k-means centers to noisy counts. Charges nothing."""
    # The matrix products are small: threads would cost more than they bring.
    with one_thread():
        few, member = merged(boxes)
        fits = search(few, n_clusters, rng)
        weights = plausibility(fits)
        expected = weights @ np.stack([fit.expected for fit in fits])
        background = float(weights @ [fit.components.weights[-1] for fit in fits])
        expected = without_background(few, expected, background)
        counts = posterior_counts(few, expected, rng)
        total = float(counts.sum())
        factor = 1.0 if boxes.total is None or not total > 0 else max(boxes.total, 0.0) / total
        counts = counts * factor
        has_records = counts.sum() > 0
        starts = [few.means(fit.components.centers, fit.components.shares) for fit in fits]
        least = min(MIN_PLAUSIBILITY, float(weights.max()))
        pairs = zip(weights, fits, strict=True)
        densities = [(float(weight), fit.components) for weight, fit in pairs if weight >= least]
        # Without any records, the domain is divided evenly.
        clustered_counts = counts if has_records else few.shares
        clusters = kmeans(few, clustered_counts, densities, starts, n_clusters, rng)
        centers, points = clusters.centers, clusters.points
        labels, costs = assign(points, centers)
        records = np.bincount(labels, points.weights, n_clusters) * has_records
        best = min(fits, key=criterion)
        components, errors = best.components, linearised(few, best)
        return CellSolution(
            density=Atoms(
                components.weights[:-1] * factor,
                few.means(components.centers, components.shares),
                few.variances(components.widths**2, components.shares),
            ),
            background=float(components.weights[-1]) * factor,
            counts=counts[member] * boxes.shares / few.shares[member],
            centers=centers,
            records=records,
            cost=float(costs.sum()) * has_records,
            shifts=shifts_of(few, errors.covariance, best, clustered_counts, points, centers),
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
    size, dim = components.centers.shape
    n_unknowns = size * (1 + 2 * dim) + 1 + components.shares.size
    information, squares = np.zeros((2, n_unknowns, n_unknowns))  # J'WJ and J'J
    for part, unknowns, values in _slopes(partition, components):
        where = np.ix_(unknowns, unknowns)
        information[where] += values.T @ (values * likelihood.information[part, np.newaxis])
        squares[where] += values.T @ values
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


def _slopes(
    partition: Partition, components: Components
) -> Iterator[tuple[Indices, Indices, Floats]]:
    """Yield blocks of boxes, unknowns, and derivatives of counts by them, (n_boxes, n_unknowns).

    Every box is in one block. Unknowns that a block leaves out have no influence there.
    """
    size, dim = components.centers.shape
    first_share = size * (1 + 2 * dim) + 1
    n_labels = components.shares.shape[1]
    # A component without records would have no derivatives by its center.
    weights = np.maximum(components.weights[:-1], 1.0)
    for block in masses_of(partition, components, NEAR).blocks():
        near, boxes = block.near, block.boxes
        background = partition.shares[boxes, np.newaxis]
        rows, columns = [block.products(), background], [near, np.array([size])]
        for kind, d in np.ndindex(2, dim):
            parts = np.where(np.arange(dim) == d, 1 + kind, 0)
            rows.append(weights[near] * block.products(parts))
            columns.append(size + 1 + (kind * size + near) * dim + d)
        for label, column in enumerate(partition.label_columns):
            is_here = (block.index == column).any(axis=1)[:, np.newaxis]
            shares = np.maximum(components.shares[near, label], MIN_SHARE)
            rows.append(weights[near] / shares * block.products() * is_here)
            columns.append(first_share + near * n_labels + label)
        yield boxes, np.concatenate(columns), np.hstack(rows)


def shifts_of(
    boxes: Boxes, covariance: Floats, fit: Fit, counts: Floats, points: Points, centers: Floats
) -> Floats:
    """Return standard deviations of the means of clusters, (k, n_coordinates), borders fixed.

    `counts` are estimated records of the boxes, and `points` those of their parts. A box moves the
    mean of a cluster by the offset of its records there. The estimate follows a released count
    directly, as far as it trusts it, and by way of the fit (`covariance`), as far as it does not.
    So it has some of the noise of each count; of the deviation of the records from their
    expectation it lacks the rest. The places of records within a box are unknown, each on its own.
    """
    k, dim = centers.shape
    labels, _ = assign(points, centers)
    mass, n_parts = counts[points.source], np.bincount(points.source, minlength=boxes.n_boxes)
    share = points.weights / np.maximum(mass, 1e-300)
    share = np.where(mass > 0, share, 1 / n_parts[points.source])
    trust = counts / np.maximum(counts + boxes.variance, 1e-300)

    def by_box(values: Floats) -> csc_array:
        return csc_array((values, (labels, points.source)), shape=(k, boxes.n_boxes))

    offsets = (points.positions - centers[labels]) * share[:, np.newaxis]
    moves = [by_box(column) for column in offsets.T]
    partition, information = partition_of(boxes), likelihood_of(boxes, fit.expected).information
    by_unknown = np.zeros((dim, k, len(covariance)))
    for part, unknowns, values in _slopes(partition, fit.components):
        vague = values * (1 - trust[part, np.newaxis])
        for d, move in enumerate(moves):
            by_unknown[d][:, unknowns] += move[:, part] @ vague
    by_unknown = by_unknown @ covariance
    variances = np.zeros((k, dim))
    for part, unknowns, values in _slopes(partition, fit.components):
        by_count = by_unknown[:, :, unknowns] @ (values * information[part, np.newaxis]).T
        for d, move in enumerate(moves):
            own = move[:, part].toarray()
            followed = own * trust[part] + by_count[d]
            variances[:, d] += np.square(followed) @ boxes.variance[part]
            variances[:, d] += np.square(followed - own) @ counts[part]
    squares = np.square(boxes.high - boxes.low) / 12 * counts[:, np.newaxis]
    for axis, coordinate in _number_coordinates(boxes):
        variances[:, coordinate] += by_box(share) @ squares[:, axis]
    records = np.bincount(labels, points.weights, k)
    shifts = np.sqrt(np.maximum(variances, 0.0)) / np.maximum(records, 1e-300)[:, np.newaxis]
    shifts[records <= 0] = np.inf
    return np.asarray(np.minimum(shifts, uniform_deviations(boxes.half_widths)))


def _number_coordinates(boxes: Boxes) -> list[tuple[int, int]]:
    """Return axis and coordinate of every number."""
    if not boxes.is_label.any():
        return [(d, d) for d in range(boxes.dim)]
    return [(d, axis.place.start) for d, axis in enumerate(boxes.axes) if axis.corners is None]
