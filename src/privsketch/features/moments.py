"""Second moments in integers: 5 x_i^2 and 7 x_i x_j, i < j.

The noisy second-moment matrix of a ball (Dwork et al., 2014, "Analyze Gauss"). Gaussian
noise is calibrated to the L2 norm, and in it an off-diagonal entry, which stands for two,
should count sqrt 2 times a diagonal one; 7/5 is that from below, within 1 %:
sum_i (5 x_i^2)^2 + sum_{i<j} (7 x_i x_j)^2 <= 25 |x|^4, because 49 / 2 <= 25.

A record has 9 bits and a sign here, so that 2^40 records fit 64 bits: norm at most 773. It
is rounded to the nearest integer. Rounding adds 1/12 to each square on average, which learners
subtract. `MomentContribution` bounds how far one record can move the sums.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.facts.budget import Neighbours
from privsketch.features.fixedpoint import RECORD_MAX, RECORD_UNIT
from privsketch.features.masks import Contribution, Masks

DIAGONAL, OFF_DIAGONAL = 5, 7  # 7/5 is just below the square root of 2
MOMENT_RADIUS = 773  # 7 * 773^2 < 2^22
MOMENT_UNIT = MOMENT_RADIUS * RECORD_UNIT / RECORD_MAX  # integers per half-width
ROUNDING_VARIANCE = 1.0 / 12.0  # of a number that is uniform in [-1/2, 1/2]


def moment_count(dim: int) -> int:
    """Return the number of entries of a symmetric matrix."""
    return dim * (dim + 1) // 2


def coarse_records(quantised: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return (n, dim) integers of norm at most MOMENT_RADIUS, as floats, from quantised records.

    Every step is elementwise or exact, so a row's result depends on that row alone.
    """
    units = np.rint(quantised * (MOMENT_RADIUS / RECORD_MAX))
    squared = np.einsum("ij,ij->i", units, units)  # of integers: exact in any order
    outside = squared > float(MOMENT_RADIUS**2)
    if outside.any():
        shrink = MOMENT_RADIUS / np.sqrt(squared[outside])
        units[outside] = np.trunc(units[outside] * shrink[:, np.newaxis])
    return np.asarray(units)


def moment_weights(dim: int) -> npt.NDArray[np.int64]:
    """Return the weights of the entries, row by row of the upper triangle."""
    return _triangle(dim)[1]


@lru_cache(maxsize=4)
def _triangle(dim: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return flat indices of the upper triangle, row by row, and the weights there."""
    first, second = np.triu_indices(dim)
    weights = np.where(first == second, DIAGONAL, OFF_DIAGONAL)
    weights.flags.writeable = False
    return first * dim + second, weights


def moment_sums(quantised: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Sum weighted products over records, upper triangle row by row.

    A product of matrices of such integers is exact in float64, and hence in any order,
    for up to 2^33 records at a time.
    """
    coarse = coarse_records(quantised)
    indices, weights = _triangle(coarse.shape[1])
    entries = (coarse.T @ coarse).reshape(-1)[indices]
    return np.asarray(entries.astype(np.int64) * weights)


class MomentContribution(Contribution):
    """Contribution of weighted second moments of records of norm at most MOMENT_RADIUS."""

    divided_by_count = True

    def __init__(self, dim: int) -> None:
        largest = DIAGONAL * MOMENT_RADIUS**2  # 5 x_i^2 at x = e_i
        super().__init__(moment_count(dim), dim, largest=largest, feature_l1=largest)

    def l1(self, masks: Masks | None) -> int:
        """Return 5 |x|_2^2 + 7 (|x|_1^2 - |x|_2^2) / 2 at its largest, |x|_1^2 = dim |x|_2^2."""
        return math.ceil((DIAGONAL + OFF_DIAGONAL * (self.dim - 1) / 2) * MOMENT_RADIUS**2)

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Return 25 |x x'|_F^2, or 25 |x x' - y y'|_F^2 <= 50 |x|^4 (x = e_1, y = e_2)."""
        return (1 if neighbours == "add-remove" else 2) * self.largest**2

    def mean_l2_squared(self, weight: int | Fraction, neighbours: Neighbours) -> int:
        """Return what w times the coordinates adds, less than by themselves under "replace".

        Two records that differ most in their moments are orthogonal, in their coordinates opposite.
        Let x, y be coarse records, g = x.y, and p, q the fine ones that the coordinates are summed
        from, with R = MOMENT_RADIUS and M = RECORD_MAX. Then

            25 |x x' - y y'|_F^2 <= 50 R^4 - 50 g^2
            w^2 |p - q|^2 <= 2 w^2 M^2 - 2 w^2 (M/R)^2 (g - 4 R sqrt d - 4 d)

        because R p / M is within 2 sqrt d of x: half a unit in each coordinate to round it, as much
        to shorten it to R, and less than one to truncate it. The sum is largest at
        g = -c R^2, c = min(w^2 M^2 / (50 R^4), 1).
        """
        separate = super().mean_l2_squared(weight, neighbours)
        if neighbours == "add-remove":
            return separate
        apart = self.l2_squared(None, neighbours)  # 50 R^4
        square = (Fraction(weight) * RECORD_MAX) ** 2
        cosine = min(square / apart, Fraction(1))
        root = math.isqrt(16 * MOMENT_RADIUS**2 * self.dim) + 1  # at least 4 R sqrt d
        rounding = Fraction(root + 4 * self.dim, MOMENT_RADIUS**2)
        together: Fraction = 2 * square * (1 + cosine + rounding) - cosine * cosine * apart
        return min(separate, math.ceil(together))

    def linf(self, neighbours: Neighbours) -> int:
        """Return the largest change: x_i x_j from 1/2 to -1/2; squares are not negative."""
        off_diagonal = OFF_DIAGONAL * MOMENT_RADIUS**2
        return self.largest if neighbours == "add-remove" else max(self.largest, off_diagonal)
