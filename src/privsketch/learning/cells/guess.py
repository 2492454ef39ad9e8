"""A first look at noisy counts: what is significant at some scale, without any model.

Boxes are halved again and again by random cuts. Records of a half are divided among its halves by
volume unless their counts say otherwise, clearly. An average over several trees forgets where
the cuts were. It works for boxes of any sizes, in the time of a few sorts.
"""

from __future__ import annotations

import numpy as np

from privsketch._typing import Floats, Indices
from privsketch.learning.cells.boxes import Boxes

CLEAR = 3.0  # standard errors of a difference between halves that is believed
MOST_TREES, FEWEST_TREES, TREE_BOXES = 16, 4, 40_000  # more trees are smoother, and take longer


def significant(
    boxes: Boxes,
    values: Floats,
    variance: Floats,
    rng: np.random.Generator,
    threshold: float = CLEAR,
) -> Floats:
    """(n_boxes,) expected values: their total, divided by volume and what differs clearly."""
    n_trees = int(np.clip(TREE_BOXES // len(values), FEWEST_TREES, MOST_TREES))
    found = np.zeros(len(values))
    for _ in range(n_trees):
        found += _one_tree(boxes, values, variance, rng, threshold)
    return found / n_trees


def _one_tree(
    boxes: Boxes, values: Floats, variance: Floats, rng: np.random.Generator, threshold: float
) -> Floats:
    """The estimate of one tree."""
    n = len(values)
    order, ends = _halvings(boxes, rng)
    volume = boxes.shares[order]
    sums = [np.concatenate([[0.0], np.cumsum(each[order])]) for each in (values, variance)]
    volumes = np.concatenate([[0.0], np.cumsum(volume)])
    estimates = np.array([values.sum()])
    begin, end = np.array([0]), np.array([n])
    for cut in ends:
        count, noise, size = [], [], []
        for first, last in ((begin, cut), (cut, end)):
            count.append(sums[0][last] - sums[0][first])
            noise.append(sums[1][last] - sums[1][first])
            size.append(volumes[last] - volumes[first])
        whole = size[0] + size[1]
        share = np.where(whole > 0, size[0] / np.maximum(whole, 1e-300), 0.5)
        detail = count[0] * (1 - share) - count[1] * share
        spread = noise[0] * (1 - share) ** 2 + noise[1] * share**2
        kept = np.where(detail**2 > threshold**2 * spread, detail, 0.0)
        left = estimates * share + kept
        estimates = np.stack([left, estimates - left], axis=1).reshape(-1)
        begin, end = (
            np.stack([begin, cut], axis=1).reshape(-1),
            np.stack([cut, end], axis=1).reshape(-1),
        )
        full = end > begin
        estimates, begin, end = estimates[full], begin[full], end[full]
    found = np.empty(n)
    found[order] = estimates
    return found


def _halvings(boxes: Boxes, rng: np.random.Generator) -> tuple[Indices, list[Indices]]:
    """Boxes in an order such that every part of the tree is a run of them, and cuts by level."""
    n, dim = boxes.low.shape
    places = boxes.centers / (boxes.high - boxes.low).max(axis=0)
    places = places + 1e-6 * rng.random(dim) * places[:, ::-1]  # ties by another axis
    order = np.arange(n)
    begin, end = np.array([0]), np.array([n])
    cuts = []
    while (end - begin).max() > 1:
        length = end - begin
        part = np.repeat(np.arange(len(begin)), length)
        extents = np.maximum.reduceat(places[order], begin) - np.minimum.reduceat(
            places[order], begin
        )
        axis = (extents * (0.6 + 0.8 * rng.random(extents.shape))).argmax(axis=1)
        order = order[np.lexsort((places[order, axis[part]], part))]
        middle = begin + np.rint(length * rng.uniform(0.35, 0.65, len(length))).astype(np.intp)
        cut = np.where(length > 1, np.clip(middle, begin + 1, end - 1), end)
        cuts.append(cut)
        begin, end = (
            np.stack([begin, cut], axis=1).reshape(-1),
            np.stack([cut, end], axis=1).reshape(-1),
        )
        full = end > begin
        begin, end = begin[full], end[full]
    return order, cuts
