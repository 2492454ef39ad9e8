"""Records on a device to 16-bit integers there, and sums of their columns.

features/fixedpoint.Quantiser is the definition. It consists of operations that IEEE 754 rounds in
one way only (difference, product, nearest integer, quotient, square root), and of sums of whole
numbers that are exact in any order, so a device gives the same integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from privsketch.facts.domain import Ball, Box, Domain
from privsketch.features.fixedpoint import FAR, RECORD_BITS, RECORD_MAX, Quantiser, missing_value
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels import machine
from privsketch.kernels.builder import Value, select
from privsketch.kernels.cuda.code import DeviceRoutine, ptx_of
from privsketch.kernels.cuda.driver import Function, Memory, Stream, device, to_device, to_host
from privsketch.kernels.dense import public_integers
from privsketch.kernels.kinds import DOUBLE, FLOAT, I8, I16, I32, I64, Arguments, Array, Kind
from privsketch.kernels.operations import clip, maximum, rint, sqrt, trunc

THREADS, BLOCKS_EACH = 256, 8  # of a block; blocks for each multiprocessor
# Number types that a device reads, by NumPy's codes; integers with and without a sign.
KINDS: dict[str, Kind] = {"f2": I16, "f4": FLOAT, "f8": DOUBLE, "b1": I8}
KINDS |= {f"{sign}{size}": Kind(f"i{8 * size}") for sign in "iu" for size in (1, 2, 4, 8)}
_EXPONENT = 0x7FF0000000000000  # all ones: what is not finite
ARGUMENTS: Arguments = {  # after the records
    "n": I64,
    "dim": I64,
    "row": I64,  # distance of records, in numbers
    "places": Array(I64),  # of the columns of a record, in numbers
    "center": Array(DOUBLE),
    "unit": Array(DOUBLE),
    "limit": Array(DOUBLE),
    "out": Array(I16),
    "missing": Array(I32),  # counts values that are not finite
}


def code_of(dtype: np.dtype[np.generic]) -> str | None:
    """NumPy's code of a number type that devices read, or None."""
    code = f"{dtype.kind}{dtype.itemsize}"
    return code if dtype.isnative and code in KINDS else None


