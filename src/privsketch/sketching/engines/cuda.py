"""One of NVIDIA's graphics processors: records are copied there, quantised and summed.

The sums are those of the other engines, bit for bit. Copying decides how fast it goes: several
threads bring records into pinned memory, from where the device copies them, while it computes on
those before; arrays that are pinned already, or on the device, are used where they are. Secret
masks are drawn on the host, as everywhere, and come to the device as lists of records.

What the device has no kernel for (second moments, structured frequencies, masks of single
features, very many columns) is summed on the host.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import RecordError
from privsketch._base.threads import checked_threads, chunks, in_threads
from privsketch._base.types import Block, Integers
from privsketch.design.recipe import Design
from privsketch.features.masks import Masks
from privsketch.kernels.cuda.driver import Memory, Stream, device, is_on_first, is_pinned, to_device
from privsketch.kernels.cuda.records import ColumnSums, DeviceQuantiser, Source, code_of
from privsketch.kernels.cuda.sums import MAX_DEVICE_DIM, MAX_FEATURE_BLOCKS, SUM_UNITS, DeviceKernel
from privsketch.kernels.dense import ReferenceKernel
from privsketch.noise.sums import MAX_RECORDS
from privsketch.sketching.engines.threads import Threads
from privsketch.sketching.engines.work import Progress, Work
from privsketch.sketching.sums import (
    MASK_BYTES,
    ExactSums,
    RecordSums,
    add_exact,
    bernoulli,
    subsets,
    sum_quantised,
)
from privsketch.tables.device import DeviceTable, device_table
from privsketch.tables.memory import Selection, array_columns
from privsketch.tables.reading import read_blocks
from privsketch.tables.table import Table

_COPY_BYTES = 2**24  # of one copy to the device: long enough to be fast, short enough to overlap
_DEVICE_VALUES = 2**27  # 16-bit numbers at a time, of records that are on the device already
_MAX_LANES = 4  # threads that copy: more of them wait for each other


@dataclass(frozen=True)
class Cuda:
    """The first of NVIDIA's graphics processors, from the generation of the A100 on.

    Parameters
    ----------
    n_threads : int, optional
        Number of threads that copy records to the device; one per core by default.
    """

    n_threads: int | None = None

    def sums(self, table: Table, work: Work, progress: Progress | None = None) -> ExactSums:
        """Return the exact sums of a table on the host or on the device."""
        device().use()
        selection = work.selection
        if table.is_on_device:
            if selection.schema is not None:
                raise RecordError(
                    "an array on a device with a schema: tables are encoded on the host; copy it "
                    "there"
                )
            return _from_device(device_table(table.data, selection), work, self.n_threads, progress)
        if not has_kernel(work.design):
            return Threads(self.n_threads).sums(table, work, progress)
        return _from_host(_host_blocks(table, selection), work, self.n_threads, progress)


def has_kernel(design: Design) -> bool:
    """Return whether the device computes the features of a design."""
    masks = design.masks or Masks()
    blocks = 1
    if masks.features == "block":
        blocks = design.n_features // design.frequencies.block_size(design.dim)
    return (
        design.feature_map in SUM_UNITS
        and design.frequencies.law != "structured"
        and masks.features in ("all", "block")
        and design.dim <= MAX_DEVICE_DIM
        and blocks <= MAX_FEATURE_BLOCKS
    )


class _Lane:
    """A stream with memory of its own, used by one thread at a time."""

    def __init__(self) -> None:
        self.stream = Stream()
        self._memory: dict[str, Memory] = {}
        self._held: list[Any] = []

    def memory(self, name: str, n_bytes: int) -> Memory:
        """Return memory for one purpose, at least so much."""
        memory = self._memory.get(name)
        if memory is None or memory.n_bytes < n_bytes:
            self._memory.pop(name, None)
            memory = self._memory[name] = Memory(n_bytes, pinned=name == "pinned")
        return memory

    def put(self, array: npt.NDArray[Any]) -> int:
        """Start to copy an array; return its address on the device, valid until `finish`."""
        memory = Memory(array.nbytes)
        self._held += [memory, array]
        self.stream.to_device(memory.address, array)
        return memory.address

    def finish(self) -> None:
        """Wait for everything that was started; only then may others use its memory."""
        self.stream.wait()
        self._held.clear()


class _DeviceSums:
    """Quantised records on the device to what they add to the sums of a design."""

    def __init__(self, design: Design) -> None:
        frequencies, domain = design.frequencies, design.domain
        self._masks = design.masks or Masks()
        self._dim, self._m = design.dim, design.n_features
        self._block = frequencies.block_size(design.dim)
        self._by_block = self._masks.features == "block"
        matrix, offsets = frequencies.matrix(domain), frequencies.offsets(domain)
        self._kernel = DeviceKernel(
            ReferenceKernel(design.mapping, matrix, offsets, frequencies.turn_bits),
            block=self._block if self._by_block else None,
            has_lists=self._by_block or self._masks.records < 1,
        )
        self._columns = ColumnSums.of(design.dim) if design.mean == "released" else None

    def add(self, lane: _Lane, records: int, n: int) -> int:
        """Start to add n records; return how many of them are kept."""
        step = max(16, MASK_BYTES * self._block // self._m) if self._by_block else n
        kept = 0
        for first in range(0, n, max(1, step)):
            address = records + first * self._dim * 2
            kept += self._add(lane, address, min(step, n - first))
        return kept

    def _add(self, lane: _Lane, records: int, n: int) -> int:
        rows: npt.NDArray[np.int32] | None = None
        if self._masks.records < 1:
            rows = np.flatnonzero(bernoulli(n, self._masks.records)).astype(np.int32)
        kept = n if rows is None else len(rows)
        if self._columns is not None:
            # A list has one entry at least: there is memory to point to.
            address = 0 if rows is None else lane.put(np.append(rows, np.int32(0)))
            self._columns.add(lane.stream, records, kept, address)
        if self._by_block and self._masks.kept is not None:
            blocks = subsets(kept, self._m // self._block, self._masks.kept // self._block)
            lists = np.ascontiguousarray(blocks.T)
            counts = lists.sum(axis=1)
            numbers = np.flatnonzero(lists) - np.repeat(np.arange(len(lists)) * kept, counts)
            rows = (numbers if rows is None else rows[numbers]).astype(np.int32)
        elif rows is not None:
            counts = np.array([kept])
        if rows is None:
            self._kernel.add(lane.stream, records, n)
        elif len(rows):
            places = lane.put(np.append(rows, np.int32(0))), lane.put(self._kernel.ranges(counts))
            self._kernel.add(lane.stream, records, n, (*places, counts))
        return kept

    def sums(self) -> Integers:
        """Return the sums of everything that was added."""
        parts = [self._kernel.sums()]
        if self._columns is not None:
            parts.append(self._columns.sums())
        return np.concatenate(parts)


# -------------------------------------------------------------------- records of the host


def _host_blocks(table: Table, selection: Selection) -> Iterator[Block]:
    """Yield blocks as readers give them; those of plain arrays are larger."""
    data = table.data
    is_plain = type(data) is np.ndarray and data.ndim == 2 and code_of(data.dtype) is not None
    is_plain = is_plain and selection.schema is None
    if not is_plain or array_columns(data.shape[1], selection) is not None:
        yield from read_blocks(table, selection)
        return
    yield from chunks([data], max(1, _COPY_BYTES // max(1, data[:1].nbytes)))


def _from_host(
    blocks: Iterable[Block], work: Work, n_threads: int | None, progress: Progress | None
) -> ExactSums:
    """Sum as many records as sums on the device can hold, and then the next ones."""
    blocks, parts, n_read = iter(blocks), [], MAX_RECORDS

    def some() -> Iterator[Block]:
        nonlocal n_read
        n_read = 0
        for block in blocks:
            n_read += len(block)
            yield block
            if n_read >= MAX_RECORDS:
                return

    while n_read >= MAX_RECORDS:
        parts.append(_part_from_host(some(), work, n_threads, progress))
    return add_exact(parts)


def _part_from_host(
    blocks: Iterable[Block], work: Work, n_threads: int | None, progress: Progress | None
) -> ExactSums:
    design, n_lanes = work.design, min(_MAX_LANES, checked_threads(n_threads))
    dim = design.dim
    sums, quantise = _DeviceSums(design), _Quantisers(work)
    places = to_device(np.arange(design.dim))
    lanes: SimpleQueue[_Lane] = SimpleQueue()
    for _ in range(n_lanes):
        lanes.put(_Lane())

    def add(block: Block) -> tuple[int, int]:
        device().use()
        lane = lanes.get()
        try:
            code = code_of(block.dtype) or "f8"
            n, dtype = len(block), np.dtype(code)
            n_bytes = n * dim * dtype.itemsize
            plain = block.dtype == dtype and block.flags.c_contiguous
            if not (plain and is_pinned(block)):
                pinned = lane.memory("pinned", n_bytes).array((n, dim), dtype)
                np.copyto(pinned, block, casting="unsafe")
                block = pinned
            source = lane.memory("source", n_bytes)
            target = lane.memory("target", n * dim * 2).address
            lane.stream.to_device(source.address, block)
            quantise.of(code).add(lane.stream, Source(source, 0, n, dim, places), target)
            kept = sums.add(lane, target, n)
        finally:
            try:
                lane.finish()
            finally:
                lanes.put(lane)  # others wait for it, also after a fault of the device
        return n, kept

    n_records = n_kept = 0
    for count, kept in in_threads(add, blocks, n_lanes):
        n_records, n_kept = n_records + count, n_kept + kept
        if progress is not None:
            progress(count)
    quantise.finish()
    return ExactSums(sums.sums(), n_records, n_kept)


class _Quantisers:
    """One for each number type that a table has; most have one."""

    def __init__(self, work: Work) -> None:
        self._work, self._by_code, self._lock = work, dict[str, DeviceQuantiser](), threading.Lock()

    def of(self, code: str) -> DeviceQuantiser:
        """Return the quantiser for a type."""
        with self._lock:
            if code not in self._by_code:
                self._by_code[code] = DeviceQuantiser(
                    self._work.design.domain,
                    code,
                    missing_to_center=self._work.selection.to_center,
                )
            return self._by_code[code]

    def finish(self) -> None:
        """Refuse missing values, if there were any and the table states no rule."""
        for each in self._by_code.values():
            each.finish()


# -------------------------------------------------------------------- records of the device


def _from_device(
    table: DeviceTable, work: Work, n_threads: int | None, progress: Progress | None
) -> ExactSums:
    if not is_on_first(table.address):
        raise RecordError(
            "the array is on another device than the first: copy it there, or let "
            "CUDA_VISIBLE_DEVICES begin with its device"
        )
    device().wait()  # for whoever still writes to it
    if has_kernel(work.design):
        return _sums_there(table, work, progress)
    summer, blocks = RecordSums(work.design), _quantised(table, work)
    return sum_quantised(blocks, work.design.dim, summer, lambda q: q, n_threads, progress)


def _sums_there(table: DeviceTable, work: Work, progress: Progress | None) -> ExactSums:
    sums, lane, n_kept = _DeviceSums(work.design), _Lane(), 0
    try:
        for target, count in _device_blocks(table, work, lane):
            n_kept += sums.add(lane, target, count)
            lane.finish()
            if progress is not None:
                progress(count)
    finally:
        lane.finish()
    return ExactSums(sums.sums(), table.n, n_kept)


def _quantised(table: DeviceTable, work: Work) -> Iterator[npt.NDArray[np.int16]]:
    """Yield blocks of integers, brought to the host."""
    lane = _Lane()
    try:
        for target, count in _device_blocks(table, work, lane):
            block = np.empty((count, work.design.dim), np.int16)
            lane.stream.to_host(block, target)
            lane.finish()
            yield block
    finally:
        lane.finish()


def _device_blocks(table: DeviceTable, work: Work, lane: _Lane) -> Iterator[tuple[int, int]]:
    """Yield the address of the integers of some records, and how many they are."""
    code = code_of(table.dtype)
    if code is None:
        raise RecordError(f"the device reads no numbers of type {table.dtype}; convert the array")
    dim = work.design.dim
    to_center = work.selection.to_center
    quantise = DeviceQuantiser(work.design.domain, code, missing_to_center=to_center)
    places, rows = to_device(np.array(table.places)), max(1, _DEVICE_VALUES // dim)
    for first in range(0, table.n, rows):
        count = min(rows, table.n - first)
        target = lane.memory("target", count * dim * 2).address
        source = Source(table.address, first, count, table.row, places)
        quantise.add(lane.stream, source, target)
        yield target, count
    quantise.finish()
