"""Shrink noisy counts and steps of clusters toward what noise leaves no doubt about.

Counts and steps of all clusters are judged together (empirical Bayes). If they vary no more than
their noise they vanish; if they vary much more they remain. Steps are judged in groups of
directions, strong ones first: clusters differ along strong directions, and weak ones are mostly
noise. A cluster that is still far from its mean when the others have converged is judged by itself.
All of this is post-processing of released numbers.
"""

from __future__ import annotations

import math

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
    """Shrink steps (k, dim) along their singular vectors.

    Steps of clusters share directions, noise does not: the singular values of k rows of noise of
    variance 1 in d columns end at sqrt(k) + sqrt(d). Larger ones are shrunk optimally for squared
    errors (Gavish and Donoho, 2017).
    """
    deviations = np.sqrt(variances)[:, np.newaxis]
    left, values, right = np.linalg.svd(steps / deviations, full_matrices=False)
    shorter, longer = sorted(steps.shape)
    ratio = shorter / longer
    y = values**2 / longer
    radicand = np.maximum((y - ratio - 1) ** 2 - 4 * ratio, 0.0) / np.maximum(y, 1e-300)
    shrunk = np.where(y > (1 + np.sqrt(ratio)) ** 2, np.sqrt(radicand), 0.0)
    return np.asarray((left * (shrunk * np.sqrt(longer))) @ right * deviations)


def shrunk_alone(steps: Floats, variances: Floats) -> Floats:
    """Shrink steps (k, dim), each by itself."""
    squares = np.mean(steps**2, axis=1)
    signal = np.maximum(squares - _noise_at_most(variances, steps.shape[1]), 0.0)
    return np.asarray((signal / (signal + variances))[:, np.newaxis] * steps)


def _noise_at_most(variances: Floats, size: int) -> Floats:
    """Return a bound on the mean square of `size` numbers of noise: three deviations above it."""
    return np.asarray(variances * (1 + 3 * math.sqrt(2 / size)))
