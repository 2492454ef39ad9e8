"""How far one record can move the integer sums of a design, in the norms noise needs.

Three kinds of maps, one interface. For tables (Fourier, one-bit) the bounds are read off
the table and hold for every matrix of frequencies; for quadratic features and second
moments they follow from the vectors and the radius of the ball. Masks only take features
away, so a bound over masks is the largest over what can be kept (docs/theory.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from privsketch.budget import Neighbours
from privsketch.domain import Domain
from privsketch.features.frequencies import Frequencies
from privsketch.features.maps import FeatureMap, PairBounds
from privsketch.features.masks import Masks
from privsketch.features.moments import DIAGONAL, MOMENT_UNIT, MomentContribution
from privsketch.features.quadratic import QuadraticContribution, value_unit


class Contribution(Protocol):
    """What one record adds to the sums, before noise."""

    @property
    def n_values(self) -> int:
        """Integers of a sketch, without mean and count."""

    @property
    def dim(self) -> int:
        """Number of columns."""

    @property
    def signed(self) -> bool:
        """Whether a record can add the opposite of what another one adds."""

    @property
    def maskable(self) -> bool:
        """Whether features can be masked; bounds for second moments hold without masks only."""

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
        """Largest L1 norm of a masked record."""

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Largest squared L2 norm of a masked record, or of a difference of two."""

    def linf(self, neighbours: Neighbours) -> int:
        """Largest component of a record, or of a difference of two."""

    def l1_by_mask(self, masks: Masks | None) -> tuple[int, ...] | None:
        """Largest L1 norm for each of equally likely masks, where these are few and differ."""

    def feature_l2_squared(self) -> int | None:
        """Largest squared L2 norm of one feature, if features can be at it all together."""


@dataclass(frozen=True)
class TableContribution:
    """Features that are pairs from a table."""

    bounds: PairBounds
    n_features: int
    dim: int
    signed = True
    maskable = True
    divided_by_count = False

    @property
    def n_values(self) -> int:
        """A cosine and a sine for each feature."""
        return 2 * self.n_features

    @property
    def largest(self) -> int:
        """Of the table."""
        return self.bounds.linf

    @property
    def feature_l1(self) -> int:
        """Of a pair."""
        return self.bounds.l1

    def l1(self, masks: Masks | None) -> int:
        """All masks of one law keep the same number of features, but for Poisson ones."""
        return self._kept(masks) * self.bounds.l1

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Replacing a record can move every feature to its opposite: twice the norm."""
        factor = 1 if neighbours == "add-remove" else 4
        return factor * self._kept(masks) * self.bounds.l2_squared

    def linf(self, neighbours: Neighbours) -> int:
        """Masks do not change it."""
        return (1 if neighbours == "add-remove" else 2) * self.bounds.linf

    def l1_by_mask(self, masks: Masks | None) -> tuple[int, ...] | None:
        """None: all masks are alike."""
        return None

    def feature_l2_squared(self) -> int | None:
        """Of a pair."""
        return self.bounds.l2_squared

    def _kept(self, masks: Masks | None) -> int:
        return self.n_features if masks is None or masks.kept is None else masks.kept


@lru_cache(maxsize=8)
def contribution_of(
    feature_map: FeatureMap, frequencies: Frequencies, domain: Domain
) -> Contribution:
    """The contribution of a design's map; its bounds are computed once."""
    dim = len(domain.half_widths)
    if feature_map.has_table:
        return TableContribution(feature_map.bounds, frequencies.n_features, dim)
    if feature_map.name == "quadratic":
        return QuadraticContribution(frequencies.matrix(domain).astype(np.int16))
    return MomentContribution(dim)


def amplitude_of(feature_map: FeatureMap, frequencies: Frequencies, domain: Domain) -> float:
    """What a feature of modulus 1 is in integers; squares are those of the radius."""
    if feature_map.has_table:
        return feature_map.amplitude
    contribution = contribution_of(feature_map, frequencies, domain)
    if isinstance(contribution, QuadraticContribution):
        return value_unit(frequencies.turn_bits, contribution.shift)
    return float(DIAGONAL * MOMENT_UNIT**2)
