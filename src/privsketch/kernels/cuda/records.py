"""Quantise records in a device's memory, and add up their columns.

features/fixedpoint.Quantiser is the definition. It consists of operations that IEEE 754 rounds in
one way only (difference, product, nearest integer, quotient, square root), and of sums of whole
numbers that are exact in any order. Therefore a device gives the same integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.facts.domain import Ball, Box, Domain
from privsketch.features.fixedpoint import (
    CLIP_HALF_WIDTHS,
    RECORD_BITS,
    RECORD_MAX,
    Quantiser,
    missing_value_error,
)
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import Value, llvm_type, select
from privsketch.kernels.cuda.code import DeviceRoutine, ptx_of
from privsketch.kernels.cuda.driver import Function, Memory, Stream, device, to_device, to_host
from privsketch.kernels.dense import public_integers
from privsketch.kernels.kinds import DOUBLE, FLOAT, I8, I16, I32, I64, Arguments, Array, Kind
from privsketch.kernels.operations import clip, maximum, rint, sqrt, trunc

THREADS = 256  # threads of a block
_BLOCKS_PER_MULTIPROCESSOR = 8
# Number types that a device reads, by NumPy's codes; integers with and without a sign.
NUMBER_KINDS: dict[str, Kind] = {"f2": I16, "f4": FLOAT, "f8": DOUBLE, "b1": I8}
NUMBER_KINDS |= {f"{sign}{size}": Kind(f"i{8 * size}") for sign in "iu" for size in (1, 2, 4, 8)}
_EXPONENT = 0x7FF0000000000000  # all bits are set in infinity and NaN
ARGUMENTS: Arguments = {  # after the records
    "n": I64,
    "dim": I64,
    "row": I64,  # distance of records, in numbers
    "offsets": Array(I64),  # of the columns of a record, in numbers
    "center": Array(DOUBLE),
    "unit": Array(DOUBLE),
    "limit": Array(DOUBLE),
    "out": Array(I16),
    "missing": Array(I32),  # set if a value is not finite
}


def code_of(dtype: np.dtype[np.generic]) -> str | None:
    """Return NumPy's code of a number type that devices read, or None."""
    code = f"{dtype.kind}{dtype.itemsize}"
    return code if dtype.isnative and code in NUMBER_KINDS else None


