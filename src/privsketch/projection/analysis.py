"""Clusters and nearest neighbours of released rows, by unbiased distances.

Clusters. Noise moves a row away from every center, but not by the same amount. The mean m_j of n_j
rows that include the row itself has a share of its noise, so that |Z_i - m_j|^2 is too large by
k s2 (1 - 1 / n_j) on average; from the mean of other rows it is too large by k s2 (1 + 1 / n_j). A
plain Lloyd round therefore keeps too many rows in their cluster. Here both terms are subtracted,
which lowers the cost of partitions a little if clusters are small; labels hardly change.

A public matrix matters more. It stretches some directions of the released space: clusters that are
round among the records are ellipsoids there, and plain k-means cuts the longest of them in two.
Given the matrix, rows are scaled so that such clusters are round again. docs/projection.md has
measurements.

Neighbours. Among rows of one release the noise adds the same amount to all distances from a query.
Ranks, and so any nearest-neighbour classifier, are those of plain distances; only the returned
distances differ. Among releases with different noise, plain distances would prefer the release with
less noise; unbiased ones do not. No correction restores a rank that noise has changed.

All of this is post-processing and charges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_count
from privsketch._base.types import Floats, Integers
from privsketch.features.frequencies import public_seed
from privsketch.projection.distances import (
    VALUES_AT_ONCE,
    Distances,
    Released,
    as_floats,
    require_released,
)

Labels = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class ReleasedClusters:
    """Clusters of released rows.

    Attributes
    ----------
    labels : (n,) int
        Cluster index of each row.
    centers : (n_clusters, k) float64
        Means of the released rows of each cluster, in the released space.
    sizes : (n_clusters,) int
    inertia : float
        Sum of squares of the projected records about the means of their clusters, without the
        contribution of noise; see `inertia`.
    """

    labels: Labels
    centers: Floats
    sizes: Labels
    inertia: float


def inertia(released: Released, labels: npt.ArrayLike) -> float:
    """Return the sum of squares within clusters of the projected records, without noise.

    It is unbiased for labels that do not depend on the noise. Labels that minimise it have fitted
    some of the noise: it is then too small, and may be negative.
    """
    require_released("released", released)
    values = np.asarray(labels)
    if values.shape != (len(released.values),):
        raise ParameterError(f"labels: expected one for each of {len(released.values)} rows")
    numbers = np.unique(values, return_inverse=True)[1]
    state = _Partition.of(released.values, numbers, int(numbers.max(initial=-1)) + 1)
    return state.cost(released.n_components * released.variance)


def cluster_released(
    released: Released,
    n_clusters: int,
    *,
    matrix: npt.ArrayLike | None = None,
    n_init: int = 10,
    max_rounds: int = 100,
    random_state: int = 0,
) -> ReleasedClusters:
    """Cluster released rows by Lloyd rounds with unbiased distances to means.

    Parameters
    ----------
    released : Released
    n_clusters : int
    matrix : (dim, k) array, optional
        The matrix of the release, if it is public. Clusters are then assumed to be round among the
        records: the covariance of a cluster is P' P times the variance of the records, plus noise.
        Labels are much better, unless a few directions have most of the variance within clusters.
    n_init : int
        Number of starts from different rows; the one of least cost is returned.
    max_rounds : int
        Largest number of rounds of a start. If noise is larger than clusters, rounds may go in
        circles; the best of them is returned.
    random_state : int
        Public seed of the starts.
    """
    from sklearn.cluster import kmeans_plusplus

    require_released("released", released)
    require_count("n_clusters", n_clusters)
    require_count("n_init", n_init)
    require_count("max_rounds", max_rounds)
    n, k = released.values.shape
    if n < n_clusters:
        raise ParameterError(f"`n_clusters={n_clusters}`: more than there are rows ({n})")
    scaling = np.eye(k) if matrix is None else _scaling(released, matrix)
    # Centered rows avoid the cancellation of large squares.
    rows = (released.values - released.values.mean(axis=0)) @ scaling
    excess = released.variance * float(np.square(scaling).sum())
    rng = np.random.default_rng(public_seed(random_state))
    starts = rng.integers(2**31, size=n_init)
    seeds = (kmeans_plusplus(rows, n_clusters, random_state=int(start))[0] for start in starts)
    best = min(
        (_lloyd(rows, centers, excess, max_rounds) for centers in seeds),
        key=lambda state: state.cost(excess),
    )
    state = _Partition.of(released.values, best.labels, n_clusters)
    return ReleasedClusters(
        best.labels, state.centers, state.sizes, state.cost(k * released.variance)
    )


@dataclass(frozen=True, eq=False)
class _Partition:
    """Partition of rows, with `spread`, their sum of squares about the means of their clusters."""

    labels: Labels
    centers: Floats
    sizes: Labels
    spread: float

    @classmethod
    def of(cls, rows: Floats, labels: Labels, n_clusters: int) -> _Partition:
        sizes = np.bincount(labels, minlength=n_clusters)
        sums = [np.bincount(labels, column, n_clusters) for column in rows.T]
        centers = np.stack(sums, axis=1) / np.maximum(sizes, 1)[:, np.newaxis]
        residuals = rows - centers[labels]
        return cls(labels, centers, sizes, float(np.einsum("ij,ij->", residuals, residuals)))

    def cost(self, excess: float) -> float:
        """Return the sum of squares without noise: (n_j - 1) / n_j of `excess` for each row."""
        return self.spread - excess * (len(self.labels) - np.count_nonzero(self.sizes))


def _lloyd(rows: Floats, centers: Floats, excess: float, max_rounds: int) -> _Partition:
    """Run rounds until no label changes, and return the best partition."""
    n_clusters = len(centers)
    labels = _nearest(rows, centers, np.zeros(n_clusters))
    best = state = _Partition.of(rows, labels, n_clusters)
    for _ in range(max_rounds):
        labels = _reassign(rows, state, excess)
        if (labels == state.labels).all():
            break
        state = _Partition.of(rows, labels, n_clusters)
        if state.cost(excess) < best.cost(excess):
            best = state
    return best


def _reassign(rows: Floats, state: _Partition, excess: float) -> Labels:
    """Assign each row to its nearest mean by unbiased distances; fill empty clusters."""
    shares = excess / np.maximum(state.sizes, 1)
    offsets = np.where(state.sizes == 0, np.inf, -shares)
    labels = _nearest(rows, state.centers, offsets, state.labels, 2 * shares)
    empty = np.setdiff1d(np.arange(len(state.centers)), labels)
    if len(empty):
        residuals = rows - state.centers[labels]
        farthest = np.argsort(-np.einsum("ij,ij->i", residuals, residuals), kind="stable")
        labels[farthest[: len(empty)]] = empty
    return labels


def _nearest(
    rows: Floats,
    centers: Floats,
    offsets: Floats,
    current: Labels | None = None,
    current_offsets: Floats | None = None,
    *,
    strip: int = VALUES_AT_ONCE,
) -> Labels:
    """Return the nearest center by squared distance plus offset, which current labels change."""
    labels = np.empty(len(rows), dtype=np.intp)
    # The squared norm of a row is the same for all centers.
    constants = np.einsum("ij,ij->i", centers, centers) + offsets
    step = max(1, strip // len(centers))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        scores = rows[part] @ centers.T
        scores *= -2
        scores += constants
        if current is not None and current_offsets is not None:
            label = current[part]
            scores[np.arange(len(scores)), label] += current_offsets[label]
        labels[part] = scores.argmin(axis=1)
    return labels


def _scaling(released: Released, matrix: npt.ArrayLike) -> Floats:
    """Return (k, k) factors that make rows of round clusters of records round, noise included.

    The variance of records in one direction follows from the total variance of the rows.
    """
    k, noise = released.n_components, released.variance
    values = as_floats("matrix", matrix)
    if values.ndim != 2 or values.shape[1] != k or not np.isfinite(values).all():
        raise ParameterError(f"matrix: expected shape (dim, {k}), got {values.shape}")
    if not values.any():
        raise ParameterError("matrix: all of it is 0; give the matrix of the release")
    gram = values.T @ values
    total = float(released.values.var(axis=0).sum())
    spread = max(total - k * noise, 0.0) / float(np.trace(gram))
    if spread == 0:
        return np.eye(k)
    lengths, directions = np.linalg.eigh(spread * gram + noise * np.eye(k))
    return np.asarray(directions / np.sqrt(np.maximum(lengths, 1e-12 * lengths[-1])))


QUERIES_AT_ONCE, CANDIDATES_AT_ONCE = 128, 2**14  # the distances of a block: 16 MB


@dataclass(frozen=True, eq=False)
class NearestRows:
    """Nearest rows of every query, nearest first; all arrays are (n_queries, n_nearest).

    `rows` are row numbers in a release, `releases` the number of that release. Squared distances
    are unbiased for a given row, and often negative. Those of the nearest rows are too small on
    average, because they are selected for being small.
    """

    rows: Integers
    releases: Integers
    squared_distances: Floats


def nearest_rows(
    queries: Released, n_nearest: int, *, among: Released | Sequence[Released] | None = None
) -> NearestRows:
    """Find the nearest rows of each query.

    Parameters
    ----------
    queries : Released
        Released rows, or exact points of the released space.
    n_nearest : int
    among : Released or sequence of Released, optional
        Releases to search, with the same matrix as the queries; by default the queries themselves.
        If the list contains the object `queries`, no row is its own neighbour.
    """
    require_count("n_nearest", n_nearest)
    require_released("queries", queries)
    tables = _tables(queries if among is None else among)
    between = [Distances(queries, table) for table in tables]
    available = sum(len(table.values) - (table is queries) for table in tables)
    if n_nearest > available:
        raise ParameterError(f"`n_nearest={n_nearest}`: there are {max(available, 0)} other rows")
    count = len(queries.values)
    neighbours = NearestRows(
        np.empty((count, n_nearest), dtype=np.int64),
        np.empty((count, n_nearest), dtype=np.int64),
        np.empty((count, n_nearest)),
    )
    for start in range(0, count, QUERIES_AT_ONCE):
        part = slice(start, min(start + QUERIES_AT_ONCE, count))
        best = _NearestSoFar(part.stop - start)
        for number, distances in enumerate(between):
            for first in range(0, len(tables[number].values), CANDIDATES_AT_ONCE):
                block = distances.block(part, slice(first, first + CANDIDATES_AT_ONCE))
                if tables[number] is queries:
                    rows = np.arange(start, part.stop)
                    inside = (rows >= first) & (rows < first + block.shape[1])
                    block[np.flatnonzero(inside), rows[inside] - first] = np.inf
                best.update(block, first, number, n_nearest)
        neighbours.rows[part], neighbours.releases[part] = best.rows, best.releases
        neighbours.squared_distances[part] = best.squared
    return neighbours


def _tables(among: Released | Sequence[Released]) -> list[Released]:
    if isinstance(among, Released):
        return [among]
    if not isinstance(among, Sequence):
        raise ParameterError(
            f"among: expected Released(values, noise), or a list, got {type(among).__name__}"
        )
    return [require_released("among", table) for table in among]


class _NearestSoFar:
    """Nearest rows so far, sorted."""

    def __init__(self, n_queries: int) -> None:
        self.rows: Integers = np.empty((n_queries, 0), dtype=np.int64)
        self.releases: Integers = np.empty((n_queries, 0), dtype=np.int64)
        self.squared: Floats = np.empty((n_queries, 0))

    def update(self, block: Floats, first: int, release: int, n_nearest: int) -> None:
        """Include the distances to the rows of a release from `first` on."""
        count = min(n_nearest, block.shape[1])
        nearest = np.argpartition(block, count - 1, axis=1)[:, :count]
        squared = np.concatenate([self.squared, np.take_along_axis(block, nearest, axis=1)], axis=1)
        rows = np.concatenate([self.rows, nearest + first], axis=1)
        releases = np.concatenate([self.releases, np.full_like(nearest, release)], axis=1)
        order = np.argsort(squared, axis=1, kind="stable")[:, :n_nearest]
        self.squared, self.rows, self.releases = (
            np.take_along_axis(values, order, axis=1) for values in (squared, rows, releases)
        )
