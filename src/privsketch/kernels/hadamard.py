"""Quantised records to integer sums of structured frequencies, by compiled transforms.

The sums equal those of the dense integer matrix (`StructuredBlocks.dense`) bit for bit, in
O(log size) steps per feature instead of O(dim). `butterflies.py` writes the code. This module
arranges its tables, pads records to a power of two columns, and runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.types import Bits, Integers
from privsketch.features.fixedpoint import INDEX_BITS, TABLE_SIZE, start_phase
from privsketch.features.hadamard import TURN_BITS, StructuredBlocks, fwht
from privsketch.features.maps import FeatureMap, feature_map
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.butterflies import Transform, orders, sums_routine
from privsketch.kernels.dense import CACHED_INTEGERS, Quantised, packed_bits, public_integers
from privsketch.kernels.features import TABLE_FEATURES

_MIN_ROWS = 256  # records of a call: each call writes its sums to memory at the end


class StructuredKernel:
    """Sums of the features of structured frequencies; safe to call from several threads."""

    def __init__(
        self,
        feature_map: FeatureMap,
        blocks: StructuredBlocks,
        offsets: npt.NDArray[np.uint32],
    ) -> None:
        self._blocks, self._map_name = blocks, feature_map.name
        self._tables = _Tables.of(self._kernel().transform, blocks, offsets)

    def sums(self, quantised: Quantised, mask: Bits | None = None) -> Integers:
        """Return the sums of cosines, then of sines, as `ReferenceKernel` does."""
        kernel = self._kernel(masked=mask is not None)
        return kernel.sums(self._tables, quantised, slice(None), mask).reshape(-1)

    def block_sums(self, quantised: Quantised, block: int) -> Integers:
        """Return a block's sums of cosines and of sines, (2, features of the block)."""
        if not 0 <= block < self._blocks.n_blocks:
            raise ParameterError(f"`block={block}`: expected 0 to {self._blocks.n_blocks - 1}")
        return self._kernel().sums(self._tables, quantised, slice(block, block + 1))

    def _kernel(self, *, masked: bool = False) -> _Kernel:
        return _compile(self._map_name, self._blocks.size, masked)


