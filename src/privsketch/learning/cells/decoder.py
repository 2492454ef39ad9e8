"""Noisy counts to a density and k-means centers.

Fits of mixtures of falling size (`path`) are averaged (`average`); the counts that they expect,
and what the released ones say beyond them, are clustered (`centers`). Nothing here knows a record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.learning.cells.average import average, criterion, posterior_counts
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.centers import assign, kmeans
from privsketch.learning.cells.errors import linearised, shares_of_clusters, standard_errors
from privsketch.learning.cells.path import search
from privsketch.learning.problem import Atoms

NO_WORSE = 4.0  # of the criterion, two nats: differences that chance makes


@dataclass(frozen=True)
class CellSolution:
    """What counts tell of the records behind them.

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
        What each center serves.
    cost : float
        K-means cost of the estimate.
    standard_errors : (n_clusters, dim) float64, optional
        Of the centers, from noise and sampling.
    residual, expected_residual, residual_spread : float
        Squared misfit of the density over all boxes, in records^2, what noise and
        sampling would leave of it, and the standard deviation of that.
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
    """A density and k-means centers from noisy counts. Charges nothing."""
    # The matrix products are small: threads would cost more than they bring.
    with one_thread():
        found = average(search(boxes, n_clusters, rng))
        counts = posterior_counts(boxes, found.expected, rng)
        factor = _known_total(boxes, counts)
        counts = counts * factor
        # Where nothing is left, any place is as good as another: the domain is divided evenly.
        clustered = counts if counts.sum() > 0 else boxes.shares
        starts = [fit.components.centers for fit in found.fits]
        clusters = kmeans(boxes, clustered, found.plausible(), starts, n_clusters, rng)
        centers, points = clusters.centers, clusters.points
        label, costs = assign(points, centers)
        has_records = counts.sum() > 0
        records = np.bincount(label, points.records, n_clusters) * has_records
        components = found.best.components
        known = linearised(boxes, found.best)
        shares = shares_of_clusters(clusters.parts, components, points.places, label, centers)
        return CellSolution(
            density=Atoms(
                components.weights[:-1] * factor, components.centers, components.widths**2
            ),
            background=float(components.weights[-1]) * factor,
            counts=counts,
            centers=centers,
            records=records,
            cost=float(costs.sum()) * has_records,
            standard_errors=standard_errors(boxes, known, components, *shares),
            residual=known.misfit.residual,
            expected_residual=known.misfit.expected,
            residual_spread=known.misfit.spread,
        )


def choose_number(boxes: Boxes, max_clusters: int, rng: np.random.Generator) -> int:
    """The least number of components that explains the counts, at most `max_clusters`.

    A smaller number is as good if it costs no more than what is rarely due to chance.
    """
    with one_thread():
        fits = search(boxes, max_clusters, rng, fewest=1)
    scores = np.array([criterion(fit) for fit in fits])
    sizes = np.array([fit.components.size for fit in fits])
    explains = scores <= scores.min() + NO_WORSE
    return int(min(sizes[explains].min(), max_clusters))


def _known_total(boxes: Boxes, counts: Floats) -> float:
    """What counts are multiplied by where the number of records is known better."""
    found = float(counts.sum())
    if boxes.total is None or not found > 0:
        return 1.0
    return max(boxes.total, 0.0) / found
