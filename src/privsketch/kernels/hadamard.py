"""Quantised records to integer sums of structured frequencies, by compiled transforms.

The sums equal those of the dense integer matrix (`StructuredBlocks.dense`) bit for bit, in
O(log size) steps per feature instead of O(dim). `butterflies.py` writes the code; here its
tables are laid out, and records are padded to a power of two.
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
from privsketch.kernels.butterflies import kernel_module
from privsketch.kernels.dense import Quantised
from privsketch.kernels.features import TABLE_FEATURES
from privsketch.kernels.layout import Transform, orders

_CACHED_VALUES = 2**17  # quantised values that are read again for every block
_MIN_ROWS = 256  # in a call, which leaves its sums in memory at the end


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

    def sums(self, quantised: Quantised, kept: Bits | None = None) -> Integers:
        """(n, dim) int16 to (2 n_features,): sums of cosines, then of sines.

        Only the features that are kept, (n, n_features), are added up.
        """
        kernel = self._kernel(masked=kept is not None)
        return kernel.sums(self._tables, quantised, slice(None), kept).reshape(-1)

    def block_sums(self, quantised: Quantised, block: int) -> Integers:
        """(n, dim) int16 to (2, features of the block): its sums of cosines and of sines."""
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
    order: Integers  # feature of a block at each place of its sums
    places: Integers  # (2, n_features): where the sums of cosines and sines are left

    @classmethod
    def of(
        cls, transform: Transform, blocks: StructuredBlocks, offsets: npt.NDArray[np.uint32]
    ) -> _Tables:
        n_blocks, size = blocks.n_blocks, blocks.size
        middle_order, order = orders(transform)
        # Every chunk of columns twice: the signs of pairs, and again for their differences.
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

    def packed(self, kept: Bits, lanes: int) -> npt.NDArray[np.uint8]:
        """Masks as the kernel reads them: for each vector of features its bits, in whole bytes."""
        wide = np.zeros((len(kept), self.radii.size), dtype=np.bool_)
        wide[:, : self.places.shape[1]] = kept
        ordered = np.take(wide.reshape(-1, len(self.order)), self.order, axis=1)
        if lanes < 8:
            ordered = np.pad(ordered.reshape(-1, lanes), ((0, 0), (0, 8 - lanes)))
        return np.packbits(ordered.reshape(-1), bitorder="little")


@dataclass(frozen=True)
class _Kernel:
    code: machine.Code
    transform: Transform
    excess: tuple[int, int]

    def sums(
        self, tables: _Tables, quantised: Quantised, blocks: slice, kept: Bits | None = None
    ) -> Integers:
        """Sums of the features of some blocks, (2, features); masks are for all blocks."""
        transform = self.transform
        size = 1 << transform.bits
        chosen = range(len(tables.radii))[blocks]
        buffer = machine.aligned(
            np.empty(transform.batch * transform.record_stride * transform.lanes, dtype=np.int32)
        )
        addresses = [
            table[blocks].ctypes.data
            for table in (tables.signs2, tables.flips, tables.radii, tables.start)
        ]
        narrow = machine.aligned(np.zeros((2, size), dtype=np.int32))
        out = machine.aligned(np.zeros((len(chosen), 2, size), dtype=np.int64))
        rows = max(_MIN_ROWS, _CACHED_VALUES // size)
        room = np.zeros((min(rows, len(quantised)), size), dtype=np.int16)
        for begin in range(0, len(quantised), rows):
            chunk = _padded(quantised[begin : begin + rows], room)
            masks = None
            if kept is not None:
                masks = tables.packed(kept[begin : begin + rows], transform.lanes)
            self.code.function(
                chunk.ctypes.data,
                len(chunk),
                len(chosen),
                *addresses,
                buffer.ctypes.data,
                narrow.ctypes.data,
                out.ctypes.data,
                None if masks is None else masks.ctypes.data,
            )
        places = tables.places[:, chosen.start * size : chosen.stop * size]
        total = out.reshape(-1)[places - 2 * size * chosen.start]
        counts = len(quantised) if kept is None else kept.sum(axis=0)
        return np.asarray(total - np.array(self.excess)[:, np.newaxis] * counts)


def _padded(chunk: Quantised, room: Quantised) -> Quantised:
    """The records, contiguous, with as many columns as `room`, which may be used for them."""
    if chunk.shape[1] == room.shape[1]:
        return np.ascontiguousarray(chunk, dtype=np.int16)
    room[: len(chunk), : chunk.shape[1]] = chunk
    return room[: len(chunk)]


@cache
def _compile(map_name: str, size: int, masked: bool) -> _Kernel:
    lane_bits = (machine.vector_bits() // 32).bit_length() - 1
    transform = Transform(size.bit_length() - 1, lane_bits)
    module = kernel_module(map_name, transform, masked, machine.processor().words)
    arguments = (machine.POINTER, machine.INTEGER, machine.INTEGER, *[machine.POINTER] * 8)
    code = machine.compile_function(module, "sums", *arguments)
    kernel = _Kernel(code, transform, TABLE_FEATURES[map_name].excess)
    _check(kernel, feature_map(map_name), masked)
    return kernel


def _check(kernel: _Kernel, each: FeatureMap, masked: bool) -> None:
    """Compares the kernel with the table on every phase, and with the definition on records."""
    size, stream = 1 << kernel.transform.bits, PublicStream(0, Purpose.CHECK_HADAMARD)

    def sums(
        blocks: StructuredBlocks, offsets: npt.NDArray[np.uint32], x: Quantised, kept: Bits
    ) -> Integers:
        tables = _Tables.of(kernel.transform, blocks, offsets)
        return kernel.sums(tables, x, slice(None), kept if masked else None)

    def masks(n: int, m: int) -> Bits:
        if not masked:
            return np.ones((n, m), np.bool_)
        some = stream.uniform(m) < 0.5  # records keep these or all others, in turn
        return np.asarray(some ^ (np.arange(n) % 2 == 1)[:, np.newaxis])

    # Two records at the center; the offset of a feature puts its phase at its index.
    n_blocks, kept = TABLE_SIZE // size, masks(2, TABLE_SIZE)
    plus, ones = np.ones((n_blocks, size), np.int8), np.ones((n_blocks, size), np.int32)
    every = np.arange(TABLE_SIZE, dtype=np.uint32) * np.uint32(2 ** (TURN_BITS - INDEX_BITS))
    blocks = StructuredBlocks(plus, plus, ones, size, TABLE_SIZE)
    found = sums(blocks, every, np.zeros((2, size), np.int16), kept)
    agrees = np.array_equal(found, each.table.T * kept.sum(axis=0))
    # One record more than a batch; the last block has features that nobody asked for.
    n, m = kernel.transform.batch + 1, 2 * size - 5
    signs = np.where(stream.uniform(4 * size) < 0.5, 1, -1).astype(np.int8).reshape(2, 2, size)
    radii = (stream.uniform(2 * size) * 2**20).astype(np.int32).reshape(2, size)
    blocks, kept = StructuredBlocks(signs[0], signs[1], radii, size, m), masks(n, m)
    offsets = (stream.uniform(m) * 2**TURN_BITS).astype(np.uint32)
    x = (stream.uniform(n * size) * 2**16 - 2**15).astype(np.int16).reshape(n, size)
    phases = blocks.phases(x) + start_phase(offsets, TURN_BITS)
    values = each.table[(phases >> (TURN_BITS - INDEX_BITS)) & (TABLE_SIZE - 1)]
    wanted = (values * kept[:, :, np.newaxis]).sum(axis=0, dtype=np.int64)
    agrees &= np.array_equal(sums(blocks, offsets, x, kept), wanted.T)
    # More records than 32-bit sums hold, at the ends of the table.
    ends = np.concatenate([each.table.argmax(axis=0), each.table.argmin(axis=0)])
    at_ends = np.resize(ends, size)
    n, plus = TABLE_FEATURES[each.name].most + 3, np.ones((1, size), np.int8)
    blocks, kept = StructuredBlocks(plus, plus, plus.astype(np.int32), size, size), masks(n, size)
    offsets = at_ends.astype(np.uint32) << np.uint32(TURN_BITS - INDEX_BITS)
    found = sums(blocks, offsets, np.zeros((n, size), np.int16), kept)
    agrees &= np.array_equal(found, each.table[at_ends].T.astype(np.int64) * kept.sum(axis=0))
    machine.require_agreement(f"{each.name!r} Hadamard", agrees)
