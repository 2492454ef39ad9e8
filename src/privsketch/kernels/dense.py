"""Quantised records to integer sums: a NumPy reference and a compiled kernel.

The reference is the definition: it looks every phase up in the table of the feature map, or squares
it. The compiled kernel fuses dot product, feature, mask and sum, keeps everything in vector
registers, and equals the reference bit for bit.

The kernel has vectors of fixed width, and is compared with the reference before it is used. Its
speed depends on two things that loop compilers do not reliably produce. One is a multiply-add of
pairs of 16-bit integers into 32-bit lanes. The other is a block of several records by several
vectors that stays in registers across the dot product. Its shape fits the processor's registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Bits, Integers
from privsketch.features.fixedpoint import INDEX_BITS, TABLE_SIZE, start_phase, table_index
from privsketch.features.maps import FeatureMap, feature_map
from privsketch.features.quadratic import quadratic_values, value_shift
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import Pointer, Routine, Value
from privsketch.kernels.features import FEATURES, Feature, mask_bytes, mask_of_vector
from privsketch.kernels.kinds import I8, I16, I32, I64, Arguments, Array
from privsketch.kernels.operations import pairwise_products

Quantised = npt.NDArray[np.int16]
# Numbers of a block, which is read for every tile: 256 KB, which fit the second-level cache.
CACHED_INTEGERS = 2**17
_REFERENCE_FEATURES = 2**20  # features that the reference computes at a time: 8 MB for each array
_CHECK_TURN_BITS = 26  # 10 bits below the table's index are rounded, 6 above a turn are dropped
Mode = Literal["whole", "masked", "listed"]
ARGUMENTS: Arguments = {
    "records": Array(I32),  # pairs of 16-bit columns
    "n": I64,
    "pairs": I64,
    "frequencies": Array(I16),
    "start": Array(I32),
    "shift": I32,
    "tiles": I64,
    "out": Array(I64),
    "masks": Array(I8),
    "rows": Array(I32),
}


@dataclass(frozen=True)
class ReferenceKernel:
    """Definition of the sums in plain NumPy; also used for tables that have no vector code."""

    feature_map: FeatureMap
    frequencies: npt.NDArray[np.signedinteger]
    offsets: npt.NDArray[np.uint32]
    turn_bits: int

    def sums(self, quantised: Quantised, mask: Bits | None = None) -> Integers:
        """Return the sums of cosines, then of sines, (2 n_features,), of records (n, dim) int16.

        Quadratic features have one number each, (n_features,). `mask`, (n, n_features), marks the
        features to add; all are added if it is None.
        """
        m = len(self.frequencies)
        total = np.zeros((2 if self.feature_map.has_table else 1) * m, dtype=np.int64)
        rows = max(1, _REFERENCE_FEATURES // m)
        for start in range(0, len(quantised), rows):
            block = slice(start, start + rows)
            total += self._sums(quantised[block], None if mask is None else mask[block])
        return total

    def _sums(self, quantised: Quantised, mask: Bits | None) -> Integers:
        if self.feature_map.has_table:
            index = table_index(quantised, self.frequencies, self.offsets, self.turn_bits)
            parts = [column[index] for column in self.feature_map.table.T.astype(np.int64)]
        else:
            shift = value_shift(self.frequencies)
            parts = [quadratic_values(quantised, self.frequencies, shift)]
        if mask is not None:
            parts = [part * mask for part in parts]
        return np.concatenate([part.sum(axis=0) for part in parts])


class CompiledKernel:
    """Compiled equivalent of a `ReferenceKernel`; safe to call from several threads."""

    def __init__(self, definition: ReferenceKernel) -> None:
        feature_map, frequencies = definition.feature_map, definition.frequencies
        self._map_name, self._parts = feature_map.name, 2 if feature_map.has_table else 1
        excess = np.array(FEATURES[feature_map.name].excess, dtype=np.int64)
        self._excess = excess[: self._parts, np.newaxis]
        self._n_features, self._dim = frequencies.shape
        self._pairs = (self._dim + 1) // 2
        lanes, vectors = _shape().lanes, _shape().vectors
        self._tiles = -(-self._n_features // tile_size())
        n_padded = self._tiles * tile_size()
        start = np.zeros(n_padded, dtype=np.int64)
        if feature_map.has_table:
            self._shift = definition.turn_bits - INDEX_BITS
            start[: self._n_features] = start_phase(definition.offsets, definition.turn_bits)
        else:
            self._shift = value_shift(frequencies)
        self._start = machine.aligned((start & 0xFFFFFFFF).astype(np.uint32).view(np.int32))
        padded = np.zeros((n_padded, 2 * self._pairs), dtype=np.int16)
        padded[: self._n_features, : self._dim] = frequencies
        # Tile, then pair of columns, then lane: the order in which the kernel reads.
        tiled = padded.reshape(self._tiles, vectors, lanes, self._pairs, 2)
        self._frequencies = machine.aligned(tiled.transpose(0, 3, 1, 2, 4))

    def sums(self, quantised: Quantised, mask: Bits | None = None) -> Integers:
        """See `ReferenceKernel`."""
        return self._sums(
            _compile(self._map_name, "whole" if mask is None else "masked"), quantised, mask
        )

    def _sums(self, code: machine.Code, quantised: Quantised, mask: Bits | None) -> Integers:
        out = self._out()
        for start, block in self._even_blocks(quantised):
            masks = None if mask is None else self._packed(mask[start : start + len(block)])
            self._run(code, block, out, masks, None)
        return self._in_order(out, len(quantised) if mask is None else mask.sum(axis=0))

    def listed_sums(self, quantised: Quantised, selected: Bits, size: int) -> Integers:
        """Return sums where every `size` features have their own records, `selected` (blocks, n).

        `size` is a multiple of `tile_size`. Other records take no time.
        """
        return self._listed_sums(_compile(self._map_name, "listed"), quantised, selected, size)

    def _listed_sums(
        self, code: machine.Code, quantised: Quantised, selected: Bits, size: int
    ) -> Integers:
        out = self._out()
        for start, block in self._even_blocks(quantised):
            part = np.ascontiguousarray(selected[:, start : start + len(block)])
            counts = np.count_nonzero(part, axis=1)
            first = np.repeat(np.arange(len(part)) * len(block), counts)
            rows = (np.flatnonzero(part) - first).astype(np.int32)
            ends = np.cumsum(counts)
            ranges = np.stack([ends - counts, ends], axis=1)
            ranges = np.ascontiguousarray(np.repeat(ranges, size // tile_size(), axis=0))
            self._run(code, block, out, ranges, rows)
        return self._in_order(out, np.repeat(selected.sum(axis=1), size)[: self._n_features])

    def _even_blocks(self, quantised: Quantised) -> Iterator[tuple[int, Quantised]]:
        """Yield contiguous blocks, with an even number of columns, that fit the second-level cache.

        Each comes with the index of its first record.
        """
        rows = max(64, CACHED_INTEGERS // (2 * self._pairs))
        for start in range(0, len(quantised), rows):
            block = quantised[start : start + rows]
            if block.shape[1] < 2 * self._pairs:
                block = np.pad(block, ((0, 0), (0, 1)))
            yield start, np.ascontiguousarray(block)

    def _out(self) -> Integers:
        return np.zeros((self._tiles, 2, tile_size()), dtype=np.int64)

    def _run(
        self,
        code: machine.Code,
        block: Quantised,
        out: Integers,
        masks: npt.NDArray[Any] | None,
        rows: npt.NDArray[np.int32] | None,
    ) -> None:
        tables = self._frequencies.ctypes.data, self._start.ctypes.data
        arrays = (machine.address(array) for array in (out, masks, rows))
        numbers = self._shift, self._tiles
        code.function(block.ctypes.data, len(block), self._pairs, *tables, *numbers, *arrays)

    def _in_order(self, out: Integers, counts: Integers | int) -> Integers:
        """Return cosines, then sines, less the excess of each of `counts` records."""
        cosine_sine = out.transpose(1, 0, 2).reshape(2, -1)[: self._parts, : self._n_features]
        return np.asarray(cosine_sine - self._excess * counts).reshape(-1)

    def _packed(self, mask: Bits) -> npt.NDArray[np.uint8]:
        """Pack masks for the kernel: the bits of each vector of features, in whole bytes."""
        padded = np.zeros((len(mask), self._tiles * tile_size()), dtype=np.bool_)
        padded[:, : self._n_features] = mask
        return packed_bits(padded, _shape().lanes)


@dataclass(frozen=True)
class BlockKernel:
    """Kernel for blocks of features, each with its own records."""

    kernel: CompiledKernel
    size: int  # features of a block
    padded: int  # features of a block, including those that fill its last tile

    @classmethod
    def of(cls, definition: ReferenceKernel, size: int) -> BlockKernel:
        """Return the kernel of blocks of `size` neighbouring rows of the frequencies."""
        padded = -(-size // tile_size()) * tile_size()
        blocks = replace(
            definition,
            frequencies=pad_blocks(definition.frequencies, size, padded),
            offsets=pad_blocks(definition.offsets, size, padded),
        )
        return cls(CompiledKernel(blocks), size, padded)

    def sums(self, quantised: Quantised, selected: Bits) -> Integers:
        """Return sums like `ReferenceKernel`; `selected`, (blocks, n), marks records by block."""
        sums = self.kernel.listed_sums(quantised, selected, self.padded)
        return sums.reshape(-1, len(selected), self.padded)[:, :, : self.size].reshape(-1)


def pad_blocks(rows: npt.NDArray[Any], size: int, padded: int) -> npt.NDArray[Any]:
    """Append rows of zeros to every block of `size` rows, up to `padded` rows each."""
    blocks = rows.reshape(-1, size, *rows.shape[1:])
    wide = np.zeros((len(blocks), padded, *rows.shape[1:]), rows.dtype)
    wide[:, :size] = blocks
    return wide.reshape(-1, *rows.shape[1:])


def packed_bits(mask: Bits, lanes: int) -> npt.NDArray[np.uint8]:
    """Pack rows of bits for a kernel: those of each vector of features, in whole bytes."""
    if lanes < 8:
        return np.packbits(mask.reshape(-1, lanes), axis=1, bitorder="little").reshape(-1)
    return np.packbits(mask.reshape(-1), bitorder="little")  # faster, and needs no padding


def _shape() -> Shape:
    lanes = machine.vector_bits() // 32
    return Shape(lanes=lanes, vectors=2, records=8 if lanes == 16 else 4)


@cache
def tile_size() -> int:
    """Return the number of features that the kernel computes together."""
    return _shape().lanes * _shape().vectors


@cache
def _compile(map_name: str, mode: Mode) -> machine.Code:
    routine = sums_routine(map_name, _shape(), mode, machine.processor().words)
    code = machine.compile_routine(routine)
    _check(code, feature_map(map_name), mode)
    return code


def public_integers(stream: PublicStream, *shape: int) -> Quantised:
    """Draw 16-bit integers for a check, uniformly."""
    return (stream.uniform(math.prod(shape)) * 2**16 - 2**15).astype(np.int16).reshape(shape)


def _check(code: machine.Code, mapping: FeatureMap, mode: Mode) -> None:
    """Compare the kernel with the reference on random numbers, and with the table.

    There are two groups of records and two single records. The first of each has a random mask and
    the second its complement, so that every part of the code meets every phase. Then there are
    more records than 32-bit sums hold, at the ends of the table.
    """
    stream, tile, records = PublicStream(0, Purpose.CHECK_DENSE), tile_size(), _shape().records
    limit = FEATURES[mapping.name].max_records
    few = np.repeat([False, True, False, True], [records, records, 1, 1])
    many = np.arange(2 * limit + 3) // records % 2 == 1

    def draw_mask(m: int, is_complement: Bits) -> Bits:
        if mode == "whole":
            return np.ones((len(is_complement), m), np.bool_)
        n_equal = tile if mode == "listed" else 1
        bits = np.repeat(stream.uniform(m // n_equal) < 0.5, n_equal)
        return np.asarray(bits ^ is_complement[:, np.newaxis])

    def sums(definition: ReferenceKernel, x: Quantised, mask: Bits) -> Integers:
        kernel = CompiledKernel(definition)
        if mode == "listed":
            return kernel._listed_sums(code, x, mask[:, ::tile].T, tile)
        return kernel._sums(code, x, mask if mode == "masked" else None)

    # An odd number of columns; small enough for squares.
    x, mask = public_integers(stream, len(few), 5) >> 2, draw_mask(2 * tile, few)
    offsets = public_integers(stream, 2 * tile).view(np.uint16).astype(np.uint32)
    frequencies = public_integers(stream, 2 * tile, 5)
    definition = ReferenceKernel(mapping, frequencies, offsets, _CHECK_TURN_BITS)
    agrees = np.array_equal(sums(definition, x, mask), definition.sums(x, mask))
    x, mask = np.resize(x, (len(many), 5)), draw_mask(2 * tile, many)
    step = np.uint32(2 ** (_CHECK_TURN_BITS - INDEX_BITS))
    if mapping.has_table:  # records at the center; offsets put phases at the ends of the table
        ends = np.concatenate([mapping.table.argmax(axis=0), mapping.table.argmin(axis=0)])
        offsets = np.resize(ends, 2 * tile).astype(np.uint32) * step
        x, definition = np.zeros_like(x), replace(definition, offsets=offsets)
    agrees &= np.array_equal(sums(definition, x, mask), definition.sums(x, mask))
    if mapping.has_table:  # offsets put the phase of a feature at its index
        offsets, mask = np.arange(TABLE_SIZE, dtype=np.uint32) * step, draw_mask(TABLE_SIZE, few)
        zeros = np.zeros((TABLE_SIZE, 1), np.int16)
        definition = ReferenceKernel(mapping, zeros, offsets, _CHECK_TURN_BITS)
        totals = sums(definition, zeros[: len(few)], mask).reshape(2, -1)
        agrees &= np.array_equal(totals, mapping.table.T * mask.sum(axis=0))
    machine.require_agreement(repr(mapping.name), agrees)


@dataclass(frozen=True)
class Shape:
    """Lanes of one vector, vectors per tile, and records per group."""

    lanes: int
    vectors: int
    records: int


def sums_routine(
    map_name: str, shape: Shape, mode: Mode = "whole", words: frozenset[str] = frozenset()
) -> Routine:
    """Write the function `sums`, whose arguments are above.

    For every tile and group of records, it computes dot products of all pairs of columns, then
    features, then 32-bit sums. Before these can wrap, they are added to `out` as 64-bit integers.

    In mode "whole", all features of all records are added. In mode "masked", every record has a bit
    for each feature in `masks`, vector after vector, and adds the features whose bit is set. In
    mode "listed", a tile reads the records whose indices are in `rows`; its two 64-bit numbers in
    `masks` are the start and end of its part of `rows`.
    """
    routine = Routine("sums", ARGUMENTS, vector_bits=32 * shape.lanes, words=words)
    with routine.loop(routine.numbers["tiles"]) as tile:
        _Tile(routine, shape, mode, FEATURES[map_name], tile).write()
    return routine.finish()


@dataclass(frozen=True)
class _Tile:
    """Writes the code for one tile of features."""

    routine: Routine
    shape: Shape
    mode: Mode
    feature: Feature
    tile: Value

    def write(self) -> None:
        routine, shape = self.routine, self.shape
        count, rows = routine.numbers["n"], routine.pointers["rows"]
        if self.mode == "listed":
            ends = routine.pointers["masks"].to(I64) + self.tile * 2
            first, stop = ends.load(), (ends + 1).load()
            count, rows = stop - first, rows + first
        start = (routine.pointers["start"] + self.tile * (shape.lanes * shape.vectors)).to(
            I32.vector(shape.lanes)
        )
        starts = [(start + k).load() for k in range(shape.vectors)]
        with routine.tile(count, self.feature.max_records, may_be_empty=True) as (first, part):
            self.flush(self.sums(first, part, rows, starts))

    def sums(self, first: Value, count: Value, rows: Pointer, starts: list[Value]) -> list[Value]:
        """Compute 32-bit sums of cosines and sines of each vector over `count` records."""
        routine, size = self.routine, self.shape.records
        stop = first + count
        grouped = first + count // size * size
        sums = [starts[0].constant(0)] * (2 * self.shape.vectors)
        with routine.loop(grouped, sums, start=first, step=size, may_be_empty=True) as record:
            self.group(record, size, rows, starts, sums)
        with routine.loop(stop, sums, start=grouped, may_be_empty=True) as record:
            self.group(record, 1, rows, starts, sums)
        return sums

    def flush(self, sums: list[Value]) -> None:
        """Add 32-bit sums to those of 64 bits."""
        routine, shape = self.routine, self.shape
        out = routine.pointers["out"] + self.tile * (2 * shape.lanes * shape.vectors)
        for k in range(shape.vectors):
            for part, total in enumerate(self.feature.widen((sums[2 * k], sums[2 * k + 1]))):
                target = (out + (part * shape.vectors + k) * shape.lanes).to(total.kind)
                target.store(target.load() + total)

    def group(
        self, first: Value, size: int, rows: Pointer, starts: list[Value], sums: list[Value]
    ) -> None:
        """Add the features of `size` neighbouring records to the sums, in pairs."""
        vectors, shift = self.shape.vectors, self.routine.numbers["shift"]
        records = [first + r for r in range(size)]
        if self.mode == "listed":
            records = [(rows + index).load().unsigned_to(I64) for index in records]
        phases = self.phases(records, starts)
        for r in range(0, size, 2):
            pair = range(r, min(r + 2, size))
            for k in range(vectors):
                masks = [self.mask(records[r], k) for r in pair] if self.mode == "masked" else []
                of_pair = [phases[r * vectors + k] for r in pair]
                for part, value in enumerate(self.feature.features(of_pair, shift, masks)):
                    sums[2 * k + part] += value

    def phases(self, records: list[Value], starts: list[Value]) -> list[Value]:
        """Compute the phases of every record and vector of frequencies: start plus dot product."""
        routine, lanes, vectors = self.routine, self.shape.lanes, self.shape.vectors
        pairs, halves = routine.numbers["pairs"], I16.vector(2 * lanes)
        rows = [routine.pointers["records"] + record * pairs for record in records]
        first = routine.pointers["frequencies"] + self.tile * (pairs * (2 * lanes * vectors))
        tile = first.to(halves)
        phases = starts * len(records)
        with routine.loop(pairs, phases) as j:
            weights = [(tile + (j * vectors + k)).load(align=4 * lanes) for k in range(vectors)]
            for r, row in enumerate(rows):
                columns = (row + j).load(align=2).splat(lanes).bits_as(halves)
                for k, weight in enumerate(weights):
                    phases[r * vectors + k] += pairwise_products(columns, weight)
        return phases

    def mask(self, record: Value, k: int) -> Value:
        """Return the mask of a record for one of the tile's vectors."""
        size = self.shape.vectors * mask_bytes(self.shape.lanes)  # bytes of a tile
        offset = record * (self.routine.numbers["tiles"] * size) + self.tile * size
        return mask_of_vector(self.routine.pointers["masks"] + offset, k, self.shape.lanes)
