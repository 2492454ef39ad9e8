"""The compiled kernel as LLVM assembly with vectors of fixed width.

A loop compiler is not used because the kernel lives on two things it does not give
reliably: a multiply-add of pairs of 16-bit integers into 32-bit lanes, and a block of
several records by several vectors kept in registers across the dot product. Only
generic instructions occur, so LLVM can compile it for any processor; the shape is
chosen to fit the registers of the one at hand.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol

from privsketch.features.fourier import (
    AMPLITUDE,
    COSINE_COEFFICIENTS,
    ROUNDER,
    SINE_COEFFICIENTS,
)
from privsketch.kernels.machine import Writer, float_vector, integer_vector


@dataclass(frozen=True)
class Shape:
    """Lanes of one vector, vectors per tile, records handled together."""

    lanes: int
    vectors: int
    records: int


def mask_bytes(lanes: int) -> int:
    """Bytes that hold the mask of one vector: a bit for each lane."""
    return max(1, lanes // 8)


Mode = Literal["whole", "masked", "listed"]


def kernel_source(map_name: str, shape: Shape, mode: Mode = "whole") -> str:
    """LLVM assembly of
    void sums(i16* records, n, pairs, i16* frequencies, i32* start, shift, tiles, i64* out,
              masks, rows).

    For every tile: for every group of records: dot products of all its pairs of
    columns, then features, then 32-bit sums; at the end of the tile the sums are
    added to `out` as 64-bit integers.

    "masked": every record has a bit for each feature in `masks`, vector after vector, and
    adds those whose bit is set. "listed": a tile reads the records whose numbers are in
    `rows` from the first to before the second of its two 64-bit numbers in `masks`.
    """
    masked, listed = mode == "masked", mode == "listed"
    lanes, vectors = shape.lanes, shape.vectors
    ints, longs, halves = f"<{lanes} x i32>", f"<{lanes} x i64>", f"<{2 * lanes} x i16>"
    w = Writer()
    feature = feature_code(map_name, w, lanes)
    feature.declare()
    w.line(
        "define void @sums(ptr noalias %records, i64 %n, i64 %pairs, ptr noalias %frequencies, "
        "ptr noalias %start, i32 %shift, i64 %tiles, ptr noalias %out, ptr noalias %masks, "
        "ptr noalias %rows) #0 {"
    )
    w.line("entry:")
    feature.prepare()
    w.line("  br label %tile")
    w.line("tile:")
    w.line("  %t = phi i64 [0, %entry], [%t_next, %tile_end]")
    count, listed_rows = "%n", "%rows"
    if listed:
        address = w.value("getelementptr <2 x i64>, ptr %masks, i64 %t")
        begin = w.value(f"load i64, ptr {address}, align 8")
        address = w.value(f"getelementptr i64, ptr {address}, i64 1")
        end = w.value(f"load i64, ptr {address}, align 8")
        count = w.value(f"sub i64 {end}, {begin}")
        listed_rows = w.value(f"getelementptr i32, ptr %rows, i64 {begin}")
    groups = w.value(f"udiv i64 {count}, {shape.records}")
    grouped = w.value(f"mul i64 {groups}, {shape.records}")
    n_32 = w.value(f"trunc i64 {count} to i32")
    correction = w.splat(w.value(f"mul i32 {n_32}, {feature.excess}"), "i32", lanes)
    mask_tile = w.value(f"mul i64 %t, {vectors * mask_bytes(lanes)}")
    mask_stride = w.value(f"mul i64 %tiles, {vectors * mask_bytes(lanes)}")
    tile_size = w.value(f"mul i64 %pairs, {2 * lanes * vectors}")
    tile_offset = w.value(f"mul i64 %t, {tile_size}")
    tile = w.value(f"getelementptr i16, ptr %frequencies, i64 {tile_offset}")
    start_offset = w.value(f"mul i64 %t, {lanes * vectors}")
    start_tile = w.value(f"getelementptr i32, ptr %start, i64 {start_offset}")
    starts = []
    for k in range(vectors):
        address = w.value(f"getelementptr i32, ptr {start_tile}, i64 {k * lanes}")
        starts.append(w.value(f"load {ints}, ptr {address}, align 4"))
    w.line("  br label %many_head")

    def loop(
        tag: str, together: int, first: str, last: str, before: str, after: str, sums_in: list[str]
    ) -> list[str]:
        """Records `first` to `last` in groups of `together`; the names of the running sums."""
        w.line(f"{tag}_head:")
        w.line(f"  %i_{tag} = phi i64 [{first}, %{before}], [%i_{tag}_next, %{tag}_features]")
        running = [f"%sum_{tag}_{k}" for k in range(2 * vectors)]
        for k, name in enumerate(running):
            w.line(
                f"  {name} = phi {ints} [{sums_in[k]}, %{before}], "
                f"[%new_{tag}_{k}, %{tag}_features]"
            )
        more = w.value(f"icmp ult i64 %i_{tag}, {last}")
        w.line(f"  br i1 {more}, label %{tag}_rows, label %{after}")
        w.line(f"{tag}_rows:")
        rows, mask_rows = [], []
        for r in range(together):
            row = w.value(f"add i64 %i_{tag}, {r}")
            if listed:
                address = w.value(f"getelementptr i32, ptr {listed_rows}, i64 {row}")
                number = w.value(f"load i32, ptr {address}, align 4")
                row = w.value(f"zext i32 {number} to i64")
            if masked:
                offset = w.value(f"mul i64 {row}, {mask_stride}")
                offset = w.value(f"add i64 {offset}, {mask_tile}")
                mask_rows.append(w.value(f"getelementptr i8, ptr %masks, i64 {offset}"))
            offset = w.value(f"mul i64 {row}, %pairs")
            rows.append(w.value(f"getelementptr i32, ptr %records, i64 {offset}"))
        w.line(f"  br label %{tag}_dot")
        w.line(f"{tag}_dot:")
        w.line(f"  %j_{tag} = phi i64 [0, %{tag}_rows], [%j_{tag}_next, %{tag}_dot]")
        for r in range(together):
            for k in range(vectors):
                w.line(
                    f"  %phase_{tag}_{r}_{k} = phi {ints} [{starts[k]}, %{tag}_rows], "
                    f"[%dot_{tag}_{r}_{k}, %{tag}_dot]"
                )
        offset = w.value(f"mul i64 %j_{tag}, {2 * lanes * vectors}")
        columns = w.value(f"getelementptr i16, ptr {tile}, i64 {offset}")
        weights = []
        for k in range(vectors):
            address = w.value(f"getelementptr i16, ptr {columns}, i64 {2 * lanes * k}")
            loaded = w.value(f"load {halves}, ptr {address}, align {4 * lanes}")
            weights.append(w.value(f"sext {halves} {loaded} to <{2 * lanes} x i32>"))
        for r in range(together):
            address = w.value(f"getelementptr i32, ptr {rows[r]}, i64 %j_{tag}")
            pair = w.value(f"load i32, ptr {address}, align 2")
            both = w.value(f"bitcast {ints} {w.splat(pair, 'i32', lanes)} to {halves}")
            wide = w.value(f"sext {halves} {both} to <{2 * lanes} x i32>")
            for k in range(vectors):
                added = pairwise_products(w, wide, weights[k], lanes)
                w.line(f"  %dot_{tag}_{r}_{k} = add {ints} %phase_{tag}_{r}_{k}, {added}")
        w.line(f"  %j_{tag}_next = add i64 %j_{tag}, 1")
        more = w.value(f"icmp ult i64 %j_{tag}_next, %pairs")
        w.line(f"  br i1 {more}, label %{tag}_dot, label %{tag}_features")
        w.line(f"{tag}_features:")
        sums = list(running)
        for r in range(together):
            for k in range(vectors):
                cosine, sine = feature.of_phase(f"%dot_{tag}_{r}_{k}")
                if masked:
                    bits = mask_of_vector(w, mask_rows[r], k, lanes)
                    nothing = integer_vector(feature.excess, lanes)
                    cosine, sine = (
                        w.value(f"select <{lanes} x i1> {bits}, {ints} {part}, {ints} {nothing}")
                        for part in (cosine, sine)
                    )
                sums[2 * k] = w.value(f"add {ints} {sums[2 * k]}, {cosine}")
                sums[2 * k + 1] = w.value(f"add {ints} {sums[2 * k + 1]}, {sine}")
        for k in range(2 * vectors):
            w.line(f"  %new_{tag}_{k} = add {ints} {sums[k]}, zeroinitializer")
        w.line(f"  %i_{tag}_next = add i64 %i_{tag}, {together}")
        w.line(f"  br label %{tag}_head")
        return running

    zeros = ["zeroinitializer"] * (2 * vectors)
    sums = loop("many", shape.records, "0", grouped, "tile", "one_head", zeros)
    sums = loop("one", 1, grouped, count, "many_head", "tile_end", sums)
    w.line("tile_end:")
    out_offset = w.value(f"mul i64 %t, {2 * lanes * vectors}")
    out_tile = w.value(f"getelementptr i64, ptr %out, i64 {out_offset}")
    for k in range(vectors):
        for part in range(2):
            corrected = w.value(f"sub {ints} {sums[2 * k + part]}, {correction}")
            wide = w.value(f"sext {ints} {corrected} to {longs}")
            place = (part * vectors + k) * lanes
            address = w.value(f"getelementptr i64, ptr {out_tile}, i64 {place}")
            before = w.value(f"load {longs}, ptr {address}, align 8")
            w.line(
                f"  store {longs} {w.value(f'add {longs} {wide}, {before}')}, "
                f"ptr {address}, align 8"
            )
    w.line("  %t_next = add i64 %t, 1")
    more = w.value("icmp ult i64 %t_next, %tiles")
    w.line(f"  br i1 {more}, label %tile, label %done")
    w.line("done:")
    w.line("  ret void")
    w.line("}")
    return w.finish(32 * lanes)


def pairwise_products(w: Writer, a: str, b: str, lanes: int) -> str:
    """a0 b0 + a1 b1 in every lane: a shape LLVM turns into one multiply-add instruction."""
    wide = f"<{2 * lanes} x i32>"
    product = w.value(f"mul {wide} {a}, {b}")
    sides = []
    for side in range(2):
        mask = ", ".join(f"i32 {2 * lane + side}" for lane in range(lanes))
        sides.append(
            w.value(f"shufflevector {wide} {product}, {wide} poison, <{lanes} x i32> <{mask}>")
        )
    return w.value(f"add <{lanes} x i32> {sides[0]}, {sides[1]}")


def mask_of_vector(w: Writer, row: str, vector: int, lanes: int) -> str:
    """The bits of one vector of a record as a vector of i1."""
    size = mask_bytes(lanes)
    address = w.value(f"getelementptr i8, ptr {row}, i64 {vector * size}")
    bits = w.value(f"load i{8 * size}, ptr {address}, align 1")
    if lanes < 8:
        bits = w.value(f"trunc i8 {bits} to i{lanes}")
    return w.value(f"bitcast i{lanes} {bits} to <{lanes} x i1>")


class Feature(Protocol):
    """Code that turns phases into a cosine and a sine to add up.

    A record may add `excess` too much to every sum; it is subtracted once per block.
    """

    excess: int

    def prepare(self) -> None:
        """Values the code needs at the start of the function, whose argument is %shift."""

    def of_phase(self, phase: str) -> tuple[str, str]:
        """Names of the cosines and sines of 32-bit phases."""

    def declare(self) -> None:
        """Declarations the code needs, outside of the function."""


class TableFeature(ABC):
    """A feature that is read off the 16 bits of a phase just below one turn."""

    excess: int

    def __init__(self, w: Writer, lanes: int) -> None:
        self._w, self._lanes = w, lanes
        self._shift = ""

    def prepare(self) -> None:
        """The shift in every lane."""
        self._shift = self._w.splat("%shift", "i32", self._lanes)

    def of_phase(self, phase: str) -> tuple[str, str]:
        """Names of the cosines and sines of 32-bit phases."""
        w, ints = self._w, f"<{self._lanes} x i32>"
        index = w.value(f"lshr {ints} {phase}, {self._shift}")
        index = w.value(f"and {ints} {index}, {integer_vector(65535, self._lanes)}")
        return self.emit(index)

    @abstractmethod
    def declare(self) -> None:
        """Declarations the code needs, outside of the function."""

    @abstractmethod
    def emit(self, index: str) -> tuple[str, str]:
        """Names of the cosines and sines of the indices."""


class _FourierFeature(TableFeature):
    """features/fourier.py in vector code: the same float32 operations in the same order.

    The rounded cosine and sine are left as the bits of a float that adds ROUNDER;
    every record thus adds `excess` too much, which is subtracted once per block.
    """

    excess: int = struct.unpack("<i", struct.pack("<f", ROUNDER))[0]

    def __init__(self, w: Writer, lanes: int) -> None:
        super().__init__(w, lanes)
        self._floats, self._ints_type = f"<{lanes} x float>", f"<{lanes} x i32>"
        self._fma_name = f"@llvm.fma.v{lanes}f32"

    def declare(self) -> None:
        kind = self._floats
        self._w.line(f"declare {kind} {self._fma_name}({kind}, {kind}, {kind})")

    def _constant(self, value: float) -> str:
        return float_vector(value, self._lanes)

    def _fma(self, a: str, b: str, c: str) -> str:
        kind = self._floats
        return self._w.value(f"call {kind} {self._fma_name}({kind} {a}, {kind} {b}, {kind} {c})")

    def _polynomial(self, square: str, coefficients: tuple[float, ...]) -> str:
        value = self._constant(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            value = self._fma(value, square, self._constant(coefficient))
        return value

    def emit(self, index: str) -> tuple[str, str]:
        w, kind, ints = self._w, self._floats, self._ints_type
        # 0x43000000 is 128.0f, and 16 bits below it count steps of 2^-16.
        bits = w.value(f"or {ints} {index}, {integer_vector(0x43000000, self._lanes)}")
        as_float = w.value(f"bitcast {ints} {bits} to {kind}")
        r = w.value(f"fsub {kind} {as_float}, {self._constant(128.5)}")
        square = w.value(f"fmul {kind} {r}, {r}")
        half = self._polynomial(square, SINE_COEFFICIENTS)
        sine_half = w.value(f"fmul {kind} {half}, {r}")
        cosine_half = self._polynomial(square, COSINE_COEFFICIENTS)
        cosine = self._fma(sine_half, sine_half, self._constant(ROUNDER - AMPLITUDE))
        sine = self._fma(sine_half, cosine_half, self._constant(ROUNDER))
        return (
            w.value(f"bitcast {kind} {cosine} to {ints}"),
            w.value(f"bitcast {kind} {sine} to {ints}"),
        )


class _OneBitFeature(TableFeature):
    """features/onebit.py in vector code: two comparisons per phase."""

    excess = 1  # a record adds 2 or 0 instead of 1 or -1

    def declare(self) -> None:
        pass

    def _two_if_at_most(self, index: str, limit: int) -> str:
        w, ints = self._w, f"<{self._lanes} x i32>"
        is_plus = w.value(f"icmp ule {ints} {index}, {integer_vector(limit, self._lanes)}")
        two, zero = integer_vector(2, self._lanes), "zeroinitializer"
        return w.value(f"select <{self._lanes} x i1> {is_plus}, {ints} {two}, {ints} {zero}")

    def emit(self, index: str) -> tuple[str, str]:
        w, ints = self._w, f"<{self._lanes} x i32>"
        # A quarter turn later, the cosine's positive half is 0 to 32768 as well.
        shifted = w.value(f"add {ints} {index}, {integer_vector(16384, self._lanes)}")
        shifted = w.value(f"and {ints} {shifted}, {integer_vector(65535, self._lanes)}")
        return self._two_if_at_most(shifted, 32768), self._two_if_at_most(index, 32768)


class _QuadraticFeature:
    """features/quadratic.py in vector code: a 64-bit square, shifted; the sines stay zero."""

    excess = 0

    def __init__(self, w: Writer, lanes: int) -> None:
        self._w, self._lanes = w, lanes
        self._shift = ""

    def declare(self) -> None:
        pass

    def prepare(self) -> None:
        wide = self._w.value("zext i32 %shift to i64")
        self._shift = self._w.splat(wide, "i64", self._lanes)

    def of_phase(self, phase: str) -> tuple[str, str]:
        w, ints, longs = self._w, f"<{self._lanes} x i32>", f"<{self._lanes} x i64>"
        wide = w.value(f"sext {ints} {phase} to {longs}")
        square = w.value(f"mul {longs} {wide}, {wide}")
        value = w.value(f"lshr {longs} {square}, {self._shift}")
        return w.value(f"trunc {longs} {value} to {ints}"), "zeroinitializer"


def feature_code(map_name: str, w: Writer, lanes: int) -> Feature:
    """The vector code of a feature map."""
    return (
        _QuadraticFeature(w, lanes) if map_name == "quadratic" else table_code(map_name, w, lanes)
    )


def table_code(map_name: str, w: Writer, lanes: int) -> TableFeature:
    """The vector code of a map with a table."""
    if map_name == "fourier":
        return _FourierFeature(w, lanes)
    return _OneBitFeature(w, lanes)
