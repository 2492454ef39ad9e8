"""What to make of noisy steps: pull them towards 0 as far as they are noise.

Counts and steps of all clusters are judged together. If they vary no more than their noise would
make them, nothing is left of them; if they vary much more, all of it (empirical Bayes). Steps are
judged in groups of directions, strong ones first: between strong directions clusters differ,
along weak ones there is mostly noise. Public numbers in, public numbers out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def pulled_counts(before: Floats, noisy: Floats, variance: float) -> Floats:
    """Counts between what they were thought to be and what was measured."""
    moved = noisy - before
    excess = max(float(np.mean(moved**2)) - variance, 0.0)
    return np.asarray(before + excess / (excess + variance) * moved)


def shrunk_steps(
    steps: Floats, variances: Floats, weights: Floats, directions: Floats, first_group: int
) -> Floats:
    """Steps (k, dim) with noise of one variance per cluster, shrunk in groups of directions.

    Groups double in size: [0, p), [p, 2p), [2p, 4p), ...
    """
    rotated = steps @ directions
    dim = rotated.shape[1]
    share = weights / weights.sum()
    start, end = 0, min(first_group, dim)
    while start < dim:
        group = rotated[:, start:end]
        excess = np.mean(group**2, axis=1) - variances
        signal = max(float(share @ excess), 0.0)
        group *= (signal / (signal + variances))[:, np.newaxis]
        start, end = end, min(2 * end, dim)
    return np.asarray(rotated @ directions.T)