class DeviceQuantiser:
    """Records of one number type on the device, in their own units, to integers there."""

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
        self._numbers = [to_device(each) for each in (definition.center, definition.unit, limits)]
        self._numbers.append(to_device(np.zeros(1, np.int32)))
        self._per_thread = definition.dim if definition.is_ball else 1

    def add(self, stream: Stream, source: Source, target: int) -> None:
        """Start to write the integers of all records to `target`, row by row."""
        arguments = [
            *(source.address(self._itemsize), source.n, self._dim),
            *(source.row, source.places.address),
            *(each.address for each in self._numbers[:3]),
            *(target, self._numbers[3].address),
        ]
        work = -(-source.n * self._dim // (self._per_thread * THREADS))
        grid = max(1, min(work, BLOCKS_EACH * device().multiprocessors))
        self._function.launch((grid, 1), THREADS, stream, arguments)

    def finish(self) -> None:
        """Wait, and refuse missing values unless they go to the center."""
        if self.found_missing() and not self._missing_to_center:
            raise missing_value()

    def found_missing(self) -> bool:
        """Wait for all values, and return whether one was not finite."""
        return bool(to_host(self._numbers[3], (1,), np.int32)[0])


@dataclass(frozen=True)
class Source:
    """Records in device memory: n of them from `first` on, `row` numbers apart.

    `places` on the device are numbers from the begin of a record to each of its columns.
    """

    memory: Memory | int
    first: int
    n: int
    row: int
    places: Memory

    def address(self, itemsize: int) -> int:
        """Return the address of the first record."""
        begin = self.memory if isinstance(self.memory, int) else self.memory.address
        return begin + self.first * self.row * itemsize


@dataclass(frozen=True)
class ColumnSums:
    """Adds 16-bit columns up, of all records or of those in a list."""

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
        # A thread stays in its column, hence whole records at a time.
        together = max(1, min(2 * device().multiprocessors * THREADS // self.dim, n))
        grid = -(-together * self.dim // THREADS)
        function = function or _columns(rows != 0)
        arguments = [records, n * self.dim, self.dim, together * self.dim, self.out.address, rows]
        function.launch((grid, 1), THREADS, stream, arguments)

    def sums(self) -> npt.NDArray[np.int64]:
        """(dim,) sums of everything that was added; waits for it."""
        return to_host(self.out, (self.dim,), np.int64)


# -------------------------------------------------------------------- code


def quantiser_routine(code: str, is_ball: bool) -> DeviceRoutine:
    """Write the function `quantise`, whose arguments are records and those above."""
    records = {"records": Array(KINDS[code])}
    routine = DeviceRoutine("quantise", {**records, **ARGUMENTS}, threads=THREADS)
    n, dim = routine.numbers["n"], routine.numbers["dim"]
    index = routine.block().unsigned_to(I64) * THREADS + routine.thread.unsigned_to(I64)
    every = routine.blocks.unsigned_to(I64) * THREADS

    def units(record: Value, column: Value) -> tuple[Value, Value]:
        """Return the nearest integer as a float, 0 if missing, and whether it is there."""
        place = record * routine.numbers["row"] + (routine.pointers["places"] + column).load()
        number = _as_double((routine.pointers["records"] + place).load(), code)
        center, unit = ((routine.pointers[name] + column).load() for name in ("center", "unit"))
        there = (number.bits_as(I64) & _EXPONENT) < _EXPONENT
        whole = rint((number - center) * unit)
        return select(there, whole, whole.constant(0)), there

    def note(there: Value) -> None:
        absent = select(there, routine.constant(I64, 0), routine.constant(I64, 1))
        with routine.loop(absent, may_be_empty=True):
            routine.pointers["missing"].store(routine.constant(I32, 1))

    def put(record: Value, column: Value, value: Value) -> None:
        whole = value.signed_to(I32).unsigned_to(I16)
        (routine.pointers["out"] + (record * dim + column)).store(whole)

    if not is_ball:
        with routine.loop(n * dim, start=index, step=lambda _: every, may_be_empty=True) as place:
            record = place // dim
            column = place - record * dim
            value, there = units(record, column)
            note(there)
            limit = (routine.pointers["limit"] + column).load()
            put(record, column, clip(value, -limit, limit))
        return routine
    far, largest = FAR * 2.0**RECORD_BITS, float(RECORD_MAX)
    with routine.loop(n, start=index, step=lambda _: every, may_be_empty=True) as record:
        total, present = [routine.constant(DOUBLE, 0)], [routine.constant(I64, 0)]
        carried = total + present
        with routine.loop(dim, carried) as column:
            value, there = units(record, column)
            value = clip(value, value.constant(-far), value.constant(far))
            carried[0] += value * value
            carried[1] |= select(there, present[0].constant(0), present[0].constant(1))
        with routine.loop(carried[1], may_be_empty=True):
            routine.pointers["missing"].store(routine.constant(I32, 1))
        squared = carried[0]
        shrink = squared.constant(largest) / sqrt(maximum(squared, 1.0))
        inside = squared <= largest * largest
        # Whoever has the array may change it between the two readings: what was written decides.
        written = [routine.constant(DOUBLE, 0)]
        with routine.loop(dim, written) as column:
            value = clip(units(record, column)[0], squared.constant(-far), squared.constant(far))
            value = select(inside, value, trunc(value * shrink))
            value = clip(value, value.constant(-largest), value.constant(largest))
            written[0] += value * value
            put(record, column, value)
        is_long = select(written[0] <= largest * largest, dim.constant(0), dim)
        with routine.loop(is_long, may_be_empty=True) as column:
            put(record, column, squared.constant(0))
    return routine


def columns_routine(listed: bool) -> DeviceRoutine:
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
    # Threads beyond a whole number of records have nothing to do.
    count = select(first < step, count, count.constant(0))
    total = [routine.constant(I64, 0)]
    column = first - first // dim * dim
    with routine.loop(count, total, start=first, step=lambda _: step, may_be_empty=True) as place:
        if listed:
            row = (routine.pointers["rows"] + place // dim).load().unsigned_to(I64)
            place = row * dim + column
        total[0] += (routine.pointers["records"] + place).load().signed_to(I64)
    routine.add_to(routine.pointers["out"] + column, total[0])
    return routine


def _as_double(number: Value, code: str) -> Value:
    """Convert to double precision, rounded to the nearest, as NumPy does."""
    if code == "f2":  # read as 16 bits
        routine = cast(DeviceRoutine, number.routine)
        return routine.call("llvm.convert.from.fp16.f64", DOUBLE, number)
    return number.to_double(signed=code[0] == "i")


# -------------------------------------------------------------------- compiled, and compared


@cache
def _columns(listed: bool) -> Function:
    function = device().load(ptx_of(columns_routine(listed), device().capability), "columns")
    machine.require_agreement("device's columns", _columns_agree(listed, function))
    return function


def _columns_agree(listed: bool, function: Function) -> bool:
    """Compare sums of columns with NumPy's, of more records than threads have at a time."""
    stream, dim = PublicStream(0, Purpose.CHECK_CUDA_RECORDS), 7
    n = 3 * device().multiprocessors * THREADS // dim + 5
    x = public_integers(stream, n, dim)
    rows = np.arange(0, n, 2 if listed else 1, dtype=np.int32)
    sums, records, numbers = ColumnSums.of(dim), to_device(x), to_device(rows)
    place = numbers.address if listed else 0
    sums.add(Stream(), records.address, len(rows), place, function=function)
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
    for each in (records, complete):
        quantise = DeviceQuantiser(domain, code, missing_to_center=True, function=function)
        found, target, stream = np.zeros(each.shape, np.int16), Memory(2 * each.size), Stream()
        source = Source(to_device(each), 0, len(each), dim, to_device(np.arange(dim)))
        quantise.add(stream, source, target.address)
        stream.to_host(found, target.address)
        stream.wait()
        agrees &= np.array_equal(found, Quantiser(domain, missing_to_center=True)(each))
        agrees &= quantise.found_missing() != bool(np.isfinite(each).all())
    return agrees


def check_records(code: str) -> npt.NDArray[Any]:
    """(n, 5) public records inside, at the edge of and outside [-1, 1]^5; or whole numbers."""
    n, dim = 600, 5
    uniform = (PublicStream(0, Purpose.CHECK_CUDA_RECORDS).uniform(n * dim) * 2 - 1).reshape(n, dim)
    sizes = np.repeat([0.1, 0.6, 1.0, 3.0, 100.0, 1e4], n // 6)[:, np.newaxis]
    if code[0] != "f":
        bits = 1 if code == "b1" else 8 * int(code[1]) - (code[0] == "i")
        whole = np.floor(np.abs(uniform) * 2.0**bits * np.minimum(sizes, 1) * (1 - 2.0**-52))
        whole *= np.where(uniform < 0, -1, 1) if code[0] == "i" else 1
        return np.asarray(whole.astype(code))
    numbers = uniform * sizes
    numbers[::7] = (np.floor(numbers[::7] * 2**15) + 0.5) / 2**15  # halves of a unit
    with np.errstate(over="ignore"):
        records: npt.NDArray[Any] = numbers.astype(code)
        records[5::11, 0] = np.finfo(code).max  # finite, but its square is not
    records[3::17, 1], records[4::17, 2], records[6::17, 3] = np.nan, np.inf, -np.inf
    return records
