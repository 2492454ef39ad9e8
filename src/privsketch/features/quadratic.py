"""Quadratic features in integers: v_j = floor((w_j.x)^2 / 2^shift).

Records are quantised to integer vectors of norm at most 2^15 - 1, the radius of the ball;
vectors w_j are 16-bit integers, short enough that |w_j.x| < 2^31, so a square fits 64 bits.
The shift is the least that keeps a feature below 2^21, so that 2^40 records fit 64 bits.
Floors, not roundings: the sum of floors is at most the floor of the sum, so every bound on
the real features holds for the integers.

Vectors of quadratic features, drawn from a public stream.

- "orthobases": unions of orthonormal bases (CLP section 3.4), least noise;
- "normal": independent normal vectors of mean squared norm 1.

How far one record can move sums of quadratic features.

From the vectors and the radius of the ball: certified bounds on norms of the features
(features/quartic.py), in the integers that are summed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.facts.budget import Neighbours
from privsketch.features.fixedpoint import RECORD_BITS, RECORD_MAX
from privsketch.features.masks import Masks
from privsketch.features.quartic import QuarticBounds, quartic_bounds, spectral_bound
from privsketch.features.stream import PublicStream

VALUE_BITS = 21  # 2^40 records add up to 2^61, within the headroom of 62 bits
MAX_VECTOR_NORM_SQUARED = 2**32  # |w_j| <= 2^16: the product with a record stays below 2^31
QUADRATIC_LAWS = ("orthobases", "normal")
VECTOR_BITS = 14  # binary digits of a vector of length 1
MAX_COORDINATE = 0.99 * (2**15 - 1)  # rounding lengthens vectors a little
MAX_MASKS, MAX_WORK = 2000, 10**9  # that are enumerated; beyond, the worst one counts


def squared_norms(vectors: npt.NDArray[Any]) -> list[int]:
    """Exact squared norms of integer vectors (m, dim)."""
    wide = vectors.astype(np.int64)
    return [int(norm) for norm in np.einsum("jk,jk->j", wide, wide)]


def value_shift(vectors: npt.NDArray[Any]) -> int:
    """Binary digits dropped from a square; from the public vectors alone."""
    largest = max(squared_norms(vectors)) * RECORD_MAX**2
    return int(max(0, largest.bit_length() - VALUE_BITS))


def quadratic_values(
    quantised: npt.NDArray[Any], vectors: npt.NDArray[Any], shift: int
) -> npt.NDArray[np.int64]:
    """(n, m) integer features: the definition, in plain 64-bit integers."""
    products = quantised.astype(np.int64) @ vectors.astype(np.int64).T
    return np.asarray((products * products) >> shift)


def value_unit(vector_bits: int, shift: int) -> float:
    """What (w.x)^2 = 1 becomes, with x in half-widths and integer vectors w 2^vector_bits."""
    return math.ldexp(1.0, 2 * (vector_bits + RECORD_BITS) - shift)


def unrounded_vectors(
    stream: PublicStream, law: str, n_features: int, dim: int
) -> Iterator[Floats]:
    """Blocks of `dim` vectors, one basis or as many normal ones at a time."""
    even = dim * dim + dim % 2  # an even number of normals for each block
    for start in range(0, n_features, dim):
        block = stream.normal(even)[: dim * dim].reshape(dim, dim)
        block = _orthonormal(block) if law == "orthobases" else block / np.sqrt(float(dim))
        yield block[: n_features - start]


def vector_resolution(law: str, blocks: Iterable[Floats]) -> int:
    """Binary digits with which coordinates fit 16 bits, and norms 17."""
    if law == "orthobases":
        return VECTOR_BITS  # coordinates of unit vectors
    largest = max(
        max(float(np.abs(block).max()), float(np.sqrt(np.square(block).sum(axis=1).max())) / 2)
        for block in blocks
    )
    bits = VECTOR_BITS
    while largest * 2.0**bits > MAX_COORDINATE:
        bits -= 1
    return bits


def _orthonormal(rows: Floats) -> Floats:
    """Rows made orthonormal one after the other (Gram and Schmidt, modified).

    Sums are accumulated in a fixed order: those of a linear algebra library depend on the
    machine, and every holder must get the same integers.
    """
    rows = rows.copy()
    for i in range(len(rows)):
        row = rows[i]
        row /= np.sqrt(np.add.accumulate(row * row)[-1])
        rest = rows[i + 1 :]
        rest -= np.add.accumulate(rest * row, axis=1)[:, -1:] * row
    return rows


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
        most = min(MAX_MASKS, MAX_WORK // self.dim**3)
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
