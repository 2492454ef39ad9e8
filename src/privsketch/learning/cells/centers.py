"""K-means centers of estimated counts: of boxes first, then of their parts.

Many starts are tried on the boxes, each of which is a point at the mean of its records. The best
ones continue with every box divided into parts, because borders between clusters cut boxes. The
density says where the records of a box are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.fit import Components
from privsketch.learning.cells.partition import moments, partition_of
from privsketch.learning.lloyd import Points, assign, lloyd, total_cost

SEEDED_STARTS = 12  # starts by k-means++ on boxes; a hundred are no better
N_FINALISTS = 2  # starts that continue with parts of boxes
MAX_TOTAL_PARTS = 40_000  # of all boxes together
BOX_ROUNDS, PART_ROUNDS = 12, 25  # of Lloyd's algorithm on boxes and on their parts
BOX_TOLERANCE = 1e-5  # relative fall of the cost that is worth another round
MIN_POINT_SHARE = 1e-4  # points with a smaller share of an average point's records are left out
N_SWAPS = 30  # a guard: swaps end when none lowers the cost


def divided(boxes: Boxes, n_parts: int) -> Boxes:
    """Return the boxes, each cut into `n_parts` along every axis of numbers, box by box."""
    steps = np.indices([1 if is_label else n_parts for is_label in boxes.is_label])
    steps = steps.reshape(boxes.dim, -1).T
    widths = (boxes.high - boxes.low)[:, None, :] / (steps.max(axis=0) + 1)
    low = (boxes.low[:, None, :] + steps * widths).reshape(-1, boxes.dim)
    high = (boxes.low[:, None, :] + (steps + 1) * widths).reshape(-1, boxes.dim)
    zeros = np.zeros(len(low))
    return Boxes(low, high, zeros, zeros, axes=boxes.axes)


def points_of(
    boxes: Boxes, counts: Floats, densities: list[tuple[float, Components]], n_parts: int
) -> Points:
    """Return all parts of boxes as points at the mean of their records under the densities."""
    parts = divided(boxes, n_parts)
    partition = partition_of(parts)
    box = np.repeat(np.arange(boxes.n_boxes), parts.n_boxes // boxes.n_boxes)
    mass = np.zeros(parts.n_boxes)
    sums = np.zeros((parts.n_boxes, boxes.dim))
    for weight, components in densities:
        shapes = components.centers, components.widths, components.shares
        own_mass, own_moments = moments(partition, weight * components.weights, *shapes)
        mass += own_mass
        sums += own_moments
    # A faint even background gives a position to boxes that no component reaches.
    faint = 1e-6 * max(float(mass.sum()), 1.0) * parts.shares
    sums += faint[:, None] * parts.centers
    mass += faint
    share = mass / np.bincount(box, mass, boxes.n_boxes)[box]
    positions = np.clip(sums / mass[:, None], parts.low, parts.high)
    return Points(parts.coordinates(positions), counts[box] * share, box)


def parts_per_axis(n_boxes: int, dim: int) -> int:
    """Return the affordable number of parts of a box along each axis, at most eight."""
    return int(np.clip((MAX_TOTAL_PARTS / n_boxes) ** (1 / dim), 1, 8))


def seeds(points: Points, k: int, rng: np.random.Generator) -> Floats:
    """Return k-means++ seeds, chosen among several candidates each, weighted by records."""
    n = len(points.positions)
    squares = np.einsum("ij,ij->i", points.positions, points.positions)
    seed_rows = [int(rng.choice(n, p=points.weights / points.weights.sum()))]
    n_candidates = 2 + int(np.log(k + 1))
    distance = _squares(points.positions, squares, seed_rows)[0]
    for _ in range(k - 1):
        cost = distance * points.weights
        total = np.cumsum(cost)
        if not total[-1] > 0:
            seed_rows.append(int(rng.integers(n)))
            continue
        rows = np.searchsorted(total, rng.random(n_candidates) * total[-1])
        rows = np.minimum(rows, n - 1)
        closer = np.minimum(distance, _squares(points.positions, squares, rows))
        best = int((closer @ points.weights).argmin())
        seed_rows.append(int(rows[best]))
        distance = closer[best]
    return points.positions[seed_rows]


def _squares(positions: Floats, squares: Floats, rows: Indices | list[int]) -> Floats:
    """Return squared distances of all points to some of them, (len(rows), n)."""
    distances = squares[rows][:, None] + squares - 2 * (positions[rows] @ positions.T)
    return np.maximum(distances, 0.0)


def swapped(points: Points, centers: Floats) -> Floats:
    """Move the least useful centers to where the cost is highest, as long as that helps."""
    k = len(centers)
    if k < 2:
        return centers
    cost = total_cost(points, centers)
    for _ in range(N_SWAPS):
        labels, costs = assign(points, centers)
        costs_by_center = np.bincount(labels, costs, k)
        second = _second_distances(points, centers, labels)
        losses = np.bincount(labels, points.weights * second, k) - costs_by_center
        moved = None
        for worst in np.argsort(-costs_by_center)[:3]:
            inside = np.flatnonzero(labels == worst)
            if len(inside) < 2:
                continue
            losses_elsewhere = losses.copy()
            losses_elsewhere[worst] = np.inf
            swapped_in = centers.copy()
            farthest = inside[costs[inside].argmax()]
            swapped_in[int(losses_elsewhere.argmin())] = points.positions[farthest]
            swapped_in = lloyd(points, swapped_in, BOX_ROUNDS, BOX_TOLERANCE)
            new_cost = total_cost(points, swapped_in)
            if new_cost < cost * (1 - 1e-4):
                moved, cost = swapped_in, new_cost
                break
        if moved is None:
            return centers
        centers = moved
    return centers


def _second_distances(points: Points, centers: Floats, labels: Indices) -> Floats:
    """Return the squared distance of each point to the nearest center but its own, (n,)."""
    scores = points.positions @ centers.T - 0.5 * np.einsum("ij,ij->i", centers, centers)
    scores[np.arange(len(labels)), labels] = -np.inf
    second = scores.argmax(axis=1)
    misses = points.positions - centers[second]
    return np.asarray(np.einsum("ij,ij->i", misses, misses))


def _relevant(points: Points) -> Points:
    """Return the points without those that have next to none of the records."""
    least = MIN_POINT_SHARE / len(points.weights)
    return points.subset(points.weights > least * points.weights.sum())


@dataclass(frozen=True)
class CellClusters:
    """Centers, and the points that stand for the parts of all boxes."""

    centers: Floats
    points: Points


def kmeans(
    boxes: Boxes,
    counts: Floats,
    densities: list[tuple[float, Components]],
    starts: list[Floats],
    n_clusters: int,
    rng: np.random.Generator,
) -> CellClusters:
    """Return the centers of least cost over all starts of `n_clusters` centers."""
    n_parts = parts_per_axis(boxes.n_boxes, max(int((~boxes.is_label).sum()), 1))
    fine = points_of(boxes, counts, densities, n_parts)
    coarse = _relevant(points_of(boxes, counts, densities, 1))
    if len(coarse.weights) < 3 * n_clusters:
        coarse = _relevant(fine)
    starts = [start for start in starts if len(start) == n_clusters]
    starts += [seeds(coarse, n_clusters, rng) for _ in range(SEEDED_STARTS)]
    ends = [lloyd(coarse, start, BOX_ROUNDS, BOX_TOLERANCE) for start in starts]
    ends.sort(key=lambda centers: total_cost(coarse, centers))
    ends = [swapped(coarse, centers) for centers in ends[:N_FINALISTS]]
    ends = [lloyd(fine, centers, PART_ROUNDS, BOX_TOLERANCE) for centers in ends]
    centers = min(ends, key=lambda centers: total_cost(fine, centers))
    centers = centers[np.lexsort(centers.T[::-1])]  # the order must not depend on the start
    return CellClusters(centers, fine)
