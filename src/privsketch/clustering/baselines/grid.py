"""K-means of a noisy histogram: the uniform grid EUGkM of Su et al. (2016).

The box is cut into cells, the same number along every axis. The numbers of records of all cells,
empty ones included, get noise in one release. K-means of the cells' centers, weighted by the
positive noisy counts, is post-processing. The method serves a few columns: cells multiply with
every column, which leaves few along each axis.

The number of cells follows from a public number of records. With fewer cells, records lie far from
the centers of their cells; with more, there is more noise. A ball is replaced by the box around it.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_count, require_records
from privsketch._base.types import Floats, Integers
from privsketch.clustering.baselines.points import start_centers
from privsketch.clustering.cells import Grid
from privsketch.clustering.edge import Means, edge_concerns
from privsketch.clustering.extent import crowded
from privsketch.clustering.forecast import counted_cells, forecast_ratio
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run
from privsketch.facts.domain import Box, Domain
from privsketch.kernels.nearest import nearest
from privsketch.learning.concerns import RecordCount
from privsketch.models.clusters import ClusterModel

MAX_GRID_CELLS = 2**22  # 32 MB of counts
_CELLS_AT_ONCE = 2**14  # cells that are assigned to centers together
_EDGE_CELLS = 20  # with more cells along an axis, the last one lies beyond 1 - 1/20 = 0.95
_N_INIT = 5  # runs of k-means on the cells


def cluster(run: Run, n_clusters: int) -> ClusterModel:
    """Release k-means centers from one pass over the records.

    The run needs `n_records`, a public number, about the number of records.

    Charges: epsilon of the budget, once; its noise is pure and leaves delta alone.
    """
    require_count("n_clusters", n_clusters)
    n_records, box, epsilon = run.n_records, run.box, run.budget.epsilon
    if n_records is None:
        raise ParameterError(
            "n_records=None with `method='grid'`: the number of cells follows from a public number "
            "of records; give one that is about right"
        )
    passes = run.read(box)
    per_axis = cells_per_axis(n_records, epsilon, passes.dim)
    run.without_delta()
    account = run.share({"cells": Fraction(1)})
    noisy, scale = account.laplace("cells", cell_counts(passes, per_axis), 1)
    positive = np.flatnonzero(noisy > 0)
    points = cell_centers(box, per_axis, positive)
    centers, weights = _kmeans(points, noisy[positive], n_clusters, box, run.seed)
    total = max(float(noisy.sum()), 1.0)
    concerns: tuple[str, ...] = ()
    if per_axis**passes.dim < n_clusters:
        concerns = (f"the grid has fewer cells, {per_axis**passes.dim}, than there are clusters",)
    means = _means(box, per_axis, noisy, 2 * scale**2, centers)
    if per_axis > _EDGE_CELLS:
        concerns += edge_concerns(
            means, weights, box, cell=1 / per_axis, schema=run.schema, names=run.names
        )
    return run.model(
        centers,
        weights * total,
        method="grid",
        mechanism=f"k-means of a grid of {per_axis}^{passes.dim} cells",
        concerns=concerns,
        too_wide=crowded(centers, means.counts, means.count_errors, box),
        forecast=lambda facts: forecast_ratio(
            facts, counted_cells(facts, (per_axis,) * passes.dim, 2 * scale**2)
        ),
        seen=RecordCount(float(noisy.sum()), 2 * scale**2 * len(noisy)),
    )


def _means(box: Box, per_axis: int, noisy: Floats, variance: float, centers: Floats) -> Means:
    """Return the means of all cells next to each center.

    They include negative counts: positive noise alone would move the means.
    """
    k, dim = centers.shape
    counts, cells, moments = np.zeros(k), np.zeros(k), np.zeros((3, k, dim))
    for first in range(0, len(noisy), _CELLS_AT_ONCE):
        values = noisy[first : first + _CELLS_AT_ONCE]
        points = cell_centers(box, per_axis, np.arange(first, first + len(values)))
        label = nearest(points, centers)
        member = (label == np.arange(k)[:, np.newaxis]).astype(np.float64)
        offsets = points - box.center_vector
        counts += member @ values
        cells += member.sum(axis=1)
        terms = values[:, np.newaxis] * offsets, offsets, offsets**2
        moments += [member @ term for term in terms]
    divisors = np.maximum(counts, 1.0)[:, np.newaxis]
    sums, offsets, squares = moments
    means = sums / divisors
    # The error of a mean: the same noise is in the sum and in the count.
    about = squares - 2 * means * offsets + means**2 * cells[:, np.newaxis]
    errors = np.sqrt(variance * np.maximum(about, 0.0)) / divisors
    return Means(
        means + box.center_vector, counts, errors, np.sqrt(variance * cells), is_gaussian=False
    )


def ideal_cells(n_records: float, epsilon: float, dim: int) -> float:
    """Return M = (n epsilon / 10)^(2 d / (2 + d)), where noise and width of cells err alike."""
    return float((n_records * epsilon / 10) ** (2 * dim / (2 + dim)))


def cells_per_axis(n_records: float, epsilon: float, dim: int) -> int:
    """Return the largest number of cells along an axis with a power below the ideal, at least 1."""
    require_records(n_records)
    # In floats, a root that is a whole number may be slightly less.
    side = math.pow(ideal_cells(n_records, epsilon, dim), 1 / dim)
    per_axis = max(1, math.floor(side + 1e-9))
    if per_axis**dim > MAX_GRID_CELLS:
        raise ParameterError(
            f"`n_records={n_records:g}`, `epsilon={epsilon:g}` in {dim} columns: a grid of "
            f"{per_axis}^{dim} cells, and at most {MAX_GRID_CELLS} can be used; use another "
            "method, fewer columns, or a smaller n_records"
        )
    return per_axis


def cell_counts(passes: Passes, per_axis: int) -> Integers:
    """Count the records of every cell, (per_axis^dim,), in one pass; first column slowest."""
    return Grid(passes, (per_axis,) * passes.dim).counts()


def cell_centers(box: Box, per_axis: int, cells: npt.NDArray[np.intp]) -> Floats:
    """Return the centers (n, dim) of cells by their numbers, in the units of the records."""
    half = box.half_widths
    steps = np.stack(np.unravel_index(cells, (per_axis,) * len(half)), axis=1)
    return np.asarray(((2 * steps + 1) / per_axis - 1) * half + box.center_vector)


def _kmeans(
    points: Floats, weights: Floats, n_clusters: int, domain: Domain, seed: int
) -> tuple[Floats, Floats]:
    """Return centers and their shares, from released numbers."""
    if len(points) <= n_clusters:  # every cell is a center, and start centers are added
        spare = start_centers(domain, n_clusters, "packing", seed) + domain.center_vector
        centers = np.concatenate([points, spare[len(points) :]])
        sizes = np.concatenate([weights, np.zeros(n_clusters - len(points))])
        sizes = sizes if sizes.any() else np.ones(n_clusters)
    else:
        from sklearn.cluster import KMeans

        fit = KMeans(n_clusters, n_init=_N_INIT, random_state=seed % 2**32)
        label = fit.fit(points, sample_weight=weights).labels_
        centers, sizes = fit.cluster_centers_, np.bincount(label, weights, minlength=n_clusters)
    return centers, np.asarray(sizes / sizes.sum())
