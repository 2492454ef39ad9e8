"""What a record says about the median of its cluster: which way it lies, and how far.

The sum of distances to c falls fastest along the sum of the unit vectors (x - c) / |x - c|. Here
a vector is (x - c) / max(|x - c|, l): one of norm at most 1 that does not jump where a record
lies at c. (It belongs to Huber's loss, which is the distance beyond l and a square below.) One
record moves the sum by no more than 1, however far away it is. In fixed point, rounded towards 0.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats, Integers, Whole

ONE = 2**16  # a vector of norm 1; 2^40 of them add up within 62 bits
FEWEST_TO_SHRINK = 3


def unit_vectors(residuals: Whole, least: int, one: int = ONE) -> tuple[Whole, Whole]:
    """Vectors (n, dim) of whole numbers, of norm at most `one`; lengths (n,), at least `least`.

    Square roots and quotients are rounded in one way only, so that a vector depends on its
    residual alone. Rounding may lengthen a squared norm by less than 1 before it is made whole:
    that of the whole numbers is at most one^2.
    """
    lengths = np.maximum(np.sqrt(np.vecdot(residuals, residuals)), float(least))
    return np.trunc(residuals * (one / lengths)[:, np.newaxis]), lengths


def l1_norm(dim: int, one: int = ONE) -> int:
    """Largest L1 norm of a vector, in whole numbers."""
    return math.isqrt(dim * one**2)


def members(labels: npt.NDArray[np.intp], n_clusters: int) -> Whole:
    """Which record is in which cluster, (k, n), as 0 and 1."""
    found = np.zeros((n_clusters, len(labels)))
    found[labels, np.arange(len(labels))] = 1.0
    return found


def whole_sums(member: Whole, values: Whole) -> Integers:
    """Sums per cluster of whole numbers below 2^53: exact in any order."""
    return np.asarray((member @ values).astype(np.int64))


def shrunk(steps: Floats, variances: Floats) -> Floats:
    """Steps (k, dim) pulled towards 0 as far as they are noise (James and Stein).

    The noise of a step has the same variance, (k,), in every column.
    """
    dim = steps.shape[1]
    if dim < FEWEST_TO_SHRINK:
        return steps
    squared = np.maximum(np.vecdot(steps, steps), np.finfo(np.float64).tiny)
    kept = np.maximum(1 - (dim - 2) * variances / squared, 0.0)
    return np.asarray(steps * kept[:, np.newaxis])
