"""How far one record can move sums of second moments."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privsketch.budget import Neighbours
from privsketch.features.masks import Masks
from privsketch.features.moments import DIAGONAL, MOMENT_RADIUS, OFF_DIAGONAL, moment_count


@dataclass(frozen=True)
class MomentContribution:
    """Weighted second moments of records of norm at most MOMENT_RADIUS."""

    dim: int
    signed = True
    maskable = False
    divided_by_count = True

    @property
    def n_values(self) -> int:
        """The upper triangle."""
        return moment_count(self.dim)

    @property
    def largest(self) -> int:
        """5 x_i^2 at x = e_i."""
        return DIAGONAL * MOMENT_RADIUS**2

    @property
    def feature_l1(self) -> int:
        """Of one entry."""
        return self.largest

    def l1(self, masks: Masks | None) -> int:
        """5 |x|_2^2 + 7 (|x|_1^2 - |x|_2^2) / 2, at most that of |x|_1^2 = dim |x|_2^2."""
        return math.ceil((DIAGONAL + OFF_DIAGONAL * (self.dim - 1) / 2) * MOMENT_RADIUS**2)

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """25 |x x'|_F^2, and 25 |x x' - y y'|_F^2 <= 50 |x|^4 (x = e_1, y = e_2)."""
        return (1 if neighbours == "add-remove" else 2) * self.largest**2

    def linf(self, neighbours: Neighbours) -> int:
        """x_i x_j goes from 1/2 to -1/2; squares are not negative."""
        off_diagonal = OFF_DIAGONAL * MOMENT_RADIUS**2
        return self.largest if neighbours == "add-remove" else max(self.largest, off_diagonal)

    def l1_by_mask(self, masks: Masks | None) -> tuple[int, ...] | None:
        """None: there are no masks."""
        return None

    def feature_l2_squared(self) -> int | None:
        """None: no record has all entries at their largest."""
        return None
