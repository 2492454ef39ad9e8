"""Bounds on what one record adds to the sums of a sketch: the base class of all maps' bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from privsketch.facts.budget import Neighbours
from privsketch.features.fixedpoint import RECORD_MAX
from privsketch.features.masks import Masks


@dataclass(frozen=True, eq=False)
class Contribution:
    """Bounds of what one record adds to the sums, before noise.

    `signed` says whether a record can add the opposite of what another one adds, `maskable` whether
    features can be masked, `divided_by_count` whether learners divide the sums by the number of
    records.

    Attributes
    ----------
    n_values : int
        Number of integers of a sketch, without mean and count.
    dim : int
        Number of columns.
    largest : int
        Largest component of one record.
    feature_l1 : int
        Largest L1 norm of one feature.
    """

    n_values: int
    dim: int
    largest: int
    feature_l1: int

    signed = True
    maskable = False
    divided_by_count = False

    def l1(self, masks: Masks | None) -> int:
        """Return the largest L1 norm of a masked record."""
        raise NotImplementedError

    def l1_replaced(self, masks: Masks | None) -> int:
        """Return the largest L1 norm of a difference of two masked records."""
        return 2 * self.l1(masks)

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Return the largest squared L2 norm of a masked record, or of a difference of two."""
        raise NotImplementedError

    def mean_l2_squared(self, weight: int | Fraction, neighbours: Neighbours) -> int:
        """Return what `weight` times the coordinates of a ball adds to `l2_squared`.

        A record has a norm of at most RECORD_MAX, a difference of two twice that.
        """
        factor = 1 if neighbours == "add-remove" else 2
        return math.ceil(Fraction(factor * weight * RECORD_MAX) ** 2)

    def linf(self, neighbours: Neighbours) -> int:
        """Return the largest component of a record, or of a difference of two."""
        raise NotImplementedError

    def l1_by_mask(self, masks: Masks | None) -> tuple[int, ...] | None:
        """Return the largest L1 norm for each of a few equally likely masks; None otherwise."""
        return None

    def feature_l2_squared(self) -> int | None:
        """Return the largest squared L2 norm of a feature, if all can attain it at once."""
        return None
