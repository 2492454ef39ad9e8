"""Records to integers in compiled code, equal to `features/fixedpoint.Quantiser` bit for bit.

One function reads rows. Another reads columns and writes rows, so that no table has to be
transposed in memory. Both subtract the center, multiply by the unit, clip and round. Values that
are not finite become 0 and set a flag. Clipping before rounding gives the same results, because
limits are integers. Records of a ball are clipped far outside of it, which keeps squared norms
exact; another function moves records outside of the ball to its edge.

Rows without gaps between them are read as one long line of numbers. Centers, units and limits are
repeated until they fill whole vectors.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import RecordError
from privsketch._base.threads import cached_once
from privsketch._base.types import Block, Floats, WholeFloats
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.features.fixedpoint import (
    CLIP_HALF_WIDTHS,
    RECORD_MAX,
    Quantiser,
    missing_value_error,
    resolution_error,
)
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import Pointer, Routine, Value, select
from privsketch.kernels.dense import Quantised
from privsketch.kernels.kinds import DOUBLE, FLOAT, I1, I8, I16, I32, I64, Arguments, Array, Kind
from privsketch.kernels.operations import clip, lane_sum, rint, sqrt, trunc

LANES = 8  # of all vectors; if registers are narrower, LLVM uses several
MIN_LINE = 64  # numbers of a line, so that its beginning and end cost little
_CACHED_FLOATS = 2**16  # 512 KB of float64, read again at once: second-level cache
# The low bits of its sum with a small number are the nearest integer.
_ROUNDING_SHIFT = 1.5 * 2.0**52
Layout = Literal["rows", "columns"]
Output = Literal["integers", "wholes", "both"]
# Kind of the numbers of a NumPy type, and whether integers are signed.
INPUTS: dict[str, tuple[Kind, bool]] = {
    "f8": (DOUBLE, True),
    "f4": (FLOAT, True),
    **{f"i{kind.number_bits // 8}": (kind, True) for kind in (I8, I16, I32, I64)},
    **{f"u{kind.number_bits // 8}": (kind, False) for kind in (I8, I16, I32, I64)},
}
_LINE_NUMBERS = ("count", "width", "stride", "out_stride")
_TABLES = ("center", "unit", "low", "high")  # (width,) each, padded to whole vectors


class CompiledQuantiser:
    """Compiled equivalent of `Quantiser`, with its options; safe to call from several threads."""

    def __init__(self, domain: Domain, **options: Any) -> None:
        self._rebuild = partial(CompiledQuantiser, domain, **options)
        self.definition = definition = Quantiser(domain, **options)
        self.limits, self.dim = definition.limits, definition.dim
        self.rows_at_once = definition.rows_at_once
        limits = definition.limits.astype(np.float64)
        if definition.is_ball:
            limits = np.full(self.dim, CLIP_HALF_WIDTHS * (definition.largest + 1))
        tables = np.stack([definition.center, definition.unit, -limits, limits])
        # A line has as many rows as fill whole vectors; long rows are a line each.
        filling = LANES // math.gcd(LANES, self.dim)
        n_rows = filling * -(-MIN_LINE // (filling * self.dim))
        self._rows_of_line = 1 if self.dim >= MIN_LINE else n_rows
        self._line_tables = _AlignedRows(np.tile(tables, self._rows_of_line))
        self._codes: dict[tuple[str, Layout, Output], machine.Code] = {}  # a cache without a lock
        # Columns beyond the last one become 0.
        self._column_tables = _AlignedRows(np.pad(tables, ((0, 0), (0, -self.dim % LANES))))

    def __reduce__(self) -> tuple[Any, ...]:
        return self._rebuild, ()  # addresses and compiled code belong to one process

    def __call__(self, records: Block) -> Quantised:
        """Quantise records of any number type, (n, dim), at the default resolution."""
        if self.definition.largest > RECORD_MAX:
            raise resolution_error()
        n = len(records)
        integers = _buffer(n, self.dim, np.int16)
        if self.definition.is_ball:
            for rows, wholes in self._cached_blocks(n):
                self._quantise(records[rows], integers[rows], wholes)
                self._cut(integers[rows], wholes)
        else:
            self._quantise(records, integers, None)
        return integers

    def whole_numbers(self, records: Block) -> WholeFloats:
        """Return the integers as float64, at any resolution and for any number of records."""
        return self._whole_numbers(records, _buffer(len(records), self.dim, np.float64))

    def blocks_of_whole_numbers(self, records: Block) -> Iterator[WholeFloats]:
        """Yield the integers as float64 in blocks that stay in the cache.

        Each block overwrites the one before it.
        """
        for rows, wholes in self._cached_blocks(len(records)):
            yield self._whole_numbers(records[rows], wholes)

    def _cached_blocks(self, n: int) -> Iterator[tuple[slice, WholeFloats]]:
        """Yield ranges of n rows with memory for their numbers, always the same memory."""
        step = max(1, _CACHED_FLOATS // self.dim)
        buffer = _buffer(min(n, step), self.dim, np.float64)
        for first in range(0, n, step):
            rows = slice(first, min(first + step, n))
            yield rows, buffer[: rows.stop - first]

    def _whole_numbers(self, records: Block, wholes: WholeFloats) -> WholeFloats:
        self._quantise(records, None, wholes)
        if self.definition.is_ball:
            self._cut(None, wholes)
        return wholes

    def _quantise(
        self, records: Block, integers: Quantised | None, wholes: WholeFloats | None
    ) -> None:
        """Write to one of the outputs or to both; records outside of a ball stay outside."""
        if records.shape[1:] != (self.dim,):
            raise RecordError(f"blocks: expected tables of {self.dim} columns")
        if records.dtype == np.bool_:
            records = records.view(np.uint8)
        layout = _layout(records)
        if layout is not None:
            self._run(None, layout, records, integers, wholes)
            return
        native = records.dtype.newbyteorder("=")
        dtype = native if native.str[1:] in INPUTS else np.dtype(np.float64)
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
        wholes: WholeFloats | None,
    ) -> None:
        if code is None:
            output: Output = "integers" if wholes is None else "both"
            key = records.dtype.str[1:], layout, "wholes" if integers is None else output
            code = self._codes.get(key)
            if code is None:
                code = self._codes[key] = compile_quantiser(*key)
        function = code.function
        (n, dim), size, missing = records.shape, records.itemsize, ctypes.c_int8()
        width = dim if integers is None else integers.shape[1]
        source, first, second = (machine.address(array) for array in (records, integers, wholes))
        flag = ctypes.addressof(missing)
        if layout == "columns":
            stride, tables = records.strides[1] // size, self._column_tables.addresses
            function(n, dim, stride, width, source, first, second, *tables, flag)
        else:
            stride = dim if n == 1 else records.strides[0] // size
            n_rows = self._rows_of_line if stride == dim == width else 1
            n_lines, n_left = divmod(n, n_rows)
            tables = self._line_tables.addresses
            if n_lines:
                line = n_rows * dim, n_rows * stride, n_rows * width
                function(n_lines, *line, source, first, second, *tables, flag)
            if n_left:  # a shorter line without gaps
                offset = (n - n_left) * dim
                addresses = (
                    None if address is None else address + offset * itemsize
                    for address, itemsize in ((source, size), (first, 2), (second, 8))
                )
                function(1, n_left * dim, 0, 0, *addresses, *tables, flag)
        if missing.value and not self.definition.missing_to_center:
            raise missing_value_error(records)

    def _cut(
        self, integers: Quantised | None, wholes: WholeFloats, code: machine.Code | None = None
    ) -> None:
        """Move rows outside of the ball to its edge."""
        code = code or compile_cut(integers is not None)
        sizes = len(wholes), self.dim, wholes.shape[1]
        code.function(
            *sizes, self.definition.largest, machine.address(integers), wholes.ctypes.data
        )


class _AlignedRows:
    """Aligned copies of rows of numbers, and their addresses."""

    def __init__(self, rows: Floats) -> None:
        self.rows = [machine.aligned(row) for row in rows]
        self.addresses = [row.ctypes.data for row in self.rows]


def _buffer(n: int, width: int, dtype: type[Any]) -> npt.NDArray[Any]:
    """Return an array of rows, with memory after the last one that vectors may overwrite."""
    return np.empty(n * width + LANES, dtype=dtype)[: n * width].reshape(n, width)


def _layout(records: Block) -> Layout | None:
    """Return how a block can be read from memory as it is; None if it must be copied."""
    (n, dim), (down, across), size = records.shape, records.strides, records.itemsize
    readable = records.dtype.isnative and records.dtype.str[1:] in INPUTS and records.flags.aligned
    if not readable or down % size or across % size:
        return None
    if (dim == 1 or across == size) and (n == 1 or down == dim * size or dim >= MIN_LINE):
        return "rows"
    return "columns" if down == size and n >= LANES else None


# --- compiled code -------------------------------------------------------------------------------


@cached_once
def compile_quantiser(number: str, layout: Layout, output: Output) -> machine.Code:
    """Compile the function `quantise` for records of a number type, by NumPy's code."""
    code = machine.compile_routine(quantiser_routine(number, layout, output))
    _check(code, number, layout, output)
    return code


