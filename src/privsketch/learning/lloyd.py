"""Lloyd's algorithm on weighted points that represent a public density."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Bits, Floats, Indices
from privsketch.models.base import nearest


@dataclass(frozen=True)
class Points:
    """Weighted points, (n, dim), and the component or box that each point comes from."""

    positions: Floats
    weights: Floats
    source: Indices

    def subset(self, keep: Bits | Indices | slice) -> Points:
        """Return some of the points."""
        return Points(self.positions[keep], self.weights[keep], self.source[keep])


def assign(points: Points, centers: Floats) -> tuple[Indices, Floats]:
    """Return the nearest center of each point, and its weighted squared distance."""
    labels = nearest(points.positions, centers)
    residuals = points.positions - centers[labels]
    return labels, points.weights * np.einsum("ij,ij->i", residuals, residuals)


def total_cost(points: Points, centers: Floats) -> float:
    """Return the weighted squared distance of all points to their nearest centers."""
    return float(assign(points, centers)[1].sum())


def weighted_sums(
    rows: Floats, weights: Floats, labels: Indices, n_labels: int
) -> tuple[Floats, Floats]:
    """Return weights (n_labels,) and weighted sums (n_labels, dim) of the rows of each label."""
    mass = np.bincount(labels, weights, n_labels).astype(np.float64)
    sums = [np.bincount(labels, weights * column, n_labels) for column in rows.T]
    return mass, np.stack(sums, axis=1)


def means(points: Points, labels: Indices, centers: Floats) -> Floats:
    """Return the mean of the points of each center; centers without points stay."""
    mass, sums = weighted_sums(points.positions, points.weights, labels, len(centers))
    moved = sums / np.maximum(mass, 1e-300)[:, None]
    return np.where((mass > 0)[:, None], moved, centers)


def lloyd(points: Points, centers: Floats, n_rounds: int, tolerance: float) -> Floats:
    """Return centers after `n_rounds`, or once the cost falls by at most the share `tolerance`."""
    previous = np.inf
    for _ in range(n_rounds):
        labels, costs = assign(points, centers)
        cost = float(costs.sum())
        if cost >= previous * (1 - tolerance):
            break
        previous, centers = cost, means(points, labels, centers)
    return centers
