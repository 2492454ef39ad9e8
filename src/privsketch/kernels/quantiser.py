"""Records to integers in compiled code: what `features/fixedpoint.Quantiser` defines, bit for bit.

One function reads rows, another reads columns and writes rows, so that no table is turned round
in memory first. Both subtract the center, multiply by the unit, cut and round; values that are
not finite become 0 and raise a flag. Cutting comes before rounding here: limits are whole
numbers, so that the order does not matter. Records of a ball are cut far outside, which keeps
squared norms exact, and another function moves those that are outside to its edge.

Rows are read as one long line of numbers where they follow each other without gaps: centers,
units and limits are repeated until they fill whole vectors.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import RecordError
from privsketch._base.threads import cached_once
from privsketch._base.types import Block, Floats, Whole
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.features.fixedpoint import (
    FAR,
    RECORD_BITS,
    RECORD_MAX,
    Quantiser,
    missing_value,
    too_fine,
)
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import (
    DOUBLE,
    FLOAT,
    I1,
    I8,
    I16,
    I32,
    I64,
    Array,
    Kind,
    Pointer,
    Routine,
    Value,
    clipped,
    lanes_added,
    nearest_integer,
    select,
    square_root,
    truncated,
)

LANES = 8  # of all vectors; where registers are narrower, LLVM takes several
MIN_LINE = 64  # numbers, so that its beginning and end cost little
_CACHED_VALUES = 2**16  # 512 KB of float64, read again at once: second-level cache
_WHOLE = 1.5 * 2.0**52  # added to a small number, it leaves its nearest integer in the low bits
Layout = Literal["rows", "columns"]
Output = Literal["integers", "wholes", "both"]
Quantised = npt.NDArray[np.int16]
# How records of a number type are read: kind, and whether integers have a sign.
INPUTS: dict[str, tuple[Kind, bool]] = {
    "f8": (DOUBLE, True),
    "f4": (FLOAT, True),
    **{f"i{kind.number_bits // 8}": (kind, True) for kind in (I8, I16, I32, I64)},
    **{f"u{kind.number_bits // 8}": (kind, False) for kind in (I8, I16, I32, I64)},
}
NUMBERS = ("count", "width", "stride", "out_stride")
TABLES = ("center", "unit", "low", "high")  # (width,) each, of columns filled up to whole vectors


class CompiledQuantiser:
    """The same as `Quantiser`, from compiled code; safe to call from several threads."""

    def __init__(
        self,
        domain: Domain,
        *,
        missing_to_center: bool = False,
        bits: int = RECORD_BITS,
        common_unit: bool = False,
    ) -> None:
        known = Quantiser(
            domain, missing_to_center=missing_to_center, bits=bits, common_unit=common_unit
        )
        self._made_of = domain, missing_to_center, bits, common_unit
        self.definition, self.limits = known, known.limits
        self.dim, self.rows_at_once = known.dim, known.rows_at_once
        most = known.limits.astype(np.float64)
        if known.is_ball:
            most = np.full(known.dim, FAR * (known.largest + 1))
        tables = np.stack([known.center, known.unit, -most, most])
        # A line is as many rows as fill whole vectors, unless they are long anyway.
        filling = LANES // math.gcd(LANES, known.dim)
        lines = filling * -(-MIN_LINE // (filling * known.dim))
        self._rows_of_line = 1 if known.dim >= MIN_LINE else lines
        self._line = _Tables(np.tile(tables, self._rows_of_line))
        self._codes: dict[tuple[str, Layout, Output], machine.Code] = {}  # those in use: no lock
        # Columns beyond the last one become 0.
        self._columns = _Tables(np.pad(tables, ((0, 0), (0, -known.dim % LANES))))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, self._made_of  # addresses and compiled code are those of a process

    def __call__(self, records: Block) -> Quantised:
        """Quantise records of any number type, (n, dim), at the default resolution."""
        if self.definition.largest > RECORD_MAX:
            raise too_fine()
        n = len(records)
        integers = _room(n, self.dim, np.int16)
        if self.definition.is_ball:
            step = max(1, _CACHED_VALUES // self.dim)
            wholes = _room(min(n, step), self.dim, np.float64)
            for first in range(0, n, step):
                part, out = records[first : first + step], integers[first : first + step]
                self._quantise(part, out, wholes[: len(part)])
                self._cut(out, wholes[: len(part)])
        else:
            self._quantise(records, integers, None)
        return integers

    def whole_numbers(self, records: Block) -> Whole:
        """The integers as float64, at any resolution and for any number of records."""
        return self._whole_numbers(records, _room(len(records), self.dim, np.float64))

    def blocks_of_whole_numbers(self, records: Block) -> Iterator[Whole]:
        """The same in blocks that stay in the cache; one is gone when the next is asked for."""
        step = max(1, _CACHED_VALUES // self.dim)
        room = _room(min(len(records), step), self.dim, np.float64)
        for first in range(0, len(records), step):
            part = records[first : first + step]
            yield self._whole_numbers(part, room[: len(part)])

    def _whole_numbers(self, records: Block, wholes: Whole) -> Whole:
        self._quantise(records, None, wholes)
        if self.definition.is_ball:
            self._cut(None, wholes)
        return wholes

    def _quantise(self, records: Block, integers: Quantised | None, wholes: Whole | None) -> None:
        """Writes to one of the outputs or to both: all but what balls need besides."""
        if records.shape[1:] != (self.dim,):
            raise RecordError(f"blocks: expected tables of {self.dim} columns")
        if records.dtype == np.bool_:
            records = records.view(np.uint8)
        layout = _layout(records)
        if layout is not None:
            self._run(None, layout, records, integers, wholes)
            return
        known = records.dtype.newbyteorder("=")
        dtype = known if known.str[1:] in INPUTS else np.dtype(np.float64)
        for first in range(0, len(records), self.rows_at_once):
            rows = slice(first, first + self.rows_at_once)
            with np.errstate(over="ignore"):  # a long double beyond all floats is infinite
                part = records[rows].astype(dtype, order="C", casting="same_kind")
            self._run(
                None,
                "rows",
                part,
                None if integers is None else integers[rows],
                None if wholes is None else wholes[rows],
            )

    def _run(
        self,
        code: machine.Code | None,
        layout: Layout,
        records: Block,
        integers: Quantised | None,
        wholes: Whole | None,
    ) -> None:
        if code is None:
            output: Output = "integers" if wholes is None else "both"
            wanted = records.dtype.str[1:], layout, "wholes" if integers is None else output
            code = self._codes.get(wanted)
            if code is None:
                code = self._codes[wanted] = compile_quantiser(*wanted)
        function = code.function
        (n, dim), size, missing = records.shape, records.itemsize, ctypes.c_int8()
        width = dim if integers is None else integers.shape[1]
        source, first, second = _address(records), _address(integers), _address(wholes)
        flag = ctypes.addressof(missing)
        if layout == "columns":
            stride = records.strides[1] // size
            function(n, dim, stride, width, source, first, second, *self._columns.places, flag)
        else:
            stride = dim if n == 1 else records.strides[0] // size
            together = self._rows_of_line if stride == dim == width else 1
            lines, rest = divmod(n, together)
            tables = self._line.places
            if lines:
                line = together * dim, together * stride, together * width
                function(lines, *line, source, first, second, *tables, flag)
            if rest:  # a shorter line; without gaps, all are counted in numbers
                done = (n - rest) * dim
                places = (
                    None if place is None else place + done * bytes_each
                    for place, bytes_each in ((source, size), (first, 2), (second, 8))
                )
                function(1, rest * dim, 0, 0, *places, *tables, flag)
        if missing.value and not self.definition.missing_to_center:
            raise missing_value(records)

    def _cut(
        self, integers: Quantised | None, wholes: Whole, code: machine.Code | None = None
    ) -> None:
        """Moves rows outside of the ball to its edge."""
        code = code or compile_cut(integers is not None)
        code.function(
            len(wholes),
            self.dim,
            wholes.shape[1],
            self.definition.largest,
            _address(integers),
            _address(wholes),
        )


def _again(
    domain: Domain, missing_to_center: bool, bits: int, common_unit: bool
) -> CompiledQuantiser:
    """A quantiser once more, perhaps in another process."""
    return CompiledQuantiser(
        domain, missing_to_center=missing_to_center, bits=bits, common_unit=common_unit
    )


class _Tables:
    """Rows of numbers, and where they lie."""

    def __init__(self, rows: Floats) -> None:
        self.rows = [machine.aligned(row) for row in rows]
        self.places = [row.ctypes.data for row in self.rows]


def _room(n: int, width: int, dtype: type[Any]) -> npt.NDArray[Any]:
    """An array of rows, and some room behind the last one, which vectors write over."""
    return np.empty(n * width + LANES, dtype=dtype)[: n * width].reshape(n, width)


def _layout(records: Block) -> Layout | None:
    """How a block can be read as it lies in memory; None if it must be copied."""
    (n, dim), (down, across), size = records.shape, records.strides, records.itemsize
    known = records.dtype.isnative and records.dtype.str[1:] in INPUTS and records.flags.aligned
    if not known or down % size or across % size:
        return None
    if (dim == 1 or across == size) and (n == 1 or down == dim * size or dim >= MIN_LINE):
        return "rows"
    return "columns" if down == size and n >= LANES else None


def _address(array: npt.NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


# --- compiled code -------------------------------------------------------------------------------


@cached_once
def compile_quantiser(number: str, layout: Layout, output: Output) -> machine.Code:
    """The function for records of a number type, as NumPy writes it, on this processor."""
    arguments = [machine.INTEGER] * len(NUMBERS) + [machine.POINTER] * (len(TABLES) + 4)
    code = machine.compile_function(
        quantiser_module(number, layout, output), "quantise", *arguments
    )
    _check(code, number, layout, output)
    return code


@cached_once
def compile_cut(with_integers: bool) -> machine.Code:
    """The function that moves records into a ball, on this processor."""
    arguments = [machine.INTEGER] * 3 + [ctypes.c_double] + [machine.POINTER] * 2
    code = machine.compile_function(cut_module(with_integers), "cut", *arguments)
    _check_cut(code, with_integers)
    return code


def _check(code: machine.Code, number: str, layout: Layout, output: Output) -> None:
    """Compares the function with the definition on public numbers, and looks at its flag.

    Numbers of columns are such that there are lines of several rows, shorter ones, some below a
    vector, and vectors that overlap.
    """
    stream = PublicStream(0, Purpose.CHECK_QUANTISER)
    for n, dim in ((67, 1), (21, 3), (13, 10), (9, 67)):
        # Units of the last box are powers of two, so that there are halves of them.
        half = 1 + 3 * stream.uniform(dim) if dim < 67 else np.full(dim, 4.0)
        domain = Box(low=0.25 - half, high=half + 0.25)
        integers: Quantised | None = None if output == "wholes" else _room(n, dim, np.int16)
        wholes: Whole | None = None if output == "integers" else _room(n, dim, np.float64)

        def raises(records: Block, known: CompiledQuantiser) -> bool:
            in_order = np.asfortranarray(records) if layout == "columns" else records
            try:
                known._run(code, layout, in_order, integers, wholes)  # noqa: B023 - called at once
            except RecordError:
                return True
            return False

        moving, refusing = (CompiledQuantiser(domain, missing_to_center=m) for m in (True, False))
        records = _public_records(stream, n, dim, number)
        agrees = not raises(records, moving)
        right = moving.definition.whole_numbers(records)
        agrees &= all(
            np.array_equal(right, each) for each in (integers, wholes) if each is not None
        )
        records[~np.isfinite(records)] = 0
        agrees &= not raises(records, refusing)
        if number.startswith("f"):
            for place in list(np.ndindex(records.shape))[::5]:  # in every lane
                with_one_missing = records.copy()
                with_one_missing[place] = np.inf
                agrees &= raises(with_one_missing, refusing)
        machine.require_agreement("quantiser", agrees)


def _public_records(stream: PublicStream, n: int, dim: int, number: str) -> Block:
    """Numbers inside and outside of a box, halves of units, very large ones, and none."""
    values = stream.uniform(n * dim) * 12 - 6
    if not number.startswith("f"):
        kind = np.iinfo(number)
        values[::2] = kind.min / 2 + stream.uniform(len(values[::2])) * (
            kind.max / 2 - kind.min / 2
        )
        return np.clip(values, kind.min, kind.max / 2).astype(number).reshape(n, dim)
    values[::5] = (np.rint(values[::5] * 2**13) + 0.5) / 2**13
    values[3::17], values[5::19] = 0.9 * np.finfo(number).max, -0.9 * np.finfo(number).max
    values[4::13], values[7::23], values[8::29] = np.nan, np.inf, -np.inf
    return values.astype(number).reshape(n, dim)


def _check_cut(code: machine.Code, with_integers: bool) -> None:
    """The same for records inside and outside of a ball, and at its edge."""
    stream, n = PublicStream(0, Purpose.CHECK_QUANTISER), 40
    for dim in (1, 3, 10, 67):
        known = CompiledQuantiser(Ball(dim=dim, radius=1.0))
        largest = known.definition.largest
        reach = largest * np.repeat([0.1, 1.0, 2.0, 40.0], n // 4) / math.sqrt(dim)
        wholes = np.rint((stream.uniform(n * dim).reshape(n, dim) * 4 - 2) * reach[:, np.newaxis])
        wholes[:2] = 0.0
        wholes[0, -1], wholes[1, 0] = largest, -largest - 1
        far = FAR * (largest + 1)
        wholes = np.clip(wholes, -far, far)
        right = known.definition.cut_to_ball(wholes.copy())
        integers = wholes.astype(np.int16) if with_integers else None
        known._cut(integers, wholes, code)
        agrees = np.array_equal(wholes, right)
        agrees &= integers is None or np.array_equal(integers, right)
        machine.require_agreement("quantiser", agrees)


def quantiser_module(number: str, layout: Layout, output: Output) -> Any:
    """The module of the function `quantise`.

    "rows": `count` lines of `width` numbers, `stride` numbers apart. "columns": `count` records, 8
    at least, of `width` columns, `stride` numbers apart. Integers or whole floats, or both, are
    written in rows, `out_stride` numbers apart; `missing` gets a bit if a number is not finite.
    """
    kind, signed = INPUTS[number]
    arguments: dict[str, Kind | Array] = dict.fromkeys(NUMBERS, I64)
    arguments |= {"records": Array(kind), "integers": Array(I16), "wholes": Array(DOUBLE)}
    arguments |= dict.fromkeys(TABLES, Array(DOUBLE))
    arguments["missing"] = Array(I8)
    routine = Routine("quantise", arguments, vector_bits=machine.vector_bits())
    writer = _Writer(routine, kind, signed, output)
    all_finite = [routine.constant(I1.vector(LANES), 1)]
    (writer.rows if layout == "rows" else writer.columns)(all_finite)
    missing = routine.pointers["missing"]
    missing.store(missing.load() | (all_finite[0].bits_as(I8) ^ -1))
    return routine.finish()


@dataclass(frozen=True)
class _Writer:
    """Writes the parts of `quantise`; `all_finite` has the lanes in which all numbers were."""

    routine: Routine
    kind: Kind
    signed: bool
    output: Output

    def rows(self, all_finite: list[Value]) -> None:
        """Line by line, as many numbers as a vector has at a time."""
        routine, pointers = self.routine, self.routine.pointers
        count, width, stride, out_stride = (routine.numbers[name] for name in NUMBERS)
        zero, is_short = width.constant(0), width < LANES
        vectors = select(is_short, zero, width + (LANES - 1)) // LANES
        with routine.loop(count, all_finite, may_be_empty=True) as line:
            records, out = pointers["records"] + line * stride, line * out_stride
            with routine.loop(vectors, all_finite, may_be_empty=True) as v:
                # The last vector ends with the line: some numbers are then computed twice.
                place = smaller(v * LANES, width - LANES)
                tables = [
                    (pointers[name] + place).to(DOUBLE.vector(LANES)).load() for name in TABLES
                ]
                whole = self.quantised(records + place, LANES, tables, all_finite)
                self.store(whole, out + place)
            with routine.loop(
                select(is_short, width, zero), all_finite, may_be_empty=True
            ) as place:
                tables = [(pointers[name] + place).load() for name in TABLES]
                self.store(self.quantised(records + place, 0, tables, all_finite), out + place)

    def columns(self, all_finite: list[Value]) -> None:
        """Eight columns of eight records at a time.

        The last columns come first: what is written beyond the end of a row is overwritten by
        the beginning of the next one, or lies behind the last.
        """
        routine, pointers = self.routine, self.routine.pointers
        count, width, stride, out_stride = (routine.numbers[name] for name in NUMBERS)
        groups = (width + (LANES - 1)) // LANES
        with routine.loop(count, all_finite, step=LANES) as record:
            first = smaller(record, count - LANES)
            with routine.loop(groups, all_finite) as group:
                start = (groups - 1 - group) * LANES
                tile = []
                for column in (start + k for k in range(LANES)):
                    numbers = pointers["records"] + smaller(column, width - 1) * stride + first
                    tables = [(pointers[name] + column).load().splat(LANES) for name in TABLES]
                    tile.append(self.quantised(numbers, LANES, tables, all_finite))
                for k, row in enumerate(turned(tile)):
                    self.store(row, (first + k) * out_stride + start)

    def quantised(
        self, place: Pointer, lanes: int, tables: list[Value], all_finite: list[Value]
    ) -> Value:
        """Whole numbers, within limits, of the numbers at a place."""
        center, unit, low, high = tables
        number = place.to(self.kind.vector(lanes)).load().to_double(signed=self.signed)
        units = (number - center) * unit
        if self.kind.is_float:
            finite = number - number <= 0.0  # of others the difference is not a number
            units = select(finite, units, units.constant(0.0))
            all_finite[0] = all_finite[0] & (finite if lanes else finite.splat(LANES))
        return clipped(units, low, high)

    def store(self, units: Value, place: Value) -> None:
        """Writes numbers, rounded, to the outputs."""
        pointers = self.routine.pointers
        if self.output != "wholes":
            integers = rounded_integers(units)
            (pointers["integers"] + place).to(integers.kind).store(integers)
        if self.output != "integers":
            (pointers["wholes"] + place).to(units.kind).store(nearest_integer(units))


def rounded_integers(units: Value) -> Value:
    """Small numbers to 16-bit integers, halves to even."""
    lanes = units.kind.lanes
    return (units + _WHOLE).bits_as(I64.vector(lanes)).unsigned_to(I16)


def smaller(a: Value, b: Value) -> Value:
    """The smaller one of two numbers."""
    return select(a < b, a, b)


def turned(tile: list[Value]) -> list[Value]:
    """Rows of a square of numbers from its columns."""
    lanes = len(tile)
    size = 1
    while size < lanes:  # blocks of this size are exchanged within those of twice the size
        low = [k + (lanes if k & size else 0) - (size if k & size else 0) for k in range(lanes)]
        high = [place + size for place in low]
        rows = list(tile)
        for k in range(lanes):
            if not k & size:
                a, b = tile[k], tile[k | size]
                rows[k], rows[k | size] = a.shuffled(low, b), a.shuffled(high, b)
        tile, size = rows, 2 * size
    return tile


def cut_module(with_integers: bool) -> Any:
    """The module of the function `cut`: records outside of a ball are moved to its edge.

    Whole numbers are changed where they are, and integers beside them if there are any. Squares
    add up exactly, in any order.
    """
    arguments: dict[str, Kind | Array] = {"count": I64, "dim": I64, "stride": I64}
    arguments |= {"largest": DOUBLE, "integers": Array(I16), "wholes": Array(DOUBLE)}
    routine = Routine("cut", arguments, vector_bits=machine.vector_bits())
    count, dim, stride, largest = routine.numbers.values()
    vector, filled = DOUBLE.vector(LANES), dim // LANES * LANES
    with routine.loop(count, may_be_empty=True) as record:
        wholes = routine.pointers["wholes"] + record * stride
        integers = routine.pointers["integers"] + record * stride
        squares = [routine.constant(vector, 0.0)]
        with routine.loop(filled, squares, step=LANES, may_be_empty=True) as j:
            part = (wholes + j).to(vector).load()
            squares[0] += part * part
        total = [lanes_added(squares[0])]
        with routine.loop(dim, total, start=filled, may_be_empty=True) as j:
            part = (wholes + j).load()
            total[0] += part * part
        nothing, once = count.constant(0), count.constant(1)
        is_outside = largest * largest < total[0]
        with routine.loop(select(is_outside, once, nothing), may_be_empty=True):
            one = total[0].constant(1.0)
            shrink = largest / square_root(select(total[0] < one, one, total[0]))
            for lanes, start, stop in ((LANES, nothing, filled), (0, filled, dim)):
                with routine.loop(stop, start=start, step=lanes or 1, may_be_empty=True) as j:
                    place = (wholes + j).to(DOUBLE.vector(lanes))
                    part = truncated(place.load() * (shrink.splat(lanes) if lanes else shrink))
                    place.store(part)
                    if with_integers:
                        whole = rounded_integers(part)
                        (integers + j).to(whole.kind).store(whole)
    return routine.finish()