@cached_once
def compile_cut(with_integers: bool) -> machine.Code:
    """Compile the function `cut`, which moves records into a ball."""
    code = machine.compile_routine(cut_routine(with_integers))
    _check_cut(code, with_integers)
    return code


def _check(code: machine.Code, number: str, layout: Layout, output: Output) -> None:
    """Compare the function and its flag with the definition on public numbers.

    The numbers of columns give lines of several rows, shorter lines, lines shorter than a vector,
    and vectors that overlap.
    """
    stream = PublicStream(0, Purpose.CHECK_QUANTISER)
    for n, dim in ((67, 1), (21, 3), (13, 10), (9, 67)):
        # Units of the last box are powers of two, so that halves of them occur.
        half = 1 + 3 * stream.uniform(dim) if dim < 67 else np.full(dim, 4.0)
        domain = Box(low=0.25 - half, high=half + 0.25)
        integers: Quantised | None = None if output == "wholes" else _buffer(n, dim, np.int16)
        wholes: WholeFloats | None = None if output == "integers" else _buffer(n, dim, np.float64)

        def raises(records: Block, quantise: CompiledQuantiser) -> bool:
            block = np.asfortranarray(records) if layout == "columns" else records
            try:
                quantise._run(code, layout, block, integers, wholes)  # noqa: B023 - called at once
            except RecordError:
                return True
            return False

        filling, refusing = (CompiledQuantiser(domain, missing_to_center=m) for m in (True, False))
        records = _public_records(stream, n, dim, number)
        agrees = not raises(records, filling)
        expected = filling.definition.whole_numbers(records)
        agrees &= all(np.array_equal(expected, x) for x in (integers, wholes) if x is not None)
        records[~np.isfinite(records)] = 0
        agrees &= not raises(records, refusing)
        if number.startswith("f"):
            for index in list(np.ndindex(records.shape))[::5]:  # in every lane
                with_one_missing = records.copy()
                with_one_missing[index] = np.inf
                agrees &= raises(with_one_missing, refusing)
        machine.require_agreement("quantiser", agrees)


