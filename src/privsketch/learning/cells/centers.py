"""K-means centers of estimated counts: of boxes first, then of their parts.

Many starts are tried on the boxes, each a point at the mean place of its records. The best go on
with every box divided into parts, because a border between clusters cuts boxes. The
density says where in a box its records are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.learning.cells.boxes import Boxes, Partition, grid_corners, partition_of
from privsketch.learning.cells.fit import Components
from privsketch.learning.problem import weighted_sums
from privsketch.models.base import nearest

SEEDED_STARTS = 12  # of k-means++ on boxes; a hundred are no better
N_FINALISTS = 2  # starts that go on with parts of boxes
MAX_TOTAL_PARTS = 40_000  # of all boxes together
BOX_ROUNDS, PART_ROUNDS = 12, 25  # of Lloyd
MIN_POINT_SHARE = 1e-4  # records over those of an average point that are left out
N_SWAPS = 30  # centers that are tried elsewhere


@dataclass(frozen=True)
class Points:
    """Places (n, dim) with the records at each, and the box that each is of."""

    places: Floats
    records: Floats
    box: Indices

    def some(self, least: float) -> Points:
        """Return the points that have more than this share of the records."""
        keep = self.records > least * self.records.sum()
        return Points(self.places[keep], self.records[keep], self.box[keep])


def divided(boxes: Boxes, n_parts: int) -> Boxes:
    """Return every box cut into `n_parts` along each axis; parts of a grid are a grid."""
    dim = boxes.dim
    if n_parts == 1:
        return boxes
    if boxes.shape is not None:
        edges = []
        for d, size in enumerate(boxes.shape):
            ends = np.unique(boxes.low[:, d])
            widths = np.append(ends[1:], boxes.high[:, d].max()) - ends
            cuts = ends[:, None] + widths[:, None] * np.arange(n_parts) / n_parts
            edges.append(np.append(cuts.reshape(size * n_parts), boxes.high[:, d].max()))
        low, high = grid_corners(edges)
        shape: tuple[int, ...] | None = tuple(size * n_parts for size in boxes.shape)
    else:
        steps = np.stack(np.meshgrid(*[np.arange(n_parts)] * dim, indexing="ij"), -1)
        steps = steps.reshape(1, -1, dim)
        widths = (boxes.high - boxes.low)[:, None, :] / n_parts
        low = (boxes.low[:, None, :] + steps * widths).reshape(-1, dim)
        high = (boxes.low[:, None, :] + (steps + 1) * widths).reshape(-1, dim)
        shape = None
    nothing = np.zeros(len(low))
    return Boxes(low, high, nothing, nothing, shape=shape)


def _origin(boxes: Boxes, n_parts: int) -> Indices:
    """Return the box of each part, in the order of `divided`."""
    if boxes.shape is None or n_parts == 1:
        return np.repeat(np.arange(boxes.n_boxes), n_parts**boxes.dim)
    steps = [np.arange(size * n_parts) // n_parts for size in boxes.shape]
    return np.ravel_multi_index(np.meshgrid(*steps, indexing="ij"), boxes.shape).reshape(-1)


def points_of(
    boxes: Boxes, counts: Floats, densities: list[tuple[float, Components]], n_parts: int
) -> Points:
    """Return all parts of boxes as points at the mean of their records under the densities."""
    parts = divided(boxes, n_parts)
    partition = partition_of(parts)
    box = _origin(boxes, n_parts)
    mass = np.zeros(parts.n_boxes)
    moments = np.zeros((parts.n_boxes, boxes.dim))
    for weight, components in densities:
        _add_moments(partition, weight, components, mass, moments)
    # A little of every box is even, so that boxes that no component reaches have a place.
    faint = 1e-6 * max(float(mass.sum()), 1.0) * parts.shares
    moments += faint[:, None] * parts.centers
    mass += faint
    share = mass / np.bincount(box, mass, boxes.n_boxes)[box]
    places = np.clip(moments / mass[:, None], parts.low, parts.high)
    return Points(places, counts[box] * share, box)


def _add_moments(
    partition: Partition, weight: float, components: Components, mass: Floats, moments: Floats
) -> None:
    factors = partition.factors(components.centers, components.widths)
    firsts = partition.first_moments(components.centers, components.widths)
    weights = weight * components.weights
    mass += partition.sums(weights, factors)
    for d, (i, j) in enumerate(pairwise(partition.begins)):
        mixed = factors.copy()
        mixed[:, i:j] = firsts[:, i:j]
        moments[:, d] += partition.sums(weights, mixed)


def parts_per_axis(n_boxes: int, dim: int) -> int:
    """Return the affordable number of parts of a box along each axis, at most eight."""
    return int(np.clip((MAX_TOTAL_PARTS / n_boxes) ** (1 / dim), 1, 8))


def assign(points: Points, centers: Floats) -> tuple[Indices, Floats]:
    """Return the nearest center and the cost of each point."""
    label = nearest(points.places, centers)
    misses = points.places - centers[label]
    return label, points.records * np.einsum("ij,ij->i", misses, misses)


def means(points: Points, label: Indices, centers: Floats) -> Floats:
    """Return the mean of the points of each center; a center without points stays."""
    mass, sums = weighted_sums(points.places, points.records, label, len(centers))
    moved = sums / np.maximum(mass, 1e-300)[:, None]
    return np.where((mass > 0)[:, None], moved, centers)


def lloyd(points: Points, centers: Floats, n_rounds: int) -> tuple[Floats, float]:
    """Return centers after rounds of Lloyd's algorithm, and their cost."""
    previous = np.inf
    for _ in range(n_rounds):
        label, costs = assign(points, centers)
        cost = float(costs.sum())
        if cost >= previous * (1 - 1e-5):
            break
        previous, centers = cost, means(points, label, centers)
    return centers, float(assign(points, centers)[1].sum())


