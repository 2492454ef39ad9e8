"""Shrink noisy counts and steps of clusters toward what noise leaves no doubt about.

Counts and steps of all clusters are judged together (empirical Bayes). If they vary no more than
their noise they vanish; if they vary much more they remain. Steps are judged in groups of
directions, strong ones first: clusters differ along strong directions, and weak ones are mostly
noise. A cluster that is still far from its mean when the others have converged is judged by itself.
All of this is post-processing of released numbers.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from privsketch._base.types import Floats
from privsketch.clustering.pipeline.subspace import Subspace


def pulled_counts(before: Floats, noisy: Floats, variance: float) -> Floats:
    """Return counts between the previous and the measured ones."""
    changes = noisy - before
    excess = max(float(np.mean(changes**2)) - variance, 0.0)
    return np.asarray(before + excess / (excess + variance) * changes)


def shrunk_steps(steps: Floats, variances: Floats, weights: Floats, subspace: Subspace) -> Floats:
    """Shrink steps (k, dim), with one variance of noise per cluster, in groups of directions.

    Groups double in size: [0, p), [p, 2p), [2p, 4p), ...
    """
    if subspace.n_directions == steps.shape[1]:  # the start had all columns
        return shrunk_together(steps, variances)
    if not subspace.is_ordered:
        common, alone = shrunk_together(steps, variances), shrunk_alone(steps, variances)
        is_longer = np.square(alone).sum(axis=1) > np.square(common).sum(axis=1)
        return np.where(is_longer[:, np.newaxis], alone, common)
    rotated = steps @ subspace.directions
    dim = rotated.shape[1]
    share = weights / weights.sum()
    start, end = 0, min(subspace.n_directions, dim)
    while start < dim:
        group = rotated[:, start:end]
        squares = np.mean(group**2, axis=1)
        typical = max(float(share @ (squares - variances)), 0.0)
        signal = np.maximum(typical, squares - _noise_at_most(variances, end - start))
        group *= (signal / (signal + variances))[:, np.newaxis]
        start, end = end, min(2 * end, dim)
    return np.asarray(rotated @ subspace.directions.T)


def shrunk_together(steps: Floats, variances: Floats) -> Floats:
    """Shrink steps (k, dim) along their singular vectors.

    Steps of clusters share directions, noise does not. Of each squared singular value remains what
    exceeds the one that noise is expected to have there, as James and Stein shrink a vector.
    """
    deviations = np.sqrt(variances)[:, np.newaxis]
    left, values, right = np.linalg.svd(steps / deviations, full_matrices=False)
    kept = 1 - noise_squares(*steps.shape) / np.maximum(values**2, 1e-300)
    return np.asarray((left * (values * np.maximum(kept, 0.0))) @ right * deviations)


@cache
def noise_squares(n_rows: int, n_columns: int) -> Floats:
    """Return expected squared singular values of noise of variance 1, the largest first.

    They are the means of equal slices of the law of Marchenko and Pastur (1967). For as few as two
    rows they are right within 4 %, and their sum is exact.
    """
    shorter, longer = sorted((n_rows, n_columns))
    ratio = shorter / longer
    ends = (1 - math.sqrt(ratio)) ** 2, (1 + math.sqrt(ratio)) ** 2
    nodes = (1 - np.cos(np.linspace(0, math.pi, 2001))) / 2  # dense at both ends
    values = ends[0] + (ends[1] - ends[0]) * nodes
    radicand = np.maximum((ends[1] - values) * (values - ends[0]), 0.0)
    density = np.sqrt(radicand) / np.maximum(values, 1e-12)
    shares = np.diff(values) * (density[1:] + density[:-1])
    cumulated = np.append(0.0, np.cumsum(shares / shares.sum()))
    means = np.append(0.0, np.cumsum(np.diff(cumulated) * (values[1:] + values[:-1]) / 2))
    slices = np.diff(np.interp(np.linspace(0, 1, shorter + 1), cumulated, means))
    return np.asarray(slices[::-1] * (n_rows * n_columns / slices.sum()))


def shrunk_alone(steps: Floats, variances: Floats) -> Floats:
    """Shrink steps (k, dim), each by itself."""
    squares = np.mean(steps**2, axis=1)
    signal = np.maximum(squares - _noise_at_most(variances, steps.shape[1]), 0.0)
    return np.asarray((signal / (signal + variances))[:, np.newaxis] * steps)


def _noise_at_most(variances: Floats, size: int) -> Floats:
    """Return a bound on the mean square of `size` numbers of noise: three deviations above it."""
    return np.asarray(variances * (1 + 3 * math.sqrt(2 / size)))