def _public_records(stream: PublicStream, n: int, dim: int, number: str) -> Block:
    """Draw numbers inside and outside of a box, halves of units, very large and missing ones."""
    values = stream.uniform(n * dim) * 12 - 6
    if not number.startswith("f"):
        low, high = np.iinfo(number).min, np.iinfo(number).max / 2
        values[::2] = low / 2 + stream.uniform(len(values[::2])) * (high - low / 2)
        return np.clip(values, low, high).astype(number).reshape(n, dim)
    values[::5] = (np.rint(values[::5] * 2**13) + 0.5) / 2**13
    values[3::17], values[5::19] = 0.9 * np.finfo(number).max, -0.9 * np.finfo(number).max
    values[4::13], values[7::23], values[8::29] = np.nan, np.inf, -np.inf
    return values.astype(number).reshape(n, dim)


def _check_cut(code: machine.Code, with_integers: bool) -> None:
    """Compare the function with the definition inside and outside of a ball, and at its edge."""
    stream, n = PublicStream(0, Purpose.CHECK_QUANTISER), 40
    for dim in (1, 3, 10, 67):
        quantise = CompiledQuantiser(Ball(dim=dim, radius=1.0))
        largest = quantise.definition.largest
        reach = largest * np.repeat([0.1, 1.0, 2.0, 40.0], n // 4) / math.sqrt(dim)
        wholes = np.rint((stream.uniform(n * dim).reshape(n, dim) * 4 - 2) * reach[:, np.newaxis])
        wholes[:2] = 0.0
        wholes[0, -1], wholes[1, 0] = largest, -largest - 1
        far = CLIP_HALF_WIDTHS * (largest + 1)
        wholes = np.clip(wholes, -far, far)
        expected = quantise.definition.cut_to_ball(wholes.copy())
        integers = wholes.astype(np.int16) if with_integers else None
        quantise._cut(integers, wholes, code)
        agrees = np.array_equal(wholes, expected)
        agrees &= integers is None or np.array_equal(integers, expected)
        machine.require_agreement("quantiser", agrees)


def quantiser_routine(number: str, layout: Layout, output: Output) -> Routine:
    """Write the function `quantise`.

    For "rows", it reads `count` lines of `width` numbers, `stride` numbers apart. For "columns", it
    reads `count` records, 8 at least, of `width` columns, `stride` numbers apart. It writes
    integers or whole floats, or both, in rows `out_stride` numbers apart. A bit of `missing` is set
    if a number is not finite.
    """
    routine = _QuantiserRoutine(number, output)
    routine.add_rows() if layout == "rows" else routine.add_columns()
    missing = routine.pointers["missing"]
    missing.store(missing.load() | (routine.all_finite[0].bits_as(I8) ^ -1))
    return routine.finish()


class _QuantiserRoutine(Routine):
    """The function `quantise`; `all_finite` marks lanes in which all numbers are finite."""

    def __init__(self, number: str, output: Output) -> None:
        self.kind, self.signed = INPUTS[number]
        self.output = output
        arguments: Arguments = dict.fromkeys(_LINE_NUMBERS, I64)
        arguments |= {"records": Array(self.kind), "integers": Array(I16), "wholes": Array(DOUBLE)}
        arguments |= dict.fromkeys(_TABLES, Array(DOUBLE))
        arguments["missing"] = Array(I8)
        super().__init__("quantise", arguments, vector_bits=machine.vector_bits())
        self.all_finite = [self.constant(I1.vector(LANES), 1)]

    def add_rows(self) -> None:
        """Quantise line by line, a vector at a time."""
        count, width, stride, out_stride = self.numbers.values()
        zero, is_short = width.constant(0), width < LANES
        vectors = select(is_short, zero, width + (LANES - 1)) // LANES
        with self.loop(count, self.all_finite, may_be_empty=True) as line:
            records, out = self.pointers["records"] + line * stride, line * out_stride
            with self.loop(vectors, self.all_finite, may_be_empty=True) as v:
                # The last vector ends with the line: some numbers are then computed twice.
                j = smaller(v * LANES, width - LANES)
                vector = DOUBLE.vector(LANES)
                tables = [(self.pointers[name] + j).to(vector).load() for name in _TABLES]
                self.store(self.quantised(records + j, LANES, tables), out + j)
            n_single = select(is_short, width, zero)
            with self.loop(n_single, self.all_finite, may_be_empty=True) as j:
                tables = [(self.pointers[name] + j).load() for name in _TABLES]
                self.store(self.quantised(records + j, 0, tables), out + j)

    def add_columns(self) -> None:
        """Quantise eight columns of eight records at a time.

        The last columns come first: numbers written beyond the end of a row are overwritten by the
        beginning of the next one, or lie after the last row.
        """
        count, width, stride, out_stride = self.numbers.values()
        groups = (width + (LANES - 1)) // LANES
        with self.loop(count, self.all_finite, step=LANES) as record:
            first = smaller(record, count - LANES)
            with self.loop(groups, self.all_finite) as group:
                start = (groups - 1 - group) * LANES
                tile = []
                for column in (start + k for k in range(LANES)):
                    numbers = self.pointers["records"] + smaller(column, width - 1) * stride + first
                    tables = [
                        (self.pointers[name] + column).load().splat(LANES) for name in _TABLES
                    ]
                    tile.append(self.quantised(numbers, LANES, tables))
                for k, row in enumerate(transposed(tile)):
                    self.store(row, (first + k) * out_stride + start)

    def quantised(self, source: Pointer, lanes: int, tables: list[Value]) -> Value:
        """Load numbers and return them in units, clipped to the limits."""
        center, unit, low, high = tables
        number = source.to(self.kind.vector(lanes)).load().to_double(signed=self.signed)
        units = (number - center) * unit
        if self.kind.is_float:
            finite = number - number <= 0.0  # for others the difference is NaN
            units = select(finite, units, units.constant(0.0))
            self.all_finite[0] = self.all_finite[0] & (finite if lanes else finite.splat(LANES))
        return clip(units, low, high)

    def store(self, units: Value, offset: Value) -> None:
        """Write rounded numbers to the outputs."""
        if self.output != "wholes":
            integers = rounded_integers(units)
            (self.pointers["integers"] + offset).to(integers.kind).store(integers)
        if self.output != "integers":
            (self.pointers["wholes"] + offset).to(units.kind).store(rint(units))


def rounded_integers(units: Value) -> Value:
    """Round small numbers to 16-bit integers, halves to even."""
    return (units + _ROUNDING_SHIFT).bits_as(I64.vector(units.kind.lanes)).unsigned_to(I16)


def smaller(a: Value, b: Value) -> Value:
    """Return the smaller of two numbers."""
    return select(a < b, a, b)


def transposed(tile: list[Value]) -> list[Value]:
    """Return the rows of a square of numbers from its columns."""
    lanes, size = len(tile), 1
    while size < lanes:  # exchange blocks of this size within those of twice the size
        low = [k + (lanes - size if k & size else 0) for k in range(lanes)]
        high = [lane + size for lane in low]
        rows = list(tile)
        for k in range(lanes):
            if not k & size:
                a, b = tile[k], tile[k | size]
                rows[k], rows[k | size] = a.shuffled(low, b), a.shuffled(high, b)
        tile, size = rows, 2 * size
    return tile


def cut_routine(with_integers: bool) -> Routine:
    """Write the function `cut`, which moves records outside of a ball to its edge.

    It changes whole floats in place, and with `with_integers` the integers too. Sums of squares are
    exact in any order.
    """
    arguments: Arguments = {"count": I64, "dim": I64, "stride": I64}
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
        total = [lane_sum(squares[0])]
        with routine.loop(dim, total, start=filled, may_be_empty=True) as j:
            part = (wholes + j).load()
            total[0] += part * part
        zero, once = count.constant(0), count.constant(1)
        is_outside = largest * largest < total[0]
        with routine.loop(select(is_outside, once, zero), may_be_empty=True):
            least = total[0].constant(1.0)
            shrink = largest / sqrt(select(total[0] < least, least, total[0]))
            for lanes, start, stop in ((LANES, zero, filled), (0, filled, dim)):
                with routine.loop(stop, start=start, step=lanes or 1, may_be_empty=True) as j:
                    target = (wholes + j).to(DOUBLE.vector(lanes))
                    part = trunc(target.load() * (shrink.splat(lanes) if lanes else shrink))
                    target.store(part)
                    if with_integers:
                        rounded = rounded_integers(part)
                        (integers + j).to(rounded.kind).store(rounded)
    return routine.finish()
