"""Passes over the records: each gives quantised records to a function and adds up its integers.

Records are read several times, each time in constant memory. A pass gives every record to a
function that returns integers, and adds these up exactly: what a record contributes must depend on
that record and on public numbers alone, not on its block. Records arrive quantised, as whole
numbers in float64, the same unit in all columns: products below 2^53 are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, RecordError
from privsketch._base.threads import chunks, in_threads
from privsketch._base.types import Block, Integers, WholeFloats
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.features.fixedpoint import CLIP_HALF_WIDTHS
from privsketch.kernels.quantiser import CompiledQuantiser
from privsketch.noise.mechanism import saturating_add
from privsketch.tables.memory import Selection
from privsketch.tables.reading import read_blocks
from privsketch.tables.table import OnSpark, Table

Progress = Callable[[str, int], None]
Work = Callable[[WholeFloats], tuple[Integers, ...]]
BlockWork = Callable[[Iterable[WholeFloats]], tuple[Integers, ...]]
# Bits of a coordinate: sums of 2^36 records (errors.MANY) stay below 2^54, those of residuals in
# units of 2^20 below 2^56.
_MAX_BITS = 18
_CHANGED_ROWS = 4096  # records at a time: 32 KB of float64 for each column
_CHUNK_VALUES = 2**19  # 4 MB of float64 for each thread


class Passes:
    """A table that can be read as often as needed.

    `selection` is what is read for a record, all columns by default. `progress` is called with the
    name of a pass and 0 when it begins, and then with the numbers of records that were read. It is
    for the holder only: under "add-remove" the number of records is private. `max_bits` is the
    resolution: coordinates are below 2^max_bits. `within` is a box about the center of the ball
    `domain`: records are moved into both.
    """

    def __init__(
        self,
        data: Any,
        domain: Domain,
        selection: Selection | None = None,
        *,
        n_threads: int | None = None,
        progress: Progress | None = None,
        max_bits: int | None = None,
        within: Box | None = None,
    ) -> None:
        table = Table.of(data)
        if any(isinstance(part.data, Iterator) for part in (table, *table.parts)):
            raise RecordError(
                "records are read several times, and an iterator can be read once; give an array, "
                "a table, paths, or a list of blocks"
            )
        self.dim = len(domain.half_widths)
        self.domain, self._is_on_spark = domain, table.kind == "spark"
        self._table = table
        self._selection = table.selection(self.dim) if selection is None else selection
        self._n_threads, self._progress = n_threads, progress or _no_progress
        self._n_records: int | None = None  # counted by the first pass
        # Squared norms stay exact in float64, and products of two records too.
        bits = math.floor((53 - math.log2(self.dim)) / 2 - math.log2(CLIP_HALF_WIDTHS))
        self.bits = min(_MAX_BITS if max_bits is None else max_bits, bits)
        self._quantise = CompiledQuantiser(
            domain, missing_to_center=self._selection.to_center, bits=self.bits, common_unit=True
        )
        self._box_limits: Integers | None = None
        if within is not None:
            if not np.array_equal(within.center_vector, domain.center_vector):
                raise ParameterError("within: the box and the ball need one center")
            self._box_limits = np.floor(within.half_widths / self.unit).astype(np.int64)

    def __getstate__(self) -> dict[str, Any]:
        # Work functions travel to the workers of a cluster with their passes, without records.
        unnoted = replace(self._selection, noter=None)
        return self.__dict__ | {
            "_table": None,
            "_progress": _no_progress,
            "_selection": unnoted,
        }

    @property
    def unit(self) -> float:
        """Length of one integer, in the units of the records."""
        return float(self.domain.half_widths.max() / 2.0**self.bits)

    @property
    def limits(self) -> Integers:
        """Largest magnitude of each coordinate, (dim,)."""
        return self._quantise.limits

    @property
    def l1(self) -> int:
        """Largest sum of magnitudes of a record, in whole numbers.

        |x|_1 <= sqrt(d) |x|_2 in a ball; in a box it is the sum of the limits.
        """
        bounds = [int(self.limits.sum())]
        if isinstance(self.domain, Ball):
            bounds.append(math.isqrt(self.dim * int(self.limits[0]) ** 2))
        if self._box_limits is not None:
            bounds.append(int(self._box_limits.sum()))
        return min(bounds)

    @property
    def l2_squared(self) -> int:
        """Largest squared length of a record, in whole numbers."""
        if isinstance(self.domain, Ball):
            return int(self.limits[0]) ** 2
        return sum(int(limit) ** 2 for limit in self.limits)

    def sums(self, work: Work, name: str) -> tuple[Integers, ...]:
        """Add up the results of `work` on quantised records (n, dim), in one pass.

        `name` is for the progress bar.
        """
        return self._sums(lambda chunk: work(self.quantised(chunk)), name)

    def sums_of_blocks(self, work: BlockWork, name: str) -> tuple[Integers, ...]:
        """Add up the results of `work` on small blocks, which stay in the cache, in one pass."""
        return self._sums(lambda chunk: work(self._small_blocks(chunk)), name)

    def _sums(
        self, work: Callable[[Block], tuple[Integers, ...]], name: str
    ) -> tuple[Integers, ...]:
        if self._is_on_spark:
            return self._sums_on_spark(work, name)
        total: tuple[Integers, ...] | None = None
        rows = max(1, _CHUNK_VALUES // self.dim)
        for sums in in_threads(work, chunks(self.blocks(name), rows), self._n_threads):
            total = sums if total is None else added(total, sums)
        return work(np.zeros((0, self.dim))) if total is None else total

    def _sums_on_spark(
        self, work: Callable[[Block], tuple[Integers, ...]], name: str
    ) -> tuple[Integers, ...]:
        """Add up on the workers: each sends the sums of its records and their number."""
        self._progress(name, 0)
        compute = partial(_part_sums, work, max(1, _CHUNK_VALUES // self.dim))
        total, n_records = work(np.zeros((0, self.dim))), 0
        is_first = self._n_records is None
        for sums, count in self._table.data.each(compute, note=is_first):
            n_records += count
            total = total if sums is None else added(total, sums)
            self._progress(name, count)
        self._check_number(n_records)
        return total

    def changed(self, change: Callable[[Block], Block], name: str) -> Iterable[Block] | OnSpark:
        """Read the records as they are, in one pass, and apply `change`, for a sketch.

        The result for a record must depend on that record alone.
        """
        if self._is_on_spark:
            self._progress(name, 0)
            pieces = partial(_changed_pieces, change)
            return self._table.data.mapped(pieces)  # type: ignore[no-any-return]
        return chain.from_iterable(_changed_pieces(change, block) for block in self.blocks(name))

    def require_here(self, method: str) -> None:
        """Refuse records on a cluster for methods that read them in one process."""
        if self._is_on_spark:
            raise ParameterError(
                f"{method} reads the records in one process, and these are on Spark; use "
                "`method='pipeline'`, 'cells', 'lloyd', 'grid' or 'sketch'"
            )

    def blocks(self, name: str) -> Iterator[npt.NDArray[Any]]:
        """Read the records as they are, in one pass."""
        self.require_here("this method")
        self._progress(name, 0)
        n_records = 0
        for block in self._read():
            if block.shape[0]:
                n_records += block.shape[0]
                yield block
                self._progress(name, block.shape[0])
        self._check_number(n_records)

    def _check_number(self, n_records: int) -> None:
        """Check that a pass has read as many records as the first one."""
        if self._n_records not in (None, n_records):
            raise RecordError(
                "records are read several times, and their number has changed since the first "
                "time; give a table that stays as it is, not a stream"
            )
        self._n_records = n_records
        if not n_records and self._selection.neighbours == "replace":
            raise RecordError(
                "there are no records; with `neighbours='replace'` their number is public and must "
                "be at least 1"
            )

    def _read(self) -> Iterator[Any]:
        selection = self._selection
        if self._n_records is not None:  # later passes read the same records
            selection = replace(selection, noter=None)
        return read_blocks(self._table, selection)

    def quantised(self, block: npt.NDArray[Any]) -> WholeFloats:
        """Quantise records (n, dim) to whole numbers."""
        return self._in_box(self._quantise.whole_numbers(block))

    def _small_blocks(self, block: npt.NDArray[Any]) -> Iterator[WholeFloats]:
        return map(self._in_box, self._quantise.blocks_of_whole_numbers(block))

    def _in_box(self, records: WholeFloats) -> WholeFloats:
        if self._box_limits is not None:  # this shortens records: they stay in the ball
            np.clip(records, -self._box_limits, self._box_limits, out=records)
        return records


def _part_sums(
    work: Callable[[Block], tuple[Integers, ...]], rows: int, blocks: Iterable[Block]
) -> tuple[tuple[Integers, ...] | None, int]:
    """Return the sums over the records of one part, None if there are none, and their number."""
    total: tuple[Integers, ...] | None = None
    n_records = 0
    for chunk in chunks(blocks, rows):
        n_records += len(chunk)
        sums = work(chunk)
        total = sums if total is None else added(total, sums)
    return total, n_records


def _no_progress(name: str, count: int) -> None:
    """Report nothing."""


def _changed_pieces(change: Callable[[Block], Block], block: Block) -> Iterator[Block]:
    for first in range(0, len(block), _CHANGED_ROWS):
        yield change(block[first : first + _CHANGED_ROWS])


def added(total: tuple[Integers, ...], sums: tuple[Integers, ...]) -> tuple[Integers, ...]:
    """Add the results of two blocks."""
    return tuple(saturating_add(a, b) for a, b in zip(total, sums, strict=True))
