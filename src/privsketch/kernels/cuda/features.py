"""Quantised records on a device to integer sums: phases from tensor cores, features in registers.

A number of a record is q = 256 qh + ql, one of a frequency f = 256 fh + fl, the high digits with
a sign and the low ones without. Tensor cores multiply 8-bit digits and add up in 32 bits that
wrap, so the phase is

    ((qh.fh) 256 + (qh.fl + ql.fh)) 256 + ql.fl + start   modulo 2^32,

exactly, and each of the three sums begins with the one before it. A warp keeps the digits of some
features in registers, 16 features in a tile, and goes through records, 8 at a time; a thread gets
the phases of two features of a tile for two of the records, computes their integers as in
features/, and adds them up in 32 bits. Before these can wrap, they go to sums of 64 bits in memory.

All warps of a block use the same records. They bring them from memory together, a stage ahead of
what they compute, already parted into digits in the order in which tensor cores want them.
Records that fill up the last stage are zero, and what they add is known and subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privsketch.features.waves import COSINE_COEFFICIENTS, SINE_COEFFICIENTS
from privsketch.kernels.builder import Pointer, Value, select
from privsketch.kernels.cuda.code import WARP, DeviceRoutine, elements, joined, signed_shift
from privsketch.kernels.kinds import I16, I32, I64, Arguments, Array

TILE, TOGETHER = 16, 8  # features and records that tensor cores multiply at a time
_LOW_BYTES, _HIGH_BYTES = 0x6420, 0x7531  # of four 16-bit numbers
# Numbers of records whose features add up in 32 bits, see kernels/features.
MOST = {"fourier": 248, "one-bit": 2**10, "quadratic": 2**9}
ARGUMENTS: Arguments = {
    "records": Array(I16),
    "n": I64,
    "frequencies": Array(I32),
    "start": Array(I32),
    "out": Array(I64),
    "rows": Array(I32),
    "ends": Array(I64),
}


@dataclass(frozen=True)
class Shape:
    """How the work is cut: all that the code depends on beside the map.

    A warp has `tiles` of features, a block `warps`; a stage has `groups` of records. `shift` bits
    of a phase are above a turn, or, for squares, dropped. With `listed`, the second axis of the
    grid counts parts of the features that have lists of records. `together` groups of records are
    multiplied at a time by Hopper's instructions, one at a time by those of all if it is zero.
    """

    dim: int
    shift: int
    tiles: int
    warps: int
    groups: int
    listed: bool = False
    blocks_at_once: int = 1
    together: int = 0

    @property
    def is_hopper(self) -> bool:
        """Whether the code has instructions of Hopper alone."""
        return self.together > 0

    @property
    def threads(self) -> int:
        """Number of them in a block."""
        return WARP * self.warps

    @property
    def features(self) -> int:
        """Number of them in a block."""
        return TILE * self.tiles * self.warps

    @property
    def records(self) -> int:
        """Number of records in a stage."""
        return TOGETHER * self.groups

    @property
    def depths(self) -> list[int]:
        """Columns that tensor cores take at a time: 32, and 16 at the end if that is enough."""
        if self.together:
            return [32] * -(-self.dim // 32)
        whole, left = divmod(self.dim, 32)
        return [32] * whole + ([16] if 0 < left <= 16 else [32] if left else [])

    @property
    def stage_bytes(self) -> int:
        """Size of both digits of the records of a stage."""
        return 2 * self.records * sum(self.depths)


def column_order(depth: int, is_hopper: bool) -> npt.NDArray[np.int64]:
    """(lanes in a quarter, registers, 4) columns whose digits a thread has, of 16 or 32.

    Neighbouring ones, so that it reads those of a record at once; as both sides agree, it does
    not matter which they are. Hopper reads records from shared memory, in their order.
    """
    if is_hopper:
        return np.arange(depth).reshape(depth // 16, 4, 4).transpose(1, 0, 2)
    return np.arange(depth).reshape(4, depth // 16, 4)


def frequency_digits(frequencies: npt.NDArray[np.int16], shape: Shape) -> npt.NDArray[np.int32]:
    """(tiles, words, 32) digits of frequencies as threads hold them; low digits first.

    Of a tile, a thread has the rows lane // 4 and lane // 4 + 8, and columns by lane % 4.
    """
    m, dim = frequencies.shape
    tiles = -(-m // TILE)
    wide = np.zeros((tiles * TILE, sum(shape.depths)), np.int16)
    wide[:m, :dim] = frequencies
    words = []
    for digit in (wide & 0xFF, wide >> 8):
        first = 0
        for depth in shape.depths:
            columns = first + column_order(depth, shape.is_hopper)
            part = digit.astype(np.uint8).reshape(tiles, 2, 8, -1)[..., columns]
            # tile, half, row, quarter, register, byte -> tile, register, half, row, quarter, byte
            part = np.ascontiguousarray(part.transpose(0, 4, 1, 2, 3, 5))
            words.append(part.view(np.int32).reshape(tiles, depth // 8, WARP))
            first += depth
    return np.concatenate(words, axis=1)


def rounds_at_once(map_name: str, shape: Shape) -> int:
    """Stages that a block adds up before its 32-bit sums could wrap."""
    return max(1, MOST[map_name] // (2 * shape.groups))


def sums_routine(map_name: str, shape: Shape) -> DeviceRoutine:
    """Write the function `sums`, whose arguments are above."""
    routine = DeviceRoutine(
        "sums", ARGUMENTS, threads=shape.threads, blocks_at_once=shape.blocks_at_once
    )
    _Block(routine, map_name, shape).write()
    return routine


class _Block:
    """Writes the code of a block."""

    def __init__(self, routine: DeviceRoutine, map_name: str, shape: Shape) -> None:
        self.routine, self.map_name, self.shape = routine, map_name, shape
        self.thread = routine.thread
        self.lane, self.warp = self.thread & (WARP - 1), self.thread >> 5
        self.part = routine.block("y")
        self.memory = routine.shared(2 * shape.stage_bytes)
        self.count, self.rows = routine.numbers["n"], routine.pointers["rows"]
        if shape.listed:
            ends = routine.pointers["ends"] + self.part.unsigned_to(I64) * 2
            first, stop = ends.load(), (ends + 1).load()
            self.count, self.rows = stop - first, self.rows + first

    def write(self) -> None:
        routine, shape = self.routine, self.shape
        first_tile = (self.part * shape.warps + self.warp) * shape.tiles
        digits, starts = self.features(first_tile)
        stages = (self.count + (shape.records - 1)) // shape.records
        step = routine.blocks.unsigned_to(I64)
        first = routine.block().unsigned_to(I64)
        # Rounds of this block: stages first, first + step, ...
        rounds = (stages + (step - 1) - first) // step
        rounds = select(first < stages, rounds, rounds.constant(0))
        if shape.together:
            with routine.loop(shape.groups, step=shape.together) as group:
                self.put(self.get(first, group), rounds.constant(0), group)
        else:
            self.put(self.get(first), rounds.constant(0))
        routine.barrier()
        most = rounds_at_once(self.map_name, shape)
        with routine.tile(rounds, most, may_be_empty=True) as (begin, together):
            sums = [routine.constant(I32, 0)] * (4 * shape.tiles)
            with routine.loop(begin + together, sums, start=begin) as number:
                following = first + (number + 1) * step
                if shape.together:
                    self.add_columns(number, following, digits, starts, sums)
                else:
                    found = self.get(following)
                    self.add_stage(number, digits, starts, sums)
                    self.put(found, number + 1)
                routine.barrier()
            self.flush(first_tile, sums)

    def features(self, first_tile: Value) -> tuple[list[list[Value]], list[list[Value]]]:
        """Digits of the frequencies, and what phases start from, of all tiles of this warp."""
        routine, shape = self.routine, self.shape
        n_words = 2 * sum(shape.depths) // 8
        place = routine.pointers["frequencies"] + (
            first_tile * (n_words * WARP) + self.lane
        ).unsigned_to(I64)
        digits = [
            [(place + (tile * n_words + word) * WARP).load() for word in range(n_words)]
            for tile in range(shape.tiles)
        ]
        start = routine.pointers["start"] + (first_tile * TILE + (self.lane >> 2)).unsigned_to(I64)
        starts = [
            [(start + (tile * TILE + half)).load() for half in (0, 8)]
            for tile in range(shape.tiles)
        ]
        return digits, starts

    # -------------------------------------------------------------- records to shared memory

    def units(self) -> list[tuple[int, Value, Value, Value]]:
        """Return the parts of some groups of records that this thread loads.

        A part has a depth, record, column and position: 4 or 8 columns for one lane. Threads
        beyond the last part load it again.
        """
        shape, found, first_column, first_word = self.shape, [], 0, 0
        for depth in dict.fromkeys(shape.depths):
            n_chunks = shape.depths.count(depth)
            n_units = (shape.together or shape.groups) * n_chunks * WARP
            words = depth // 8  # of both digits
            for begin in range(0, n_units, shape.threads):
                unit = self.thread + begin
                if begin + shape.threads > n_units:
                    unit = select(unit < n_units, unit, unit.constant(n_units - 1))
                lane, chunk = unit & (WARP - 1), unit >> 5
                group = chunk // n_chunks
                column = (chunk - group * n_chunks) * depth + (lane & 3) * (depth // 4)
                record = group * TOGETHER + (lane >> 2)
                found.append((depth, record, column + first_column, unit * words + first_word))
            first_column += depth * n_chunks
            first_word += n_units * words
        return found

    def get(self, stage: Value, group: Value | None = None) -> list[list[Value]]:
        """Words of two columns each, of all units of this thread in a stage, or in a part of it."""
        routine, shape = self.routine, self.shape
        first, found = stage * shape.records, []
        if group is not None:
            first += group * TOGETHER
        for depth, record, column, _ in self.units():
            number = first + record.unsigned_to(I64)
            there = number < self.count
            number = select(there, number, number.constant(0))
            if shape.listed:
                number = (self.rows + number).load().unsigned_to(I64)
            row = routine.pointers["records"] + number * shape.dim
            words = self.words(row, column, depth // 8)
            found.append([select(there, word, word.constant(0)) for word in words])
        return found

    def words(self, row: Pointer, column: Value, count: int) -> list[Value]:
        """`count` words of a record from a column on; those beyond its end are any of its own."""
        dim = self.shape.dim
        if dim % (2 * count) == 0:  # whole units
            column = select(column < dim, column, column.constant(0))
            vector = (row + column.unsigned_to(I64)).to(I32.vector(count)).load(align=4 * count)
            return elements(vector)
        found = []
        for place in range(count):
            each = column + 2 * place
            if dim % 2 == 0:
                each = select(each < dim, each, each.constant(0))
                found.append((row + each.unsigned_to(I64)).to(I32).load(align=4))
                continue
            low, high = (
                (row + select(one < dim, one, one.constant(0)).unsigned_to(I64)).load()
                for one in (each, each + 1)
            )
            found.append(low.unsigned_to(I32) | high.unsigned_to(I32) << 16)
        return found

    def put(self, found: list[list[Value]], number: Value, group: Value | None = None) -> None:
        """Parts words into digits and leaves them where the warps look for a stage."""
        routine = self.routine
        base = self.buffer(number)
        for (_, _, _, place), words in zip(self.units(), found, strict=True):
            pairs = list(zip(words[::2], words[1::2], strict=True))
            digits = [
                routine.select_bytes(one, other, places)
                for places in (_LOW_BYTES, _HIGH_BYTES)
                for one, other in pairs
            ]
            if group is not None:
                self.put_columns(base, group, place, digits)
                continue
            vector = joined(digits)
            (base + place.unsigned_to(I64)).to(vector.kind).store(vector, align=4 * len(digits))
        if group is not None:
            routine.publish_shared()

    def put_columns(self, base: Pointer, group: Value, place: Value, digits: list[Value]) -> None:
        """Leaves digits as Hopper wants them: low ones of all records, then high ones.

        Of these, 8 records by 16 columns lie together, record by record: 32 words.
        """
        chunks, unit = len(self.shape.depths), place >> 2
        lane, chunk = unit & (WARP - 1), unit >> 5
        word = (chunk * 2 + ((lane & 3) >> 1)) * 32 + (lane >> 2) * 4 + (lane & 1) * 2
        there = base + (group * (chunks * 64) + word.unsigned_to(I64))
        for half, pair in enumerate((digits[:2], digits[2:])):
            vector = joined(pair)
            (there + half * (self.shape.groups * chunks * 64)).to(vector.kind).store(
                vector, align=8
            )

    def buffer(self, number: Value) -> Pointer:
        """Where a stage is kept: stages take turns in two places."""
        return self.memory + (number & 1) * (self.shape.stage_bytes // 4)

    # -------------------------------------------------------------- features and sums

    def add_stage(
        self,
        number: Value,
        digits: list[list[Value]],
        starts: list[list[Value]],
        sums: list[Value],
    ) -> None:
        """Add the features of all records of a stage to the sums."""
        base = self.buffer(number)
        with self.routine.loop(self.shape.groups, sums) as group:
            low, high = self.record_digits(base, group)
            for tile, (mine, start) in enumerate(zip(digits, starts, strict=True)):
                self.add(tile, self.phases(mine, start, low, high), sums)

    def add_columns(
        self,
        number: Value,
        stage: Value,
        digits: list[list[Value]],
        starts: list[list[Value]],
        sums: list[Value],
    ) -> None:
        """Add features with Hopper's instructions, and load the records of another stage."""
        routine, shape, chunks = self.routine, self.shape, len(self.shape.depths)
        base = routine.shared_address(self.buffer(number))
        # Bytes from 16 columns to the next, and from 8 records to the next, counted in sixteens.
        strides = (128 >> 4) << 16 | (chunks * 256 >> 4) << 32
        with routine.loop(shape.groups, sums, step=shape.together) as group:
            following = self.get(stage, group)
            low, high = (
                ((base + group * (chunks * 256) + half) >> 4 & 0x3FFF) | strides
                for half in (0, shape.groups * chunks * 256)
            )
            for tile, (mine, start) in enumerate(zip(digits, starts, strict=True)):
                mine_low, mine_high = mine[: len(mine) // 2], mine[len(mine) // 2 :]
                columns = TOGETHER * shape.together
                phases = routine.group_products([((True, True), mine_high, high)], None, columns)
                phases = routine.group_products(
                    [((True, False), mine_high, low), ((False, True), mine_low, high)],
                    [phase << 8 for phase in phases],
                    columns,
                )
                begun = [(phase << 8) + start[i % 4 // 2] for i, phase in enumerate(phases)]
                phases = routine.group_products([((False, False), mine_low, low)], begun, columns)
                self.add(tile, phases, sums)
            self.put(following, number + 1, group)

    def record_digits(self, base: Pointer, group: Value) -> list[list[list[Value]]]:
        """Low and high digits of a group of records: a list of words for every depth."""
        depths = self.shape.depths
        low: list[list[Value]] = []
        high: list[list[Value]] = []
        first_word = 0
        for depth in dict.fromkeys(depths):
            n_chunks, words = depths.count(depth), depth // 8
            for chunk in range(n_chunks):
                unit = (group * n_chunks + chunk) * WARP + self.lane.unsigned_to(I64)
                place = base + (unit * words + first_word)
                vector = place.to(I32.vector(words)).load(align=4 * words)
                each = elements(vector)
                low.append(each[: words // 2])
                high.append(each[words // 2 :])
            first_word += self.shape.groups * n_chunks * WARP * words
        return [low, high]

    def phases(
        self,
        digits: list[Value],
        start: list[Value],
        low: list[list[Value]],
        high: list[list[Value]],
    ) -> list[Value]:
        """Compute the phases of two features, each for two records."""
        routine = self.routine
        half = len(digits) // 2
        mine = {False: digits[:half], True: digits[half:]}
        theirs = {False: low, True: high}
        phases = [routine.constant(I32, 0)] * 4

        def add(my_sign: bool, their_sign: bool) -> None:
            first = 0
            for words in theirs[their_sign]:
                left = mine[my_sign][first : first + 2 * len(words)]
                phases[:] = routine.products((my_sign, their_sign), left, words, phases)
                first += 2 * len(words)

        if len(theirs[False]) > 2:  # rather side by side than one after the other
            return self.side_by_side(mine, start, theirs)
        add(True, True)
        phases[:] = [phase << 8 for phase in phases]
        add(True, False)
        add(False, True)
        phases[:] = [(phase << 8) + start[place // 2] for place, phase in enumerate(phases)]
        add(False, False)
        return phases

    def side_by_side(
        self,
        mine: dict[bool, list[Value]],
        start: list[Value],
        theirs: dict[bool, list[list[Value]]],
    ) -> list[Value]:
        """Compute the phases from three sums that do not wait for each other."""
        routine = self.routine
        zero = routine.constant(I32, 0)
        parts = {high: [zero] * 4 for high in range(3)}
        first = 0
        for chunk in range(len(theirs[False])):
            size = 2 * len(theirs[False][chunk])
            for my_sign in (False, True):
                for their_sign in (False, True):
                    left = mine[my_sign][first : first + size]
                    high = my_sign + their_sign
                    parts[high] = routine.products(
                        (my_sign, their_sign), left, theirs[their_sign][chunk], parts[high]
                    )
            first += size
        return [
            (((parts[2][place] << 8) + parts[1][place]) << 8)
            + (parts[0][place] + start[place // 2])
            for place in range(4)
        ]

    def add(self, tile: int, phases: list[Value], sums: list[Value]) -> None:
        """Add the features of these phases: cosines of two features of a tile, then sines."""
        for place, phase in enumerate(phases):
            cosine, sine = ADDED[self.map_name](phase, self.shape.shift)
            half = place % 4 // 2
            sums[4 * tile + half] += cosine
            sums[4 * tile + 2 + half] += sine

    def flush(self, first_tile: Value, sums: list[Value]) -> None:
        """Add 32-bit sums of all warps to those of 64 bits; a lane adds one of four numbers."""
        routine = self.routine
        which = self.lane & 3
        row = (which << 3) + (self.lane >> 2)
        out = routine.pointers["out"]
        for tile in range(self.shape.tiles):
            totals = []
            for index in range(4):
                value = sums[4 * tile + index]
                low = value & 0xFFFF
                high = signed_shift(value, 16) if index >= 2 else value >> 16
                for distance in (1, 2):
                    low += routine.from_lane(low, distance)
                    high += routine.from_lane(high, distance)
                wide = high.signed_to(I64) if index >= 2 else high.unsigned_to(I64)
                totals.append((wide << 16) + low.unsigned_to(I64))
            even = select(which & 1 < 1, totals[0], totals[1])
            odd = select(which & 1 < 1, totals[2], totals[3])
            place = (first_tile + tile) * (2 * TILE) + row
            routine.add_to(out + place.unsigned_to(I64), select(which < 2, even, odd))


def _fourier(phase: Value, shift: int) -> tuple[Value, Value]:
    """features/waves.py: products of half angles."""
    t = signed_shift(phase << shift, 16)
    z = t * t >> 16
    cosine = _polynomial(z, COSINE_COEFFICIENTS)
    sine = signed_shift(_polynomial(z, SINE_COEFFICIENTS) * t + 2**14, 15)
    return cosine * cosine, sine * cosine


def _polynomial(z: Value, coefficients: tuple[int, ...]) -> Value:
    """Horner's rule; a coefficient is added before a product is halved, with the rounding."""
    value = z.constant(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = signed_shift(value * z + (2**14 + (coefficient << 15)), 15)
    return value


def _onebit(phase: Value, shift: int) -> tuple[Value, Value]:
    """features/waves.py: one where the sign is positive, else zero."""
    t = (phase << shift) >> 16
    quarter, half = 2**14, 2**15
    cosine = (t + quarter) & 0xFFFF
    return (cosine <= half).unsigned_to(I32), (t <= half).unsigned_to(I32)


def _quadratic(phase: Value, shift: int) -> tuple[Value, Value]:
    """features/quadratic.py: a square of which some bits are dropped."""
    wide = phase.signed_to(I64)
    return (wide * wide >> shift).unsigned_to(I32), phase.constant(0)


ADDED = {"fourier": _fourier, "one-bit": _onebit, "quadratic": _quadratic}
