"""Sums of a design on the device: the kernel's shape, its launches and its comparison.

The code is that of `features`. It is compiled when first used, for the number of columns and the
resolution at hand, and compared with the definition before it is used.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Integers
from privsketch.features.fixedpoint import INDEX_BITS, TABLE_SIZE, start_phase
from privsketch.features.maps import FeatureMap, feature_map
from privsketch.features.quadratic import VALUE_BITS, quadratic_values, value_shift
from privsketch.features.stream import PublicStream, Purpose
from privsketch.features.waves import MEAN_SQUARE
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

MAX_DIM = 512  # beyond, the digits of 16 features do not fit the registers
MAX_BLOCKS = 2**16 - 1  # of features that have records of their own: the second axis of a grid
# What the device's sums mean: a factor, and what a record adds too much to both sums.
MEANS = {"fourier": (1, (MEAN_SQUARE, 0)), "one-bit": (2, (1, 1)), "quadratic": (1, (0, 0))}


class DeviceKernel:
    """Sums of features on the device, over records that are there; safe to use from threads.

    With `listed`, records come with lists of those that count; with `block`, every `block`
    features have a list of their own. All comes from the device's memory.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        frequencies: npt.NDArray[np.int16],
        offsets: npt.NDArray[np.uint32],
        turn_bits: int,
        *,
        block: int | None = None,
        listed: bool = False,
        shape: Shape | None = None,
        function: Function | None = None,
    ) -> None:
        self._map = feature_map
        m, dim = frequencies.shape
        if feature_map.has_table:
            shift, first = 32 - turn_bits, start_phase(offsets, turn_bits)
        else:
            shift, first = value_shift(frequencies), np.zeros(m, np.int64)
        size = m if block is None else block
        self.shape = shape or chosen_shape(
            dim, size, shift, listed=listed, hopper=device().is_hopper
        )
        self._function = function or _checked(feature_map.name, self.shape)
        # Whole blocks of the grid for every block of features.
        count, wide = m // size, -(-size // self.shape.features) * self.shape.features
        self._per_part = wide // self.shape.features
        self._size, self._wide, self._count = size, wide, count
        digits = frequency_digits(pad_blocks(frequencies, size, wide), self.shape)
        self._frequencies = to_device(digits)
        starts = pad_blocks(first, size, wide) & 0xFFFFFFFF
        self._start = to_device(starts.astype(np.uint32).view(np.int32))
        self._at_zero = self._values_at_zero(first, turn_bits)
        self._out = to_device(np.zeros(count * wide * 2, np.int64))
        self._records = np.zeros(count, np.int64)  # of each part, and those that fill up
        self._filled = np.zeros(count, np.int64)
        self._lock = threading.Lock()

    def _values_at_zero(self, first: Integers, turn_bits: int) -> Integers:
        """(2, n_features) integers of a record at the center."""
        if not self._map.has_table:
            return np.zeros((2, len(first)), np.int64)
        index = (first >> (turn_bits - INDEX_BITS)) & (TABLE_SIZE - 1)
        return np.asarray(self._map.table[index].T, dtype=np.int64)

    def ranges(self, counts: Integers) -> Integers:
        """Return the start and end of consecutive lists of these lengths, for `add`."""
        ends = np.cumsum(counts)
        return np.repeat(np.stack([ends - counts, ends], axis=1), self._per_part, axis=0)

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

        `lists`: where numbers of records are on the device, for all blocks of features, where
        their `ranges`, and how many each has. `max_blocks` is how many blocks of the grid share
        the records at most, as many as there is room for if left out.
        """
        if n == 0:
            return
        counts = np.full(self._count, n) if lists is None else lists[2]
        stages = -(-counts // self.shape.records)
        with self._lock:
            self._records += counts
            self._filled += stages * self.shape.records - counts
        y = self._count * self._per_part
        room = device().multiprocessors * _blocks_at_once(self._map.name, self.shape)
        x = min(max_blocks or max(1, room // y), max(1, int(stages.max())))
        rows, ends = (0, 0) if lists is None else lists[:2]
        places = [each.address for each in (self._frequencies, self._start, self._out)]
        self._function.launch((x, y), self.shape.threads, stream, [records, n, *places, rows, ends])

    def sums(self) -> Integers:
        """Wait, and return the sums of all records added, as of `kernels.dense.Kernel`."""
        found = to_host(self._out, (self._count * self._wide * 2,), np.int64)
        parts = 2 if self._map.has_table else 1
        by_part = found.reshape(self._count, -1, 2, TILE).transpose(2, 0, 1, 3)
        wide = by_part.reshape(2, self._count, self._wide)
        tiles = wide[:, :, : self._size].reshape(2, -1)
        factor, excess = MEANS[self._map.name]
        filled, counted = (
            np.repeat(each, self._size) for each in (self._filled, self._records + self._filled)
        )
        sums = factor * tiles - np.array(excess)[:, np.newaxis] * counted - self._at_zero * filled
        return np.asarray(sums[:parts]).reshape(-1)


# Shapes that were fastest on an H200: for so many columns at most, tiles of a warp and warps; with
# Hopper's instructions also groups of records in a stage and at a time.
_HOPPER_SHAPES = (
    (32, 8, 8, 16, 4),
    (64, 2, 16, 16, 8),
    (128, 2, 16, 16, 4),
    (256, 1, 16, 16, 4),
    (MAX_DIM, 1, 8, 8, 4),
)


def chosen_shape(
    dim: int, n_features: int, shift: int, *, listed: bool = False, hopper: bool = False
) -> Shape:
    """Choose the shape for a number of columns and features, with Hopper's instructions or not."""
    n_tiles = -(-n_features // TILE)
    whole = Shape(dim, shift, 1, 1, 1, listed=listed)
    if hopper and dim > 16 and n_tiles >= 4:
        _, tiles, warps, groups, together = next(row for row in _HOPPER_SHAPES if dim <= row[0])
        tiles, warps = _cut(n_tiles, tiles, warps, 4)
        while together * -(-dim // 32) > 8 * warps:  # loads of a thread that are under way
            together //= 2
        return replace(whole, tiles=tiles, warps=warps, groups=groups, together=together)
    words = 2 * sum(whole.depths) // 8  # registers of a tile
    most = 2 if 48 < words <= 64 else max(1, min(8, 64 // words))
    tiles, warps = _cut(n_tiles, min(most, -(-n_tiles // 4)), 8, 1)
    # At most four loads of each thread are under way.
    groups = max(1, min(16, 4 * warps // len(whole.depths), 1024 // sum(whole.depths)))
    return replace(whole, tiles=tiles, warps=warps, groups=groups)


def _cut(n_tiles: int, most_tiles: int, most_warps: int, step: int) -> tuple[int, int]:
    """Tiles of a warp and warps of a block, in steps, with the least left over."""
    found = []
    for tiles in range(most_tiles, 0, -1):
        blocks = -(-n_tiles // (tiles * most_warps))
        warps = step * -(-n_tiles // (step * tiles * blocks))
        found.append((blocks * tiles * warps, -tiles, warps))
    _, tiles, warps = min(found)
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
    once several have them. Of three parts with lists the first has every other record, the second
    none, the third all.
    """
    each, stream = feature_map(map_name), PublicStream(0, Purpose.CHECK_CUDA_SUMS)
    turn_bits = 32 - shape.shift if each.has_table else 0
    n = (rounds_at_once(map_name, shape) + 1) * shape.records + 3
    rows = [np.arange(0, n, 2), np.arange(0), np.arange(n)] if shape.listed else [np.arange(n)]

    numbers = partial(public_integers, stream)

    def sums(
        x: npt.NDArray[np.int16],
        rows: list[npt.NDArray[np.intp]],
        frequencies: npt.NDArray[np.int16],
        offsets: npt.NDArray[np.uint32],
        max_blocks: int | None = None,
    ) -> Integers:
        kernel = DeviceKernel(
            each,
            frequencies,
            offsets,
            turn_bits,
            block=len(frequencies) // len(rows),
            shape=shape,
            function=function,
        )
        counts = np.array([len(part) for part in rows])
        records, listed = to_device(x), to_device(np.concatenate(rows).astype(np.int32))
        ends = to_device(kernel.ranges(counts))
        lists = (listed.address, ends.address, counts) if shape.listed else None
        kernel.add(Stream(), records.address, len(x), lists, max_blocks=max_blocks)
        return kernel.sums().reshape(-1, len(frequencies))

    m = len(rows) * shape.features
    x, frequencies = numbers(n, shape.dim), numbers(m, shape.dim)
    offsets = numbers(m).view(np.uint16).astype(np.uint32)
    if not each.has_table:  # one column a record, and vectors short enough for squares
        x[np.arange(shape.dim) != np.arange(n)[:, np.newaxis] % shape.dim] = 0
        frequencies >>= max(0, 16 - (VALUE_BITS + shape.shift) // 2 + 15)

    def expected(part: int) -> Integers:
        here = slice(part * shape.features, (part + 1) * shape.features)
        if not each.has_table:
            values = quadratic_values(x[rows[part]], frequencies[here], shape.shift)
            return np.asarray(values.sum(axis=0)[np.newaxis])
        reference = ReferenceKernel(each, frequencies[here], offsets[here], turn_bits)
        return reference.sums(x[rows[part]]).reshape(2, -1)

    right = np.concatenate([expected(part) for part in range(len(rows))], axis=1)
    agrees = all(
        np.array_equal(sums(x, rows, frequencies, offsets, blocks), right) for blocks in (1, None)
    )
    if not each.has_table:
        return agrees
    # Records at the center; offsets put the phase of a feature at its index.
    every = np.arange(TABLE_SIZE, dtype=np.uint32) << np.uint32(turn_bits - INDEX_BITS)
    zeros = np.zeros((TABLE_SIZE, shape.dim), np.int16)
    found = sums(zeros[:n], [np.arange(n)], zeros, every, 1)
    return agrees and np.array_equal(found, each.table.T.astype(np.int64) * n)


@cache
def _blocks_at_once(map_name: str, shape: Shape) -> int:
    return max(1, _loaded(map_name, shape).blocks_at_once(shape.threads))
