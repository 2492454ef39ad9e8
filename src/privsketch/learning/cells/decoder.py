"""Noisy counts to a density and k-means centers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._parallel import one_thread
from privsketch._typing import Floats
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.centers import assign, kmeans
from privsketch.learning.cells.fit import Components, Fit, fit
from privsketch.learning.cells.guess import significant
from privsketch.learning.cells.likelihood import likelihood_of
from privsketch.learning.cells.masses import partition_of
from privsketch.learning.cells.path import FIRST_ROUNDS, follow, initial
from privsketch.learning.problem import Atoms

TEMPERATURE = 12.0
N_PATHS = 2
PUT_BACK = 5.0


@dataclass(frozen=True)
class CellSolution:
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
    with one_thread():
        return _decode(boxes, n_clusters, rng)


def _decode(boxes, n_clusters, rng):
    partition = partition_of(boxes)
    guess = np.maximum(significant(boxes, boxes.counts, boxes.variance, rng), 0.0)
    fits: list[Fit] = []
    likelihood = likelihood_of(boxes, guess)
    size = 3 * n_clusters + 2
    starts = []
    for _ in range(N_PATHS):
        start = initial(boxes, guess, size, rng)
        starts.append(fit(partition, likelihood, start, FIRST_ROUNDS))
    mean = np.mean([s.expected for s in starts], axis=0)
    likelihood = likelihood_of(boxes, mean)
    for start in starts:
        fits += follow(partition, likelihood, start, n_clusters, max(1, int(0.6 * n_clusters)))
    aic = np.array([2 * f.value + 2 * f.components.n_unknowns for f in fits])
    weights = np.exp(-(aic - aic.min()) / TEMPERATURE)
    weights /= weights.sum()
    expected = sum(w * f.expected for w, f in zip(weights, fits))
    best = fits[int(aic.argmin())]
    resid = boxes.counts - expected
    back = significant(boxes, resid, boxes.variance + expected, rng, PUT_BACK)
    back -= resid.sum() * boxes.shares
    lam = np.maximum(expected + back, 0.0)
    counts = lam + lam / np.maximum(lam + boxes.variance, 1e-300) * (boxes.counts - lam)
    counts = np.maximum(counts, 0.0)
    if not counts.sum() > 0:
        counts = boxes.shares * 1e-9
    keep = [(w, f.components) for w, f in zip(weights, fits) if w > 0.02]
    centers, points = kmeans(
        boxes, counts, keep,
        [f.components.centers for f in fits], n_clusters, rng)
    label, costs = assign(points, centers)
    c = best.components
    return CellSolution(Atoms(c.weights[:-1], c.centers, c.widths**2), c.weights[-1], counts, centers,
        np.bincount(label, points.records, n_clusters), costs.sum(), None, 0, 0, 0)