@dataclass(frozen=True)
class _Tables:
    """The integers of some blocks in the order in which the kernel needs them."""

    signs2: npt.NDArray[np.int16]
    flips: npt.NDArray[np.int32]
    radii: npt.NDArray[np.int32]
    start: npt.NDArray[np.int32]
    order: Integers  # feature of a block at each position of its sums
    positions: Integers  # (2, n_features): positions of the sums of cosines and sines

    @classmethod
    def of(
        cls, transform: Transform, blocks: StructuredBlocks, offsets: npt.NDArray[np.uint32]
    ) -> _Tables:
        n_blocks, size = blocks.n_blocks, blocks.size
        middle_order, order = orders(transform)
        # Every chunk of columns has two rows: signs for sums of pairs, and for their differences.
        signs2 = blocks.signs2.reshape(n_blocks, -1, 1, 2 * transform.lanes).astype(np.int16)
        differences = signs2 * np.tile(np.array([1, -1], np.int16), transform.lanes)
        flips = -(blocks.signs1 < 0).astype(np.int32)
        start = np.zeros(n_blocks * size, dtype=np.int64)
        start[: blocks.n_features] = start_phase(offsets, TURN_BITS)
        start = start.reshape(n_blocks, size) - blocks.radii * fwht(flips.astype(np.int64))
        start_32 = (start & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        block, feature = np.divmod(np.arange(blocks.n_features), size)
        cosines = 2 * size * block + np.argsort(order)[feature]
        return cls(
            machine.aligned(np.concatenate([signs2, differences], axis=2)),
            machine.aligned(flips[:, middle_order]),
            machine.aligned(blocks.radii[:, order]),
            machine.aligned(start_32[:, order]),
            order,
            np.stack([cosines, cosines + size]),
        )

    def packed(self, mask: Bits, lanes: int) -> npt.NDArray[np.uint8]:
        """Pack masks for the kernel: the bits of each vector of features, in whole bytes."""
        padded = np.zeros((len(mask), self.radii.size), dtype=np.bool_)
        padded[:, : self.positions.shape[1]] = mask
        return packed_bits(np.take(padded.reshape(-1, len(self.order)), self.order, axis=1), lanes)


@dataclass(frozen=True)
class _Kernel:
    code: machine.Code
    transform: Transform
    excess: tuple[int, int]

    def sums(
        self, tables: _Tables, quantised: Quantised, blocks: slice, mask: Bits | None = None
    ) -> Integers:
        """Return sums of the features of some blocks, (2, features); masks are for all blocks."""
        transform = self.transform
        size = 1 << transform.bits
        block_range = range(len(tables.radii))[blocks]
        buffer = machine.aligned(
            np.empty(transform.batch * transform.record_stride * transform.lanes, dtype=np.int32)
        )
        addresses = [
            table[blocks].ctypes.data
            for table in (tables.signs2, tables.flips, tables.radii, tables.start)
        ]
        narrow = machine.aligned(np.zeros((2, size), dtype=np.int32))
        out = machine.aligned(np.zeros((len(block_range), 2, size), dtype=np.int64))
        rows = max(_MIN_ROWS, CACHED_INTEGERS // size)
        padded = np.zeros((min(rows, len(quantised)), size), dtype=np.int16)
        outputs = [array.ctypes.data for array in (buffer, narrow, out)]
        for begin in range(0, len(quantised), rows):
            chunk = _padded(quantised[begin : begin + rows], padded)
            masks = None
            if mask is not None:
                masks = tables.packed(mask[begin : begin + rows], transform.lanes)
            inputs = chunk.ctypes.data, len(chunk), len(block_range), *addresses
            self.code.function(*inputs, *outputs, machine.address(masks))
        positions = tables.positions[:, block_range.start * size : block_range.stop * size]
        total = out.reshape(-1)[positions - 2 * size * block_range.start]
        counts = len(quantised) if mask is None else mask.sum(axis=0)
        return np.asarray(total - np.array(self.excess)[:, np.newaxis] * counts)


def _padded(chunk: Quantised, buffer: Quantised) -> Quantised:
    """Return contiguous records with as many columns as `buffer`, copied into it if necessary."""
    if chunk.shape[1] == buffer.shape[1]:
        return np.ascontiguousarray(chunk, dtype=np.int16)
    buffer[: len(chunk), : chunk.shape[1]] = chunk
    return buffer[: len(chunk)]


@cache
def _compile(map_name: str, size: int, masked: bool) -> _Kernel:
    lane_bits = (machine.vector_bits() // 32).bit_length() - 1
    transform = Transform(size.bit_length() - 1, lane_bits)
    routine = sums_routine(map_name, transform, masked, machine.processor().words)
    code = machine.compile_routine(routine)
    kernel = _Kernel(code, transform, TABLE_FEATURES[map_name].excess)
    _check(kernel, feature_map(map_name), masked)
    return kernel


def _check(kernel: _Kernel, mapping: FeatureMap, masked: bool) -> None:
    """Compare the kernel with the table on every phase, and with the definition on records."""
    size, stream = 1 << kernel.transform.bits, PublicStream(0, Purpose.CHECK_HADAMARD)

    def sums(
        blocks: StructuredBlocks, offsets: npt.NDArray[np.uint32], x: Quantised, mask: Bits
    ) -> Integers:
        tables = _Tables.of(kernel.transform, blocks, offsets)
        return kernel.sums(tables, x, slice(None), mask if masked else None)

    def draw_mask(n: int, m: int) -> Bits:
        if not masked:
            return np.ones((n, m), np.bool_)
        bits = stream.uniform(m) < 0.5  # records have these bits and their complement in turn
        return np.asarray(bits ^ (np.arange(n) % 2 == 1)[:, np.newaxis])

    # Two records at the center; the offset of a feature puts its phase at its index.
    n_blocks, mask = TABLE_SIZE // size, draw_mask(2, TABLE_SIZE)
    plus, ones = np.ones((n_blocks, size), np.int8), np.ones((n_blocks, size), np.int32)
    offsets = np.arange(TABLE_SIZE, dtype=np.uint32) * np.uint32(2 ** (TURN_BITS - INDEX_BITS))
    blocks = StructuredBlocks(plus, plus, ones, size, TABLE_SIZE)
    totals = sums(blocks, offsets, np.zeros((2, size), np.int16), mask)
    agrees = np.array_equal(totals, mapping.table.T * mask.sum(axis=0))
    # One record more than a batch; the last block has unused features.
    n, m = kernel.transform.batch + 1, 2 * size - 5
    signs = np.where(stream.uniform(4 * size) < 0.5, 1, -1).astype(np.int8).reshape(2, 2, size)
    radii = (stream.uniform(2 * size) * 2**20).astype(np.int32).reshape(2, size)
    blocks, mask = StructuredBlocks(signs[0], signs[1], radii, size, m), draw_mask(n, m)
    offsets = (stream.uniform(m) * 2**TURN_BITS).astype(np.uint32)
    x = public_integers(stream, n, size)
    phases = blocks.phases(x) + start_phase(offsets, TURN_BITS)
    values = mapping.table[(phases >> (TURN_BITS - INDEX_BITS)) & (TABLE_SIZE - 1)]
    expected = (values * mask[:, :, np.newaxis]).sum(axis=0, dtype=np.int64)
    agrees &= np.array_equal(sums(blocks, offsets, x, mask), expected.T)
    # More records than 32-bit sums hold, at the ends of the table.
    ends = np.concatenate([mapping.table.argmax(axis=0), mapping.table.argmin(axis=0)])
    index = np.resize(ends, size)
    n = TABLE_FEATURES[mapping.name].max_records + 3
    blocks = StructuredBlocks(plus[:1], plus[:1], ones[:1], size, size)
    offsets, mask = index.astype(np.uint32) << np.uint32(TURN_BITS - INDEX_BITS), draw_mask(n, size)
    totals = sums(blocks, offsets, np.zeros((n, size), np.int16), mask)
    agrees &= np.array_equal(totals, mapping.table[index].T.astype(np.int64) * mask.sum(axis=0))
    machine.require_agreement(f"{mapping.name!r} Hadamard", agrees)
