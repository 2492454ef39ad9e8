"""A first look at noisy counts: what is significant at some scale, without any model.

Boxes are halved again and again by random cuts. Records of a half are divided among its halves by
volume unless their counts say otherwise, clearly. An average over several trees forgets where
the cuts were. It works for boxes of any sizes, in the time of a few sorts.
"""

from __future__ import annotations

import math

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.learning.cells.boxes import Boxes

FIRST_LOOK = 4.5  # -log of the chance that noise makes a difference which is believed: 3 deviations
MOST_TREES, FEWEST_TREES, TREE_BOXES = 16, 4, 20_000  # more trees are smoother, and take longer


def significant(
    boxes: Boxes,
    values: Floats,
    variance: Floats,
    rng: np.random.Generator,
    false_share: float | None = None,
) -> Floats:
    """(n_boxes,) expected values: their total, divided by volume and what differs clearly.

    Of many boxes together noise is Gaussian, and exceeds sqrt(2 x) deviations with a chance of
    about exp(-x); of a few it is Laplace, and exceeds x times its scale with this chance. A
    difference has to be larger than both.

    With `false_share` about this share of the differences that are believed in a tree is noise
    (Benjamini and Hochberg 1995): where nothing differs next to none is believed, and where much
    does smaller differences are too. Without it all are as unlikely as those of a first look.
    """
    n_trees = int(np.clip(TREE_BOXES // len(values), FEWEST_TREES, MOST_TREES))
    found = np.zeros(len(values))
    for _ in range(n_trees):
        found += _one_tree(boxes, values, variance, rng, false_share)
    return found / n_trees


def _one_tree(
    boxes: Boxes,
    values: Floats,
    variance: Floats,
    rng: np.random.Generator,
    false_share: float | None,
) -> Floats:
    """The estimate of one tree."""
    order, cuts = _halvings(boxes, rng)
    columns = np.stack([values, variance, boxes.shares], axis=1)[order]
    sums = np.vstack([np.zeros((1, 3)), np.cumsum(columns, axis=0)])
    begin, end = np.array([0]), np.array([len(values)])
    levels = []
    for cut in cuts:
        left, right = sums[cut] - sums[begin], sums[end] - sums[cut]
        share = left[:, 2] / (left[:, 2] + right[:, 2])
        detail = left[:, 0] * (1 - share) - right[:, 0] * share
        spread = left[:, 1] * (1 - share) ** 2 + right[:, 1] * share**2
        scale = (left[:, 1] + right[:, 1]) / (end - begin) / (2 * boxes.n_noises)
        scale *= np.maximum(share, 1 - share) ** 2
        levels.append((begin, cut, end, share, detail, _log_chances(detail, spread, scale)))
        begin, end, _ = _parts(begin, cut, end, detail, detail)
    least = FIRST_LOOK
    if false_share is not None and levels:
        least = _believed(np.concatenate([level[-1] for level in levels]), false_share)
    estimates = np.array([values.sum()])
    for begin, cut, end, share, detail, log_chance in levels:
        first = estimates * share + np.where(log_chance > least, detail, 0.0)
        _, _, estimates = _parts(begin, cut, end, first, estimates - first)
    found = np.empty(len(values))
    found[order] = estimates
    return found


def _log_chances(detail: Floats, spread: Floats, scale: Floats) -> Floats:
    """-log of the chances that noise makes such differences; a run of one box has none."""
    tiny = np.finfo(float).tiny
    gaussian = detail**2 / np.maximum(2 * spread, tiny)
    return np.asarray(np.minimum(gaussian, np.abs(detail) / np.sqrt(np.maximum(scale, tiny))))


def _believed(log_chances: Floats, false_share: float) -> float:
    """What -log of a chance has to exceed so that about this share is believed by mistake."""
    tested = np.sort(log_chances[log_chances > 0])[::-1]
    n = len(tested)
    enough = np.flatnonzero(tested > np.log(n / (false_share * np.arange(1, n + 1))))
    return math.log(n / (false_share * (enough[-1] + 1))) if len(enough) else np.inf


def _parts(
    begin: Indices, cut: Indices, end: Indices, first: Floats, second: Floats
) -> tuple[Indices, Indices, Floats]:
    """Both parts of every run of boxes, in their order; empty ones are left out."""
    begins, ends = np.stack([begin, cut], axis=1).ravel(), np.stack([cut, end], axis=1).ravel()
    full = ends > begins
    return begins[full], ends[full], np.stack([first, second], axis=1).ravel()[full]


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
        now = places[order]
        extents = np.maximum.reduceat(now, begin) - np.minimum.reduceat(now, begin)
        axis = (extents * (0.6 + 0.8 * rng.random(extents.shape))).argmax(axis=1)
        order = order[np.lexsort((places[order, axis[part]], part))]
        middle = begin + np.rint(length * rng.uniform(0.35, 0.65, len(length))).astype(np.intp)
        cut = np.where(length > 1, np.clip(middle, begin + 1, end - 1), end)
        cuts.append(cut)
        begin, end, _ = _parts(begin, cut, end, cut, cut)
    return order, cuts