def seeds(points: Points, k: int, rng: np.random.Generator) -> Floats:
    """Return k-means++ seeds, chosen among several candidates each, weighted by records."""
    n = len(points.places)
    squares = np.einsum("ij,ij->i", points.places, points.places)
    chosen = [int(rng.choice(n, p=points.records / points.records.sum()))]
    n_candidates = 2 + int(np.log(k + 1))
    distance = _squares(points.places, squares, chosen[0:1])[0]
    for _ in range(k - 1):
        cost = distance * points.records
        total = np.cumsum(cost)
        if not total[-1] > 0:
            chosen.append(int(rng.integers(n)))
            continue
        at = np.searchsorted(total, rng.random(n_candidates) * total[-1])
        at = np.minimum(at, n - 1)
        closer = np.minimum(distance, _squares(points.places, squares, at))
        best = int((closer @ points.records).argmin())
        chosen.append(int(at[best]))
        distance = closer[best]
    return points.places[chosen]


def _squares(places: Floats, squares: Floats, at: Indices | list[int]) -> Floats:
    """Return squared distances of all points to some of them, (len(at), n)."""
    distances = squares[at][:, None] + squares - 2 * (places[at] @ places.T)
    return np.maximum(distances, 0.0)


def swapped(points: Points, centers: Floats, cost: float, n_swaps: int) -> tuple[Floats, float]:
    """Move the least useful centers to where the cost is highest, as long as that helps."""
    k = len(centers)
    if k < 2:
        return centers, cost
    for _ in range(n_swaps):
        label, costs = assign(points, centers)
        own = np.bincount(label, costs, k)
        rest = _without_each(points, centers, label)
        loss = np.bincount(label, points.records * rest, k) - own
        moved = None
        for worst in np.argsort(-own)[:3]:
            inside = np.flatnonzero(label == worst)
            if len(inside) < 2:
                continue
            least = loss.copy()
            least[worst] = np.inf
            far = inside[costs[inside].argmax()]
            trial = centers.copy()
            trial[int(least.argmin())] = points.places[far]
            trial, value = lloyd(points, trial, BOX_ROUNDS)
            if value < cost * (1 - 1e-4):
                moved, cost = trial, value
                break
        if moved is None:
            return centers, cost
        centers = moved
    return centers, cost


def _without_each(points: Points, centers: Floats, label: Indices) -> Floats:
    """Return the squared distance of each point to the nearest center but its own, (n,)."""
    scores = points.places @ centers.T - 0.5 * np.einsum("ij,ij->i", centers, centers)
    scores[np.arange(len(label)), label] = -np.inf
    second = scores.argmax(axis=1)
    misses = points.places - centers[second]
    return np.asarray(np.einsum("ij,ij->i", misses, misses))


@dataclass(frozen=True)
class CellClusters:
    """Centers, the parts of boxes that they are of, and the points that stand for these."""

    centers: Floats
    parts: Boxes
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
    n_parts = parts_per_axis(*boxes.low.shape)
    fine = points_of(boxes, counts, densities, n_parts)
    coarse = points_of(boxes, counts, densities, 1).some(MIN_POINT_SHARE / len(counts))
    if len(coarse.places) < 3 * n_clusters:
        coarse = fine.some(MIN_POINT_SHARE / len(fine.places))
    tried = [start for start in starts if len(start) == n_clusters]
    tried += [seeds(coarse, n_clusters, rng) for _ in range(SEEDED_STARTS)]
    coarse_runs = [lloyd(coarse, start, BOX_ROUNDS) for start in tried]
    coarse_runs.sort(key=lambda pair: pair[1])
    best = [swapped(coarse, *pair, N_SWAPS) for pair in coarse_runs[:N_FINALISTS]]
    final = [lloyd(fine, centers, PART_ROUNDS) for centers, _ in best]
    centers, _ = min(final, key=lambda pair: pair[1])
    centers = centers[np.lexsort(centers.T[::-1])]  # an order that no start decides
    return CellClusters(centers, divided(boxes, n_parts), fine)
