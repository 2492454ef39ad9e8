"""Bounds on what one record adds to the sums of a sketch: their interface and common defaults."""

from __future__ import annotations

from typing import Protocol

from privsketch.facts.budget import Neighbours
from privsketch.features.masks import Masks


class Contribution(Protocol):
    """Bounds of what one record adds to the sums, before noise."""

    @property
    def n_values(self) -> int:
        """Number of integers of a sketch, without mean and count."""

    @property
    def dim(self) -> int:
        """Number of columns."""

    @property
    def signed(self) -> bool:
        """Whether a record can add the opposite of what another one adds."""

    @property
    def maskable(self) -> bool:
        """Whether features can be masked; bounds of second moments need all of them."""

    @property
    def divided_by_count(self) -> bool:
        """Whether learners divide the sums by the number of records."""

    @property
    def largest(self) -> int:
        """The largest component of one record."""

    @property
    def feature_l1(self) -> int:
        """The largest L1 norm of one feature."""

    def l1(self, masks: Masks | None) -> int:
        """Return the largest L1 norm of a masked record."""

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Return the largest squared L2 norm of a masked record, or of a difference of two."""

    def linf(self, neighbours: Neighbours) -> int:
        """Return the largest component of a record, or of a difference of two."""

    def l1_by_mask(self, masks: Masks | None) -> tuple[int, ...] | None:
        """Return the largest L1 norm for each of a few equally likely masks; None otherwise."""

    def feature_l2_squared(self) -> int | None:
        """Return the largest squared L2 norm of a feature, if all can attain it at once."""


class NoBoundByMask:
    """Defaults of contributions that have no bounds for single masks or features."""

    def l1_by_mask(self, masks: Masks | None) -> tuple[int, ...] | None:
        """Return None: all masks have the same bound, or none is allowed."""
        return None

    def feature_l2_squared(self) -> int | None:
        """Return None: no record has all features at their largest."""
        return None
