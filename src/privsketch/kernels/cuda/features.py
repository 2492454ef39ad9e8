"""Integer sums of quantised records on a GPU: phases from tensor cores, features in registers.

A value of a record is q = 256 qh + ql, and a value of a frequency is f = 256 fh + fl. High digits
are signed, low digits unsigned. Tensor cores multiply 8-bit digits and add up in 32 bits that
wrap, so the phase is exactly

    ((qh.fh) 256 + (qh.fl + ql.fh)) 256 + ql.fl + start   modulo 2^32,

where each of the three sums starts from the one before it. A warp keeps the digits of some features
in registers, 16 features in a tile, and goes through the records, 8 at a time. A thread gets the
phases of two features of a tile for two of the records. It computes their integer features as
features/ does, and adds them up in 32 bits. Before these sums can wrap, they are added to
64-bit sums in memory.

All warps of a block use the same records. They load them from memory together, one stage ahead of
the computation, and store their digits in the order in which tensor cores read them. The last stage
is padded with records of zeros, whose known contribution is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privsketch.features.waves import COSINE_COEFFICIENTS, SINE_COEFFICIENTS
from privsketch.kernels.builder import Pointer, Value, select
from privsketch.kernels.cuda.code import WARP, DeviceRoutine, elements, signed_shift
from privsketch.kernels.features import FEATURES
from privsketch.kernels.kinds import I16, I32, I64, Arguments, Array
from privsketch.kernels.operations import vector_of

TILE, GROUP = 16, 8  # features and records that tensor cores multiply at a time
_LOW_BYTES, _HIGH_BYTES = 0x6420, 0x7531  # of four 16-bit numbers
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
    """Division of the work: all that the code depends on besides the feature map.

    A warp has `tiles` of features, a block has `warps`, and a stage has `groups` of records.
    `shift` bits of a phase are above a turn or, for squares, dropped. With `has_lists`, the second
    axis of the grid counts parts of the features that have lists of records. Hopper's instructions
    multiply `groups_at_once` groups of records; zero stands for the instructions of all devices,
    which multiply one group.
    """

    dim: int
    shift: int
    tiles: int
    warps: int
    groups: int
    has_lists: bool = False
    blocks_at_once: int = 1
    groups_at_once: int = 0

    @property
    def is_hopper(self) -> bool:
        """Whether the code has instructions that only Hopper has."""
        return self.groups_at_once > 0

    @property
    def threads(self) -> int:
        """Number of threads in a block."""
        return WARP * self.warps

    @property
    def features(self) -> int:
        """Number of features in a block."""
        return TILE * self.tiles * self.warps

    @property
    def records(self) -> int:
        """Number of records in a stage."""
        return GROUP * self.groups

    @property
    def depths(self) -> list[int]:
        """Columns that tensor cores take at a time: 32, and 16 at the end if that is enough."""
        depths = [32] * -(-self.dim // 32)
        if not self.is_hopper and 0 < self.dim % 32 <= 16:
            depths[-1] = 16
        return depths

    @property
    def stage_bytes(self) -> int:
        """Size of both digits of the records of a stage."""
        return 2 * self.records * sum(self.depths)


def column_order(depth: int, is_hopper: bool) -> npt.NDArray[np.int64]:
    """Return which columns of 16 or 32 a thread holds: (lanes in a quarter, registers, 4).

    They are adjacent, so that a thread reads those of a record at once. Both factors have the same
    order, so any order gives the same products. Hopper reads records from shared memory, in the
    original order.
    """
    if is_hopper:
        return np.arange(depth).reshape(depth // 16, 4, 4).transpose(1, 0, 2)
    return np.arange(depth).reshape(4, depth // 16, 4)


def frequency_digits(frequencies: npt.NDArray[np.int16], shape: Shape) -> npt.NDArray[np.int32]:
    """Return the digits of frequencies as threads hold them, (tiles, words, 32); low digits first.

    A thread has the rows lane // 4 and lane // 4 + 8 of a tile, and columns by lane % 4.
    """
    m, dim = frequencies.shape
    tiles = -(-m // TILE)
    padded = np.zeros((tiles * TILE, sum(shape.depths)), np.int16)
    padded[:m, :dim] = frequencies
    words = []
    for digit in (padded & 0xFF, padded >> 8):
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
    """Return the number of stages that a block adds up before its 32-bit sums could wrap."""
    return max(1, FEATURES[map_name].max_records // (2 * shape.groups))


def sums_routine(map_name: str, shape: Shape) -> DeviceRoutine:
    """Write the function `sums`, whose arguments are `ARGUMENTS`."""
    routine = DeviceRoutine(
        "sums", ARGUMENTS, threads=shape.threads, blocks_at_once=shape.blocks_at_once
    )
    _Block(routine, map_name, shape).write()
    return routine


class _Block:
    """Writer of the code of a block."""

    def __init__(self, routine: DeviceRoutine, map_name: str, shape: Shape) -> None:
        self.routine, self.map_name, self.shape = routine, map_name, shape
        self.thread = routine.thread
        self.lane, self.warp = self.thread & (WARP - 1), self.thread >> 5
        self.part = routine.block("y")
        self.memory = routine.shared(2 * shape.stage_bytes)
        self.n_records, self.rows = routine.numbers["n"], routine.pointers["rows"]
        if shape.has_lists:
            ends = routine.pointers["ends"] + self.part.unsigned_to(I64) * 2
            first, stop = ends.load(), (ends + 1).load()
            self.n_records, self.rows = stop - first, self.rows + first

    def write(self) -> None:
        routine, shape = self.routine, self.shape
        first_tile = (self.part * shape.warps + self.warp) * shape.tiles
        digits, starts = self.features(first_tile)
        stages = (self.n_records + (shape.records - 1)) // shape.records
        step = routine.n_blocks.unsigned_to(I64)
        first = routine.block().unsigned_to(I64)
        # Rounds of this block: stages first, first + step, ...
        rounds = (stages + (step - 1) - first) // step
        rounds = select(first < stages, rounds, rounds.constant(0))
        if shape.is_hopper:
            with routine.loop(shape.groups, step=shape.groups_at_once) as group:
                self.store(self.load(first, group), rounds.constant(0), group)
        else:
            self.store(self.load(first), rounds.constant(0))
        routine.barrier()
        at_once = rounds_at_once(self.map_name, shape)
        with routine.tile(rounds, at_once, may_be_empty=True) as (begin, count):
            sums = [routine.constant(I32, 0)] * (4 * shape.tiles)
            with routine.loop(begin + count, sums, start=begin) as number:
                next_stage = first + (number + 1) * step
                if shape.is_hopper:
                    self.add_columns(number, next_stage, digits, starts, sums)
                else:
                    next_words = self.load(next_stage)
                    self.add_stage(number, digits, starts, sums)
                    self.store(next_words, number + 1)
                routine.barrier()
            self.flush(first_tile, sums)

    def features(self, first_tile: Value) -> tuple[list[list[Value]], list[list[Value]]]:
        """Load the digits of the frequencies and the start phases of all tiles of this warp."""
        routine, shape = self.routine, self.shape
        n_words = 2 * sum(shape.depths) // 8
        first = (first_tile * (n_words * WARP) + self.lane).unsigned_to(I64)
        row = routine.pointers["frequencies"] + first
        digits = [
            [(row + (tile * n_words + word) * WARP).load() for word in range(n_words)]
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
        """Return the units of some groups of records that this thread loads.

        A unit is 4 or 8 columns for one lane: a depth, record, column and position. Threads
        beyond the last unit load it again.
        """
        units: list[tuple[int, Value, Value, Value]] = []
        shape, first_column, first_word = self.shape, 0, 0
        for depth in dict.fromkeys(shape.depths):
            n_chunks = shape.depths.count(depth)
            n_units = (shape.groups_at_once or shape.groups) * n_chunks * WARP
            words = depth // 8  # of both digits
            for begin in range(0, n_units, shape.threads):
                unit = self.thread + begin
                if begin + shape.threads > n_units:
                    unit = select(unit < n_units, unit, unit.constant(n_units - 1))
                lane, chunk = unit & (WARP - 1), unit >> 5
                group = chunk // n_chunks
                column = (chunk - group * n_chunks) * depth + (lane & 3) * (depth // 4)
                record = group * GROUP + (lane >> 2)
                units.append((depth, record, column + first_column, unit * words + first_word))
            first_column += depth * n_chunks
            first_word += n_units * words
        return units

    def load(self, stage: Value, group: Value | None = None) -> list[list[Value]]:
        """Load words of two columns each: all units of this thread in a stage, or in a part of it.

        Records beyond the last one are zero.
        """
        routine, shape = self.routine, self.shape
        first, loaded = stage * shape.records, []
        if group is not None:
            first += group * GROUP
        for depth, record, column, _ in self.units():
            number = first + record.unsigned_to(I64)
            exists = number < self.n_records
            number = select(exists, number, number.constant(0))
            if shape.has_lists:
                number = (self.rows + number).load().unsigned_to(I64)
            row = routine.pointers["records"] + number * shape.dim
            words = self.words(row, column, depth // 8)
            loaded.append([select(exists, word, word.constant(0)) for word in words])
        return loaded

    def words(self, row: Pointer, column: Value, count: int) -> list[Value]:
        """Load `count` words of a record from a column on; those beyond its end are arbitrary.

        They come from the record itself, so that no other memory is read.
        """
        dim = self.shape.dim

        def address(column: Value) -> Pointer:
            return row + select(column < dim, column, column.constant(0)).unsigned_to(I64)

        if dim % (2 * count) == 0:  # no unit extends beyond the record
            return elements(address(column).to(I32.vector(count)).load(align=4 * count))
        words = []
        for start in (column + 2 * word for word in range(count)):
            if dim % 2 == 0:
                words.append(address(start).to(I32).load(align=4))
            else:
                low, high = (address(column).load() for column in (start, start + 1))
                words.append(low.unsigned_to(I32) | high.unsigned_to(I32) << 16)
        return words

    def store(self, loaded: list[list[Value]], number: Value, group: Value | None = None) -> None:
        """Split words into digits and store them where the warps read a stage."""
        base = self.buffer(number)
        for (_, _, _, position), words in zip(self.units(), loaded, strict=True):
            pairs = list(zip(words[::2], words[1::2], strict=True))
            digits = [
                self.routine.select_bytes(first, second, selector)
                for selector in (_LOW_BYTES, _HIGH_BYTES)
                for first, second in pairs
            ]
            if group is not None:
                self.store_columns(base, group, position, digits)
                continue
            vector = vector_of(digits)
            target = (base + position.unsigned_to(I64)).to(vector.kind)
            target.store(vector, align=4 * len(digits))
        if group is not None:
            self.routine.publish_shared()

    def store_columns(
        self, base: Pointer, group: Value, position: Value, digits: list[Value]
    ) -> None:
        """Store digits in Hopper's order: low digits of all records, then high digits.

        In each half, 8 records by 16 columns are adjacent, record by record: 32 words.
        """
        chunks, unit = len(self.shape.depths), position >> 2
        lane, chunk = unit & (WARP - 1), unit >> 5
        word = (chunk * 2 + ((lane & 3) >> 1)) * 32 + (lane >> 2) * 4 + (lane & 1) * 2
        start = base + (group * (chunks * 64) + word.unsigned_to(I64))
        for half, pair in enumerate((digits[:2], digits[2:])):
            vector = vector_of(pair)
            target = (start + half * (self.shape.groups * chunks * 64)).to(vector.kind)
            target.store(vector, align=8)

    def buffer(self, number: Value) -> Pointer:
        """Return the address of a stage; stages alternate between two buffers."""
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
            for tile, (words, start) in enumerate(zip(digits, starts, strict=True)):
                self.add(tile, self.phases(words, start, low, high), sums)

    def add_columns(
        self,
        number: Value,
        stage: Value,
        digits: list[list[Value]],
        starts: list[list[Value]],
        sums: list[Value],
    ) -> None:
        """Add features with Hopper's instructions, and load the records of the next stage."""
        routine, shape, chunks = self.routine, self.shape, len(self.shape.depths)
        base = routine.shared_address(self.buffer(number))
        # Bytes from 16 columns to the next, and from 8 records to the next, in units of 16.
        strides = (128 >> 4) << 16 | (chunks * 256 >> 4) << 32
        with routine.loop(shape.groups, sums, step=shape.groups_at_once) as group:
            next_words = self.load(stage, group)
            low, high = (
                ((base + group * (chunks * 256) + half) >> 4 & 0x3FFF) | strides
                for half in (0, shape.groups * chunks * 256)
            )
            for tile, (words, start) in enumerate(zip(digits, starts, strict=True)):
                low_words, high_words = words[: len(words) // 2], words[len(words) // 2 :]
                columns = GROUP * shape.groups_at_once
                phases = routine.group_products([((True, True), high_words, high)], None, columns)
                phases = routine.group_products(
                    [((True, False), high_words, low), ((False, True), low_words, high)],
                    [phase << 8 for phase in phases],
                    columns,
                )
                phases = [(phase << 8) + start[i % 4 // 2] for i, phase in enumerate(phases)]
                phases = routine.group_products([((False, False), low_words, low)], phases, columns)
                self.add(tile, phases, sums)
            self.store(next_words, number + 1, group)

    def record_digits(self, base: Pointer, group: Value) -> list[list[list[Value]]]:
        """Load the low and high digits of a group of records: a list of words for every depth."""
        depths = self.shape.depths
        low: list[list[Value]] = []
        high: list[list[Value]] = []
        first_word = 0
        for depth in dict.fromkeys(depths):
            n_chunks, words = depths.count(depth), depth // 8
            for chunk in range(n_chunks):
                unit = (group * n_chunks + chunk) * WARP + self.lane.unsigned_to(I64)
                start = base + (unit * words + first_word)
                digits = elements(start.to(I32.vector(words)).load(align=4 * words))
                low.append(digits[: words // 2])
                high.append(digits[words // 2 :])
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
        half = len(digits) // 2
        left = {False: digits[:half], True: digits[half:]}
        right = {False: low, True: high}
        phases = [self.routine.constant(I32, 0)] * 4

        def add(left_sign: bool, right_sign: bool) -> None:
            first = 0
            for words in right[right_sign]:
                rows = left[left_sign][first : first + 2 * len(words)]
                phases[:] = self.routine.products((left_sign, right_sign), rows, words, phases)
                first += 2 * len(words)

        if len(low) > 2:
            return self.parallel_phases(left, start, right)
        add(True, True)
        phases[:] = [phase << 8 for phase in phases]
        add(True, False)
        add(False, True)
        phases[:] = [(phase << 8) + start[k // 2] for k, phase in enumerate(phases)]
        add(False, False)
        return phases

    def parallel_phases(
        self,
        left: dict[bool, list[Value]],
        start: list[Value],
        right: dict[bool, list[list[Value]]],
    ) -> list[Value]:
        """Compute the phases of many columns from three independent sums."""
        # Indexed by the number of high digits in a product.
        sums = [[self.routine.constant(I32, 0)] * 4] * 3
        first = 0
        for low, high in zip(right[False], right[True], strict=True):
            size = 2 * len(low)
            for left_sign in (False, True):
                for right_sign, words in ((False, low), (True, high)):
                    rows = left[left_sign][first : first + size]
                    n_high = left_sign + right_sign
                    signs = left_sign, right_sign
                    sums[n_high] = self.routine.products(signs, rows, words, sums[n_high])
            first += size
        return [
            (((high << 8) + middle) << 8) + (low + start[k // 2])
            for k, (low, middle, high) in enumerate(zip(*sums, strict=True))
        ]

    def add(self, tile: int, phases: list[Value], sums: list[Value]) -> None:
        """Add the features of these phases: cosines of two features of a tile, then sines."""
        for k, phase in enumerate(phases):
            cosine, sine = DEVICE_FEATURES[self.map_name](phase, self.shape.shift)
            half = k % 4 // 2
            sums[4 * tile + half] += cosine
            sums[4 * tile + 2 + half] += sine

    def flush(self, first_tile: Value, sums: list[Value]) -> None:
        """Add the 32-bit sums to the 64-bit sums; a lane adds one of four numbers."""
        routine = self.routine
        quarter = self.lane & 3
        row = (quarter << 3) + (self.lane >> 2)
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
            cosines = select(quarter & 1 < 1, totals[0], totals[1])
            sines = select(quarter & 1 < 1, totals[2], totals[3])
            target = out + ((first_tile + tile) * (2 * TILE) + row).unsigned_to(I64)
            routine.add_to(target, select(quarter < 2, cosines, sines))


def _fourier(phase: Value, shift: int) -> tuple[Value, Value]:
    """Return products of half angles, as features/waves.py defines them."""
    t = signed_shift(phase << shift, 16)
    z = t * t >> 16
    cosine = _polynomial(z, COSINE_COEFFICIENTS)
    sine = signed_shift(_polynomial(z, SINE_COEFFICIENTS) * t + 2**14, 15)
    return cosine * cosine, sine * cosine


def _polynomial(z: Value, coefficients: tuple[int, ...]) -> Value:
    """Evaluate by Horner's rule; coefficients are added together with the rounding offset."""
    value = z.constant(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = signed_shift(value * z + (2**14 + (coefficient << 15)), 15)
    return value


def _onebit(phase: Value, shift: int) -> tuple[Value, Value]:
    """Return 1 where a sign of features/waves.py is positive, else 0."""
    t = (phase << shift) >> 16
    quarter, half = 2**14, 2**15
    cosine = (t + quarter) & 0xFFFF
    return (cosine <= half).unsigned_to(I32), (t <= half).unsigned_to(I32)


def _quadratic(phase: Value, shift: int) -> tuple[Value, Value]:
    """Return a square of features/quadratic.py, of which some bits are dropped."""
    wide = phase.signed_to(I64)
    return (wide * wide >> shift).unsigned_to(I32), phase.constant(0)


DEVICE_FEATURES = {"fourier": _fourier, "one-bit": _onebit, "quadratic": _quadratic}
