"""Sums of features on the device: the kernel's shape, its launches and its self-check.

`features` writes the code. It is compiled at its first use, for one number of columns and one
resolution, and it is compared with the definition before it is used.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Integers
from privsketch.features.fixedpoint import INDEX_BITS, TABLE_SIZE, start_phase
from privsketch.features.maps import feature_map
from privsketch.features.quadratic import VALUE_BITS, quadratic_values, value_shift
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.cuda.code import ptx_of
from privsketch.kernels.cuda.driver import Function, Stream, device, to_device, to_host
from privsketch.kernels.cuda.features import (
    TILE,
    Shape,
    frequency_digits,
    rounds_at_once,
    sums_routine,
)
from privsketch.kernels.dense import ReferenceKernel, pad_blocks, public_integers
from privsketch.kernels.features import FEATURES

MAX_DEVICE_DIM = 512  # beyond that, the digits of 16 features do not fit the registers
MAX_FEATURE_BLOCKS = 2**16 - 1  # blocks with lists of their own: the second axis of a grid
# Units of the device's sums, by feature map: it adds 0 or 1 for a bit, and other kernels 0 or 2.
SUM_UNITS = {"fourier": 1, "one-bit": 2, "quadratic": 1}


class DeviceKernel:
    """Sums of features over records in the device's memory; safe to use from threads.

    With `has_lists`, lists say which records count. With `block`, every `block` features have a
    list of their own. Lists are in the device's memory, too.
    """

    def __init__(
        self,
        definition: ReferenceKernel,
        *,
        block: int | None = None,
        has_lists: bool = False,
        shape: Shape | None = None,
        function: Function | None = None,
    ) -> None:
        self._map, frequencies = definition.feature_map, definition.frequencies.astype(np.int16)
        m, dim = frequencies.shape
        # Integers of a record at the center, (2, n_features): those that pad stages add them.
        start, self._at_zero = np.zeros(m, np.int64), np.zeros((2, m), np.int64)
        if self._map.has_table:
            shift = 32 - definition.turn_bits
            start = start_phase(definition.offsets, definition.turn_bits)
            index = (start >> (definition.turn_bits - INDEX_BITS)) & (TABLE_SIZE - 1)
            self._at_zero[:] = self._map.table[index].T
        else:
            shift = value_shift(frequencies)
        size = m if block is None else block
        self.shape = shape or shape_for(
            dim, size, shift, has_lists=has_lists, hopper=device().is_hopper
        )
        self._function = function or _checked(self._map.name, self.shape)
        # Whole blocks of the grid for every block of features.
        count, padded = m // size, -(-size // self.shape.features) * self.shape.features
        self._grid_blocks = padded // self.shape.features
        self._size, self._padded, self._count = size, padded, count
        digits = frequency_digits(pad_blocks(frequencies, size, padded), self.shape)
        self._frequencies = to_device(digits)
        starts = pad_blocks(start, size, padded) & 0xFFFFFFFF
        self._start = to_device(starts.astype(np.uint32).view(np.int32))
        self._out = to_device(np.zeros(count * padded * 2, np.int64))
        # Numbers of records of each block, and of those that pad its last stages.
        self._n_records, self._n_padding = np.zeros((2, count), np.int64)
        self._lock = threading.Lock()

    def ranges(self, counts: Integers) -> Integers:
        """Return the start and end of consecutive lists of these lengths, for `add`."""
        ends = np.cumsum(counts)
        return np.repeat(np.stack([ends - counts, ends], axis=1), self._grid_blocks, axis=0)

    def add(
        self,
        stream: Stream,
        records: int,
        n: int,
        lists: tuple[int, int, Integers] | None = None,
        *,
        max_blocks: int | None = None,
    ) -> None:
        """Start to add the features of n records (n, dim) of 16-bit numbers in device memory.

        `lists` has the device's addresses of the record indices of all blocks of features and of
        their `ranges`, and the number of records of each block. At most `max_blocks` blocks of the
        grid share the records; the default is as many as the device runs at once.
        """
        if n == 0:
            return
        counts = np.full(self._count, n) if lists is None else lists[2]
        stages = -(-counts // self.shape.records)
        with self._lock:
            self._n_records += counts
            self._n_padding += stages * self.shape.records - counts
        y = self._count * self._grid_blocks
        at_once = device().multiprocessors * _blocks_at_once(self._map.name, self.shape)
        x = min(max_blocks or max(1, at_once // y), max(1, int(stages.max())))
        lists_at = (0, 0) if lists is None else lists[:2]
        tables = [memory.address for memory in (self._frequencies, self._start, self._out)]
        self._function.launch((x, y), self.shape.threads, stream, [records, n, *tables, *lists_at])

    def sums(self) -> Integers:
        """Wait, and return the sums of all records added, like `ReferenceKernel`."""
        tiles = to_host(self._out, (self._count, self._padded // TILE, 2, TILE), np.int64)
        padded = tiles.transpose(2, 0, 1, 3).reshape(2, self._count, self._padded)
        totals = SUM_UNITS[self._map.name] * padded[:, :, : self._size].reshape(2, -1)
        excess = np.array(FEATURES[self._map.name].excess)[:, np.newaxis]
        n_padding, n_added = (
            np.repeat(counts, self._size)
            for counts in (self._n_padding, self._n_records + self._n_padding)
        )
        sums = totals - excess * n_added - self._at_zero * n_padding
        return np.asarray(sums[: 2 if self._map.has_table else 1]).reshape(-1)


# Fastest shapes on an H200 (benchmarks/cuda.py): the largest number of columns, tiles of a warp,
# warps, groups of records in a stage and groups at a time.
_HOPPER_SHAPES = (
    (32, 8, 8, 16, 4),
    (64, 2, 16, 16, 8),
    (128, 2, 16, 16, 4),
    (256, 1, 16, 16, 4),
    (MAX_DEVICE_DIM, 1, 8, 8, 4),
)


def shape_for(
    dim: int, n_features: int, shift: int, *, has_lists: bool = False, hopper: bool = False
) -> Shape:
    """Choose the shape for a number of columns and features, with Hopper's instructions or not."""
    n_tiles = -(-n_features // TILE)
    single = Shape(dim, shift, 1, 1, 1, has_lists=has_lists)
    if hopper and dim > 16 and n_tiles >= 4:
        _, tiles, warps, groups, at_once = next(row for row in _HOPPER_SHAPES if dim <= row[0])
        tiles, warps = _tiles_and_warps(n_tiles, tiles, warps, 4)
        while at_once * -(-dim // 32) > 8 * warps:  # loads of a thread that are under way
            at_once //= 2
        return replace(single, tiles=tiles, warps=warps, groups=groups, groups_at_once=at_once)
    words = 2 * sum(single.depths) // 8  # registers of a tile
    max_tiles = 2 if 48 < words <= 64 else max(1, min(8, 64 // words))
    tiles, warps = _tiles_and_warps(n_tiles, min(max_tiles, -(-n_tiles // 4)), 8, 1)
    # At most four loads of each thread are under way.
    groups = max(1, min(16, 4 * warps // len(single.depths), 1024 // sum(single.depths)))
    return replace(single, tiles=tiles, warps=warps, groups=groups)


def _tiles_and_warps(n_tiles: int, max_tiles: int, max_warps: int, step: int) -> tuple[int, int]:
    """Return tiles of a warp and warps of a block, in steps, that pad features least."""
    options = []
    for tiles in range(max_tiles, 0, -1):
        blocks = -(-n_tiles // (tiles * max_warps))
        warps = step * -(-n_tiles // (step * tiles * blocks))
        options.append((blocks * tiles * warps, -tiles, warps))
    _, tiles, warps = min(options)
    return -tiles, warps


@cache
def _loaded(map_name: str, shape: Shape) -> Function:
    ptx = ptx_of(sums_routine(map_name, shape), device().capability, hopper=shape.is_hopper)
    return device().load(ptx, "sums")


@cache
def _checked(map_name: str, shape: Shape) -> Function:
    function = _loaded(map_name, shape)
    machine.require_agreement(f"device's {map_name!r}", _agrees(map_name, shape, function))
    return function


def _agrees(map_name: str, shape: Shape, function: Function) -> bool:
    """Compare the kernel with the reference on random numbers, and with the table.

    Once a single block of the grid has all records, so many that it flushes its sums twice, and
    once several blocks have them. With lists, there are three blocks of features: the first has
    every other record, the second none, the third all.
    """
    mapping, stream = feature_map(map_name), PublicStream(0, Purpose.CHECK_CUDA_SUMS)
    turn_bits = 32 - shape.shift if mapping.has_table else 0
    n = (rounds_at_once(map_name, shape) + 1) * shape.records + 3
    lists = [np.arange(0, n, 2), np.arange(0), np.arange(n)] if shape.has_lists else [np.arange(n)]

    def sums(
        x: npt.NDArray[np.int16],
        lists: list[npt.NDArray[np.intp]],
        definition: ReferenceKernel,
        max_blocks: int | None,
    ) -> Integers:
        m = len(definition.frequencies)
        kernel = DeviceKernel(definition, block=m // len(lists), shape=shape, function=function)
        counts = np.array([len(rows) for rows in lists])
        records, rows = to_device(x), to_device(np.concatenate(lists).astype(np.int32))
        ranges = to_device(kernel.ranges(counts))
        on_device = (rows.address, ranges.address, counts) if shape.has_lists else None
        kernel.add(Stream(), records.address, len(x), on_device, max_blocks=max_blocks)
        return kernel.sums().reshape(-1, m)

    m = len(lists) * shape.features
    x, frequencies = (public_integers(stream, size, shape.dim) for size in (n, m))
    offsets = public_integers(stream, m).view(np.uint16).astype(np.uint32)
    if not mapping.has_table:  # one column a record, and vectors short enough for squares
        x[np.arange(shape.dim) != np.arange(n)[:, np.newaxis] % shape.dim] = 0
        frequencies >>= max(0, 16 - (VALUE_BITS + shape.shift) // 2 + 15)

    def expected(block: int) -> Integers:
        part = slice(block * shape.features, (block + 1) * shape.features)
        if not mapping.has_table:
            values = quadratic_values(x[lists[block]], frequencies[part], shape.shift)
            return np.asarray(values.sum(axis=0)[np.newaxis])
        reference = ReferenceKernel(mapping, frequencies[part], offsets[part], turn_bits)
        return reference.sums(x[lists[block]]).reshape(2, -1)

    right = np.concatenate([expected(block) for block in range(len(lists))], axis=1)
    definition = ReferenceKernel(mapping, frequencies, offsets, turn_bits)
    agrees = all(np.array_equal(sums(x, lists, definition, most), right) for most in (1, None))
    if not mapping.has_table:
        return agrees
    # Records at the center; offsets put the phase of a feature at its index.
    offsets = np.arange(TABLE_SIZE, dtype=np.uint32) << np.uint32(turn_bits - INDEX_BITS)
    zeros = np.zeros((TABLE_SIZE, shape.dim), np.int16)
    definition = ReferenceKernel(mapping, zeros, offsets, turn_bits)
    totals = sums(zeros[:n], [np.arange(n)], definition, 1)
    return agrees and np.array_equal(totals, mapping.table.T.astype(np.int64) * n)


@cache
def _blocks_at_once(map_name: str, shape: Shape) -> int:
    return max(1, _loaded(map_name, shape).blocks_at_once(shape.threads))
