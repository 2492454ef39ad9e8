"""Positions of the features of a structured block during the transforms of a record.

A transform of 2^bits values is one butterfly per bit of the index. In vector code, some bits are
the index of a lane, the others that of a vector. A lane bit is exchanged with a vector bit before
its butterfly, and is never moved back. `Layout` tracks where each bit of the index is, so that the
tables of a kernel can be stored in the order in which they are read. `Transform` assigns bits to
passes over the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

_WAY_BITS = 12  # addresses 4 KB apart compete for the same few lines of a cache
_BATCH_BYTES = 2**16  # of 32-bit numbers: a batch of records stays in the cache (butterflies.py)


@dataclass(frozen=True)
class Transform:
    """Division of a block of 2^bits features into vectors and passes."""

    bits: int
    lane_bits: int

    @property
    def lanes(self) -> int:
        """Number of features in a vector."""
        return 1 << self.lane_bits

    @property
    def vector_bits(self) -> int:
        """Number of bits that index vectors."""
        return self.bits - self.lane_bits

    @property
    def radix_bits(self) -> int:
        """Number of bits of one pass: 16 vectors if there are 32 registers, else 8."""
        return 4 if self.lane_bits == 4 else 3

    @property
    def middle(self) -> range:
        """Positions of the vector bits of the middle pass."""
        return range(min(self.vector_bits, self.radix_bits))

    @property
    def before(self) -> list[range]:
        """Positions of the bits of each pass before the middle one, the reading pass first."""
        return _groups(len(self.middle), self.vector_bits, self.radix_bits)

    @property
    def after(self) -> list[range]:
        """Positions of the bits of each pass between the middle and the last one."""
        return _groups(len(self.middle), self.last.start, self.radix_bits)

    @property
    def last(self) -> range:
        """Positions of the bits of the last pass, few because sums need registers as well."""
        max_bits = 2 if self.lane_bits == 4 else 1
        return range(max(len(self.middle), self.vector_bits - max_bits), self.vector_bits)

    @property
    def batch(self) -> int:
        """Number of records that go through the passes together."""
        return max(2, _BATCH_BYTES >> (self.bits + 2))

    def padded(self, vector: int) -> int:
        """Return the position of a vector in the buffer: one is skipped every 4 KB (_WAY_BITS)."""
        return vector + (vector >> self.padding_shift)

    @property
    def padding_shift(self) -> int:
        """Binary logarithm of the number of vectors in 4 KB."""
        return _WAY_BITS - 2 - self.lane_bits

    @property
    def record_stride(self) -> int:
        """Number of vectors from one record of the buffer to the next."""
        return self.padded(1 << self.vector_bits) + 1

    @property
    def rotations(self) -> list[tuple[int, ...]]:
        """Exchanges that bring every lane bit to the vectors once; cheap shuffles each.

        (i, j): the vector bit moves to lane bit i, lane bit i to j, and j to the vectors.
        """
        halves: dict[int, list[tuple[int, ...]]] = {2: [], 3: [(2,)], 4: [(3, 2), (3, 2)]}
        return [(0, 1), (0, 1), *halves[self.lane_bits]]


def _groups(start: int, stop: int, max_size: int) -> list[range]:
    """Split the positions from start to stop into groups of at most `max_size`, highest first."""
    count = -(-(stop - start) // max_size)
    cuts = [start + (stop - start) * part // max(count, 1) for part in range(count + 1)]
    return [range(*cut) for cut in pairwise(cuts)][::-1]


@dataclass
class Layout:
    """Bit of the index that each vector bit and each lane bit holds."""

    vector: list[int]
    lane: list[int]

    def order(self) -> npt.NDArray[np.int64]:
        """Return the index of the feature at every lane of every vector."""
        slots = np.arange(1 << (len(self.vector) + len(self.lane)))
        index = np.zeros_like(slots)
        for position, bit in enumerate(self.lane + self.vector):
            index |= ((slots >> position) & 1) << bit
        return index

    def rotate(self, rotation: tuple[int, ...]) -> None:
        """Apply one of `Transform.rotations` to vectors that differ in the lowest bit."""
        bit = self.vector[0]
        for position in rotation:
            bit, self.lane[position] = self.lane[position], bit
        self.vector[0] = bit


def orders(transform: Transform) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the order of features where the signs D1 are applied, and that of the sums."""
    # After reading, sums and differences differ in the highest vector bit.
    first = 1 + transform.lane_bits
    layout = Layout([*range(first, transform.bits), 0], list(range(1, first)))

    def next_order() -> npt.NDArray[np.int64]:
        for rotation in transform.rotations:
            layout.rotate(rotation)
        return layout.order()

    return next_order(), next_order()
