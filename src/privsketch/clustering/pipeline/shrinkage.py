"""What to make of noisy steps: pull them towards 0 as far as they are noise.

Counts and steps of all clusters are judged together. If they vary no more than their noise would
make them, nothing is left of them; if they vary much more, all of it (empirical Bayes). Steps are
judged in groups of directions, strong ones first: between strong directions clusters differ,
along weak ones there is mostly noise. A cluster that still has a long way to go, when all others
have arrived, is judged by itself. Public numbers in, public numbers out.
"""

from __future__ import annotations

import math

import numpy as np

from privsketch._typing import Floats
from privsketch.clustering.pipeline.subspace import Subspace


def pulled_counts(before: Floats, noisy: Floats, variance: float) -> Floats:
    """Counts between what they were thought to be and what was measured."""
    moved = noisy - before
    excess = max(float(np.mean(moved**2)) - variance, 0.0)
    return np.asarray(before + excess / (excess + variance) * moved)


def shrunk_steps(steps: Floats, variances: Floats, weights: Floats, subspace: Subspace) -> Floats:
    """Steps (k, dim) with noise of one variance per cluster, shrunk in groups of directions.

    Groups double in size: [0, p), [p, 2p), [2p, 4p), ...
    """
    if subspace.n_directions == steps.shape[1]:  # the start has seen all columns
        return shrunk_together(steps, variances)
    if not subspace.is_ordered:
        common = shrunk_together(steps, variances)
        return common + shrunk_alone(steps - common, variances)
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
    """Steps (k, dim) shrunk along directions of their own.

    Steps of clusters have directions in common, noise has none: singular values of k rows of
    noise of variance 1 in d columns end at sqrt(k) + sqrt(d). What stands out of them is
    shrunk as is best for squared errors (Gavish and Donoho, 2017).
    """
    deviations = np.sqrt(variances)[:, np.newaxis]
    left, values, right = np.linalg.svd(steps / deviations, full_matrices=False)
    few, many = sorted(steps.shape)
    ratio = few / many
    y = values**2 / many
    inside = (y - ratio - 1) ** 2 - 4 * ratio
    kept = np.where(
        y > (1 + np.sqrt(ratio)) ** 2, np.sqrt(np.maximum(inside, 0.0) / np.maximum(y, 1e-300)), 0.0
    )
    return np.asarray((left * (kept * np.sqrt(many))) @ right * deviations)


def shrunk_alone(steps: Floats, variances: Floats) -> Floats:
    """Steps (k, dim) of which each is judged by itself."""
    squares = np.mean(steps**2, axis=1)
    signal = np.maximum(squares - _noise_at_most(variances, steps.shape[1]), 0.0)
    return np.asarray((signal / (signal + variances))[:, np.newaxis] * steps)


def _noise_at_most(variances: Floats, size: int) -> Floats:
    """What the mean square of so many numbers of noise hardly exceeds: three deviations more."""
    return np.asarray(variances * (1 + 3 * math.sqrt(2 / size)))
