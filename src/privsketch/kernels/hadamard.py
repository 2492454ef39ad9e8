"""Quantised records to integer sums of structured frequencies, by compiled transforms.

The sums equal those of the dense integer matrix (`StructuredBlocks.dense`) bit for bit, in
O(log size) steps per feature instead of O(dim). `butterflies.py` writes the code; here its
tables are laid out, records are padded to a power of two, and 32-bit sums are collected
before they can wrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from privsketch._typing import Bits, Integers
from privsketch.errors import ParameterError
from privsketch.features.fixedpoint import start_phase
from privsketch.features.hadamard import TURN_BITS, StructuredBlocks, fwht
from privsketch.features.maps import FeatureMap
from privsketch.kernels.butterflies import kernel_module
from privsketch.kernels.dense import MAX_BLOCK, Quantised
from privsketch.kernels.layout import Transform, orders
from privsketch.kernels.machine import (
    INTEGER,
    POINTER,
    Code,
    aligned,
    compile_function,
    vector_bits,
)

_CACHED_VALUES = 2**17  # quantised values that are read again for every block


class StructuredKernel:
    """Sums of the features of structured frequencies; safe to call from several threads."""

    def __init__(
        self,
        feature_map: FeatureMap,
        blocks: StructuredBlocks,
        offsets: npt.NDArray[np.uint32],
    ) -> None:
        self._blocks, self._map_name = blocks, feature_map.name
        self._kernel = _compile(feature_map.name, blocks.size, False)
        transform = self._kernel.transform
        n_blocks, size = blocks.n_blocks, blocks.size
        middle_order, self._order = orders(transform)
        # Where the kernel leaves the sum of every feature: block, cosine or sine, place.
        block, feature = np.divmod(np.arange(blocks.n_features), size)
        cosines = 2 * size * block + np.argsort(self._order)[feature]
        self._places = np.stack([cosines, cosines + size])
        # Every chunk of columns twice: the signs of pairs, and again for their differences.
        signs2 = blocks.signs2.reshape(n_blocks, -1, 1, 2 * transform.lanes).astype(np.int16)
        differences = signs2 * np.tile(np.array([1, -1], np.int16), transform.lanes)
        self._signs2 = aligned(np.concatenate([signs2, differences], axis=2))
        flips = -(blocks.signs1 < 0).astype(np.int32)
        self._flips = aligned(flips[:, middle_order])
        self._radii = aligned(blocks.radii[:, self._order])
        start = np.zeros(n_blocks * size, dtype=np.int64)
        start[: blocks.n_features] = start_phase(offsets, TURN_BITS)
        start = start.reshape(n_blocks, size) - blocks.radii * fwht(flips.astype(np.int64))
        start_32 = (start & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        self._start = aligned(start_32[:, self._order])

    def sums(self, quantised: Quantised, kept: Bits | None = None) -> Integers:
        """(n, dim) int16 to (2 n_features,): sums of cosines, then of sines.

        Only the features that are kept, (n, n_features), are added up.
        """
        return self._sums(quantised, 0, self._blocks.n_blocks, kept).reshape(-1)

    def block_sums(self, quantised: Quantised, block: int) -> Integers:
        """(n, dim) int16 to (2, features of the block): its sums of cosines and of sines."""
        if not 0 <= block < self._blocks.n_blocks:
            raise ParameterError(f"block={block}: expected 0 to {self._blocks.n_blocks - 1}")
        return self._sums(quantised, block, block + 1)

    def _sums(
        self, quantised: Quantised, first: int, stop: int, kept: Bits | None = None
    ) -> Integers:
        """Sums of the features of some blocks, (2, features); masks are for all blocks."""
        size = self._blocks.size
        kernel = self._kernel if kept is None else _compile(self._map_name, size, True)
        transform = kernel.transform
        stride = transform.record_stride * transform.lanes
        buffer = aligned(np.empty(transform.batch * stride, dtype=np.int32))
        tables = (self._signs2, self._flips, self._radii, self._start)
        wrapped = aligned(np.zeros((stop - first, 2, size), dtype=np.int32))
        places = self._places[:, first * size : stop * size] - first * 2 * size
        total = np.zeros(places.shape, dtype=np.int64)
        rows = max(16, _CACHED_VALUES // size)
        room = np.zeros((min(rows, len(quantised)), size), dtype=np.int16)
        waiting = 0  # records in 32-bit sums
        for begin in range(0, len(quantised), rows):
            chunk = _padded(quantised[begin : begin + rows], room)
            if waiting + len(chunk) > MAX_BLOCK:
                total += wrapped.reshape(-1)[places]
                wrapped[...] = waiting = 0
            masks = None if kept is None else self._packed(kept[begin : begin + rows])
            kernel.code.function(
                chunk.ctypes.data,
                len(chunk),
                stop - first,
                *(table[first:].ctypes.data for table in tables),
                buffer.ctypes.data,
                wrapped.ctypes.data,
                None if masks is None else masks.ctypes.data,
            )
            waiting += len(chunk)
        total += wrapped.reshape(-1)[places]
        return total

    def _packed(self, kept: Bits) -> npt.NDArray[np.uint8]:
        """Masks as the kernel reads them: for each vector of features its bits, in whole bytes."""
        blocks, lanes = self._blocks, self._kernel.transform.lanes
        wide = np.zeros((len(kept), blocks.n_blocks * blocks.size), dtype=np.bool_)
        wide[:, : blocks.n_features] = kept
        ordered = np.take(wide.reshape(-1, blocks.size), self._order, axis=1)
        if lanes < 8:
            ordered = np.pad(ordered.reshape(-1, lanes), ((0, 0), (0, 8 - lanes)))
        return np.packbits(ordered.reshape(-1), bitorder="little")


def _padded(chunk: Quantised, room: Quantised) -> Quantised:
    """The records, contiguous, with as many columns as `room`, which may be used for them."""
    if chunk.shape[1] == room.shape[1]:
        return np.ascontiguousarray(chunk, dtype=np.int16)
    room[: len(chunk), : chunk.shape[1]] = chunk
    return room[: len(chunk)]


@dataclass(frozen=True)
class _Kernel:
    code: Code
    transform: Transform


@cache
def _compile(map_name: str, size: int, masked: bool) -> _Kernel:
    lane_bits = (vector_bits() // 32).bit_length() - 1
    transform = Transform(size.bit_length() - 1, lane_bits)
    module = kernel_module(map_name, transform, masked)
    arguments = (POINTER, INTEGER, INTEGER, *[POINTER] * 7)
    return _Kernel(compile_function(module, "sums", *arguments), transform)
