"""Quantised records to integer sums: a NumPy reference and a compiled kernel.

The reference looks every phase up in the table of the feature map; it is the
definition. The compiled kernel fuses dot product, feature and sum, holds everything
in vector registers, and equals the reference bit for bit.

`assembly.py` writes the kernel, which is compiled in process through llvmlite (a
tenth of a second).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from privsketch.compiled import (
    INTEGER,
    POINTER,
    Code,
    aligned,
    compile_function,
    vector_bits,
)
from privsketch.features.fixedpoint import INDEX_BITS, start_phase, table_index
from privsketch.features.maps import FeatureMap
from privsketch.sketching.assembly import Shape, kernel_source

Integers = npt.NDArray[np.int64]
Quantised = npt.NDArray[np.int16]
# 32-bit partial sums of values up to 2^15 cannot wrap within this many records.
MAX_BLOCK = 2**16 - 1
_CACHED_VALUES = 2**17


class Kernel(Protocol):
    """Adds the features of quantised records up."""

    def sums(self, quantised: Quantised) -> Integers:
        """(n, dim) int16 to (2 n_features,): sums of cosines, then of sines."""


@dataclass(frozen=True)
class ReferenceKernel:
    """The definition, in plain NumPy."""

    feature_map: FeatureMap
    frequencies: Quantised
    offsets: npt.NDArray[np.uint32]
    turn_bits: int

    def sums(self, quantised: Quantised) -> Integers:
        """(n, dim) int16 to (2 n_features,): sums of cosines, then of sines."""
        index = table_index(quantised, self.frequencies, self.offsets, self.turn_bits)
        pairs = self.feature_map.table.astype(np.int64)[index]  # (n, n_features, 2)
        return np.asarray(pairs.sum(axis=0).T.reshape(-1))


class CompiledKernel:
    """The same sums from compiled code; safe to call from several threads."""

    def __init__(
        self,
        feature_map: FeatureMap,
        frequencies: Quantised,
        offsets: npt.NDArray[np.uint32],
        turn_bits: int,
    ) -> None:
        self._kernel = _compile(feature_map.name)
        self._n_features, self._dim = frequencies.shape
        self._pairs = (self._dim + 1) // 2
        self._shift = turn_bits - INDEX_BITS
        lanes, vectors = self._kernel.shape.lanes, self._kernel.shape.vectors
        tile = lanes * vectors
        self._tiles = -(-self._n_features // tile)
        padded = np.zeros((self._tiles * tile, 2 * self._pairs), dtype=np.int16)
        padded[: self._n_features, : self._dim] = frequencies
        # Tile, then pair of columns, then lane: the order in which the kernel reads.
        tiled = padded.reshape(self._tiles, vectors, lanes, self._pairs, 2)
        self._frequencies = aligned(tiled.transpose(0, 3, 1, 2, 4))
        start = np.zeros(self._tiles * tile, dtype=np.int64)
        start[: self._n_features] = start_phase(offsets, turn_bits)
        self._start = aligned((start & 0xFFFFFFFF).astype(np.uint32).view(np.int32))

    def sums(self, quantised: Quantised) -> Integers:
        """(n, dim) int16 to (2 n_features,): sums of cosines, then of sines."""
        vectors, lanes = self._kernel.shape.vectors, self._kernel.shape.lanes
        out = np.zeros((self._tiles, 2, vectors * lanes), dtype=np.int64)
        for block in _even_blocks(quantised, self._pairs):
            self._kernel.code.function(
                block.ctypes.data,
                len(block),
                self._pairs,
                self._frequencies.ctypes.data,
                self._start.ctypes.data,
                self._shift,
                self._tiles,
                out.ctypes.data,
            )
        cosine_sine = out.transpose(1, 0, 2).reshape(2, -1)[:, : self._n_features]
        return np.ascontiguousarray(cosine_sine).reshape(-1)


def _even_blocks(quantised: Quantised, pairs: int) -> Iterator[Quantised]:
    """Contiguous blocks with an even number of columns that fit the second-level cache."""
    rows = min(MAX_BLOCK, max(64, _CACHED_VALUES // (2 * pairs)))
    for first in range(0, len(quantised), rows):
        block = quantised[first : first + rows]
        if block.shape[1] < 2 * pairs:
            block = np.pad(block, ((0, 0), (0, 1)))
        yield np.ascontiguousarray(block)


@dataclass(frozen=True)
class _Kernel:
    code: Code
    shape: Shape


@cache
def _compile(map_name: str) -> _Kernel:
    lanes = vector_bits() // 32
    shape = Shape(lanes=lanes, vectors=2, records=8 if lanes == 16 else 4)
    source = kernel_source(map_name, shape)
    arguments = (POINTER, INTEGER, INTEGER, POINTER, POINTER, ctypes.c_int32, INTEGER, POINTER)
    return _Kernel(compile_function(source, "sums", *arguments), shape)
