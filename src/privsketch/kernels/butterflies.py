"""Code of the kernel for structured frequencies: transforms in vector registers.

A block of features/hadamard.py takes a record through H D2, then H D1, then radii, features and
sums. The lanes of a vector are features of one record; `Layout` follows where each feature is.
A batch of records stays in the cache while it goes through four kinds of passes:

1. read: 16-bit columns times the signs D2 and the butterflies of bit 0, which together are
   one multiply-add of pairs; then the butterflies of some vector bits;
2. middle: the other bits of the first transform, lanes included, the signs D1, and the
   same bits of the second transform, all in registers. Small blocks are read here;
3. more butterflies, for large blocks only;
4. last: the remaining bits, phases, features of two records at a time, and their sums over the
   batch.

These sums have 32 bits. Before they can wrap, they are added to sums of 64 bits.

Signs D1 are applied as x xor s with s = 0 or -1, which is one too low where the sign is negative.
All later steps are linear modulo 2^32, so the start phases correct for it.

A transform of 2^bits values is one butterfly per bit of the index. In vector code, some bits are
the index of a lane, the others that of a vector. A lane bit is exchanged with a vector bit before
its butterfly, and is never moved back. `Layout` tracks where each bit of the index is, so that the
tables of a kernel can be stored in the order in which they are read. `Transform` assigns bits to
passes over the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from privsketch.features.fixedpoint import INDEX_BITS
from privsketch.features.hadamard import TURN_BITS
from privsketch.kernels.builder import Pointer, Routine, Value
from privsketch.kernels.features import TABLE_FEATURES, TableFeature, mask_bytes, mask_of_vector
from privsketch.kernels.kinds import I8, I16, I32, I64, Arguments, Array, Kind
from privsketch.kernels.operations import pairwise_products

ARGUMENTS: Arguments = {
    "records": Array(I16),
    "n": I64,
    "blocks": I64,
    "signs2": Array(I16),
    "flips": Array(I32),
    "radii": Array(I32),
    "start": Array(I32),
    "buffer": Array(I32),
    "sums": Array(I32),  # of one block; zeros before and after
    "out": Array(I64),
    "masks": Array(I8),
}
_WAY_BITS = 12  # addresses 4 KB apart compete for the same few lines of a cache
_BATCH_BYTES = 2**16  # of 32-bit numbers: a batch of records stays in the cache


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


def sums_routine(
    map_name: str, transform: Transform, masked: bool = False, words: frozenset[str] = frozenset()
) -> Routine:
    """Write the function `sums`, whose arguments are above.

    It adds the features of n >= 1 records with 2^bits columns to `out`. If `masked`, every record
    has a bit for each feature, in the order of the sums, and adds the features whose bit is set.
    Otherwise `masks` is unused.
    """
    routine = Routine("sums", ARGUMENTS, vector_bits=32 * transform.lanes, words=words)
    n, blocks = routine.numbers["n"], routine.numbers["blocks"]
    feature = TABLE_FEATURES[map_name]
    batch = min(transform.batch, feature.max_records)
    n_batched = feature.max_records // batch * batch
    with routine.loop(blocks) as block, routine.tile(n, n_batched) as (begin, part):
        with routine.tile(part, batch) as (first, count):
            _Batch(routine, transform, feature, masked, block, begin + first, count).write()
        _flush(routine, transform, feature, block)
    return routine.finish()


def _flush(routine: Routine, transform: Transform, feature: TableFeature, block: Value) -> None:
    """Add the sums of a block to `out`, and set them to zero."""
    ints, size = I32.vector(transform.lanes), 1 << transform.bits
    out = routine.pointers["out"] + block * (2 * size)
    with routine.loop(1 << transform.vector_bits) as vector:
        first = vector << transform.lane_bits
        narrow = [(routine.pointers["sums"] + (first + part * size)).to(ints) for part in range(2)]
        for part, total in enumerate(feature.widen((narrow[0].load(), narrow[1].load()))):
            target = (out + (first + part * size)).to(total.kind)
            target.store(target.load() + total)
            narrow[part].store(routine.constant(ints, 0))


@dataclass(frozen=True)
class _Batch:
    """Writer of the passes of a batch of `count` records through one block."""

    routine: Routine
    transform: Transform
    feature: TableFeature
    masked: bool
    block: Value
    first: Value  # index of the first record of the batch
    count: Value

    @property
    def ints(self) -> Kind:
        """Type of a vector of values in transforms."""
        return I32.vector(self.transform.lanes)

    @property
    def halves(self) -> Kind:
        """Type of the columns that make a vector, in pairs."""
        return I16.vector(2 * self.transform.lanes)

    def write(self) -> None:
        transform = self.transform
        for number, positions in enumerate(transform.before):
            self.butterfly_pass(positions, read=number == 0)
        self.middle_pass(read=not transform.before)
        for positions in transform.after:
            self.butterfly_pass(positions, read=False)
        self.last_pass()

    @contextmanager
    def groups(self, positions: range) -> Iterator[Value]:
        """Loop over groups of vectors that differ in these bits; yield the first index of each."""
        with self.routine.loop(1 << (self.transform.vector_bits - len(positions))) as group:
            high, low = group >> positions.start, group & ((1 << positions.start) - 1)
            yield high << positions.stop | low

    # --- passes --------------------------------------------------------------------------------

    def butterfly_pass(self, positions: range, *, read: bool) -> None:
        with self.groups(positions) as vector:
            weights = self.weights(vector, positions) if read else []
            with self.routine.loop(self.count) as record:
                values = self.transformed(record, vector, positions, weights)
                self.store(record, vector, positions, values)

    def middle_pass(self, *, read: bool) -> None:
        positions = self.transform.middle
        with self.groups(positions) as vector:
            weights = self.weights(vector, positions) if read else []
            flips = self.vectors("flips", vector, positions)
            with self.routine.loop(self.count) as record:
                values = self.transformed(record, vector, positions, weights)
                self.lane_butterflies(values)
                values = [value ^ flip.load() for value, flip in zip(values, flips, strict=True)]
                butterflies(values, range(len(positions)))
                self.lane_butterflies(values)
                self.store(record, vector, positions, values)

    def last_pass(self) -> None:
        routine, positions = self.routine, self.transform.last
        with self.groups(positions) as vector:
            radii = [address.load() for address in self.vectors("radii", vector, positions)]
            starts = [address.load() for address in self.vectors("start", vector, positions)]
            sines = vector + (1 << self.transform.vector_bits)
            targets = self.vectors("sums", vector, positions)
            targets += self.vectors("sums", sines, positions)
            sums = [address.load() for address in targets]
            even = self.count >> 1 << 1
            with routine.loop(even, sums, step=2, may_be_empty=True) as record:
                self.add([record, record + 1], vector, radii, starts, sums)
            with routine.loop(self.count, sums, start=even, may_be_empty=True) as record:
                self.add([record], vector, radii, starts, sums)
            for address, total in zip(targets, sums, strict=True):
                address.store(total)

    def add(
        self,
        records: list[Value],
        vector: Value,
        radii: list[Value],
        starts: list[Value],
        sums: list[Value],
    ) -> None:
        """Add the features of one record or two to the sums of a group of vectors."""
        positions = self.transform.last
        shift = self.routine.constant(I32, TURN_BITS - INDEX_BITS)
        values = [self.transformed(record, vector, positions, []) for record in records]
        masks = [self.masks(record, vector, positions) for record in records] if self.masked else []
        for k in range(len(radii)):
            phases = [group[k] * radii[k] + starts[k] for group in values]
            pair = self.feature.features(phases, shift, [group[k] for group in masks])
            for part, value in enumerate(pair):
                sums[part * len(radii) + k] += value

    # --- memory --------------------------------------------------------------------------------

    def vectors(self, table: str, vector: Value, positions: range) -> list[Pointer]:
        """Return the addresses of a group of vectors in a table of this block, or in its sums."""
        first = self.routine.pointers[table]
        if table != "sums":
            first = first + (self.block << self.transform.bits)
        base = first.to(self.ints)
        return [base + (vector + (k << positions.start)) for k in range(1 << len(positions))]

    def buffer(self, record: Value, vector: Value, positions: range) -> list[Pointer]:
        """Return the addresses of a group of vectors of a record in the buffer."""
        transform = self.transform
        offset = record * transform.record_stride + (vector + (vector >> transform.padding_shift))
        base = self.routine.pointers["buffer"].to(self.ints) + offset
        return [base + transform.padded(k << positions.start) for k in range(1 << len(positions))]

    def store(self, record: Value, vector: Value, positions: range, values: list[Value]) -> None:
        for address, value in zip(self.buffer(record, vector, positions), values, strict=True):
            address.store(value, align=4 * self.transform.lanes)

    def masks(self, record: Value, vector: Value, positions: range) -> list[Value]:
        """Return the masks of a record for a group of vectors."""
        transform = self.transform
        block = (self.first + record) * self.routine.numbers["blocks"] + self.block
        index = (block << transform.vector_bits) + vector
        row = self.routine.pointers["masks"] + index * mask_bytes(transform.lanes)
        return [
            mask_of_vector(row, k << positions.start, transform.lanes)
            for k in range(1 << len(positions))
        ]

    def weights(self, vector: Value, positions: range) -> list[tuple[Value, Value]]:
        """Return the signs of the columns to be read, for sums and for differences of pairs."""
        signs = self.routine.pointers["signs2"] + (self.block * (2 << self.transform.bits))
        weights = []
        for k in range(1 << (len(positions) - 1)):
            pair = signs.to(self.halves) + ((vector + (k << positions.start)) << 1)
            weights.append((pair.load(align=4), (pair + 1).load(align=4)))
        return weights

    # --- arithmetic ----------------------------------------------------------------------------

    def transformed(
        self, record: Value, vector: Value, positions: range, weights: list[tuple[Value, Value]]
    ) -> list[Value]:
        """Load a group of vectors of a record and apply the butterflies of all bits `positions`.

        The vectors come from the buffer or, with weights, from the record's columns.
        """
        if not weights:
            values = [
                address.load(align=4 * self.transform.lanes)
                for address in self.buffer(record, vector, positions)
            ]
            butterflies(values, range(len(positions)))
            return values
        row = self.routine.pointers["records"] + ((self.first + record) << self.transform.bits)
        sums, differences = [], []
        for k, (plus, minus) in enumerate(weights):
            columns = (row.to(self.halves) + (vector + (k << positions.start))).load()
            sums.append(pairwise_products(columns, plus))
            differences.append(pairwise_products(columns, minus))
        values = sums + differences
        butterflies(values, range(len(positions) - 1))
        return values

    def lane_butterflies(self, values: list[Value]) -> None:
        """Apply the butterflies of all lane bits in place, after exchanges with a vector bit."""
        for rotation in self.transform.rotations:
            rotate(values, rotation)
            butterflies(values, range(1))


def butterflies(values: list[Value], bits: range) -> None:
    """Replace vectors a, b that differ in a bit by a + b, a - b, for each bit, in place."""
    for bit in bits:
        for low in range(len(values)):
            high = low | 1 << bit
            if low != high:
                a, b = values[low], values[high]
                values[low], values[high] = a + b, a - b


def rotate(values: list[Value], rotation: tuple[int, ...]) -> None:
    """Exchange the lowest vector bit with lane bits, as `Layout.rotate` describes, in place."""
    for low in range(0, len(values), 2):
        a, b = values[low : low + 2]
        for side in range(2):
            values[low + side] = a.shuffled(_sources(rotation, a.kind.lanes, side), b)


def _sources(rotation: tuple[int, ...], lanes: int, side: int) -> list[int]:
    """Return the lanes of two vectors that one side of a rotation gathers."""
    sources = []
    for lane in range(lanes):
        source = lane
        bit = side  # moves into the next position
        for position in reversed(rotation):
            source = source & ~(1 << position) | bit << position
            bit = (lane >> position) & 1
        sources.append(source + bit * lanes)
    return sources
