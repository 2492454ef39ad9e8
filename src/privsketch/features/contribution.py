"""How far one record can move the integer sums of a design, in the norms noise needs.

Three kinds of maps, one interface. For tables (Fourier, one-bit) the bounds are read off
the table and hold for every matrix of frequencies; for quadratic features and second
moments they follow from the vectors and the radius of the ball. Masks only take features
away, so a bound over masks is the largest over what can be kept (docs/theory.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Protocol

import numpy as np
import numpy.typing as npt

from privsketch.budget import Neighbours
from privsketch.domain import Domain
from privsketch.features.fixedpoint import RECORD_MAX
from privsketch.features.frequencies import Frequencies
from privsketch.features.maps import FeatureMap, PairBounds
from privsketch.features.masks import Masks
from privsketch.features.moments import (
    DIAGONAL,
    MOMENT_RADIUS,
    MOMENT_UNIT,
    OFF_DIAGONAL,
    moment_count,
)
from privsketch.features.quadratic import squared_norms, value_shift, value_unit
from privsketch.features.quartic import QuarticBounds, quartic_bounds, spectral_bound

MOST_MASKS, MOST_WORK = 2000, 10**9  # that are enumerated; beyond, the worst one counts


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


@dataclass(frozen=True, eq=False)
class QuadraticContribution:
    """Quadratic features of integer vectors (m, dim), records of norm at most RECORD_MAX."""

    vectors: npt.NDArray[np.int16]
    signed = False
    maskable = True
    divided_by_count = True

    @property
    def n_values(self) -> int:
        """One number for each feature."""
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """Columns."""
        return int(self.vectors.shape[1])

    @cached_property
    def shift(self) -> int:
        """Binary digits dropped from a square."""
        return value_shift(self.vectors)

    @cached_property
    def per_feature(self) -> tuple[int, ...]:
        """Largest value of each feature: (|w_j| |x|)^2 by Cauchy and Schwarz."""
        return tuple(norm * RECORD_MAX**2 >> self.shift for norm in squared_norms(self.vectors))

    @cached_property
    def bounds(self) -> QuarticBounds:
        """Bounds of the vectors in their own units."""
        return quartic_bounds(self.vectors.astype(np.float64))

    @property
    def largest(self) -> int:
        """Of all features."""
        return max(self.per_feature)

    @property
    def feature_l1(self) -> int:
        """Of all features."""
        return self.largest

    def l1(self, masks: Masks | None) -> int:
        """|Om_h|_2^2 R^2 over masks h: at most that of all features, or of the longest vectors."""
        bound = self._floor(self._spectral)
        if masks is None or masks.kept is None:
            return bound
        bound = min(bound, masks.kept * self.largest)
        if masks.features == "block":
            norms = sorted(self._block_norms, reverse=True)
            bound = min(bound, sum(norms[: masks.kept // self.dim]))
        return bound

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """S4 bounds; masks only lower S4, and r features are at most sqrt(r) times the longest."""
        whole = self._floor_squared(self.bounds.s4**2)
        if masks is not None and masks.features != "all":
            if masks.kept is not None:
                whole = min(whole, masks.kept * self.largest**2)
            return whole if neighbours == "add-remove" else 2 * whole
        if neighbours == "add-remove":
            return whole
        # Floors move a difference by less than 1 each way; two floored records have no
        # negative values, so twice the squared norm holds without that.
        apart = math.sqrt(self._floor_squared(self.bounds.replace_squared) + 1)
        return min(2 * whole, math.ceil((apart + math.sqrt(self.n_values)) ** 2))

    def linf(self, neighbours: Neighbours) -> int:
        """The same for both relations: values are not negative."""
        return self.largest

    def l1_by_mask(self, masks: Masks | None) -> tuple[int, ...] | None:
        """For one feature of m, or few blocks."""
        if masks is None or masks.kept is None:
            return None
        if masks.features == "uniform" and masks.kept == 1:
            return self.per_feature
        n_blocks, n_kept = self.n_values // self.dim, masks.kept // self.dim
        most = min(MOST_MASKS, MOST_WORK // self.dim**3)
        if masks.features != "block" or n_blocks > most or math.comb(n_blocks, n_kept) > most:
            return None
        return tuple(self._subset_norm(subset) for subset in combinations(range(n_blocks), n_kept))

    def feature_l2_squared(self) -> int | None:
        """None: no record has all features at their largest."""
        return None

    @cached_property
    def _spectral(self) -> float:
        """|Om|_2^2 alone, without the costly bounds on S4."""
        return spectral_bound(self.vectors)

    @cached_property
    def _block_norms(self) -> tuple[int, ...]:
        return tuple(self._subset_norm((block,)) for block in range(self.n_values // self.dim))

    def _subset_norm(self, blocks: tuple[int, ...]) -> int:
        rows = np.concatenate([self.vectors[b * self.dim : (b + 1) * self.dim] for b in blocks])
        return self._floor(spectral_bound(rows))

    def _floor(self, spectral: float) -> int:
        """floor(spectral R^2 / 2^shift) for a spectral bound in the vectors' units."""
        return math.floor(spectral * float(RECORD_MAX**2) * 2.0**-self.shift)

    def _floor_squared(self, quartic: float) -> int:
        """floor(quartic R^4 / 4^shift)."""
        return math.floor(quartic * float(RECORD_MAX**4) * 4.0**-self.shift)


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
