"""The kernel of dense frequencies, with vectors of fixed width.

A loop compiler is not used because the kernel lives on two things it does not give
reliably: a multiply-add of pairs of 16-bit integers into 32-bit lanes, and a block of
several records by several vectors kept in registers across the dot product. The shape is
chosen to fit the registers of the processor at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from privsketch.kernels.builder import I8, I16, I32, I64, Array, Kind, Pointer, Routine, Value
from privsketch.kernels.features import (
    FEATURES,
    Feature,
    kept,
    mask_bytes,
    mask_of_vector,
    pairwise_products,
)


@dataclass(frozen=True)
class Shape:
    """Lanes of one vector, vectors per tile, records handled together."""

    lanes: int
    vectors: int
    records: int


Mode = Literal["whole", "masked", "listed"]

ARGUMENTS: dict[str, Kind | Array] = {
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


def kernel_source(map_name: str, shape: Shape, mode: Mode = "whole") -> str:
    """LLVM assembly of the function `sums`, whose arguments are above.

    For every tile: for every group of records: dot products of all its pairs of
    columns, then features, then 32-bit sums; at the end of the tile the sums are
    added to `out` as 64-bit integers.

    "masked": every record has a bit for each feature in `masks`, vector after vector, and
    adds those whose bit is set. "listed": a tile reads the records whose numbers are in
    `rows` from the first to before the second of its two 64-bit numbers in `masks`.
    """
    routine = Routine("sums", ARGUMENTS, vector_bits=32 * shape.lanes)
    with routine.loop(routine.numbers["tiles"]) as tile:
        _Tile(routine, shape, mode, FEATURES[map_name], tile).write()
    return str(routine.finish())


@dataclass(frozen=True)
class _Tile:
    """Writes what happens in one tile of features."""

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
        grouped = count // shape.records * shape.records
        start = (routine.pointers["start"] + self.tile * (shape.lanes * shape.vectors)).to(
            I32.vector(shape.lanes)
        )
        starts = [(start + k).load() for k in range(shape.vectors)]
        sums = [starts[0].constant(0)] * (2 * shape.vectors)  # cosines and sines of each vector
        with routine.loop(grouped, sums, step=shape.records, may_be_empty=True) as first:
            self.group(first, shape.records, rows, starts, sums)
        with routine.loop(count, sums, start=grouped, may_be_empty=True) as first:
            self.group(first, 1, rows, starts, sums)
        excess = (count.unsigned_to(I32) * self.feature.excess).splat(shape.lanes)
        out = routine.pointers["out"] + self.tile * (2 * shape.lanes * shape.vectors)
        for place, total in enumerate(sums):
            k, part = divmod(place, 2)
            target = (out + (part * shape.vectors + k) * shape.lanes).to(I64.vector(shape.lanes))
            target.store(target.load() + (total - excess).signed_to(I64))

    def group(
        self, first: Value, together: int, rows: Pointer, starts: list[Value], sums: list[Value]
    ) -> None:
        """Adds the features of some neighbouring records to the sums."""
        routine, shape = self.routine, self.shape
        numbers = [first + r for r in range(together)]
        if self.mode == "listed":
            numbers = [(rows + number).load().unsigned_to(I64) for number in numbers]
        phases = self.phases(numbers, starts)
        for r, number in enumerate(numbers):
            for k in range(shape.vectors):
                pair = self.feature.of_phase(
                    phases[r * shape.vectors + k], routine.numbers["shift"]
                )
                if self.mode == "masked":
                    pair = kept(self.mask(number, k), pair, self.feature)
                for part, each in enumerate(pair):
                    sums[2 * k + part] += each

    def phases(self, numbers: list[Value], starts: list[Value]) -> list[Value]:
        """Of every record with every vector of frequencies: start plus dot product."""
        routine, lanes, vectors = self.routine, self.shape.lanes, self.shape.vectors
        pairs, halves = routine.numbers["pairs"], I16.vector(2 * lanes)
        records = [routine.pointers["records"] + number * pairs for number in numbers]
        tile = (routine.pointers["frequencies"] + self.tile * (pairs * (2 * lanes * vectors))).to(
            halves
        )
        phases = starts * len(numbers)
        with routine.loop(pairs, phases) as j:
            weights = [(tile + (j * vectors + k)).load(align=4 * lanes) for k in range(vectors)]
            for r, record in enumerate(records):
                both = (record + j).load(align=2).splat(lanes).bits_as(halves)
                for k, weight in enumerate(weights):
                    phases[r * vectors + k] += pairwise_products(both, weight)
        return phases

    def mask(self, number: Value, k: int) -> Value:
        """Which lanes of a vector a record keeps."""
        size = self.shape.vectors * mask_bytes(self.shape.lanes)  # bytes of a tile
        place = number * (self.routine.numbers["tiles"] * size) + self.tile * size
        return mask_of_vector(self.routine.pointers["masks"] + place, k, self.shape.lanes)
