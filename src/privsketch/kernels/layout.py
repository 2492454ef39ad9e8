"""Where the features of a structured block lie while a record goes through its transforms.

A transform of 2^bits values is one butterfly per bit of the index. In vector code some bits
tell the lanes of a vector apart, the others tell vectors apart. A lane bit is exchanged with
a vector bit when its turn comes, and nothing is ever moved back: `Layout` follows which bit
of the index went where, so that the tables of a kernel can be stored in the order in which
it needs them. `Transform` says which bits are handled in which pass over the data.
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
    """How a block of 2^bits features is spread over vectors and passes."""

    bits: int
    lane_bits: int

    @property
    def lanes(self) -> int:
        """Features of one vector."""
        return 1 << self.lane_bits

    @property
    def vector_bits(self) -> int:
        """Bits of the index that tell vectors apart."""
        return self.bits - self.lane_bits

    @property
    def radix_bits(self) -> int:
        """Bits handled in registers at a time: 16 vectors where there are 32 registers."""
        return 4 if self.lane_bits == 4 else 3

    @property
    def middle(self) -> range:
        """Places of the vector bits that the middle pass handles."""
        return range(min(self.vector_bits, self.radix_bits))

    @property
    def before(self) -> list[range]:
        """Places of the passes before the middle one, the reading one first."""
        return _groups(len(self.middle), self.vector_bits, self.radix_bits)

    @property
    def after(self) -> list[range]:
        """Places of the passes between the middle and the last."""
        return _groups(len(self.middle), self.last.start, self.radix_bits)

    @property
    def last(self) -> range:
        """Places that the last pass handles, few because sums want registers as well."""
        most = 2 if self.lane_bits == 4 else 1
        return range(max(len(self.middle), self.vector_bits - most), self.vector_bits)

    @property
    def batch(self) -> int:
        """Records that go through the passes together."""
        return max(2, _BATCH_BYTES >> (self.bits + 2))

    def padded(self, vector: int) -> int:
        """Place of a vector in the buffer: one is left out every 4 KB (_WAY_BITS)."""
        return vector + (vector >> self.padding_shift)

    @property
    def padding_shift(self) -> int:
        """Vectors in 4 KB, as a power of two."""
        return _WAY_BITS - 2 - self.lane_bits

    @property
    def record_stride(self) -> int:
        """Vectors from one record of the buffer to the next."""
        return self.padded(1 << self.vector_bits) + 1

    @property
    def rotations(self) -> list[tuple[int, ...]]:
        """Exchanges that bring every lane bit to the vectors once; cheap shuffles each.

        (i, j): the vector bit moves to lane bit i, lane bit i to j, and j to the vectors.
        """
        halves: dict[int, list[tuple[int, ...]]] = {2: [], 3: [(2,)], 4: [(3, 2), (3, 2)]}
        return [(0, 1), (0, 1), *halves[self.lane_bits]]


def _groups(start: int, stop: int, most: int) -> list[range]:
    """The places start to stop in groups of at most `most`, the highest first."""
    count = -(-(stop - start) // most)
    cuts = [start + (stop - start) * part // max(count, 1) for part in range(count + 1)]
    return [range(*cut) for cut in pairwise(cuts)][::-1]


@dataclass
class Layout:
    """Which bit of the index each bit of a place holds: bits of vectors, bits of lanes."""

    vector: list[int]
    lane: list[int]

    def order(self) -> npt.NDArray[np.int64]:
        """Index of the feature at every place, vector by vector."""
        places = np.arange(1 << (len(self.vector) + len(self.lane)))
        index = np.zeros_like(places)
        for place, bit in enumerate(self.lane + self.vector):
            index |= ((places >> place) & 1) << bit
        return index

    def rotate(self, rotation: tuple[int, ...]) -> None:
        """Follows one of `Transform.rotations`, of vectors that differ in the lowest bit."""
        moving = self.vector[0]
        for place in rotation:
            moving, self.lane[place] = self.lane[place], moving
        self.vector[0] = moving


def read_layout(transform: Transform) -> Layout:
    """After reading: pairs of columns are lanes, sums and differences the highest vector bit."""
    first = 1 + transform.lane_bits
    return Layout([*range(first, transform.bits), 0], list(range(1, first)))


def orders(transform: Transform) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The order of features where the signs D1 are applied, and the one of the sums."""
    layout = read_layout(transform)
    found = []
    for _ in range(2):
        for rotation in transform.rotations:
            layout.rotate(rotation)
        found.append(layout.order())
    return found[0], found[1]
