"""Fits of every size, from more components than needed down to too few.

A search that adds components one by one gets stuck. A search that starts with too many, and removes
the redundant ones, finds nearly all. It deletes a component whose records the others explain, or
merges two components into one with their moments. At the end, wrong merges are undone.

The first guess is an estimate without a model. Random cuts halve the boxes recursively. The records
of a part are divided among its halves by volume, unless their counts clearly differ. An average
over several trees smooths the cuts. The guess works for boxes of any size, and takes the time of a
few sorts.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.fit import (
    Components,
    Fit,
    Likelihood,
    criterion,
    fit,
    likelihood_of,
    log_chances,
    masses_of,
    value_and_gradient,
)
from privsketch.learning.cells.partition import Masses, Partition, partition_of
from privsketch.learning.lloyd import Points, means, weighted_sums
from privsketch.learning.pruning import choose_disjoint, nearest_by_distance, neighbour_pairs
from privsketch.models.base import nearest

MIN_LOG_CHANCE = 4.5  # -log of the chance of noise of 3 deviations; more is significant
MAX_TREES, MIN_TREES, TREE_BOXES = 16, 4, 20_000  # more trees are smoother, and take longer
FIRST_DESCENT_ITERATIONS = 30
DESCENT_ITERATIONS = 30  # after each step near the requested number
SURPLUS_ITERATIONS = 12  # far from it, where all that matters is which components go next
# Share of the components that a step removes, far from the requested number and near it.
LARGE_STEP_SHARE, SMALL_STEP_SHARE = 0.12, 0.06
# Difference of the criterion at which a fit has a weight of exp(-5) in the average (`decoder`).
HOPELESS = 40.0
CORE = 3.0  # widths in which boxes count for what to remove: all but 3e-3 of the mass
N_PATHS = 2  # paths from different starts
GUESS_ROUNDS = 5  # rounds of k-means for a start, which need not be exact
MIN_SIZE_RATIO = 0.6  # components of the last fit over requested clusters
# If the best fit needs a larger share of the first components, twice as many are tried.
MAX_NEEDED_SHARE, N_DOUBLINGS = 0.75, 1
# Numbers of components that are split at the end, one at a time, and of such rounds. Over 30 data
# sets, d = 2, epsilon = 0.1, splits changed the log cost of equal Gaussians by -0.012 +- 0.010, of
# unequal ones by +0.011 +- 0.007, of cities by +0.000 +- 0.003: python -m benchmarks constants
# learning N_SPLITS
N_SPLITS = 3
SPLIT_ROUNDS = 3  # a guard: python -m benchmarks constants learning SPLIT_ROUNDS
# Offset and width of the halves in widths of the component: together they have its variance.
SPLIT_OFFSET, SPLIT_WIDTH = 0.8, 0.6


def significant_estimate(
    boxes: Boxes,
    values: Floats,
    variance: Floats,
    rng: np.random.Generator,
    false_share: float | None = None,
) -> Floats:
    """Return a piecewise uniform estimate of values, (n_boxes,), with significant differences only.

    The noise of many boxes together is Gaussian, and exceeds sqrt(2 x) deviations with a chance of
    about exp(-x). The noise of a few is Laplace, and exceeds x times its scale with this chance.
    A significant difference is larger than both.

    `false_share` is the expected share of noise among the significant differences of a tree
    (Benjamini and Hochberg 1995). Without it, all of them have a chance below exp(-MIN_LOG_CHANCE).
    """
    n_trees = int(np.clip(TREE_BOXES // len(values), MIN_TREES, MAX_TREES))
    totals = np.zeros(len(values))
    for _ in range(n_trees):
        totals += _tree_estimate(boxes, values, variance, rng, false_share)
    return totals / n_trees


def _tree_estimate(
    boxes: Boxes,
    values: Floats,
    variance: Floats,
    rng: np.random.Generator,
    false_share: float | None,
) -> Floats:
    """Return the estimate of one tree."""
    order, cuts = _halvings(boxes, rng)
    n_noises = np.broadcast_to(boxes.n_noises, len(values))
    columns = np.stack([values, variance, boxes.shares, n_noises], axis=1)[order]
    sums = np.vstack([np.zeros((1, 4)), np.cumsum(columns, axis=0)])
    begin, end = np.array([0]), np.array([len(values)])
    levels = []
    for cut in cuts:
        left, right = sums[cut] - sums[begin], sums[end] - sums[cut]
        share = left[:, 2] / (left[:, 2] + right[:, 2])
        detail = left[:, 0] * (1 - share) - right[:, 0] * share
        spread = left[:, 1] * (1 - share) ** 2 + right[:, 1] * share**2
        scale = (left[:, 1] + right[:, 1]) / (2 * (left[:, 3] + right[:, 3]))
        scale *= np.maximum(share, 1 - share) ** 2
        levels.append((begin, cut, end, share, detail, log_chances(detail, spread, scale)))
        begin, end, _ = _parts(begin, cut, end, detail, detail)
    threshold = MIN_LOG_CHANCE
    if false_share is not None and levels:
        threshold = _threshold(np.concatenate([level[-1] for level in levels]), false_share)
    estimates = np.array([values.sum()])
    for begin, cut, end, share, detail, log_chance in levels:
        first = estimates * share + np.where(log_chance > threshold, detail, 0.0)
        _, _, estimates = _parts(begin, cut, end, first, estimates - first)
    result = np.empty(len(values))
    result[order] = estimates
    return result


def _threshold(log_chances: Floats, false_share: float) -> float:
    """Return the -log chance beyond which about `false_share` of the differences are noise."""
    tested = np.sort(log_chances[log_chances > 0])[::-1]
    n = len(tested)
    passing = np.flatnonzero(tested > np.log(n / (false_share * np.arange(1, n + 1))))
    return math.log(n / (false_share * (passing[-1] + 1))) if len(passing) else np.inf


def _parts(
    begin: Indices, cut: Indices, end: Indices, first: Floats, second: Floats
) -> tuple[Indices, Indices, Floats]:
    """Return the two parts of every run of boxes, in order, without empty parts."""
    begins, ends = np.stack([begin, cut], axis=1).ravel(), np.stack([cut, end], axis=1).ravel()
    is_filled = ends > begins
    values = np.stack([first, second], axis=1).ravel()
    return begins[is_filled], ends[is_filled], values[is_filled]


def _halvings(boxes: Boxes, rng: np.random.Generator) -> tuple[Indices, list[Indices]]:
    """Return an order in which every part of a random tree is a run of boxes, and its cuts."""
    n, dim = boxes.low.shape
    positions = boxes.centers / (boxes.high - boxes.low).max(axis=0)
    positions = positions + 1e-6 * rng.random(dim) * positions[:, ::-1]  # another axis breaks ties
    # Whole numbers sort faster. Ranks differ, so that their order is that of any way to sort.
    ranks = np.empty((n, dim), dtype=np.int64)
    for d in range(dim):
        ranks[np.argsort(positions[:, d], kind="stable"), d] = np.arange(n)
    order = np.arange(n)
    begin, end = np.array([0]), np.array([n])
    cuts = []
    while (end - begin).max() > 1:
        length = end - begin
        part = np.repeat(np.arange(len(begin)), length)
        ordered = positions[order]
        extents = np.maximum.reduceat(ordered, begin) - np.minimum.reduceat(ordered, begin)
        axis = (extents * (0.6 + 0.8 * rng.random(extents.shape))).argmax(axis=1)
        order = order[np.argsort(part * n + ranks[order, axis[part]])]
        middle = begin + np.rint(length * rng.uniform(0.35, 0.65, len(length))).astype(np.intp)
        cut = np.where(length > 1, np.clip(middle, begin + 1, end - 1), end)
        cuts.append(cut)
        begin, end, _ = _parts(begin, cut, end, cut, cut)
    return order, cuts


def initial_components(
    boxes: Boxes, guess: Floats, size: int, rng: np.random.Generator
) -> Components:
    """Return components by k-means of a guess, each with the moments of its boxes.

    Distances are relative to the extents of the domain: units of axes differ.
    """
    from sklearn.cluster import kmeans_plusplus

    unit = boxes.high.max(axis=0) - boxes.low.min(axis=0)
    lengths = (boxes.high - boxes.low) / unit
    middles, weights = boxes.centers / unit, np.maximum(guess, 0.0)
    # Any two labels are as far apart as the ends of a number.
    labels_of, is_label, positions = _labels(boxes), boxes.is_label, middles
    if is_label.any():
        positions = np.hstack([middles[:, ~is_label], labels_of / math.sqrt(2)])
    total = float(weights.sum())
    if not total > 0:
        weights, total = boxes.shares, 1.0
    weights = weights / weights.sum()
    filled = np.flatnonzero(weights > 1e-3 / len(weights))
    points = Points(positions[filled], weights[filled], filled)
    size, state = min(size, len(filled)), int(rng.integers(2**31))
    centers, _ = kmeans_plusplus(
        points.positions, size, sample_weight=points.weights, random_state=state
    )
    for _ in range(GUESS_ROUNDS):
        centers = means(points, nearest(points.positions, centers), centers)
    labels = nearest(points.positions, centers)
    # Centers along axes of labels mean nothing.
    places = np.where(is_label, 0.5, np.zeros((size, boxes.dim)))
    places[:, ~is_label] = centers[:, : int((~is_label).sum())]
    squares = (middles[filled] - places[labels]) ** 2 + lengths[filled] ** 2 / 12
    mass, sums = weighted_sums(squares, points.weights, labels, size)
    divisor = np.maximum(mass, 1e-300)[:, None]
    widths = np.sqrt(np.maximum(sums / divisor, lengths.min(axis=0) ** 2 / 12))
    shares = np.zeros((size, 0))
    if is_label.any():
        _, sums = weighted_sums(labels_of[filled], points.weights, labels, size)
        # No share begins at its bound, where a descent would keep it.
        shares = 0.9 * sums / divisor + 0.1 * labels_of.mean(axis=0)
    start = np.append(total * mass * 0.95, 0.05 * total)
    return Components(start, places * unit, widths * unit, shares)


def _labels(boxes: Boxes) -> Floats:
    """Return 1 for the labels of each box, (n_boxes, n_labels), along all axes of labels."""
    axes = np.flatnonzero(boxes.is_label)
    parts = [np.eye(int(boxes.high[:, d].max()))[boxes.low[:, d].astype(np.intp)] for d in axes]
    return np.hstack([np.zeros((boxes.n_boxes, 0)), *parts])


def remove_components(
    partition: Partition, likelihood: Likelihood, components: Components, n_fewer: int
) -> Components:
    """Remove `n_fewer` components by the deletions and merges that change the counts least."""
    size, weights = components.size, components.weights
    first, second = _neighbouring_pairs(components)
    merged = _merge(components, first, second)
    masses, new_masses = (masses_of(partition, one, CORE) for one in (components, merged))
    gram = overlaps(masses, likelihood.information)
    deletion_costs = _deletion_costs(gram, weights)[:-1]
    merge_costs, is_near = np.zeros(len(first)), np.zeros(size, dtype=np.bool_)
    for block, after in zip(masses.blocks(), new_masses.blocks(), strict=True):
        is_near[:] = False
        is_near[block.near] = True
        old = np.zeros((len(block.boxes), size))
        old[:, block.near] = weights[block.near] * block.products()
        pairs = np.union1d(np.flatnonzero(is_near[first] | is_near[second]), after.near)
        change = -(old[:, first[pairs]] + old[:, second[pairs]])
        places = np.searchsorted(pairs, after.near)
        change[:, places] += merged.weights[after.near] * after.products()
        merge_costs[pairs] += likelihood.information[block.boxes] @ change**2
    indices = np.arange(size)
    members = np.concatenate(
        [np.stack([indices, indices], axis=1), np.stack([first, second], axis=1)]
    )
    order = np.argsort(np.concatenate([deletion_costs, merge_costs]), kind="stable")
    options = choose_disjoint(order, needs=members, touches=members, n_options=n_fewer)
    keep = np.delete(indices, members[options].ravel())
    remaining, new = components.subset(keep), merged.subset(options[options >= size] - size)
    return Components(
        np.concatenate([remaining.weights[:-1], new.weights[:-1], components.weights[-1:]]),
        np.vstack([remaining.centers, new.centers]),
        np.vstack([remaining.widths, new.widths]),
        np.vstack([remaining.shares, new.shares]),
    )


def overlaps(masses: Masses, information: Floats) -> Floats:
    """Return products of masses of all pairs of components, summed over boxes with weights.

    The background comes last.
    """
    gram = np.zeros((masses.size + 1, masses.size + 1))
    for block in masses.blocks():
        background = masses.partition.shares[block.boxes, np.newaxis]
        columns = np.hstack([block.products(), background])
        places = np.append(block.near, masses.size)
        weighted = columns * information[block.boxes, np.newaxis]
        gram[np.ix_(places, places)] += columns.T @ weighted
    return gram


def _deletion_costs(gram: Floats, weights: Floats) -> Floats:
    """Return the rise of -2 log p if a component is deleted and the other weights refitted."""
    scale = np.sqrt(np.maximum(gram.diagonal(), 1e-300))
    inner = gram / scale / scale[:, None]
    inner[np.diag_indices_from(inner)] += 1e-6
    return (weights * scale) ** 2 / np.linalg.inv(inner).diagonal()


def _neighbouring_pairs(components: Components) -> tuple[Indices, Indices]:
    """Return pairs of components that are close, relative to their widths."""
    size = components.size
    if size < 2:
        empty = np.zeros(0, dtype=np.intp)
        return empty, empty
    variances = components.widths**2
    offsets = components.centers[:, None, :] - components.centers
    distance = (offsets**2 / (variances[:, None, :] + variances)).sum(axis=2)
    distance += np.square(components.shares[:, None, :] - components.shares).sum(axis=2)
    pairs = neighbour_pairs(nearest_by_distance(distance, 2))
    return pairs[:, 0], pairs[:, 1]


def _merge(components: Components, first: Indices, second: Indices) -> Components:
    """Return one component for each pair, with the moments of both."""
    weights = components.weights[:-1]
    mass = weights[first] + weights[second]
    share = np.where(mass > 0, weights[first] / np.maximum(mass, 1e-300), 0.5)[:, None]
    left, right = components.centers[first], components.centers[second]
    variances = share * components.widths[first] ** 2 + (1 - share) * components.widths[second] ** 2
    variances += share * (1 - share) * (left - right) ** 2
    centers = share * left + (1 - share) * right
    shares = share * components.shares[first] + (1 - share) * components.shares[second]
    return Components(np.append(mass, components.weights[-1]), centers, np.sqrt(variances), shares)


def shrink(
    partition: Partition, likelihood: Likelihood, start: Fit, n_clusters: int, min_size: int
) -> list[Fit]:
    """Return fits of decreasing size, beginning with the start.

    They get better down to the best size, and worse beyond. A path ends once two fits in a row are
    so much worse than the best one that the average over fits would not notice them.
    """
    value, _ = value_and_gradient(partition, likelihood, start.components)
    fits = [replace(start, value=value)]  # it was fitted with another guess of the variances
    scores = [criterion(fits[0])]
    while fits[-1].components.size > min_size:
        components = fits[-1].components
        size = components.size
        step, n_iterations = SMALL_STEP_SHARE, DESCENT_ITERATIONS
        if size > 1.5 * n_clusters:
            step, n_iterations = LARGE_STEP_SHARE, SURPLUS_ITERATIONS
        n_fewer = min(max(1, int(step * size)), size - min_size)
        components = remove_components(partition, likelihood, components, n_fewer)
        fits.append(fit(partition, likelihood, components, n_iterations))
        scores.append(criterion(fits[-1]))
        if min(scores[-2:]) > min(scores) + HOPELESS:
            break
    return fits


def _split(components: Components, index: int, axis: int) -> Components:
    """Split one component in two along an axis."""
    keep = np.arange(components.size) != index
    weights, center = components.weights[:-1], components.centers[index]
    half, width = weights[index] / 2, components.widths[index].copy()
    offset = np.zeros(len(center))
    offset[axis] = SPLIT_OFFSET * width[axis]
    width[axis] *= SPLIT_WIDTH
    return Components(
        np.concatenate([weights[keep], [half, half], components.weights[-1:]]),
        np.vstack([components.centers[keep], center - offset, center + offset]),
        np.vstack([components.widths[keep], width, width]),
        np.vstack([components.shares[keep], *[components.shares[index]] * 2]),
    )


def split_up(partition: Partition, likelihood: Likelihood, best: Fit) -> list[Fit]:
    """Undo wrong merges: return better fits, each with one more component than the one before.

    Candidates are the components of the highest k-means cost, along the axis with most intervals.
    """
    better_fits: list[Fit] = []
    numbers = partition.numbers
    for _ in range(SPLIT_ROUNDS if len(numbers) > 0 else 0):
        components = best.components
        widths = components.widths[:, numbers]
        costs = components.weights[:-1] * np.square(widths).sum(axis=1)
        axes = numbers[(widths / partition.finest[numbers]).argmax(axis=1)]
        splits = [
            fit(partition, likelihood, _split(components, index, axes[index]), DESCENT_ITERATIONS)
            for index in np.argsort(-costs, kind="stable")[:N_SPLITS]
        ]
        better = min(splits, key=criterion, default=best)
        if criterion(better) >= criterion(best):
            break
        better_fits.append(better)
        best = better
    return better_fits


def search(
    boxes: Boxes, n_clusters: int, rng: np.random.Generator, min_size: int | None = None
) -> list[Fit]:
    """Return the fits along both paths; if nearly all components were needed, restart with more."""
    guess = np.maximum(significant_estimate(boxes, boxes.counts, boxes.variance, rng), 0.0)
    partition = partition_of(boxes)
    if min_size is None:
        min_size = max(1, int(MIN_SIZE_RATIO * n_clusters))
    fits: list[Fit] = []
    size = 3 * n_clusters + 2
    for _ in range(N_DOUBLINGS + 1):
        likelihood = likelihood_of(boxes, guess)
        starts = [
            fit(
                partition,
                likelihood,
                initial_components(boxes, guess, size, rng),
                FIRST_DESCENT_ITERATIONS,
            )
            for _ in range(N_PATHS)
        ]
        guess = np.mean([start.expected for start in starts], axis=0)
        likelihood = likelihood_of(boxes, guess)
        fits = []
        for start in starts:
            fits += shrink(partition, likelihood, start, n_clusters, min_size)
        best = min(fits, key=criterion)
        if best.components.size <= MAX_NEEDED_SHARE * size or size >= boxes.n_boxes:
            break
        size *= 2
    return fits + split_up(partition, likelihood, best)