class DeviceQuantiser:
    """Map from records of one number type, in their own units, to integers, all on the device."""

    def __init__(
        self,
        domain: Domain,
        code: str,
        *,
        missing_to_center: bool = False,
        function: Function | None = None,
    ) -> None:
        self._missing_to_center = missing_to_center
        definition = Quantiser(domain)
        self._dim, self._itemsize = definition.dim, int(code[1:])
        self._function = function or _checked(code, definition.is_ball)
        limits = definition.limits.astype(np.float64)
        self._tables = [to_device(table) for table in (definition.center, definition.unit, limits)]
        self._missing = to_device(np.zeros(1, np.int32))
        self._per_thread = definition.dim if definition.is_ball else 1

    def add(self, stream: Stream, source: Source, target: int) -> None:
        """Start to write the integers of all records to `target`, row by row."""
        arguments = [
            *(source.address(self._itemsize), source.n, self._dim),
            *(source.row, source.offsets.address),
            *(table.address for table in self._tables),
            *(target, self._missing.address),
        ]
        work = -(-source.n * self._dim // (self._per_thread * THREADS))
        grid = max(1, min(work, _BLOCKS_PER_MULTIPROCESSOR * device().multiprocessors))
        self._function.launch((grid, 1), THREADS, stream, arguments)

    def finish(self) -> None:
        """Wait, and refuse missing values unless they become the center."""
        if self.has_missing() and not self._missing_to_center:
            raise missing_value_error()

    def has_missing(self) -> bool:
        """Wait for all values, and return whether one of them was not finite."""
        return bool(to_host(self._missing, (1,), np.int32)[0])


@dataclass(frozen=True)
class Source:
    """Records in device memory: n of them from `first` on, `row` numbers apart.

    `offsets`, on the device, are the distances from the first number of a record to its columns.
    """

    memory: Memory | int
    first: int
    n: int
    row: int
    offsets: Memory

    def address(self, itemsize: int) -> int:
        """Return the address of the first record."""
        start = self.memory if isinstance(self.memory, int) else self.memory.address
        return start + self.first * self.row * itemsize


@dataclass(frozen=True)
class ColumnSums:
    """Sums of 16-bit columns, of all records or of those in a list."""

    dim: int
    out: Memory

    @classmethod
    def of(cls, dim: int) -> ColumnSums:
        """Return sums that are zero."""
        return cls(dim, to_device(np.zeros(dim, np.int64)))

    def add(
        self,
        stream: Stream,
        records: int,
        n: int,
        rows: int = 0,
        *,
        function: Function | None = None,
    ) -> None:
        """Start to add n records; `rows` is the address of their indices, or 0 for all records."""
        if n == 0:
            return
        # A thread stays in its column, so the grid steps by whole records.
        n_records = max(1, min(2 * device().multiprocessors * THREADS // self.dim, n))
        grid = -(-n_records * self.dim // THREADS)
        function = function or _columns(rows != 0)
        arguments = [records, n * self.dim, self.dim, n_records * self.dim, self.out.address, rows]
        function.launch((grid, 1), THREADS, stream, arguments)

    def sums(self) -> npt.NDArray[np.int64]:
        """Wait, and return the sums of all records added, (dim,)."""
        return to_host(self.out, (self.dim,), np.int64)


# -------------------------------------------------------------------- code


def quantiser_routine(code: str, is_ball: bool) -> DeviceRoutine:
    """Write the function `quantise`, whose arguments are records and those above."""
    records = {"records": Array(NUMBER_KINDS[code])}
    routine = DeviceRoutine("quantise", {**records, **ARGUMENTS}, threads=THREADS)
    n, dim = routine.numbers["n"], routine.numbers["dim"]
    first = routine.block().unsigned_to(I64) * THREADS + routine.thread.unsigned_to(I64)
    n_threads = routine.n_blocks.unsigned_to(I64) * THREADS

    def units(record: Value, column: Value) -> tuple[Value, Value]:
        """Return the nearest integer as a float, 0 if missing, and whether it is finite."""
        index = record * routine.numbers["row"] + (routine.pointers["offsets"] + column).load()
        number = _as_double((routine.pointers["records"] + index).load(), code)
        center, unit = ((routine.pointers[name] + column).load() for name in ("center", "unit"))
        is_finite = (number.bits_as(I64) & _EXPONENT) < _EXPONENT
        rounded = rint((number - center) * unit)
        return select(is_finite, rounded, rounded.constant(0)), is_finite

    def missing_count(is_finite: Value) -> Value:
        return select(is_finite, routine.constant(I64, 0), routine.constant(I64, 1))

    def report(n_missing: Value) -> None:
        with routine.loop(n_missing, may_be_empty=True):
            routine.pointers["missing"].store(routine.constant(I32, 1))

    def store(record: Value, column: Value, value: Value) -> None:
        integer = value.signed_to(I32).unsigned_to(I16)
        (routine.pointers["out"] + (record * dim + column)).store(integer)

    if not is_ball:
        with routine.loop(
            n * dim, start=first, step=lambda _: n_threads, may_be_empty=True
        ) as index:
            record = index // dim
            column = index - record * dim
            value, is_finite = units(record, column)
            report(missing_count(is_finite))
            limit = (routine.pointers["limit"] + column).load()
            store(record, column, clip(value, -limit, limit))
        return routine
    far, largest = CLIP_HALF_WIDTHS * 2.0**RECORD_BITS, float(RECORD_MAX)
    with routine.loop(n, start=first, step=lambda _: n_threads, may_be_empty=True) as record:
        carried = [routine.constant(DOUBLE, 0), routine.constant(I64, 0)]
        with routine.loop(dim, carried) as column:
            value, is_finite = units(record, column)
            value = clip(value, value.constant(-far), value.constant(far))
            carried[0] += value * value
            carried[1] |= missing_count(is_finite)
        squared, any_missing = carried
        report(any_missing)
        shrink = squared.constant(largest) / sqrt(maximum(squared, 1.0))
        inside = squared <= largest * largest
        # The array may change between the two readings, so the norm of what is written decides.
        written = [routine.constant(DOUBLE, 0)]
        with routine.loop(dim, written) as column:
            value = clip(units(record, column)[0], squared.constant(-far), squared.constant(far))
            value = select(inside, value, trunc(value * shrink))
            value = clip(value, value.constant(-largest), value.constant(largest))
            written[0] += value * value
            store(record, column, value)
        n_reset = select(written[0] <= largest * largest, dim.constant(0), dim)
        with routine.loop(n_reset, may_be_empty=True) as column:
            store(record, column, squared.constant(0))
    return routine


def columns_routine(has_lists: bool) -> DeviceRoutine:
    """Write the function `columns`: sums of columns, of all records or of those in a list."""
    arguments: Arguments = {
        "records": Array(I16),
        "count": I64,  # of numbers
        "dim": I64,
        "step": I64,
        "out": Array(I64),
        "rows": Array(I32),
    }
    routine = DeviceRoutine("columns", arguments, threads=THREADS)
    count, dim, step = (routine.numbers[name] for name in ("count", "dim", "step"))
    first = routine.block().unsigned_to(I64) * THREADS + routine.thread.unsigned_to(I64)
    # Threads beyond a whole number of records are idle.
    count = select(first < step, count, count.constant(0))
    total = [routine.constant(I64, 0)]
    column = first - first // dim * dim
    with routine.loop(count, total, start=first, step=lambda _: step, may_be_empty=True) as index:
        if has_lists:
            row = (routine.pointers["rows"] + index // dim).load().unsigned_to(I64)
            index = row * dim + column
        total[0] += (routine.pointers["records"] + index).load().signed_to(I64)
    routine.add_to(routine.pointers["out"] + column, total[0])
    return routine


def _as_double(number: Value, code: str) -> Value:
    """Convert to double precision, rounded to the nearest, as NumPy does."""
    if code == "f2":  # read as 16 bits
        routine, name = number.routine, "llvm.convert.from.fp16.f64"
        return Value(routine, DOUBLE, routine.call(name, llvm_type(DOUBLE), [number]))
    return number.to_double(signed=code[0] == "i")


# -------------------------------------------------------------------- compilation and self-checks


@cache
def _columns(has_lists: bool) -> Function:
    function = device().load(ptx_of(columns_routine(has_lists), device().capability), "columns")
    machine.require_agreement("device's columns", _columns_agree(has_lists, function))
    return function


def _columns_agree(has_lists: bool, function: Function) -> bool:
    """Compare sums of columns with NumPy's, for more records than the threads read at a time."""
    stream, dim = PublicStream(0, Purpose.CHECK_CUDA_RECORDS), 7
    n = 3 * device().multiprocessors * THREADS // dim + 5
    x = public_integers(stream, n, dim)
    rows = np.arange(0, n, 2 if has_lists else 1, dtype=np.int32)
    sums, records, indices = ColumnSums.of(dim), to_device(x), to_device(rows)
    address = indices.address if has_lists else 0
    sums.add(Stream(), records.address, len(rows), address, function=function)
    return np.array_equal(sums.sums(), x[rows].sum(axis=0, dtype=np.int64))


@cache
def _loaded(code: str, is_ball: bool) -> Function:
    return device().load(ptx_of(quantiser_routine(code, is_ball), device().capability), "quantise")


@cache
def _checked(code: str, is_ball: bool) -> Function:
    function = _loaded(code, is_ball)
    machine.require_agreement("device's quantiser", _agrees(code, is_ball))
    return function


def _agrees(code: str, is_ball: bool) -> bool:
    """Compare integers and flag with the definition, with missing values and without."""
    records = check_records(code)
    dim, function = records.shape[1], _loaded(code, is_ball)
    half = 1.0 if code[0] == "f" else max(1.0, float(records.astype(np.float64).max()) / 3)
    low = [-half] * (dim - 1) + [half / 2]
    domain: Domain = Ball(dim, half, half / 8) if is_ball else Box(low, half)
    complete = np.where(np.isfinite(records), records, 0).astype(records.dtype)
    agrees = True
    for table in (records, complete):
        quantise = DeviceQuantiser(domain, code, missing_to_center=True, function=function)
        integers, target, stream = np.zeros(table.shape, np.int16), Memory(2 * table.size), Stream()
        source = Source(to_device(table), 0, len(table), dim, to_device(np.arange(dim)))
        quantise.add(stream, source, target.address)
        stream.to_host(integers, target.address)
        stream.wait()
        agrees &= np.array_equal(integers, Quantiser(domain, missing_to_center=True)(table))
        agrees &= quantise.has_missing() != bool(np.isfinite(table).all())
    return agrees


def check_records(code: str) -> npt.NDArray[Any]:
    """Return public records (n, 5) inside, at the edge of and outside [-1, 1]^5; or integers."""
    n, dim = 600, 5
    uniform = (PublicStream(0, Purpose.CHECK_CUDA_RECORDS).uniform(n * dim) * 2 - 1).reshape(n, dim)
    sizes = np.repeat([0.1, 0.6, 1.0, 3.0, 100.0, 1e4], n // 6)[:, np.newaxis]
    if code[0] != "f":
        bits = 1 if code == "b1" else 8 * int(code[1]) - (code[0] == "i")
        integers = np.floor(np.abs(uniform) * 2.0**bits * np.minimum(sizes, 1) * (1 - 2.0**-52))
        integers *= np.where(uniform < 0, -1, 1) if code[0] == "i" else 1
        return np.asarray(integers.astype(code))
    numbers = uniform * sizes
    numbers[::7] = (np.floor(numbers[::7] * 2**15) + 0.5) / 2**15  # halves of a unit
    with np.errstate(over="ignore"):
        records: npt.NDArray[Any] = numbers.astype(code)
        records[5::11, 0] = np.finfo(code).max  # finite, but its square is not
    records[3::17, 1], records[4::17, 2], records[6::17, 3] = np.nan, np.inf, -np.inf
    return records
